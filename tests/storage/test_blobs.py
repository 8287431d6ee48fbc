"""One suite for the seam below the store, run on a local disk, on two obstore stores, and on S3."""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from obstore.store import LocalStore, MemoryStore

from tests.services.object_store import ObjectStore
from tests.sweeps import swept
from tidelake.errors import StoreBusy
from tidelake.storage import blobs, objects
from tidelake.storage.location import UNFINISHED, Listing, Location, locate

ODD_NAMES = ("ü ∂.txt", "a b", "100%25", "[x]*?", "a~b", "back\\slash", "a+b&c=d", ".hidden", "ümlaut/ü")


@pytest.fixture(params=["disk", "memory", "obstore_disk", pytest.param("s3", marks=pytest.mark.services)])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "disk":
        return locate(tmp_path / "store")
    if request.param == "s3":
        store: ObjectStore = request.getfixturevalue("object_store")
        return locate(f"s3://{store.create_bucket()}/store") / "suite"  # the probe is next to this folder
    return blobs.mount(
        f"{request.param}://suite", MemoryStore() if request.param == "memory" else LocalStore(str(tmp_path))
    )


@pytest.fixture
def disk(tmp_path: Path) -> Location:
    return locate(tmp_path / "store")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are synced, in order."""
    paths: list[str] = []
    sync = os.fsync

    def noting(descriptor: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    return paths


def test_written_bytes_are_read_back(root: Location) -> None:
    for write in (blobs.create, blobs.write):
        for data in (b"", b"\0\xff", b"x" * 3_000_000):
            blob = root / "folder" / f"{write.__name__}-{len(data)}"
            write(blob, data)
            assert blobs.read(blob) == data
            assert blobs.open_file(blob).read() == data
            with blobs.open_stream(blob) as stream:
                assert stream.read() == data


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_kept(root: Location, name: str) -> None:
    blobs.create(root / "f" / name, b"1")
    blobs.write(root / "f" / name, b"2")
    assert blobs.read(root / "f" / name) == b"2"
    assert [blob.location for blob in blobs.list_blobs(root)] == [root / "f" / name]


@pytest.mark.parametrize("below", ["..", "a/../b", "../b", "/etc/passwd", "a//b", ".", "", "a/", "a\0b"])
def test_a_path_that_is_not_below_its_folder_is_refused(root: Location, below: str) -> None:
    with pytest.raises(ValueError, match="not a path below"):
        root / below


def test_an_absent_blob_is_reported_as_absent(root: Location) -> None:
    blobs.write(root / "a" / "b", b"")
    for absent in (root / "c", root / "a", root / "a" / "b2"):
        assert not blobs.exists(absent)
        for read in (blobs.read, blobs.open_stream) if absent.name != "a" else ():
            with pytest.raises(FileNotFoundError):
                read(absent)
    with pytest.raises(FileNotFoundError):
        blobs.open_file(root / "c")
    with pytest.raises(FileNotFoundError):
        blobs.set_aside(root / "c", root / "d")
    blobs.delete(root / "c")
    blobs.delete_folder(root / "c")
    assert blobs.exists(root / "a" / "b")


def test_a_name_in_use_is_not_created_again(root: Location) -> None:
    blobs.create(root / "a", b"first")
    with pytest.raises(FileExistsError):
        blobs.create(root / "a", b"second")
    assert blobs.read(root / "a") == b"first"
    assert [blob.location.name for blob in blobs.list_blobs(root)] == ["a"]  # nothing unfinished remains


def test_a_blob_is_ensured_once_and_never_replaced(root: Location) -> None:
    assert blobs.ensure(root / "a", b"first")
    assert not blobs.ensure(root / "a", b"first")
    blobs.write(root / "b", b"other")
    assert not blobs.ensure(root / "b", b"first")
    assert [blobs.read(root / name) for name in "ab"] == [b"first", b"other"]


def test_a_change_that_others_always_overtake_is_not_an_unreachable_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(objects, "_UPDATE_ATTEMPTS_MAX", 2)
    blob, lost = blobs.mount("memory://busy", MemoryStore()) / "a", []

    def change(present: bytes | None) -> bytes:
        lost.append(present)
        blobs.replace(blob, b"x" * len(lost), None)
        return b""

    with pytest.raises(StoreBusy, match=r"^memory://busy/a could not be written: other writers .*\n(?!.*network)"):
        blobs.update(blob, change, None)


def test_two_folders_are_listed_in_turn_and_nothing_else(root: Location) -> None:
    others = ("_acked-x/y", "_dead/q", "_delta_log.old/1", "_names/z", "_run=1/p", "a")
    for name in ("_acked/b", "_acked/a", "_delta_log/2", *others):
        blobs.write(root / "t" / name, b"")
    assert [sorted(names) for names in blobs.list_names_in_turn(root / "t", "_acked", "_delta_log")] == [
        ["a", "b"],
        ["2"],
    ]
    assert blobs.list_names_in_turn(root / "u", "_acked", "_delta_log") == ([], [])
    for number in range(120):  # more than obstore returns at once
        blobs.write(root / "v" / "_acked" / f"{number:03}", b"")
    blobs.write(root / "v" / "_delta_log" / "0", b"")
    acked, log = blobs.list_names_in_turn(root / "v", "_acked", "_delta_log")
    assert (len(acked), log) == (120, ["0"])


@pytest.mark.parametrize("rounds", swept([10, 50], [10]))
def test_only_one_of_many_threads_creates_a_blob(root: Location, rounds: int) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(rounds):
            won = list(pool.map(lambda writer, n=number: _creates(root / f"{n}", f"{writer}".encode()), range(8)))
            assert sum(won) == 1
            assert blobs.read(root / f"{number}") == f"{won.index(True)}".encode()


def test_only_one_of_many_processes_creates_a_blob(disk: Location) -> None:
    with get_context("spawn").Pool(4) as pool:
        won = pool.starmap(_creates_each, [(disk, writer, 100) for writer in range(4)], chunksize=1)
    assert [sum(winners) for winners in zip(*won, strict=True)] == [1] * 100
    for number, winners in enumerate(zip(*won, strict=True)):
        assert blobs.read(disk / f"{number:03d}") == f"{winners.index(True)}".encode()
    assert len(blobs.list_names(disk)) == 100


def _creates(location: Location, data: bytes) -> bool:
    try:
        blobs.create(location, data)
    except FileExistsError:
        return False
    return True


def _creates_each(root: Location, writer: int, blobs_max: int) -> list[bool]:
    return [_creates(root / f"{number:03d}", f"{writer}".encode()) for number in range(blobs_max)]


def test_a_blob_appears_whole_or_not_at_all(root: Location) -> None:
    blobs.write(root / "old", b"old")

    def stop_half_way(name: str) -> None:
        with blobs.writing(root / name) as sink:
            sink.write(b"torn")
            assert name == "old" or not blobs.exists(root / "new")
            raise RuntimeError("half way")

    for name in ("old", "new"):
        with pytest.raises(RuntimeError, match="half way"):
            stop_half_way(name)
    assert blobs.read(root / "old") == b"old"
    assert [blob.location.name for blob in blobs.list_blobs(root)] == ["old"]


def test_listings_are_in_order_and_separate_blobs_from_folders(root: Location) -> None:
    for name in ("b/2", "b/10", "b/c/1", "a", "B", "_x", ".y", "b2/z"):
        blobs.write(root / name, name.encode())
    listing = blobs.list_folder(root)
    assert [blob.location.name for blob in listing.blobs] == [".y", "B", "_x", "a"]
    assert [folder.name for folder in listing.folders] == ["b", "b2"]
    assert [blob.location.name for blob in blobs.list_folder(root, hidden=False).blobs] == ["B", "a"]
    assert [blob.location.below(root) for blob in blobs.list_blobs(root / "b")] == ["b/10", "b/2", "b/c/1"]
    assert [blob.size for blob in blobs.list_blobs(root / "b")] == [4, 3, 5]
    assert sorted(blobs.list_names(root)) == [".y", "B", "_x", "a", "b", "b2"]


def test_an_absent_folder_is_empty(root: Location) -> None:
    absent = root / "nowhere"
    assert (blobs.list_folder(absent), blobs.list_blobs(absent)) == (Listing([], []), [])


def test_a_folder_is_deleted_with_everything_in_it(root: Location) -> None:
    for name in ("a/1", "a/b/2", "ab/3"):
        blobs.write(root / name, b"")
    blobs.delete_folder(root / "a")
    assert [blob.location.below(root) for blob in blobs.list_blobs(root)] == ["ab/3"]


def test_a_blob_that_is_set_aside_keeps_its_bytes_and_frees_its_name(root: Location) -> None:
    blobs.write(root / "entry", b"torn")
    blobs.set_aside(root / "entry", root / ".torn")
    assert not blobs.exists(root / "entry")
    blobs.create(root / "entry", b"whole")
    assert (blobs.read(root / ".torn"), blobs.read(root / "entry")) == (b"torn", b"whole")


def test_another_blob_with_the_same_name_has_a_different_stamp(root: Location) -> None:
    def stamp() -> object:
        (blob,) = blobs.list_folder(root).blobs
        return blob.stamp

    blobs.write(root / "a", b"1")
    first = stamp()
    assert stamp() == first
    time.sleep(0.02)
    blobs.write(root / "a", b"2")
    assert stamp() != first


def test_ages_are_measured_by_the_stores_own_clock(root: Location) -> None:
    pause_s = 1.1 if root.root.startswith("s3:") else 0.05  # its clock shows whole seconds
    blobs.write(root / "f" / "a", b"")
    before = blobs.now_s(root)
    (blob,) = blobs.list_blobs(root / "f")
    assert before - 60 < blob.changed_s <= before + 0.1
    # Reading the clock leaves nothing behind.
    assert [entry.location for entry in blobs.list_blobs(root)] == [blob.location]
    first = blobs.last_change_s(root / "f")
    time.sleep(pause_s)
    blobs.write(root / "f" / "g" / "b", b"")
    second = blobs.last_change_s(root / "f")
    time.sleep(pause_s)
    blobs.renew(root / "f")
    assert first < second < blobs.last_change_s(root / "f") <= blobs.now_s(root / "f") + 0.1


def test_an_absent_folder_is_treated_as_just_changed(root: Location) -> None:
    assert blobs.last_change_s((root / "gone").read_only) > blobs.now_s(root)
    assert not blobs.list_blobs(root)


def test_arrow_reads_metadata_a_column_or_matching_rows(root: Location) -> None:
    table = pa.table({"_time": range(400_000), "text": [f"{number:099d}" for number in range(400_000)]})
    with blobs.writing(root / "t.parquet") as sink:
        pq.write_table(table, sink, compression="none", use_dictionary=False, row_group_size=10_000)
    assert pq.read_metadata(blobs.open_file(root / "t.parquet")).num_rows == 400_000
    read = pq.ParquetFile(blobs.open_file(root / "t.parquet")).read(columns=["_time"])
    assert read["_time"].to_pylist() == list(range(400_000))
    where = pc.field("_time") == 123_456
    rows = pq.read_table(blobs.open_file(root / "t.parquet"), filters=where, partitioning=None)
    assert rows["text"].to_pylist() == [f"{123_456:099d}"]


def test_a_footer_in_an_object_store_is_read_without_the_rest_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    root, fetched = blobs.mount("memory://ranges", MemoryStore()), []
    with blobs.writing(root / "t.parquet") as sink:
        pq.write_table(pa.table({"a": [os.urandom(4_000_000)]}), sink)
    get_range = obstore.get_range

    def noting(*arguments: Any, **chosen: Any) -> object:
        fetched.append(chosen["length"])
        return get_range(*arguments, **chosen)

    monkeypatch.setattr(obstore, "get_range", noting)
    assert pq.read_metadata(blobs.open_file(root / "t.parquet")).num_rows == 1
    assert 0 < sum(fetched) < 200_000


def test_lines_of_a_compressed_blob_can_be_streamed(root: Location) -> None:
    text = b"".join(b"%d\n" % number for number in range(100_000))
    blobs.write(root / "0.jsonl.gz", gzip.compress(text))
    with blobs.open_stream(root / "0.jsonl.gz") as stream, gzip.open(stream) as lines:
        assert sum(int(line) for line in lines) == sum(range(100_000))


def test_the_bytes_of_a_commit_are_on_disk_before_its_name(disk: Location, synced: list[str]) -> None:
    seen: list[list[str]] = []
    link = os.link

    def noting(source: str, target: str) -> None:
        seen.append(list(synced))
        link(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "link", noting)
        blobs.create(disk / "log" / "0.json", b"entry")
    (before,) = seen
    assert len(before) == 1
    assert Path(before[0]).name.startswith(UNFINISHED)


def test_bytes_and_names_are_synced_only_when_requested(disk: Location, synced: list[str]) -> None:
    blobs.write(disk / "t" / "a", b"1")
    assert synced == []
    blobs.make_durable([disk / "t" / "a"])
    blobs.make_names_durable([disk / "t", disk])
    above = disk.local.parents
    assert synced == [str(disk / "t" / "a"), str(disk / "t"), str(disk), str(above[0]), str(above[1])]


def test_an_object_store_has_nothing_to_sync(synced: list[str]) -> None:
    root = blobs.mount("memory://durable", MemoryStore())
    blobs.create(root / "a", b"")
    blobs.make_durable([root / "a"])
    blobs.make_names_durable([root])
    assert synced == []


def test_a_link_to_nowhere_is_named_in_the_error_unless_hidden_names_are_left_out(disk: Location) -> None:
    blobs.write(disk / "a", b"")
    (disk.local / "_link").symlink_to("nowhere")
    assert [blob.location.name for blob in blobs.list_folder(disk, hidden=False).blobs] == ["a"]
    with pytest.raises(OSError, match="No such file") as raised:
        blobs.list_folder(disk)
    assert raised.value.filename == str(disk / "_link")


def test_an_absent_folder_on_a_disk_has_no_names_and_no_age_to_renew(disk: Location) -> None:
    assert not blobs.is_folder(disk)
    assert blobs.list_names(disk) == []
    with pytest.raises(FileNotFoundError):
        blobs.renew(disk)
    blobs.make_folder(disk / "a")
    assert blobs.is_folder(disk)
    assert blobs.list_names(disk) == ["a"]


def test_an_unmounted_store_is_refused() -> None:
    with pytest.raises(ValueError, match="no store is mounted at other://bucket"):
        blobs.read(locate("other://bucket") / "a")


@pytest.mark.parametrize("uri", ["file://elsewhere/store", "file:store", "file:"])
def test_a_file_uri_must_be_that_of_a_path_on_this_machine(uri: str) -> None:
    with pytest.raises(ValueError, match="not the URI of an absolute path on this machine"):
        locate(uri)


def test_locations_are_compared_by_value_and_convert_to_paths_and_uris(tmp_path: Path) -> None:
    table: Callable[[], Location] = lambda: locate(tmp_path) / "c" / "1" / "updates"  # noqa: E731
    assert table() == table()
    assert len({table(), table()}) == 1
    assert table().local == tmp_path / "c" / "1" / "updates"
    assert locate(table().uri) == locate(tmp_path / "c" / "1" / "updates")
    assert [str(folder) for folder in table().parents] == [
        str(tmp_path / "c" / "1"),
        str(tmp_path / "c"),
        str(tmp_path),
    ]
    with pytest.raises(ValueError, match="root"):
        _ = locate(tmp_path).parent
    with pytest.raises(ValueError, match="not a file on this machine"):
        _ = (locate("s3://bucket") / "a").local
    with pytest.raises(ValueError, match="not below"):
        table().below(locate(tmp_path) / "d")


def test_a_pipe_is_not_read(disk: Location) -> None:
    blobs.make_folder(disk)
    os.mkfifo(str(disk / "pipe"))
    with pytest.raises(OSError, match="not a regular file"):
        blobs.read(disk / "pipe")


def test_callers_take_turns_on_a_disk(root: Location, disk: Location) -> None:
    blobs.make_folder(root)
    with blobs.turn(root, 0) as first:
        assert first() == blobs.is_turn_taken(root) == (root == disk)
        with blobs.turn(root, 0.01) as second:
            assert not second()
        assert not first() and not blobs.is_turn_taken(root), "whoever takes too long loses the turn"
    with blobs.turn(root, 0) as again:
        assert again() == (root == disk)


def test_a_turn_takes_as_long_as_its_caller_needs(disk: Location) -> None:
    blobs.make_folder(disk)
    with blobs.turn(disk, 0, needs_s=30) as first, ThreadPoolExecutor(1) as threads:

        def wait() -> bool:
            with blobs.turn(disk, 0.01) as second:
                return second()

        waiting = threads.submit(wait)
        time.sleep(0.2)
        assert not waiting.done()
        assert first()
        os.utime(disk.local / ".turn", (1, 1))  # as if the first caller had asked for no time
        assert not waiting.result()


def test_nobody_waits_where_no_file_can_be_written(disk: Location) -> None:
    with blobs.turn(disk / "absent", 1) as is_mine:
        assert not is_mine()
    assert not blobs.is_turn_taken(disk / "absent")
