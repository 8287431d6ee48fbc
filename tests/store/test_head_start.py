"""A foreign or damaged head start costs requests, and nothing else. The store is in memory; no JVM is started."""

from __future__ import annotations

import io
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from random import Random

import pytest
from obstore.store import MemoryStore

from tests.expectations.reports import settings
from tidelake.catalog.catalog import Catalog
from tidelake.compact.garbage import collect_garbage
from tidelake.errors import StoreUnreachable
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.followed import forget_all
from tidelake.store.head_start import forget_swept, leave_head_start, note_swept, use_head_start, was_swept
from tidelake.store.layout import Store
from tidelake.store.put_files import forget_files

NAME = "prices"


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    """An in-memory store with one collection, for which a step has just left a head start."""
    root = blobs.mount("memory://head-starts", MemoryStore())
    forget_all()
    catalog = Catalog(Store(root))
    leave(catalog.open_or_create(settings("plain").spec()))
    yield catalog
    forget_all()
    forget_files()


def leave(collection: Collection) -> None:
    for table in collection.tables:
        OpenTable(table)
    leave_head_start(collection)


def blob_of(catalog: Catalog) -> Location:
    (name,) = blobs.list_names(catalog.store.head_starts)
    return catalog.store.head_starts / name


def read_afresh(catalog: Catalog) -> list[int]:
    """Return the `seq` that a new process reads for a status, and the one that a new process reads for a job."""
    found = []
    for follows in (True, False):
        forget_all()
        forget_files()
        use_head_start(catalog.store, NAME, follows=follows)
        found.append(OpenTable(catalog.find(NAME).paths.updates).seq)
    return found


def stating(data: bytes, at: int, value: bytes) -> bytes:
    """Return a ZIP file with `value` at position `at` of its directory's entry for the first member."""
    place = data.index(b"PK\x01\x02") + at
    return data[:place] + value + data[place + len(value) :]


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return packed.getvalue()


LOG = "c/7f/updates/_delta_log"
FOREIGN = {
    "a file at the top": zipped(("readme", b"x")),
    "a file that is not in a log": zipped((f"{LOG}/_last_checkpoint", b"{}")),
    "a path outside the store": zipped(("../other/x", b"x")),
    "an absolute path": zipped((f"/{LOG}/{0:020d}.json", b"x")),
    "a log with a gap": zipped((f"{LOG}/{1:020d}.json", b"x"), (f"{LOG}/{3:020d}.json", b"x")),
    "a checkpoint alone": zipped((f"{LOG}/{3:020d}.checkpoint.parquet", b"x")),
    "a negative version": zipped((f"{LOG}/{-3:020d}.json", b"x")),
    "another compression": zipped((f"{LOG}/{0:020d}.json", b"x" * 99), method=zipfile.ZIP_LZMA),
    "a misstated compression": stating(zipped((f"{LOG}/{0:020d}.json", b"x" * 99)), 10, b"\x0c"),
    "no member": zipped(),
}


@pytest.mark.parametrize("data", FOREIGN.values(), ids=FOREIGN)
def test_another_zip_file_in_place_of_a_head_start_is_not_used(catalog: Catalog, data: bytes) -> None:
    expected = read_afresh(catalog)
    blobs.replace(blob_of(catalog), data)
    assert read_afresh(catalog) == expected


def test_no_flipped_byte_and_no_cut_stops_a_process(catalog: Catalog) -> None:
    blob, rng = blob_of(catalog), Random(15)
    whole, expected = blobs.read(blob), read_afresh(catalog)
    at = whole.index(b"PK\x01\x02")  # every second flip is in the directory, which says how members are read
    for number in range(400):
        damaged = bytearray(whole)
        damaged[rng.randrange(at if number % 2 else 0, len(whole))] ^= 1 << rng.randrange(8)
        blobs.replace(blob, bytes(damaged[: rng.randrange(len(whole))] if number % 8 == 0 else damaged))
        forget_all()
        use_head_start(catalog.store, NAME, follows=True)
        if number % 20 == 0:
            assert read_afresh(catalog) == expected


def understated(size: int) -> bytes:
    """A ZIP file with a member of many bytes, whose stated size is one byte."""
    return stating(zipped((f"{LOG}/{0:020d}.json", bytes(size))), 24, (1).to_bytes(4, "little"))


@pytest.mark.parametrize(
    "make",
    [lambda: b"PK" + bytes(200 << 20), lambda: zipped((LOG, bytes(200 << 20))), lambda: understated(200 << 20)],
    ids=["a large blob", "a large member", "a member that understates its size"],
)
def test_a_head_start_never_takes_much_memory(catalog: Catalog, make: Callable[[], bytes]) -> None:
    blobs.replace(blob_of(catalog), make())
    forget_all()
    tracemalloc.start()
    try:
        use_head_start(catalog.store, NAME)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


def test_a_head_start_that_cannot_be_written_does_not_fail_a_step(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = catalog.find(NAME)
    OpenTable(collection.paths.updates).commit({}, epoch=collection.entry.epoch)

    def refuse(*_: object) -> None:
        raise StoreUnreachable("it is gone", "memory://head-starts")

    monkeypatch.setattr(blobs, "replace", refuse)
    leave(collection)


def test_the_head_start_of_a_dropped_collection_goes_with_it(catalog: Catalog) -> None:
    collection = catalog.find(NAME)
    catalog.drop(NAME)
    assert blobs.list_names(catalog.store.head_starts) == []
    leave_head_start(collection)  # a step was still running
    collect_garbage(catalog.store, {NAME})
    assert blobs.list_names(catalog.store.head_starts) == []


def test_a_renamed_collection_leaves_no_head_start_under_its_earlier_name(catalog: Catalog) -> None:
    earlier = catalog.find(NAME)
    catalog.rename(NAME, "costs")
    assert blobs.list_names(catalog.store.head_starts) == []
    leave(catalog.find("costs"))
    leave(earlier)  # a step was still running
    collect_garbage(catalog.store, {"costs"})
    assert blobs.list_names(catalog.store.head_starts) == ["costs.zip"]


def test_a_new_process_knows_when_the_tables_were_swept(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    store, collection = catalog.store, catalog.find(NAME)
    forget_swept()
    assert not was_swept(store, NAME, 3600)
    note_swept(store, NAME)
    leave_head_start(collection)
    forget_swept()
    read_afresh(catalog)
    assert was_swept(store, NAME, 3600) and not was_swept(store, "others", 3600)
    now_s = time.time()
    for later_s, is_recent in ((3500, True), (3700, False), (-60, False)):
        monkeypatch.setattr(time, "time", lambda at_s=now_s + later_s: at_s)
        assert was_swept(store, NAME, 3600) == is_recent, later_s
    monkeypatch.undo()
    forget_swept()
    blobs.replace(blob_of(catalog), zipped((f"head_starts/{blob_of(catalog).name}/swept", b"not a time")))
    read_afresh(catalog)
    assert not was_swept(store, NAME, 3600)
