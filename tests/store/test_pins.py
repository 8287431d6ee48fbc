"""Pins of holds: sweeps leave the files that a pinned version has, and no others."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.lakes.early_sweeps import sweep_early
from tests.lakes.held import HeldLake
from tidelake.errors import FrontierRegression
from tidelake.storage import blobs
from tidelake.storage.location import Location, locate
from tidelake.store.commit import OpenTable, create_table
from tidelake.store.dead_notes import DEAD
from tidelake.store.entry import Entry
from tidelake.store.files import write_run
from tidelake.store.holds import oldest_pin
from tidelake.store.layout import RUN, new_run
from tidelake.store.sweep import pinned_bytes

SCHEMA = pa.schema([("_time", pa.int64()), ("_run", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Location:
    path = locate(tmp_path) / "t"
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


def test_the_cost_of_a_pin_is_the_replaced_runs_that_stay_only_for_it(table: Location) -> None:
    first = swap(table)
    pinned_seq = OpenTable(table).seq
    swap(table, first)
    assert pinned_bytes(table, pinned_seq) == 0  # nobody has noted the run yet: it stays in any case
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
    assert oldest_pin(entry()) == 4  # only another pin moves a pin
    with pytest.raises(FrontierRegression):
        late.pin(9, to=5)
    early.drop()
    assert oldest_pin(entry()) == 7
    late.drop()
    assert oldest_pin(entry()) is None
