"""A few requests show which blobs are absent, whatever else is in the folder."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from obstore.store import LocalStore, MemoryStore

from tests.storage.counted import PAGE, CountedStore
from tidelake.storage import blobs, objects
from tidelake.storage.location import Location, locate


@pytest.mark.parametrize("kind", ["disk", "memory", "obstore_disk"])
@pytest.mark.parametrize("page", [1, 3, 1000])
def test_the_absent_blobs_are_those_that_were_not_written(
    tmp_path: Path, kind: str, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_PAGE", page)
    random = Random(page)
    store = MemoryStore() if kind == "memory" else LocalStore(str(tmp_path))
    root = locate(tmp_path / "store") if kind == "disk" else blobs.mount(f"{kind}://absent", store)
    folder = root / "t"
    for outside in ("s", "t0", "u"):
        blobs.write(root / outside, b"")
    names = [f"_run={kind}-{number}-{random.randrange(99)}/part.parquet" for kind in "im" for number in range(20)]
    there = set(random.sample(names, 30))
    for name in there:
        blobs.write(folder / name, b"")
    for size in (0, 1, 5, len(names)):
        asked = random.sample(names, size)
        absent = [name for name in asked if name not in there]
        assert blobs.absent(folder, [folder / name for name in asked]) == [folder / name for name in absent]


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> tuple[CountedStore, list[Location]]:
    """A table with four pages of runs, of which ten are live: the first tick, the newest ticks, and a few merges."""
    store = CountedStore(monkeypatch)
    table = store.root / "t"
    kinds = ("ingest", "merge")
    written = [table / f"_run={kind}-{number:05}/part.parquet" for kind in kinds for number in range(2000)]
    for location in written:
        blobs.write(location, b"")
    return store, [written[0], *written[1994:2000], written[2500], *written[3998:]]


def test_live_files_are_found_without_listing_all_dead_ones(crowded: tuple[CountedStore, list[Location]]) -> None:
    store, live = crowded
    before = Counter(store.requests)
    assert blobs.absent(store.root / "t", live) == []
    # One listing begins at the first tick, one at the newest ticks, and one at the newest merges. The earlier merge is
    # on the page with the newest ticks.
    assert store.since(before) == {"list": 3}
    before = Counter(store.requests)
    assert blobs.absent(store.root / "t", live[1:7]) == []
    assert store.since(before) == {"list": 1}


@pytest.mark.parametrize("lost", [0, 1, 4, 6, 7, 8, 9])
def test_each_lost_file_is_noticed(crowded: tuple[CountedStore, list[Location]], lost: int) -> None:
    store, live = crowded
    blobs.delete(live[lost])
    assert blobs.absent(store.root / "t", live) == [live[lost]]
    assert store.requests["list"] <= len(live) < PAGE
