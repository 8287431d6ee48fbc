"""A lake that was opened read-only writes nothing, and does not finish what an interrupted process left unfinished."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from obstore.store import MemoryStore

from tests.cli.commands import invoke
from tests.lakes.held import HeldLake
from tests.lakes.lake import NAME
from tests.lakes.whole_store import COLLECTIONS, WholeStore
from tests.sweeps import swept
from tidelake import open_lake
from tidelake.cli.doctor.lake import lake_findings
from tidelake.decisions import Count
from tidelake.errors import DamagedLog, LakeReadOnly, NotReclocked, StoreUnreadable, StoreUnwritable
from tidelake.lake import Lake, LakeCollection
from tidelake.lake.base import engine_errors
from tidelake.storage import blobs
from tidelake.storage.location import Location, locate
from tidelake.store.acknowledged import ACKED
from tidelake.store.commit import OpenTable, maintain
from tidelake.store.state import UPPER
from tidelake.store.table_log import entry_path, newest_version

READERS: dict[str, Callable[[LakeCollection], object]] = {
    "status": lambda collection: collection.status(),
    "explain": lambda collection: collection.explain(),
    "history": lambda collection: collection.history(),
    "quarantine": lambda collection: collection.quarantine(),
    "late": lambda collection: collection.late(),
    "holds": lambda collection: collection.holds(),
    "places": lambda collection: collection.places(),
    "since": lambda collection: collection.since,
    "verify": lambda collection: collection.verify(deep=True).damages,
}
"""Reads that work for collections of every family and framing."""
OTHER_READERS: dict[str, Callable[[LakeCollection], object]] = {
    "rows": lambda collection: collection.rows().rows.table(),
    "rows_between": lambda collection: collection.rows_between(1, 3).rows.table(),
    "updates": lambda collection: collection.updates(1).rows.table(),
    "subscribe": lambda collection: list(collection.subscribe(as_of=3, until=4)),
    "columns": lambda collection: collection.columns,
    "upper": lambda collection: collection.upper,
    "decisions": lambda collection: collection.decisions,
    "transactions": lambda collection: collection.transactions(),
    "times": lambda collection: collection.times(),
    "trace": lambda collection: collection.trace(NAME, 0, 0),
    "id": lambda collection: collection.id,
    "name": lambda collection: collection.name,
    "stored": lambda collection: collection.stored(),
    "path": lambda collection: collection.path,
    "publication": lambda collection: collection.publication,
    "view_sql": lambda collection: collection.view_sql("duckdb"),
}
LAKE_READERS: dict[str, Callable[[Lake], object]] = {
    "at": lambda lake: lake.at(),
    "query": lambda lake: lake.query(f"SELECT count(*) FROM {NAME}").table,
    "status": lambda lake: lake.status(),
    "orphaned": lambda lake: lake.orphaned(),
    "history": lambda lake: lake.history(ORPHAN),
    "stored": lambda lake: lake.stored(ORPHAN),
    "holds": lambda lake: lake.holds(ORPHAN),
    "dropping": lambda lake: lake.dropping(ORPHAN),
    "trace": lambda lake: lake.trace(NAME, 0, 0),
    "catalog": lambda lake: lake.catalog.entries(),
    "collection": lambda lake: lake.collection(NAME),
    "collections": lambda lake: lake.collections(),
    "open": lambda lake: Lake.open(lake.settings.file, read_only=True),
}
BY_SPARK = {"snapshot", "diff", "changes", "sql"}
"""Reads that need a session; they find their files in the same way as DuckDB's reads."""
ORPHAN = "visits"
"""A collection that the settings do not name."""


