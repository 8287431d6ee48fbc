"""Sweeps and concurrent writers: whatever a clock says, no commit names a file that a sweep deletes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from tidelake.compact.compaction import CompactReport, sweep
from tidelake.errors import Conflict, RunSwept
from tidelake.storage.location import Location, locate
from tidelake.store.commit import SWEEP_FLOOR, OpenTable, create_table
from tidelake.store.failpoints import on_reach
from tidelake.store.files import RunFile, read_rows, write_run
from tidelake.store.layout import RUN, new_run
from tidelake.store.retry import LostRace, retry_commit
from tidelake.store.runs import append_run

SCHEMA = pa.schema([("_time", pa.int64()), ("_run", pa.string())])
RETENTION_AS_IF_CLOCK_AHEAD_S = -60.0
"""A negative retention: to the sweep, every run is old enough, as if its clock were ahead."""


@pytest.fixture
def table(tmp_path: Path) -> Location:
    """An empty table with an epoch."""
    create_table(locate(tmp_path) / "t", SCHEMA, {"epoch": 0})
    return locate(tmp_path) / "t"


def write_one_row(table: Location, run: str, time: int = 1) -> list[RunFile]:
    return write_run(table, run, pa.table({"_time": [time]}))


def sweep_early(table: Location) -> int:
    """Sweep as if the clock were ahead; return the number of folders that were removed."""
    report = CompactReport()
    sweep(table, report, retention_s=RETENTION_AS_IF_CLOCK_AHEAD_S)
    return report.folders_removed


@contextmanager
def swept_at(place: str, table: Location) -> Iterator[list[int]]:
    """Let a sweep run when a failpoint is first reached."""
    removed: list[int] = []

    def sweep_there(reached: str) -> None:
        if reached == place and not removed:
            removed.append(0)
            removed[0] = sweep_early(table)

    on_reach(sweep_there)
    try:
        yield removed
    finally:
        on_reach(None)


def times_in(table: Location) -> list[int]:
    return sorted(read_rows(table, OpenTable(table).files(), SCHEMA)["_time"].to_pylist())


def test_a_run_that_was_swept_between_check_and_call_is_not_committed(table: Location) -> None:
    opened = OpenTable(table)
    files = write_one_row(table, new_run("ingest", opened.seq))
    with swept_at("commit.before_call.t", table) as removed, pytest.raises(Conflict):
        opened.commit({}, files)
    assert removed == [1]
    assert OpenTable(table).files() == []


def test_a_swept_run_is_refused_in_every_later_state_and_the_work_starts_over(table: Location) -> None:
    stale = OpenTable(table)
    files = write_one_row(table, new_run("ingest", stale.seq))
    kept = {file.path: (table / file.path).local.read_bytes() for file in files}
    assert sweep_early(table) == 1
    with pytest.raises(RunSwept):
        stale.commit({}, files)  # the files of the run are gone
    for path, data in kept.items():  # a late writer puts the file back
        (table / path).local.parent.mkdir()
        (table / path).local.write_bytes(data)
    OpenTable(table).commit({"other": 1})
    with pytest.raises(RunSwept, match=r"began before a sweep \(at seq 0; the floor is 1\)[\s\S]*hint: .* new run"):
        OpenTable(table).commit({}, files)
    with pytest.raises(LostRace):
        retry_commit(table, lambda newest: newest.commit({}, files), "no attempt won")
    assert OpenTable(table).files() == []


def test_swept_rows_of_a_small_table_are_written_again_in_a_new_run(table: Location) -> None:
    written: list[str] = []

    def write(run: str) -> list[RunFile]:
        written.append(run)
        return write_one_row(table, run)

    with swept_at("commit.before_call.t", table) as removed:
        append_run(table, "proof", write, 0)
    assert (removed, len(written)) == ([1], 2)
    assert [file.run for file in OpenTable(table).files()] == written[1:]
    assert times_in(table) == [1]


def test_a_run_whose_name_has_no_seq_is_treated_as_begun_at_seq_0(table: Location) -> None:
    old, young = write_one_row(table, f"ingest-{'0' * 24}"), write_one_row(table, f"ingest-{'1' * 24}", 2)
    OpenTable(table).commit({}, young)
    assert sweep_early(table) == 1
    with pytest.raises(RunSwept):
        OpenTable(table).commit({}, old)
    assert times_in(table) == [2]


def test_a_sweep_commits_only_if_the_floor_has_to_rise(table: Location) -> None:
    assert sweep_early(table) == 0
    assert OpenTable(table).version == 0
    for _ in range(2):
        (table / f"{RUN}={new_run('ingest', 0)}").local.mkdir()
        assert sweep_early(table) == 1
        assert (OpenTable(table).version, OpenTable(table).value(SWEEP_FLOOR)) == (1, 1)


def test_an_unfinished_run_above_the_floor_is_still_committed(table: Location) -> None:
    dead = table / f"{RUN}={new_run('ingest', 0)}"
    dead.local.mkdir()
    os.utime(dead.local, (0, 0))
    OpenTable(table).commit({"other": 1})
    files = write_one_row(table, new_run("ingest", OpenTable(table).seq))
    report = CompactReport()
    sweep(table, report)
    assert (report.folders_removed, OpenTable(table).value(SWEEP_FLOOR)) == (1, 1)
    OpenTable(table).commit({}, files)
    assert times_in(table) == [1]


def test_a_run_from_the_future_of_a_restored_store_is_swept_only_after_its_seq_is_reached(table: Location) -> None:
    (table / f"{RUN}={new_run('ingest', 7)}").local.mkdir()
    assert sweep_early(table) == 0
    assert OpenTable(table).value(SWEEP_FLOOR) is None
    for number in range(7):
        OpenTable(table).commit({"other": number})
    assert sweep_early(table) == 1


def _append_runs(path: str, worker: int, runs: int) -> None:
    table = locate(path)

    def write(run: str, time: int) -> list[RunFile]:
        while True:
            with suppress(FileNotFoundError):  # swept before it could be described
                return write_one_row(table, run, time)

    for number in range(worker * runs, (worker + 1) * runs):
        append_run(table, "ingest", partial(write, time=number), 0)


def test_no_committed_file_is_gone_when_writers_race_with_a_sweep_whose_clock_is_ahead(table: Location) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append_runs, args=(str(table), worker, 25)) for worker in range(2)]
    for process in writers:
        process.start()
    while any(process.is_alive() for process in writers):
        with suppress(Conflict):
            sweep_early(table)
    for process in writers:
        process.join()
    assert [process.exitcode for process in writers] == [0, 0]
    assert times_in(table) == list(range(50))
