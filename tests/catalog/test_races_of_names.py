"""Processes and threads create or change collections concurrently: a name has one collection, and no change is lost."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.expectations.reports import settings
from tests.lakes.places import store_root, write_in_the_past
from tests.stops import stop_at
from tests.sweeps import swept
from tidelake.catalog import catalog as catalogs
from tidelake.catalog import rename as renames
from tidelake.catalog.catalog import Catalog
from tidelake.catalog.handles import change_handles, read_handles
from tidelake.catalog.name_log import Binding, NameLog
from tidelake.errors import CommitRefused, Conflict, DamagedLog, DamagedTable, UnknownCollection
from tidelake.integrity.verification import Verification, repair_name, verify_name
from tidelake.storage import blobs
from tidelake.storage.location import UNFINISHED
from tidelake.store.acknowledged import ACKED
from tidelake.store.commit import OpenTable
from tidelake.store.decision import Count
from tidelake.store.entry import Entry
from tidelake.store.failpoints import on_reach
from tidelake.store.layout import RUN, Store
from tidelake.store.state import SINCE
from tidelake.store.sweep import sweep_names
from tidelake.store.table_log import LOG, check_log, read_entry

SPEC = settings("plain").spec()
CREATORS, CHANGES = 4, 5


def at_once(act: Callable[..., Any], *arguments: list[Any]) -> None:
    """Call a function in concurrent processes, each with one item of every list; every call must succeed."""
    fork = multiprocessing.get_context("spawn")
    processes = [fork.Process(target=act, args=given) for given in zip(*arguments, strict=True)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(processes)


def create(root: str, name: str) -> None:
    Catalog(Store(root)).open_or_create(replace(SPEC, name=name))


def decide(root: str, name: str, first: int) -> None:
    for time in range(first, first + CHANGES):
        Catalog(Store(root)).decide(name, Count(time=time, count=0, reason="tested", at_ms=0))


@pytest.mark.parametrize("creators", swept([2, CREATORS], [2]))
def test_one_of_several_processes_that_create_a_name_wins_and_the_others_use_its_collection(
    tmp_path: Path, creators: int
) -> None:
    at_once(create, [str(tmp_path)] * creators, ["prices"] * creators)
    catalog = Catalog(Store(tmp_path))
    (entry,) = catalog.entries()
    assert blobs.list_names(catalog.store.collections) == [entry.id]
    assert entry.tables_made and catalog.orphans() == []
    assert check_log(NameLog.of(catalog.store, "prices").path) == 2


def test_changes_to_one_collection_by_several_processes_are_all_kept(tmp_path: Path) -> None:
    create(str(tmp_path), "prices")
    at_once(decide, [str(tmp_path)] * 2, ["prices"] * 2, [0, CHANGES])
    catalog = Catalog(Store(tmp_path))
    decisions = catalog.find("prices").entry.decisions
    found = {decision.time if isinstance(decision, Count) else decision for decision in decisions}
    assert found == set(range(2 * CHANGES))
    check_log(catalog.find("prices").paths.handles)


def test_changes_to_different_collections_do_not_conflict(tmp_path: Path) -> None:
    names, reached = [f"c{at}" for at in range(CREATORS)], list[str]()
    on_reach(reached.append)
    try:
        with ThreadPoolExecutor(CREATORS) as threads:
            list(threads.map(create, [str(tmp_path)] * CREATORS, names))
            list(threads.map(decide, [str(tmp_path)] * CREATORS, names, [0] * CREATORS))
    finally:
        on_reach(None)
    # Only failpoints show whether there was a conflict: a failed attempt makes no version, and its run is deleted.
    assert reached.count("catalog.after_conflict") == 0
    assert reached.count("commit.before_call.handles") == CREATORS * (2 + CHANGES)
    catalog = Catalog(Store(tmp_path))
    assert [entry.name for entry in catalog.entries()] == names
    for name in names:
        table = OpenTable(catalog.find(name).paths.handles)
        assert table.version == 2 + CHANGES  # the first entry, `tables_made`, and each decision
        runs = {name for name in blobs.list_names(table.path) if name.startswith(f"{RUN}=")}
        assert len(runs) == 2 + CHANGES, "each version has one run"
    assert OpenTable(catalog.store.catalog).version == 0


@pytest.mark.parametrize(
    ("place", "visits"),
    [
        *(("table.after_create.catalog", 1), ("names.after_entry", 1), ("names.after_marker", 1)),
        *(("names.after_bound", 1), ("catalog.after_name", 1), ("table.after_create.handles", 1)),
        *(("commit.after_call.handles", 1), ("catalog.after_handles", 1), ("names.after_entry", 2)),
        *(("names.after_marker", 2), ("table.after_create.updates", 1), ("catalog.after_commit", 1)),
    ],
)
def test_a_creation_that_was_killed_is_finished_by_the_next_call_with_the_same_id(
    any_store: Path, place: str, visits: int
) -> None:
    catalog = Catalog(Store(store_root(any_store)))
    stop_at(place, lambda: catalog.open_or_create(SPEC), visits)
    begun = NameLog.of(catalog.store, "prices").binding
    assert catalog.orphans() == []
    collection = catalog.open_or_create(SPEC)
    assert begun is None or begun.id == collection.entry.id
    assert catalog.find("prices").entry == collection.entry
    assert blobs.list_names(catalog.store.collections) == [collection.entry.id]
    assert blobs.list_names(catalog.store.bound_names) == ["prices"]


def test_a_collection_that_is_being_created_is_unknown_to_readers(tmp_path: Path) -> None:
    catalog = Catalog(Store(tmp_path))
    stop_at("names.after_bound", lambda: catalog.open_or_create(SPEC))
    assert (catalog.get("prices"), catalog.entries()) == (None, [])
    with pytest.raises(UnknownCollection):
        catalog.update("prices", lambda entry: entry)


def test_a_name_is_bound_only_once_from_the_same_state(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first, second = NameLog.of(store, "a"), NameLog.of(store, "a")
    first.commit(Binding(name="a", id="1"))
    with pytest.raises(Conflict, match="another commit was already acknowledged"):
        second.commit(Binding(name="a", id="2"))
    blobs.delete_folder(first.path / ACKED)  # as if the other process had only just written the entry
    with pytest.raises(Conflict, match="another process bound the name first"):
        second.commit(Binding(name="a", id="2"))
    log = NameLog.of(store, "a")
    assert log.binding == Binding(name="a", id="1")
    with pytest.raises(Conflict):
        second.commit(Binding(name="a", id="2"))
    log.commit(Binding(name="a", id="3"))
    assert check_log(log.path) == 2


def bind_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have another process commit first, each time that a name is bound."""
    commit = NameLog.commit

    def commit_second(log: NameLog, binding: Binding) -> None:
        name = binding.name
        commit(NameLog.of(log.store, name), log.binding or Binding(name=name))
        commit(log, binding)

    monkeypatch.setattr(NameLog, "commit", commit_second)