def everything_in(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """The bytes and the times of all files and folders."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        found[str(path.relative_to(folder))] = (
            status.st_mtime_ns,
            status.st_ino,
            path.read_bytes() if path.is_file() else b"",
        )
    return found


def forbid_writing(root: Path) -> None:
    """Remove the permission to write to a folder and everything below it. This does not stop the superuser."""
    for folder, _, files in os.walk(root):
        for name in (*files, "."):
            os.chmod(os.path.join(folder, name), 0o555)


def leave_unfinished(table: Location) -> None:
    """Remove the marker of a log's newest entry, and write a torn entry after it."""
    for marker in (table.local / ACKED).glob(f"{newest_version(table):020d}-*"):
        marker.unlink()
    tear(table)


def tear(table: Location) -> None:
    """Write a torn entry, such as a power loss leaves, after the newest entry of a log."""
    entry_path(table, newest_version(table) + 1).local.write_text('{"commitInfo": {')


@pytest.fixture
def lake(tmp_path: Path) -> HeldLake:
    """A collection whose newest commit has no marker and is followed by a torn entry, as after a power loss."""
    lake = HeldLake.create(tmp_path / "lake", upper=5)
    lake.collection.acquire(at=2)
    lake.seal(7)
    leave_unfinished(lake.stored.paths.updates)
    return lake


def test_reading_leaves_every_byte_as_it_is_and_stops_at_the_last_acknowledged_entry(lake: HeldLake) -> None:
    before = everything_in(lake.root)
    collection = open_lake(lake.file, read_only=True).collection(NAME)
    for name, read in READERS.items():
        read(collection)
        assert everything_in(lake.root) == before, name
    assert collection.upper == 5
    assert collection.verify(deep=True).damages == []
    for command in ("status", "explain", "history", "quarantine", "late", "holds", "verify", "metrics"):
        arguments = () if command == "metrics" else (NAME,)
        assert invoke(command, *arguments, "--config", str(lake.file)).exit_code == 0, command
        assert everything_in(lake.root) == before, command
    assert lake.collection.upper == 7  # a lake that can write finishes the commit
    assert everything_in(lake.root) != before


def test_a_torn_first_entry_is_not_a_table_yet(tmp_path: Path) -> None:
    table = locate(tmp_path).read_only / "t"
    entry_path(table, 0).local.parent.mkdir(parents=True)
    entry_path(table, 0).local.write_text("{")
    with pytest.raises(Exception, match="there is no table"):
        OpenTable(table)
    assert entry_path(table, 0).local.read_text() == "{"


def test_a_checkpoint_that_cannot_be_trusted_stays_where_it_is(lake: HeldLake) -> None:
    table = lake.stored.paths.handles
    for _ in range(32):
        OpenTable(table).commit({})
    maintain(table)
    (checkpoint,) = (table.local / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(b"not Parquet")
    before = everything_in(lake.root)
    assert open_lake(lake.file, read_only=True).collection(NAME).since == 0
    assert everything_in(lake.root) == before


def test_a_copy_without_permission_to_write_can_be_read_and_every_change_is_refused(
    lake: HeldLake, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(lake.root, copy)
    forbid_writing(copy)
    before = everything_in(copy)
    collection = open_lake(copy / lake.file.name, read_only=True).collection(NAME)
    assert [held.since for held in collection.holds()] == [2]
    calls: list[Callable[[], object]] = [
        lambda: collection.acquire(at=3),
        lambda: collection.fence("writer-1"),
        lambda: OpenTable(Location(collection.path).read_only / "updates").commit({UPPER: 9}),
    ]
    for call in calls:
        with pytest.raises(LakeReadOnly, match=r"the lake was opened read-only, so .* cannot be written"):
            call()
    assert everything_in(copy) == before


@pytest.fixture
def orphaned(tmp_path: Path) -> HeldLake:
    """A lake with two collections, of which its settings name one; a power loss has torn the logs of both."""
    lake = HeldLake.create(tmp_path / "lake")
    lake.append((1, 3, 1), upper=5)
    lake.seal(7)
    lake.collection.acquire(at=2)
    document = yaml.safe_load(lake.file.read_text())
    both = {NAME: document["collections"][NAME], ORPHAN: document["collections"][NAME]}
    lake.file.write_text(yaml.safe_dump(document | {"collections": both}))
    lake.catalog.open_or_create(open_lake(lake.file).settings.collection(ORPHAN).spec())
    open_lake(lake.file).collection(ORPHAN).acquire(at=2)
    lake.file.write_text(yaml.safe_dump(document))
    store = lake.catalog.store
    found = [lake.stored, lake.catalog.find(ORPHAN)]
    for table in (*(each.paths.handles for each in found), *(each.paths.updates for each in found)):
        leave_unfinished(table)
    for name in (NAME, ORPHAN):
        tear(store.log_of_name(name))
    return lake


LOOKING: Sequence[Sequence[str]] = (
    *(("status",), ("status", "--json"), ("metrics",), ("drop", ORPHAN), ("drop", NAME), ("history", ORPHAN)),
    *(("resolve", "list", NAME), ("repair", NAME), ("verify", NAME)),
)
"""Commands that only look, even if the same command writes with another option."""


@pytest.mark.parametrize("may_write", [True, False])
def test_commands_that_only_look_leave_every_byte_as_it_is(orphaned: HeldLake, may_write: bool) -> None:
    if not may_write:
        forbid_writing(orphaned.root)
    before = everything_in(orphaned.root)
    for words in LOOKING:
        done = invoke(*words, "--config", str(orphaned.file))
        assert done.exit_code == 0, (words, done.output)
        assert everything_in(orphaned.root) == before, words
    found = {finding.check: finding.level for finding in lake_findings(orphaned.file)}
    assert found[f"collection {NAME}"] == "ok" and "names" not in found
    # The doctor tests the disk with a nameless file; if the file system has no such files, the folder's time changes.
    assert everything_in(orphaned.root) | {"store": before["store"]} == before
    if may_write:
        assert [each.error for each in open_lake(orphaned.file).orphaned()] == [None]
        assert everything_in(orphaned.root) != before  # a lake that can write finishes the commits


def test_every_read_of_a_read_only_lake_leaves_every_byte_as_it_is(orphaned: HeldLake) -> None:
    before = everything_in(orphaned.root)
    lake = open_lake(orphaned.file, read_only=True)
    for name, read in LAKE_READERS.items():
        read(lake)
        assert everything_in(orphaned.root) == before, name
    for name, ask in (READERS | OTHER_READERS).items():
        with suppress(NotReclocked):
            ask(lake.collection(NAME))
        assert everything_in(orphaned.root) == before, name


def _flipped(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)


def _damage_entry(lake: HeldLake) -> None:
    table = lake.stored.paths.updates
    _flipped(entry_path(table, newest_version(table)).local)


def _damage_file(lake: HeldLake) -> None:
    lake.append((1, 11, 1), upper=12)
    table = lake.stored.paths.updates
    (file,) = OpenTable(table).files()
    _flipped((table / file.path).local)


def _look_older(lake: HeldLake) -> None:
    """Make the tables of the collection look as if an earlier version of Tidelake had created them."""
    lake.catalog.update(NAME, lambda entry: entry.model_copy(update={"tables_format": 1}))


def _decided(lake: HeldLake) -> None:
    lake.collection.decide(Count(time=20, count=1, reason="known"))


BEFORE: dict[str, Callable[[HeldLake], None]] = {
    "withdraw": _decided,
    "repair": _damage_entry,
    "repair_files": _damage_file,
    "upgrade": _look_older,
}
"""What has to happen before some of the calls have anything to write."""
WRITERS: dict[str, Callable[[LakeCollection, str], object]] = {
    "acquire": lambda collection, _: collection.acquire(at=9),
    "capability": lambda collection, token: collection.capability(token),
    "renew": lambda collection, token: collection.renew(token),
    "release": lambda collection, token: collection.release(token),
    "decide": lambda collection, _: collection.decide(Count(time=21, count=1, reason="known")),
    "withdraw": lambda collection, _: collection.withdraw(20),
    "fence": lambda collection, _: collection.fence("writer-1"),
    "repair": lambda collection, _: collection.repair(),
    "repair_files": lambda collection, _: collection.repair_files(cast(Any, None)),
}
LAKE_WRITERS: dict[str, Callable[[Lake, str], object]] = {
    "renew": lambda lake, token: lake.renew(NAME, token),
    "release": lambda lake, token: lake.release(NAME, token),
    "rename": lambda lake, _: lake.rename(NAME, "costs"),
    "drop": lambda lake, _: lake.drop(NAME),
    "gc": lambda lake, _: lake.gc(),
    "upgrade": lambda lake, _: lake.upgrade(),
}


def called(lake: Lake, kind: str, name: str, token: str) -> object:
    """The result of a call that writes."""
    return LAKE_WRITERS[name](lake, token) if kind == "lake" else WRITERS[name](lake.collection(NAME), token)


@pytest.mark.parametrize(
    ("kind", "name"), [*(("collection", name) for name in WRITERS), *(("lake", name) for name in LAKE_WRITERS)]
)
def test_every_call_that_writes_is_refused_by_a_read_only_lake(held_lake: HeldLake, kind: str, name: str) -> None:
    token = held_lake.collection.acquire(at=4).token
    if name in BEFORE:
        BEFORE[name](held_lake)
    before = everything_in(held_lake.root)
    with pytest.raises(LakeReadOnly, match=r"the lake was opened read-only, so .* cannot be written"):
        called(open_lake(held_lake.file, read_only=True), kind, name, token)
    assert everything_in(held_lake.root) == before
    if name != "repair_files":  # restoring a file takes a session
        called(open_lake(held_lake.file), kind, name, token)
        assert everything_in(held_lake.root) != before


def test_every_public_method_is_known_to_read_or_to_write() -> None:
    """A new method belongs in one of the lists above, which say how to call it."""
    lake, collection = ({name for name in dir(each) if not name.startswith("_")} for each in (Lake, LakeCollection))
    assert lake - BY_SPARK == LAKE_READERS.keys() | LAKE_WRITERS.keys()
    assert collection - BY_SPARK == READERS.keys() | OTHER_READERS.keys() | WRITERS.keys()
    assert not LAKE_READERS.keys() & LAKE_WRITERS.keys()
    assert not (READERS | OTHER_READERS).keys() & WRITERS.keys()


SOME = ("append_only", "debezium", "raw_upsert_json")


@pytest.mark.parametrize("names", swept([SOME, tuple(COLLECTIONS)], [SOME], ids=lambda names: f"{len(names)}"))
def test_every_family_and_framing_reads_the_same(whole: WholeStore, tmp_path: Path, names: tuple[str, ...]) -> None:
    lake = whole.copy(tmp_path / "lake", *names)
    before = everything_in(lake.store)
    reads = {name: open_lake(lake.config, read_only=True).collection(name) for name in names}
    for name, collection in reads.items():
        assert (collection.since, collection.upper) == (lake.collection(name).since, lake.collection(name).upper)
        for read in READERS.values():
            read(collection)
    assert everything_in(lake.store) == before


WRITES: dict[str, Callable[[Location], object]] = {
    "create": lambda place: blobs.create(place, b"x"),
    "write": lambda place: blobs.write(place, b"x"),
    "replace": lambda place: blobs.replace(place, b"x"),
    "update": lambda place: blobs.update(place, lambda _: b"x"),
    "creating": lambda place: blobs.creating(place).__enter__(),
    "writing": lambda place: blobs.writing(place).__enter__(),
    "upload": lambda place: blobs.upload(place, place),
    "delete": blobs.delete,
    "delete_all": lambda place: blobs.delete_all([place]),
    "delete_folder": blobs.delete_folder,
    "set_aside": lambda place: blobs.set_aside(place, place.parent / "aside"),
    "make_folder": blobs.make_folder,
    "make_durable": lambda place: blobs.make_durable([place]),
    "make_names_durable": lambda place: blobs.make_names_durable([place]),
    "now_s": blobs.now_s,
    "renew": blobs.renew,
    "check_conditional_writes": blobs.check_conditional_writes,
    "spark_write_options": blobs.spark_write_options,
}


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_no_function_of_the_seam_writes_to_a_read_only_place(tmp_path: Path, kind: str) -> None:
    root = locate(tmp_path) if kind == "disk" else blobs.mount("memory://read-only", MemoryStore())
    blobs.write(root / "folder/blob", b"1")
    (listed,) = blobs.list_blobs(root.read_only)
    (folder,) = blobs.list_folder(root.read_only).folders
    for place in (root.read_only / "folder/blob", listed.location, folder / "blob", (folder / "blob").parent / "blob"):
        for write in WRITES.values():
            with pytest.raises(LakeReadOnly):
                write(place)
    assert blobs.read(folder / "blob") == b"1"
    assert [blob.location.name for blob in blobs.list_blobs(root)] == ["blob"]


def test_a_failed_write_is_told_from_a_failed_read(tmp_path: Path) -> None:
    present, absent = tmp_path / "present", tmp_path / "absent"
    present.write_text("")
    errors = [OSError(code, "refused", str(present)) for code in (errno.EROFS, errno.ENOSPC)]
    errors += [
        OSError(code, "refused", str(path)) for code in (errno.EACCES, errno.EPERM) for path in (present, absent)
    ]
    for error in errors:
        with (
            pytest.raises(StoreUnwritable, match=r"(?s)cannot be written: .*refused.*hint: .*--no-hold"),
            engine_errors(),
        ):
            raise error
    for error in (OSError(errno.EIO, "failed", str(present)), OSError(errno.EACCES, "refused", str(present / "below"))):
        with pytest.raises(StoreUnreadable, match=r"the store cannot be read: .*ed") as found, engine_errors():
            raise error
        assert type(found.value) is StoreUnreadable


def test_damage_is_still_reported(lake: HeldLake) -> None:
    table = lake.stored.paths.handles
    newest = entry_path(table, newest_version(table)).local
    newest.write_bytes(newest.read_bytes()[:-3] + b"xxx")
    with pytest.raises(DamagedLog):
        open_lake(lake.file, read_only=True).collection(NAME).status()
