"""`gc` deletes only garbage, and says why it keeps everything else, both on a disk and in an object store."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.expectations.reports import settings
from tests.lakes.early_sweeps import age, wait_until_older
from tests.lakes.held import HeldLake
from tests.lakes.places import store_root
from tests.report.published import publish
from tests.stops import stop_at
from tidelake.catalog.catalog import Catalog
from tidelake.catalog.handles import change_handles, read_handles
from tidelake.compact import garbage
from tidelake.compact.compaction import move_since
from tidelake.compact.garbage import Garbage, Item, collect_garbage
from tidelake.errors import UnknownCollection
from tidelake.read.holding import acquire, release
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store import dead_notes
from tidelake.store.commit import OpenTable
from tidelake.store.dead_notes import DEAD
from tidelake.store.entry import Entry
from tidelake.store.failpoints import on_reach
from tidelake.store.files import write_run
from tidelake.store.layout import RUN, CollectionPaths, Store, new_run
from tidelake.store.published import empty_published, read_table_state
from tidelake.store.state import UPPER
from tidelake.store.sweep import sweep

SPEC = settings("plain").spec()
DAY_S = 86_400.0
HOUR = timedelta(hours=1)


@pytest.fixture
def catalog(any_store: Path) -> Catalog:
    """A store with one collection, `prices`."""
    catalog = Catalog(Store(store_root(any_store)))
    catalog.open_or_create(SPEC)
    return catalog


def gc(catalog: Catalog, *named: str, dry_run: bool = False, retention_s: float = DAY_S) -> Garbage:
    return collect_garbage(catalog.store, named or ("prices",), dry_run, retention_s)


def summary_of(garbage: Garbage) -> list[tuple[str, str, bool]]:
    """The items, except those about the runs that swaps of handles always leave behind."""
    return [(item.kind, item.name, item.goes) for item in garbage.items if not item.place.endswith("/handles")]


def item_of(garbage: Garbage, kind: str) -> Item:
    (item,) = [item for item in garbage.items if item.kind == kind and not item.place.endswith("/handles")]
    return item


def state_of(root: Location) -> dict[str, bytes]:
    return {blob.location.path: blobs.read(blob.location) for blob in blobs.list_blobs(root)}


def rows_of(table: Location, version: int | None = None) -> int:
    options = blobs.delta_options(table)
    return int(DeltaTable(str(table), version=version, storage_options=options).to_pyarrow_table().num_rows)


def age_hold_by(paths: CollectionPaths, seconds: float) -> None:
    """Backdate the moment at which it was noted that nobody holds a dropped collection any more."""

    def earlier(entry: Entry) -> Entry:
        assert entry.dropped is not None and entry.dropped.unheld_at_ms is not None
        noted_ms = entry.dropped.unheld_at_ms - int(seconds * 1000)
        return entry.model_copy(update={"dropped": entry.dropped.model_copy(update={"unheld_at_ms": noted_ms})})

    change_handles(paths, earlier)


def dead_run(table: Location) -> str:
    """Write a run that no commit names."""
    run = new_run("proof", OpenTable(table).seq)
    write_run(table, run, pa.table({"_time": [1]}))
    wait_until_older(table)
    return run


def test_dead_runs_are_deleted_a_day_after_they_were_noted(catalog: Catalog) -> None:
    table = catalog.find("prices").paths.proofs
    run = dead_run(table)
    before = state_of(catalog.store.root)
    new = item_of(gc(catalog, dry_run=True), "dead_runs")
    assert "to be recorded by the next `tidelake gc` or compaction" in new.why and not new.goes and new.bytes
    assert state_of(catalog.store.root) == before
    for _ in range(2):
        assert "recorded now" in item_of(gc(catalog), "dead_runs").why
    noted = item_of(gc(catalog), "dead_runs")
    assert "1 run is no longer in use; readers of an earlier version have until 20" in noted.why and not noted.goes
    assert item_of(gc(catalog, dry_run=True, retention_s=-60.0), "dead_runs").goes
    assert blobs.list_blobs(table / f"{RUN}={run}")
    gone = item_of(gc(catalog, retention_s=-60.0), "dead_runs")
    assert gone.goes and gone.bytes == new.bytes and gone.place.endswith("/proofs")
    assert not blobs.list_blobs(table / f"{RUN}={run}")
    assert summary_of(gc(catalog)) == []


def test_a_dead_run_that_changed_since_it_was_noted_stays(tmp_path: Path) -> None:
    catalog = Catalog(Store(tmp_path))
    catalog.open_or_create(SPEC)
    table = catalog.find("prices").paths.proofs
    run = dead_run(table)
    for _ in range(2):
        gc(catalog)
    age(table / DEAD, 2 * DAY_S)
    assert dead_notes.notes_of(table)[f"{RUN}={run}"] is not None
    assert not item_of(gc(catalog, dry_run=True), "dead_runs").goes  # the files are younger than the note
    age(table / f"{RUN}={run}", 3 * DAY_S)
    blobs.delete_folder(table / f"{RUN}={run}")
    assert summary_of(gc(catalog, dry_run=True)) == []


def test_a_dead_run_that_a_hold_pins_stays(tmp_path: Path) -> None:
    lake = HeldLake.create(tmp_path / "lake", upper=10)
    catalog, table = lake.catalog, lake.stored.paths.updates
    run, row = new_run("merge", OpenTable(table).seq), {"_time": 1, "_diff": 1, "id": 1, "price": 1}
    OpenTable(table).commit({}, write_run(table, run, pa.Table.from_pylist([row], OpenTable(table).schema())))
    hold = lake.collection.acquire(at=3)
    hold.pin(OpenTable(table).seq, to=3)
    OpenTable(table).commit({}, removes=[run])
    name = lake.stored.entry.name
    for _ in range(2):
        gc(catalog, name)
    for dry_run in (True, False, True):
        pinned = item_of(gc(catalog, name, dry_run=dry_run, retention_s=-60.0), "dead_runs")
        assert "1 run is no longer in use, except by a subscription to a version that may contain it" in pinned.why
        assert not pinned.goes and blobs.list_blobs(table / f"{RUN}={run}")
    hold.drop()
    assert item_of(gc(catalog, name, retention_s=-60.0), "dead_runs").goes
    assert not blobs.list_blobs(table / f"{RUN}={run}")


def test_a_dead_run_stays_if_it_was_pinned_while_it_was_live_after_gc_had_read_the_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = HeldLake.create(tmp_path / "lake", upper=10)
    table = lake.stored.paths.updates
    run, row = new_run("merge", OpenTable(table).seq), {"_time": 1, "_diff": 1, "id": 1, "price": 1}
    OpenTable(table).commit({}, write_run(table, run, pa.Table.from_pylist([row], OpenTable(table).schema())))
    hold = lake.collection.acquire(at=3)

    def pin_and_merge(entry: Entry) -> None:
        """What other processes do while this `gc` sleeps for a day."""
        hold.pin(OpenTable(table).seq, to=3)
        OpenTable(table).commit({}, removes=[run])
        for _ in range(2):
            sweep(table)

    monkeypatch.setattr(garbage, "held_text", pin_and_merge)  # called right after the handles were read
    found = gc(lake.catalog, lake.stored.name, retention_s=-60.0)
    assert not item_of(found, "dead_runs").goes
    assert blobs.list_blobs(table / f"{RUN}={run}")


@pytest.mark.everywhere
def test_a_dropped_collection_is_deleted_a_day_after_its_last_hold(catalog: Catalog) -> None:
    collection = catalog.find("prices")
    OpenTable(collection.paths.updates).commit({UPPER: 5})
    held = acquire(catalog, collection.name, 3, HOUR, "report")
    publish(catalog)
    catalog.drop("prices")
    item = item_of(gc(catalog), "dropped")
    assert item.why.startswith("dropped at 20") and item.why.endswith(f"held by 'report' ({held.id})") and item.bytes
    release(catalog.store, "prices", held.token)
    dry = item_of(gc(catalog, dry_run=True), "dropped")
    assert dry.why.endswith("the waiting period for readers begins when the next `tidelake gc` records this")
    assert "nobody holds it, and readers have until 20" in item_of(gc(catalog), "dropped").why
    age_hold_by(collection.paths, 2 * DAY_S)
    before = state_of(catalog.store.root)
    dry_run = gc(catalog, dry_run=True)
    assert item_of(dry_run, "dropped").goes and not item_of(dry_run, "published").goes
    assert state_of(catalog.store.root) == before
    gone = gc(catalog)
    assert item_of(gone, "dropped").goes and gone.bytes_gone >= (item.bytes or 0) / 2
    assert blobs.list_names(collection.paths.root) == ["handles"]
    last = gc(catalog)
    assert (last.tombstones, summary_of(last)) == (1, [("published", "prices", False)])
    entry = read_handles(collection.paths)
    assert entry.dropped is not None and entry.dropped.storage == "gone"


def test_the_published_table_of_a_dropped_collection_is_emptied_and_deleted_a_week_later(
    tmp_path: Path,
) -> None:
    catalog = Catalog(Store(tmp_path))
    catalog.open_or_create(SPEC)
    collection, table = catalog.find("prices"), publish(catalog)
    catalog.drop("prices")
    gc(catalog)
    assert rows_of(table) == 2
    age_hold_by(collection.paths, 2 * DAY_S)
    item = item_of(gc(catalog), "published")
    assert "this call removed all rows of the table; readers of earlier versions have 7 days" in item.why
    assert rows_of(table) == 0
    assert rows_of(table, 0) == 2
    assert read_table_state(table).shown is None
    gc(catalog)
    age(table / DEAD, 8 * DAY_S)
    for folder in table.local.glob("publish-*"):
        age(table / folder.name, 9 * DAY_S)
        os.utime(folder, (0, 0))
    assert item_of(gc(catalog), "published").goes
    assert not list(table.local.glob("publish-*"))
    assert summary_of(gc(catalog)) == []


def test_the_published_table_of_a_new_collection_with_the_same_name_stays(catalog: Catalog) -> None:
    collection = catalog.find("prices")
    publish(catalog)
    catalog.drop("prices")
    age_hold_by(collection.paths, 2 * DAY_S)
    catalog.open_or_create(SPEC)
    table = publish(catalog)
    assert summary_of(gc(catalog)) == [("dropped", "prices", True)]
    assert rows_of(table) == 2
    catalog.rename("prices", "b")
    stays = item_of(gc(catalog, "b"), "published")
    assert stays.why.startswith("its collection is now called 'b', and publishes under that name") and not stays.goes
    assert rows_of(table) == 2


def test_the_table_that_a_new_collection_publishes_during_a_gc_stays(catalog: Catalog) -> None:
    collection = catalog.find("prices")
    publish(catalog)
    catalog.drop("prices")
    age_hold_by(collection.paths, 2 * DAY_S)
    tables: list[Location] = []

    def publish_anew(place: str) -> None:
        if place == "gc.after_folders":  # the logs of all names have been read
            on_reach(None)
            catalog.open_or_create(SPEC)
            tables.append(publish(catalog))

    on_reach(publish_anew)
    try:
        assert summary_of(gc(catalog)) == [("dropped", "prices", True)]
    finally:
        on_reach(None)
    assert [rows_of(table) for table in tables] == [2]


def test_rows_that_a_new_collection_publishes_after_its_name_was_read_stay(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = catalog.find("prices")
    publish(catalog)
    catalog.drop("prices")
    age_hold_by(collection.paths, 2 * DAY_S)
    tables: list[Location] = []

    def publish_first(table: Location, version: int) -> bool:
        catalog.open_or_create(SPEC)
        tables.append(publish(catalog))
        return empty_published(table, version)

    monkeypatch.setattr(garbage, "empty_published", publish_first)
    stays = item_of(gc(catalog), "published")
    assert "something has just been committed to this table" in stays.why and not stays.goes
    assert [rows_of(table) for table in tables] == [2]


def test_the_published_table_of_an_earlier_name_of_a_dropped_collection_is_emptied(catalog: Catalog) -> None:
    collection, table = catalog.find("prices"), publish(catalog)
    catalog.rename("prices", "b")
    other = publish(catalog, "b")
    assert item_of(gc(catalog, "b"), "published").why.startswith("its collection is now called 'b'")
    catalog.drop("b")
    age_hold_by(collection.paths, 2 * DAY_S)
    found = [item for item in gc(catalog, "b").items if item.kind == "published"]
    assert [(item.name, item.place, item.goes) for item in found] == [
        ("b", "tables/b", False),
        ("prices", "tables/prices", False),
    ]
    assert (rows_of(table), rows_of(other)) == (0, 0)


def test_an_orphaned_and_a_held_collection_stay(catalog: Catalog) -> None:
    stored = catalog.open_or_create(replace(SPEC, name="old"))
    OpenTable(stored.paths.updates).commit({UPPER: 9})
    held = acquire(catalog, stored.name, 3, HOUR, "report")
    move_since(catalog, stored, 0)
    found = gc(catalog)
    assert summary_of(found) == [("orphaned", "old", False), ("history", "old", False)]
    assert "drop it: `tidelake drop old --apply`" in item_of(found, "orphaned").why
    assert item_of(found, "history").why == f"since stays at 3: held by 'report' ({held.id})"
    assert summary_of(gc(catalog, "prices", "old")) == [("history", "old", False)]


def test_an_unreadable_collection_stays_and_does_not_stop_other_deletions(catalog: Catalog) -> None:
    broken, other = catalog.open_or_create(replace(SPEC, name="b")), catalog.open_or_create(replace(SPEC, name="c"))
    run = dead_run(catalog.find("prices").paths.proofs)
    blobs.delete_folder(broken.paths.handles)
    blobs.delete_folder(other.paths.late / "_delta_log")
    blobs.delete_folder(catalog.store.names / "c")
    blobs.delete(catalog.store.bound_names / "c")
    gc(catalog, "prices", "b", "c", retention_s=-60.0)
    found = gc(catalog, "prices", "b", "c", retention_s=-60.0)
    kinds = {(item.kind, item.place): item for item in found.items}
    assert "it is missing, but a name still refers to its collection" in kinds["unreadable", f"c/{broken.entry.id}"].why
    assert ("lost", f"c/{other.entry.id}") in kinds
    gc(catalog, "prices", "b", "c", retention_s=-60.0)
    assert not blobs.list_blobs(catalog.find("prices").paths.proofs / f"{RUN}={run}")


@pytest.mark.parametrize("place", ["gc.after_publication", "gc.before_folders", "gc.after_folder", "gc.after_folders"])
def test_a_gc_that_was_killed_is_continued_by_the_next_gc(catalog: Catalog, place: str) -> None:
    collection, table = catalog.find("prices"), publish(catalog)
    catalog.drop("prices")
    age_hold_by(collection.paths, 2 * DAY_S)
    stop_at(place, lambda: gc(catalog))
    gc(catalog)
    assert blobs.list_names(collection.paths.root) == ["handles"]
    assert rows_of(table) == 0
    assert gc(catalog).tombstones == 1
    catalog.open_or_create(SPEC)
    assert catalog.find("prices").entry.id != collection.entry.id


def test_a_store_that_does_not_exist_has_no_garbage_and_is_not_created(tmp_path: Path) -> None:
    catalog = Catalog(Store(tmp_path / "store"))
    assert gc(catalog).as_json() == {"items": [], "tombstones": 0, "bytes_gone": 0}
    assert not (tmp_path / "store").exists()
    with pytest.raises(UnknownCollection):
        catalog.drop("prices")
    assert not (tmp_path / "store").exists()
