"""A dropped collection: its name is free at once, and its tables are deleted once nobody can be reading them."""

from __future__ import annotations

import time as clock
from datetime import timedelta

import pytest

from tests.lakes.held import HeldLake
from tests.lakes.lake import NAME
from tests.stops import stop_at
from tidelake import open_lake
from tidelake.catalog.drop import delete_tables, observe_dropped
from tidelake.catalog.handles import read_handles
from tidelake.errors import CapabilityDropped, CapabilityForeign, CollectionDropped, Fenced, UnknownCollection
from tidelake.integrity.lost_names import owner_of
from tidelake.storage import blobs
from tidelake.store.commit import OpenTable, is_table
from tidelake.store.layout import CollectionPaths
from tidelake.store.table_log import LOG

PLACES = (
    *("commit.before_call.handles", "commit.after_call.handles", "commit.after_marker.handles", "drop.after_handles"),
    *("commit.after_call.proofs", "commit.after_marker.updates", "drop.after_epoch", "drop.after_note"),
)


@pytest.fixture
def lake(held_lake: HeldLake) -> HeldLake:
    """A collection without rows, sealed up to 10."""
    return held_lake


def tables_of(paths: CollectionPaths) -> list[str]:
    return sorted(blobs.list_names(paths.root))


def test_the_name_of_a_dropped_collection_is_free_and_its_id_is_not(lake: HeldLake) -> None:
    stored = lake.stored
    assert lake.catalog.drop(NAME).since == ()
    assert (lake.catalog.get(NAME), lake.catalog.entries(), lake.catalog.orphans()) == (None, [], [])
    for call in (lake.collection.acquire, lake.collection.holds, lambda: lake.catalog.rename(NAME, "b")):
        with pytest.raises(UnknownCollection):
            call()
    fresh = lake.catalog.open_or_create(lake.collection.settings.spec())
    assert fresh.entry.id != stored.entry.id and fresh.entry.since == (0,)
    assert [entry.id for entry in lake.catalog.entries()] == [fresh.entry.id]
    assert (lake.catalog.orphans(), owner_of(lake.catalog.store, NAME)) == ([], fresh.entry.id)
    entry = read_handles(stored.paths)
    assert entry.dropped is not None and entry.dropped.unheld_at_ms is not None


def test_writers_that_have_the_collection_open_are_fenced(lake: HeldLake) -> None:
    stored = lake.stored
    lake.catalog.drop(NAME)
    for table in stored.tables:
        with pytest.raises(Fenced, match="whether the collection was fenced or dropped"):
            OpenTable(table).commit({}, epoch=stored.entry.epoch)


def test_a_collection_can_be_dropped_only_once(lake: HeldLake) -> None:
    first = lake.catalog.drop(NAME)
    assert lake.catalog.drop(NAME) == first
    with pytest.raises(UnknownCollection):
        lake.catalog.drop("visits")


def test_a_damaged_table_does_not_stop_a_drop(lake: HeldLake) -> None:
    paths = lake.stored.paths
    blobs.delete_folder(paths.proofs / "_delta_log")
    assert open_lake(lake.file).dropping(NAME).damaged is None
    blobs.delete_folder(paths.updates)
    assert open_lake(lake.file).dropping(NAME).rows == 0
    lake.catalog.drop(NAME)
    assert lake.catalog.get(NAME) is None
    assert delete_tables(paths, 0.0) and tables_of(paths) == ["handles"]


def test_the_tables_are_deleted_after_the_retention_period_and_the_handles_stay(lake: HeldLake) -> None:
    paths = lake.stored.paths
    before = tables_of(paths)
    lake.catalog.drop(NAME)
    assert not delete_tables(paths, 3600.0) and tables_of(paths) == before
    assert delete_tables(paths, 0.0) and tables_of(paths) == ["handles"]
    assert not delete_tables(paths, 0.0)
    assert read_handles(paths).dropped is not None
    assert (lake.catalog.get(NAME), lake.catalog.orphans()) == (None, [])
    assert lake.catalog.drop(NAME).dropped == read_handles(paths).dropped
    assert tables_of(paths) == ["handles"]


def test_a_hold_keeps_the_tables_of_a_dropped_collection_until_it_is_released(lake: HeldLake) -> None:
    held, other = lake.collection.acquire(at=4), lake.collection.acquire(at=5)
    paths = lake.stored.paths
    lake.catalog.drop(NAME)
    held.renew()
    held.downgrade(6)
    with pytest.raises(CollectionDropped, match=f"'{NAME}' was dropped at .*\nhint: `tidelake history {NAME}`"):
        held.clone()
    assert not delete_tables(paths, 0.0)
    held.drop()
    assert not delete_tables(paths, 0.0) and is_table(paths.updates)
    taken = lake.collection.capability(other.token)  # by its token, although the name is free
    lake.collection.renew(taken.token)
    lake.collection.release(taken.token)
    with pytest.raises(CapabilityDropped):
        lake.collection.release(taken.token)
    with pytest.raises(CapabilityDropped):
        held.clone()
    assert delete_tables(paths, 0.0) and not is_table(paths.updates)


