"""Pins of holds: of the runs that are no longer live, sweeps leave those that a pinned version has, and no others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.lakes.early_sweeps import sweep_early
from tests.lakes.held import HeldLake
from tests.storage.counted import CountedStore
from tidelake.errors import FrontierRegression
from tidelake.storage import blobs
from tidelake.storage.location import Location, locate
from tidelake.store.commit import OpenTable, create_table
from tidelake.store.dead_notes import DEAD
from tidelake.store.entry import Entry
from tidelake.store.failpoints import on_reach
from tidelake.store.files import RunFile, write_run
from tidelake.store.holds import oldest_pin
from tidelake.store.layout import RUN, new_run
from tidelake.store.sweep import pinned_bytes, sweep

SCHEMA = pa.schema([("_time", pa.int64()), ("_run", pa.string())])


@pytest.fixture(params=["disk", "object store"])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    path = (locate(tmp_path) if request.param == "disk" else CountedStore(monkeypatch).root) / "t"
    create_table(path, SCHEMA)
    return path


def swap(table: Location, *removed: str) -> str:
    """Commit a new run in place of others, and return its name."""
    opened = OpenTable(table)
    run = new_run("merge", opened.seq)
    opened.commit({}, write_run(table, run, pa.table({"_time": [1]})), list(removed))
    return run


def runs_in(table: Location) -> set[str]:
    return {name.removeprefix(f"{RUN}=") for name in blobs.list_names(table) if name.startswith(f"{RUN}=")}


def test_a_run_in_a_pinned_version_stays_and_earlier_runs_are_removed(table: Location) -> None:
    first = swap(table)
    second = swap(table, first)
    sweep_early(table, pinned_seq=OpenTable(table).seq)
    assert runs_in(table) == {second}
    pinned_seq = OpenTable(table).seq
    third = swap(table, second)
    assert sweep_early(table, pinned_seq=pinned_seq) == 0
    assert runs_in(table) == {second, third}
    assert sweep_early(table, pinned_seq=OpenTable(table).seq) == 1
    assert runs_in(table) == {third}


def test_a_run_that_was_noted_before_its_commit_stays_for_readers_after_it(table: Location) -> None:
    opened = OpenTable(table)
    run = new_run("ingest", opened.seq)
    files = write_run(table, run, pa.table({"_time": [1]}))
    blobs.write(table / DEAD / f"{opened.seq}-{'0' * 32}.json", f'["{RUN}={run}"]'.encode())
    OpenTable(table).commit({}, files)
    pinned_seq = OpenTable(table).seq
    swap(table, run)
    assert sweep_early(table, pinned_seq=pinned_seq) == 0
    assert run in runs_in(table)


def write_runs(table: Location, runs: int) -> dict[str, list[RunFile]]:
    """Write runs that a later commit may add."""
    names = [new_run("ingest", OpenTable(table).seq) for _ in range(runs)]
    return {name: write_run(table, name, pa.table({"_time": [1]})) for name in names}


def commit_runs(table: Location, runs: dict[str, list[RunFile]]) -> None:
    OpenTable(table).commit({}, [file for files in runs.values() for file in files])


def sweep_that_sleeps(table: Location, meanwhile: Callable[[Callable[[], None]], None]) -> None:
    """Sweep, and just before the note is written, call `meanwhile` with a function that writes the note at once."""
    write = blobs.write
    written: list[Location] = []

    def write_late(location: Location, data: bytes) -> None:
        def wake() -> None:
            if not written:
                written.append(location)
                write(location, data)

        if location.parent.name != DEAD:
            write(location, data)
            return
        patch.undo()
        meanwhile(wake)
        wake()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blobs, "write", write_late)
        assert sweep(table) == 0
    assert written


@pytest.mark.parametrize("earlier_sweeps", [0, 1])
@pytest.mark.parametrize("count", [1, 3])
def test_a_sweep_that_sleeps_before_it_writes_its_note_does_not_unpin_what_is_pinned_meanwhile(
    table: Location, count: int, earlier_sweeps: int
) -> None:
    runs = write_runs(table, count)
    for _ in range(earlier_sweeps):  # without one, the late note announces the runs; after one, it confirms them
        sweep(table)
    pinned: list[int] = []

    def commit_pin_and_replace(_: Callable[[], None]) -> None:
        commit_runs(table, runs)
        pinned.append(OpenTable(table).seq)
        swap(table, *runs)

    sweep_that_sleeps(table, commit_pin_and_replace)
    for _ in range(2):
        assert sweep_early(table, pinned_seq=pinned[0]) == 0
    assert runs.keys() <= runs_in(table)
    assert sweep_early(table) == count
    assert not runs.keys() & runs_in(table)


@pytest.mark.parametrize("count", [1, 3])
def test_the_retention_period_begins_after_a_merge_that_slept_before_its_commit(table: Location, count: int) -> None:
    runs = write_runs(table, count)

    def merge_and_sleep(wake: Callable[[], None]) -> None:
        commit_runs(table, runs)

        def sleep(place: str) -> None:
            if place == "commit.before_call.t":  # the merge has read the notes
                on_reach(None)
                wake()
                assert [sweep(table) for _ in range(3)] == [0, 0, 0]

        on_reach(sleep)
        try:
            swap(table, *runs)
        finally:
            on_reach(None)

    sweep_that_sleeps(table, merge_and_sleep)
    assert sweep(table, retention_s=-60.0) == 0, "readers of the previous version have only just begun"
    assert sweep_early(table) == count


def test_the_cost_of_a_pin_is_the_replaced_runs_that_stay_only_for_it(table: Location) -> None:
    first = swap(table)
    pinned_seq = OpenTable(table).seq
    swap(table, first)
    assert pinned_bytes(table, pinned_seq) == 0  # no sweep has noted the run yet, so it stays anyway
    sweep_early(table, pinned_seq=pinned_seq)
    size = sum(blob.size for blob in blobs.list_blobs(table / f"{RUN}={first}"))
    assert pinned_bytes(table, pinned_seq) == size > 0
    assert pinned_bytes(table, OpenTable(table).seq) == 0


def test_a_note_of_an_earlier_version_is_written_again_with_its_seq(table: Location) -> None:
    first = swap(table)
    swap(table, first)
    blobs.write(table / DEAD / f"{'0' * 32}.json", f'["{RUN}={first}"]'.encode())
    assert sweep_early(table, pinned_seq=OpenTable(table).seq - 2) == 0
    assert any(name.startswith(f"{OpenTable(table).seq}-") for name in blobs.list_names(table / DEAD))
    assert sweep_early(table) == 1


def test_the_oldest_pin_counts_and_goes_with_its_hold(tmp_path: Path) -> None:
    lake = HeldLake.create(tmp_path / "lake", upper=10)

    def entry() -> Entry:
        return lake.stored.entry

    early, late = lake.collection.acquire(at=3), lake.collection.acquire(at=5)
    assert oldest_pin(entry()) is None
    early.pin(4, to=3)
    late.pin(7, to=6)
    assert (oldest_pin(entry()), early.since, late.since) == (4, 3, 6)
    early.downgrade(4)
    assert oldest_pin(entry()) == 4  # `downgrade` leaves the pin where it is
    with pytest.raises(FrontierRegression):
        late.pin(9, to=5)
    early.drop()
    assert oldest_pin(entry()) == 7
    late.drop()
    assert oldest_pin(entry()) is None
