"""Renaming a collection: every race has one winner, and no kill loses a name or a collection."""

from __future__ import annotations

import multiprocessing
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.expectations.reports import settings
from tests.lakes.places import store_root
from tests.stops import stop_at
from tests.sweeps import swept
from tidelake.catalog.catalog import Catalog
from tidelake.catalog.handles import read_handles
from tidelake.catalog.name_log import NameLog
from tidelake.errors import ArgumentRefused, CollectionRenamed, Conflict, DamagedLog, NameTaken, UnknownCollection
from tidelake.integrity.lost_names import bind_again
from tidelake.integrity.verification import repair_name
from tidelake.storage import blobs
from tidelake.store.commit import OpenTable
from tidelake.store.decision import Count
from tidelake.store.format import HANDLES_VERSION
from tidelake.store.layout import Store
from tidelake.store.table_log import check_log

SPEC = settings("plain").spec()
PLACES = (
    *("commit.before_call.handles", "commit.after_call.handles", "commit.after_marker.handles"),
    *("rename.after_intent", "names.after_entry", "names.after_marker", "names.after_bound"),
    *("rename.after_name", "rename.after_handles"),
)


@pytest.fixture
def catalog(any_store: Path) -> Catalog:
    """A store with one collection, `prices`."""
    catalog = Catalog(Store(store_root(any_store)))
    catalog.open_or_create(SPEC)
    return catalog


def names_of(catalog: Catalog) -> dict[str, str]:
    """The id of each collection, by name. Checks that both lookups agree, and that no log has a gap."""
    found = {entry.name: entry.id for entry in catalog.entries()}
    assert {name: catalog.find(name).entry.id for name in found} == found
    assert catalog.orphans() == []
    for name in blobs.list_names(catalog.store.names):
        check_log(NameLog.of(catalog.store, name).path)
    return found


@pytest.mark.everywhere
def test_a_renamed_collection_keeps_its_id_and_its_earlier_name_is_free(catalog: Catalog) -> None:
    before = catalog.find("prices").entry
    after = catalog.rename("prices", "old_prices")
    (earlier,) = after.earlier_names
    assert earlier.name == "prices"
    assert after == before.model_copy(update={"name": "old_prices", "earlier_names": (earlier,)})
    assert names_of(catalog) == {"old_prices": before.id}
    assert catalog.get("prices") is None
    catalog.decide("old_prices", Count(time=1, count=0, reason="tested", at_ms=0))
    fresh = catalog.open_or_create(SPEC).entry
    assert names_of(catalog) == {"old_prices": before.id, "prices": fresh.id} and fresh.id != before.id
    assert OpenTable(catalog.store.collection(before.id).handles).format == HANDLES_VERSION


def test_a_completed_rename_is_not_repeated(catalog: Catalog) -> None:
    catalog.rename("prices", "b")
    version = NameLog.of(catalog.store, "b").version
    assert catalog.rename("prices", "b").name == "b"
    assert NameLog.of(catalog.store, "b").version == version
    catalog.rename("b", "prices")  # and back
    assert list(names_of(catalog)) == ["prices"]


def test_a_rename_is_refused_if_the_name_is_taken_or_the_collection_does_not_exist(catalog: Catalog) -> None:
    catalog.open_or_create(replace(SPEC, name="b"))
    before = names_of(catalog)
    for other in ("b", "prices"):
        with pytest.raises(NameTaken, match=f"already has a collection '{other}'\nhint: choose another name"):
            catalog.rename({"b": "prices", "prices": "b"}[other], other)
    with pytest.raises(UnknownCollection):
        catalog.rename("visits", "c")
    catalog.rename("b", "c")
    with pytest.raises(CollectionRenamed, match="'b' was renamed to 'c'"):
        catalog.rename("b", "d")
    assert names_of(catalog) == {"prices": before["prices"], "c": before["b"]}
    assert catalog.find("prices").entry.renaming is None


def test_a_rename_to_the_present_name_is_refused_before_anything_is_written(catalog: Catalog) -> None:
    before, handles = catalog.find("prices").entry, catalog.find("prices").paths.handles
    versions = NameLog.of(catalog.store, "prices").version, OpenTable(handles).seq
    with pytest.raises(ArgumentRefused, match="other is 'prices', which the collection already has\nhint: "):
        catalog.rename("prices", "prices")
    assert catalog.find("prices").entry == before
    assert (NameLog.of(catalog.store, "prices").version, OpenTable(handles).seq) == versions
    catalog.rename("prices", "b")
    with pytest.raises(CollectionRenamed, match="'prices' was renamed to 'b'"):
        catalog.rename("prices", "prices")
    with pytest.raises(UnknownCollection):
        catalog.rename("visits", "visits")