def test_a_hold_on_a_dropped_collection_keeps_all_of_its_rows(lake: HeldLake) -> None:
    lake.append((1, 1, 1), (2, 3, 1))
    lake.append((3, 8, 1))
    held, paths = lake.collection.acquire(at=4), lake.stored.paths
    size = sum(file.bytes for file in OpenTable(paths.updates).files())
    opened = open_lake(lake.file)
    (before,) = opened.holds(NAME)
    assert (before.rows, before.bytes) == (0, 0)  # nothing could be merged yet
    lake.catalog.drop(NAME)
    (cost,) = opened.holds(NAME)
    assert (cost.id, cost.since, cost.rows, cost.bytes) == (held.id, 4, 3, size)
    blobs.delete_folder(paths.updates / LOG)
    (cost,) = opened.holds(NAME)
    assert (cost.id, cost.rows, cost.bytes) == (held.id, 0, 0), "damage hides no hold"
    held.drop()
    assert opened.holds(NAME) == []


def test_the_retention_period_begins_when_the_last_hold_has_ended(lake: HeldLake) -> None:
    held, paths = lake.collection.acquire(at=4), lake.stored.paths
    entry = lake.catalog.drop(NAME)
    assert entry.dropped is not None and entry.dropped.unheld_at_ms is None
    clock.sleep(0.05)
    released_ms = int(clock.time() * 1000)
    held.drop()
    noted = observe_dropped(paths).dropped
    assert noted is not None and noted.unheld_at_ms is not None and noted.unheld_at_ms >= released_ms - 20


def test_leases_on_a_dropped_collection_expire_by_the_stores_clock(lake: HeldLake) -> None:
    lake.collection.acquire(at=4, lease=timedelta(milliseconds=1))
    paths = lake.stored.paths
    lake.catalog.drop(NAME)  # a first sighting
    clock.sleep(0.01)
    observe_dropped(paths)  # a second, more than a lease later
    assert not read_handles(paths).is_held
    observe_dropped(paths)
    assert delete_tables(paths, 0.0)


def test_a_clock_that_was_set_back_restarts_the_retention_period(
    lake: HeldLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, real = lake.stored.paths, blobs.now_s
    monkeypatch.setattr(blobs, "now_s", lambda folder: real(folder) + 7200.0)
    lake.catalog.drop(NAME)
    monkeypatch.undo()
    assert not delete_tables(paths, 3600.0)
    noted = read_handles(paths).dropped
    assert noted is not None and noted.unheld_at_ms is not None and noted.unheld_at_ms <= clock.time() * 1000 + 1000


def test_if_a_new_collection_has_its_name_a_token_of_a_dropped_one_can_only_be_released(lake: HeldLake) -> None:
    held, paths = lake.collection.acquire(at=4), lake.stored.paths
    lake.catalog.drop(NAME)
    fresh = lake.catalog.open_or_create(lake.collection.settings.spec())
    other = lake.collection.acquire()
    before = read_handles(paths)
    for call in (lake.collection.capability, lake.collection.renew):
        with pytest.raises(CapabilityForeign, match=f"was dropped; another collection is now called '{NAME}'"):
            call(held.token)
    assert read_handles(paths) == before
    with pytest.raises(CollectionDropped, match=rf"'{NAME}' \(id {paths.root.name}\) was dropped .*\nhint: another"):
        held.clone()
    assert read_handles(paths) == before
    assert lake.collection.release(held.token)
    with pytest.raises(CapabilityDropped):
        held.clone()
    assert not lake.collection.release(other.token)
    assert not fresh.entry.is_held
    for text in (f"{'0' * 32}.1.2", "/tmp.1.2", f"{'z' * 32}.1.2"):
        with pytest.raises(CapabilityForeign):
            lake.collection.release(text)


@pytest.mark.parametrize("place", PLACES)
def test_a_drop_that_was_killed_is_finished_by_the_next_call(lake: HeldLake, place: str) -> None:
    stored = lake.stored
    stop_at(place, lambda: lake.catalog.drop(NAME))
    is_dropped = lake.catalog.get(NAME) is None
    assert is_dropped == (place != "commit.before_call.handles")
    lake.catalog.drop(NAME)
    assert (lake.catalog.get(NAME), lake.catalog.orphans()) == (None, [])
    for table in stored.tables:
        with pytest.raises(Fenced):
            OpenTable(table).commit({}, epoch=stored.entry.epoch)
    assert delete_tables(stored.paths, 0.0) and tables_of(stored.paths) == ["handles"]


@pytest.mark.parametrize("place", ["commit.after_call.handles", "gc.before_folders", "gc.after_folder"])
def test_a_deletion_that_was_killed_is_finished_by_the_next_one(lake: HeldLake, place: str) -> None:
    paths = lake.stored.paths
    lake.catalog.drop(NAME)
    stop_at(place, lambda: delete_tables(paths, 0.0))
    assert delete_tables(paths, 3600.0)  # already begun, so not postponed
    assert tables_of(paths) == ["handles"]


def test_a_drop_abandons_a_rename_that_was_killed(lake: HeldLake) -> None:
    stop_at("rename.after_name", lambda: lake.catalog.rename(NAME, "b"))
    lake.catalog.drop(NAME)
    assert (lake.catalog.get(NAME), lake.catalog.get("b"), lake.catalog.orphans()) == (None, None, [])


def test_a_hold_outlives_a_rename(lake: HeldLake) -> None:
    held = lake.collection.acquire(at=4)
    lake.catalog.rename(NAME, "b")
    held.renew()
    held.downgrade(5)
    with pytest.raises(CapabilityForeign, match=f"belongs to the collection 'b', not to '{NAME}'"):
        lake.collection.release(held.token)
    held.drop()