@pytest.mark.parametrize(
    ("failure", "act"),
    [
        ("bind 'b'", lambda catalog: catalog.rename("prices", "b")),
        ("bind the name 'prices'", lambda catalog: catalog.publish(catalog.find("prices"))),
        ("create 'b'", lambda catalog: catalog.open_or_create(replace(SPEC, name="b"))),
    ],
)
def test_a_change_of_a_name_that_loses_every_race_names_what_failed_and_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str, act: Callable[[Catalog], object]
) -> None:
    catalog = Catalog(Store(tmp_path))
    catalog.open_or_create(SPEC)
    for module in (catalogs, renames):
        monkeypatch.setattr(module, "ATTEMPTS_MAX", 2)
    bind_first(monkeypatch)
    with pytest.raises(Conflict) as caught:
        act(catalog)
    failed = f"2 attempts to {failure} failed"
    assert caught.value.fact == f"a change to {catalog.store.names} was not committed: {failed}"


def test_a_rename_that_is_given_up_each_time_names_what_failed_and_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog(Store(tmp_path))
    handles = catalog.open_or_create(SPEC).paths

    def give_up(place: str) -> None:
        if place == "rename.after_intent":
            change_handles(handles, lambda entry: entry.model_copy(update={"renaming": None}))

    monkeypatch.setattr(renames, "ATTEMPTS_MAX", 2)
    on_reach(give_up)
    try:
        with pytest.raises(Conflict) as caught:
            catalog.rename("prices", "b")
    finally:
        on_reach(None)
    failed = "2 attempts to rename 'prices' failed"
    assert caught.value.fact == f"a change to {catalog.store.names} was not committed: {failed}"