def test_a_collection_that_was_renamed_there_and_back_answers_like_any_other(catalog: Catalog) -> None:
    id = catalog.find("prices").entry.id
    catalog.rename("prices", "b")
    catalog.rename("b", "prices")
    assert catalog.rename("b", "prices").earlier_names == catalog.find("prices").entry.earlier_names  # complete already
    with pytest.raises(CollectionRenamed, match="'b' was renamed to 'prices'"):
        catalog.rename("b", "c")
    assert names_of(catalog) == {"prices": id}
    assert catalog.open_or_create(replace(SPEC, name="b")).entry.id != id
    with pytest.raises(NameTaken):
        catalog.rename("prices", "b")


def test_a_rename_is_refused_while_the_name_is_being_created(catalog: Catalog) -> None:
    stop_at("catalog.after_name", lambda: catalog.open_or_create(replace(SPEC, name="b")))
    with pytest.raises(NameTaken):
        catalog.rename("prices", "b")
    catalog.open_or_create(replace(SPEC, name="b"))
    assert sorted(names_of(catalog)) == ["b", "prices"]


def test_an_unknown_store_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(UnknownCollection):
        Catalog(Store(tmp_path)).rename("prices", "b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.everywhere
@pytest.mark.parametrize("place", swept(PLACES, ["names.after_entry", "rename.after_name"]))
def test_a_rename_that_was_killed_is_finished_by_the_next_call(catalog: Catalog, place: str) -> None:
    id = catalog.find("prices").entry.id
    stop_at(place, lambda: catalog.rename("prices", "b"))
    assert list(names_of(catalog).values()) == [id]
    assert catalog.rename("prices", "b").id == id
    assert names_of(catalog) == {"b": id}
    assert {"prices", "b"} <= set(blobs.list_names(catalog.store.bound_names))


@pytest.mark.parametrize("place", PLACES)
def test_taking_the_name_after_a_kill_never_loses_the_renamed_collection(catalog: Catalog, place: str) -> None:
    id = catalog.find("prices").entry.id
    stop_at(place, lambda: catalog.rename("prices", "b"))
    owner = catalog.open_or_create(replace(SPEC, name="b")).entry.id
    found = names_of(catalog)
    assert found["b"] == owner and id in found.values()
    if owner != id:
        with pytest.raises(NameTaken):
            catalog.rename("prices", "b")
        assert names_of(catalog) == {"b": owner, "prices": id}
        assert read_handles(catalog.store.collection(id)).renaming is None


@pytest.mark.parametrize("place", PLACES)
def test_another_rename_after_a_kill_does_not_lose_the_collection(catalog: Catalog, place: str) -> None:
    id = catalog.find("prices").entry.id
    stop_at(place, lambda: catalog.rename("prices", "b"))
    has_begun = place != "commit.before_call.handles"
    if has_begun:
        with pytest.raises(CollectionRenamed, match="'prices' was renamed to 'b'"):
            catalog.rename("prices", "c")
    else:
        catalog.rename("prices", "c")
    assert names_of(catalog) == {"b" if has_begun else "c": id}


def test_a_lost_log_of_the_new_name_is_recreated(catalog: Catalog) -> None:
    id = catalog.rename("prices", "b").id
    blobs.delete_folder(catalog.store.names / "b")
    with pytest.raises(DamagedLog):
        catalog.find("b")
    repair_name(catalog.store, "b")
    assert names_of(catalog) == {"b": id}


def test_a_log_that_is_no_longer_lost_is_not_recreated(catalog: Catalog) -> None:
    bound = NameLog.of(catalog.store, "prices").binding
    with pytest.raises(Conflict, match=r"version 0 of .* was not committed: another process has already recreated"):
        bind_again(catalog.store, "prices", "the collection that the name had before")
    assert NameLog.of(catalog.store, "prices").binding == bound


def rename_or_create(root: str, name: str, other: str) -> None:
    catalog = Catalog(Store(root))
    with suppress(NameTaken, CollectionRenamed, UnknownCollection):
        if name:
            catalog.rename(name, other)
        else:
            catalog.open_or_create(replace(SPEC, name=other))


RACES = {
    "two names for one": [("a", "x"), ("a", "y"), ("a", "x")],
    "one name for two": [("a", "x"), ("b", "x"), ("", "x")],
    "in a circle": [("a", "b"), ("b", "a"), ("", "a")],
}


@pytest.mark.sweep
@pytest.mark.parametrize("race", RACES)
def test_races_of_processes_have_one_winner(tmp_path: Path, race: str) -> None:
    catalog = Catalog(Store(tmp_path))
    ids = {catalog.open_or_create(replace(SPEC, name=name)).entry.id for name in "ab"}
    spawn = multiprocessing.get_context("spawn")
    work = [spawn.Process(target=rename_or_create, args=(str(tmp_path), *call)) for call in RACES[race]]
    for process in work:
        process.start()
    for process in work:
        process.join()
    assert [process.exitcode for process in work] == [0] * len(work)
    found = names_of(catalog)
    assert ids <= set(found.values()) and len(set(found.values())) == len(found)
    assert all(entry.renaming is None for entry in catalog.entries())
    assert "x" in found or "y" in found or race == "in a circle"
