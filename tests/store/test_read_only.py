"""A lake that was opened read-only writes nothing, and does not finish what an interrupted process left unfinished."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from tests.cli.commands import invoke
from tests.lakes.held import HeldLake
from tests.lakes.lake import NAME
from tests.lakes.whole_store import COLLECTIONS, WholeStore
from tests.sweeps import swept
from tidelake import open_lake
from tidelake.errors import DamagedLog, LakeReadOnly
from tidelake.lake import LakeCollection
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


@pytest.fixture
def lake(tmp_path: Path) -> HeldLake:
    """A collection whose newest commit has no marker, followed by an entry that a power loss has torn."""
    lake = HeldLake.create(tmp_path / "lake", upper=5)
    lake.collection.acquire(at=2)
    lake.seal(7)
    table = lake.stored.paths.updates
    newest = newest_version(table)
    for marker in (table.local / ACKED).glob(f"{newest:020d}-*"):
        marker.unlink()
    entry_path(table, newest + 1).local.write_text('{"commitInfo": {')
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
    for folder, _, files in os.walk(copy):
        for name in (*files, "."):
            os.chmod(os.path.join(folder, name), 0o555)
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


def test_damage_is_still_reported(lake: HeldLake) -> None:
    table = lake.stored.paths.handles
    newest = entry_path(table, newest_version(table)).local
    newest.write_bytes(newest.read_bytes()[:-3] + b"xxx")
    with pytest.raises(DamagedLog):
        open_lake(lake.file, read_only=True).collection(NAME).status()