def test_a_lost_or_changed_newest_binding_is_reported_as_damage(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for id in "12":
        NameLog.of(store, "a").commit(Binding(name="a", id=id))
    entry = NameLog.of(store, "a").path.local / "_delta_log" / f"{1:020d}.json"
    good = entry.read_bytes()
    entry.unlink()
    with pytest.raises(DamagedLog, match="version 1 was acknowledged, but its entry is missing"):
        NameLog.of(store, "a")
    entry.write_bytes(good.replace(b'"id": "2"', b'"id": "7"'))
    with pytest.raises(DamagedLog, match="the entry of version 1 is not the one that was acknowledged"):
        NameLog.of(store, "a")


def test_a_name_without_markers_is_marked_again_only_if_an_operator_accepts_its_newest_entry(tmp_path: Path) -> None:
    store = Store(tmp_path)
    Catalog(store).open_or_create(SPEC)
    before = NameLog.of(store, "prices").binding
    blobs.delete_folder(store.names / "prices" / ACKED)
    with pytest.raises(DamagedLog, match="no version is marked as acknowledged"):
        NameLog.of(store, "prices")
    assert verify_name(store, "prices", found := Verification()) is None
    assert [(damage.table, damage.file) for damage in found.damages] == [("names/prices", ACKED)]
    assert repair_name(store, "prices") == []
    assert len(repair_name(store, "prices", accepts_newest_entry=True)) == 1
    assert NameLog.of(store, "prices").binding == before


def test_a_log_in_the_folder_of_another_name_is_reported_as_damage(tmp_path: Path) -> None:
    store = Store(tmp_path)
    Catalog(store).divide()
    NameLog.of(store, "a").commit(Binding(name="a", id="1"))
    (store.names / "a").local.rename((store.names / "b").local)
    with pytest.raises(DamagedLog, match="it is the log of the name 'a'"):
        NameLog.of(store, "b")
    with pytest.raises(DamagedLog, match="it is missing, but the name was bound"):
        NameLog.of(store, "a")
    with pytest.raises(DamagedLog):
        Catalog(store).entries()


def test_swapped_handles_are_reported_as_damage(tmp_path: Path) -> None:
    catalog = Catalog(Store(tmp_path))
    first, second = (catalog.open_or_create(replace(SPEC, name=name)).paths for name in "ab")
    aside = tmp_path / "aside"
    first.handles.local.rename(aside)
    second.handles.local.rename(first.handles.local)
    aside.rename(second.handles.local)
    for name in "ab":
        with pytest.raises(DamagedTable, match="handles is damaged: it has the entry of the collection"):
            catalog.find(name)


def test_a_collection_whose_name_and_notes_are_lost_is_an_orphan(tmp_path: Path) -> None:
    catalog = Catalog(Store(tmp_path))
    for name in "ab":
        catalog.open_or_create(replace(SPEC, name=name))
    id = catalog.find("a").entry.id
    blobs.delete_folder(catalog.store.names / "a")
    with pytest.raises(DamagedLog):
        catalog.orphans()
    blobs.delete(catalog.store.bound_names / "a")
    assert catalog.orphans() == [id]


def test_a_lost_catalog_is_never_recreated(tmp_path: Path) -> None:
    catalog = Catalog(Store(tmp_path))
    catalog.open_or_create(SPEC)
    blobs.delete_folder(catalog.store.catalog)
    for act in (catalog.entries, catalog.divide, catalog.upgrade, lambda: catalog.open_or_create(SPEC)):
        with pytest.raises(DamagedTable, match="catalog is damaged: it is missing, but there are collections"):
            act()
    assert not blobs.is_folder(catalog.store.catalog)


def test_a_change_to_an_unknown_collection_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnknownCollection):
        Catalog(Store(tmp_path)).fence("prices", None)
    assert list(tmp_path.iterdir()) == []


def test_an_entry_keeps_its_name_and_its_id(tmp_path: Path) -> None:
    catalog = Catalog(Store(tmp_path))
    catalog.open_or_create(SPEC)
    for changes in ({"name": "other"}, {"id": "0"}):
        with pytest.raises(CommitRefused, match="cannot change the collection's name or id"):
            catalog.update("prices", partial(Entry.model_copy, update=changes))
    catalog.rename("prices", "other")
    with pytest.raises(UnknownCollection):
        catalog.update("prices", lambda entry: entry)
    assert [entry.name for entry in catalog.entries()] == ["other"]


def test_the_log_of_handles_states_since_and_the_epoch(tmp_path: Path) -> None:
    catalog = Catalog(Store(tmp_path))
    paths = catalog.open_or_create(SPEC).paths
    catalog.update("prices", lambda entry: entry.model_copy(update={"since": (5,), "epoch": 2}))
    table = OpenTable(paths.handles)
    assert (table.value(SINCE), table.value("epoch"), read_handles(paths).since) == (5, 2, (5,))
    assert read_entry(paths.handles, table.version) is not None
    catalog.update("prices", lambda entry: entry.model_copy(update={"since": ()}))
    assert read_handles(paths).since == ()


def test_unfinished_files_in_the_log_of_a_name_are_swept_once_they_are_old(tmp_path: Path) -> None:
    create(str(tmp_path), "prices")
    store = Catalog(Store(tmp_path)).store
    log = store.names / "prices"
    for folder in (log / LOG, log / ACKED, store.bound_names):
        write_in_the_past(folder / f"{UNFINISHED}{'a' * 32}", b"{", 2 * 86400.0)
        blobs.write(folder / f"{UNFINISHED}{'b' * 32}", b"{")
    sweep_names(store, ["prices"])
    for folder in (log / LOG, log / ACKED, store.bound_names):
        assert [name for name in blobs.list_names(folder) if name.startswith(UNFINISHED)] == [f"{UNFINISHED}{'b' * 32}"]
    assert NameLog.of(store, "prices").binding is not None
