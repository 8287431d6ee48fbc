"""Sweeps and concurrent writers: whatever a clock says, no commit names a file that a sweep deletes."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path

import pyarrow as pa
import pytest

from tests.crash.harness import wait_until_stopped
from tests.lakes.early_sweeps import age, sweep_early
from tests.lakes.places import store_root, write_in_the_past
from tidelake.errors import Conflict, RunSwept
from tidelake.storage import blobs
from tidelake.storage.location import UNFINISHED, Location
from tidelake.store.acknowledged import ACKED
from tidelake.store.commit import SWEEP_FLOOR, OpenTable, create_table
from tidelake.store.dead_notes import DEAD
from tidelake.store.failpoints import on_reach
from tidelake.store.files import RunFile, read_rows, write_run
from tidelake.store.layout import RUN, new_run
from tidelake.store.retry import LostRace, retry_commit
from tidelake.store.runs import append_run
from tidelake.store.sweep import sweep
from tidelake.store.table_log import LOG

SCHEMA = pa.schema([("_time", pa.int64()), ("_run", pa.string())])
DAY_S = 86400.0


@pytest.fixture
def table(any_store: Path) -> Location:
    """An empty table with an epoch."""
    path = store_root(any_store) / "t"
    create_table(path, SCHEMA, {"epoch": 0})
    return path


def write_one_row(table: Location, run: str, at: int = 1) -> list[RunFile]:
    return write_run(table, run, pa.table({"_time": [at]}))


@contextmanager
def swept_at(place: str, table: Location) -> Iterator[list[int]]:
    """Run a sweep when a failpoint is first reached; the list then has the number of runs that the sweep removed."""
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


def confirm_dead(table: Location) -> None:
    """Announce the runs that are dead, and confirm them."""
    assert [sweep(table) for _ in range(2)] == [0, 0]


def times_in(table: Location) -> list[int]:
    return sorted(read_rows(table, OpenTable(table).files(), SCHEMA)["_time"].to_pylist())


@pytest.mark.everywhere
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
    kept = {file.path: blobs.read(table / file.path) for file in files}
    assert sweep_early(table) == 1
    with pytest.raises(Conflict) as refused:
        stale.commit({}, files)
    # On a disk, the commit finds that the files are gone. In an object store, it first finds that its version is taken.
    assert isinstance(refused.value, RunSwept) == table.is_local
    for path, data in kept.items():  # a late writer puts the file back
        blobs.write(table / path, data)
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
        write_one_row(table, new_run("ingest", 0))
        assert sweep_early(table) == 1
        assert (OpenTable(table).version, OpenTable(table).value(SWEEP_FLOOR)) == (1, 1)


def test_an_unfinished_run_above_the_floor_is_still_committed(table: Location) -> None:
    write_one_row(table, dead := new_run("ingest", 0))
    confirm_dead(table)
    age(table / f"{RUN}={dead}", 3 * DAY_S)
    age(table / DEAD, 2 * DAY_S)
    OpenTable(table).commit({"other": 1})
    files = write_one_row(table, new_run("ingest", OpenTable(table).seq))
    assert (sweep(table), OpenTable(table).value(SWEEP_FLOOR)) == (1, 1)
    OpenTable(table).commit({}, files)
    assert times_in(table) == [1]


def test_a_run_from_the_future_of_a_restored_store_is_swept_only_after_its_seq_is_reached(table: Location) -> None:
    write_one_row(table, new_run("ingest", 7))
    assert sweep_early(table) == 0
    assert OpenTable(table).value(SWEEP_FLOOR) is None
    for number in range(7):
        OpenTable(table).commit({"other": number})
    assert sweep_early(table) == 1


@pytest.mark.everywhere
def test_a_run_stays_for_the_retention_period_after_it_was_found_dead_whatever_its_age(table: Location) -> None:
    opened = OpenTable(table)
    opened.commit({}, write_one_row(table, old := new_run("ingest", opened.seq)))
    opened = OpenTable(table)
    merged = write_one_row(table, new_run("merge", opened.seq))

    def sleep(place: str) -> None:
        if place == "commit.before_call.t":
            age(table / f"{RUN}={old}", 30 * DAY_S)  # the process sleeps for a month after renewing the run

    on_reach(sleep)
    try:
        opened.commit({}, merged, [old])
    finally:
        on_reach(None)
    for _ in range(2):
        assert sweep(table) == 0, "a reader of the previous version may still need it"
    age(table / DEAD, DAY_S / 2)
    assert sweep(table) == 0
    age(table / DEAD, 2 * DAY_S)
    assert sweep(table) == 1
    assert blobs.list_blobs(table / f"{RUN}={old}") == []


def test_a_run_that_was_noted_before_it_was_committed_is_noted_again_after_it_is_replaced(table: Location) -> None:
    opened = OpenTable(table)
    files = write_one_row(table, run := new_run("ingest", opened.seq))
    confirm_dead(table)
    age(table / f"{RUN}={run}", 4 * DAY_S)
    age(table / DEAD, 3 * DAY_S)
    opened.commit({}, files)
    assert sweep(table) == 0
    opened = OpenTable(table)
    opened.commit({}, write_one_row(table, new_run("merge", opened.seq)), [run])
    for _ in range(2):
        assert sweep(table) == 0, "its note is from before its commit"
    assert len(blobs.list_blobs(table / f"{RUN}={run}")) >= 1


def test_a_run_that_was_committed_and_replaced_during_a_sweep_stays_for_its_readers(table: Location) -> None:
    opened = OpenTable(table)
    files = write_one_row(table, run := new_run("ingest", opened.seq))
    confirm_dead(table)
    age(table / f"{RUN}={run}", 4 * DAY_S)
    age(table / DEAD, 3 * DAY_S)

    def commit_and_replace(place: str) -> None:
        if place == "commit.before_call.t":  # the sweep has found the run dead, and raises the floor
            on_reach(None)
            opened.commit({}, files)
            later = OpenTable(table)
            later.commit({}, write_one_row(table, new_run("merge", later.seq)), [run])

    on_reach(commit_and_replace)
    try:
        assert sweep(table) == 0
    finally:
        on_reach(None)
    assert len(blobs.list_blobs(table / f"{RUN}={run}")) >= 1
    assert sweep(table) == 0, "it was noted again"


def test_notes_of_what_was_deleted_are_deleted_and_damaged_notes_are_replaced(table: Location) -> None:
    write_one_row(table, new_run("ingest", 0))
    assert sweep(table) == 0
    (note,) = blobs.list_names(table / DEAD)
    blobs.write(table / DEAD / note, b"{")
    confirm_dead(table)
    (note,) = blobs.list_names(table / DEAD)
    assert len(json.loads(blobs.read(table / DEAD / note))) == 1
    age(table, 3 * DAY_S)
    age(table / DEAD, 2 * DAY_S)
    assert sweep(table) == 1
    write_one_row(table, new_run("ingest", 1))
    assert sweep(table) == 0
    assert len(blobs.list_names(table / DEAD)) == 1


def test_files_that_a_killed_process_left_unfinished_are_swept_once_they_are_old(table: Location) -> None:
    left = [table / f"{UNFINISHED}{'a' * 32}", table / LOG / f"{UNFINISHED}{'b' * 32}"]
    young = table / ACKED / f"{UNFINISHED}{'c' * 32}"
    for blob in left:
        write_in_the_past(blob, b"", 2 * DAY_S)
    blobs.write(young, b"")
    sweep(table)
    # In an object store, only the table's own folder can have leftovers, so sweeps do not look into the log.
    in_log = not table.is_local
    assert [blobs.exists(blob) for blob in (*left, young)] == [False, in_log, True]


def _shift_clock(by_s: float) -> None:
    """Shift this process's clock relative to all others."""
    now = time.time
    time.time = lambda: now() + by_s


def _append_and_sleep(table: Location, said: Path) -> None:
    """Append a run, and pause just before the first attempt to commit it."""
    attempts: list[str] = []

    def stand_still(place: str) -> None:
        if place == "commit.before_call.t":
            attempts.append(place)
            if len(attempts) == 1:
                os.kill(os.getpid(), signal.SIGSTOP)

    on_reach(stand_still)
    files = append_run(table, "proof", partial(write_one_row, table), 0)
    said.write_text(json.dumps([[file.run for file in files], len(attempts)]))


def test_a_writer_that_sleeps_for_longer_than_any_bound_commits_nothing_that_was_deleted(
    table: Location, tmp_path: Path
) -> None:
    writer = multiprocessing.get_context("spawn").Process(target=_append_and_sleep, args=(table, tmp_path / "said"))
    writer.start()
    assert writer.pid is not None
    wait_until_stopped(writer.pid)
    try:
        (run,) = [folder.name for folder in blobs.list_folder(table).folders if folder.name.startswith(f"{RUN}=")]
        confirm_dead(table)
        age(table / run, 30 * DAY_S)
        age(table / DEAD, 29 * DAY_S)
        assert sweep(table) == 1
    finally:
        os.kill(writer.pid, signal.SIGCONT)
        writer.join(120)
    runs, attempts = json.loads((tmp_path / "said").read_text())
    assert (attempts, [f"{RUN}={name}" for name in runs] == [run]) == (2, False)
    assert [file.run for file in OpenTable(table).files()] == runs
    assert times_in(table) == [1]


def _sweep_often(table: Location, by_s: float, done: Event) -> None:
    _shift_clock(by_s)
    while not done.is_set():
        with suppress(Conflict):
            removed = sweep(table, retention_s=3600.0)
            assert removed == 0, "everything is younger than an hour, by the store's clock"


@pytest.mark.sweep
@pytest.mark.parametrize("of_sweep_s", [DAY_S, -DAY_S])
def test_machines_whose_clocks_are_a_day_apart_delete_nothing_that_is_young(table: Location, of_sweep_s: float) -> None:
    context = multiprocessing.get_context("spawn")
    done = context.Event()
    sweeper = context.Process(target=_sweep_often, args=(table, of_sweep_s, done))
    writer = context.Process(target=_append_runs, args=(table, 0, 10, -of_sweep_s))
    for process in (sweeper, writer):
        process.start()
    writer.join()
    done.set()
    sweeper.join()
    assert [process.exitcode for process in (sweeper, writer)] == [0, 0]
    assert times_in(table) == list(range(10))


def _append_runs(table: Location, worker: int, runs: int, clock_s: float = 0.0) -> None:
    _shift_clock(clock_s)

    def write(run: str, at: int) -> list[RunFile]:
        while True:
            with suppress(FileNotFoundError):  # swept before it could be described
                return write_one_row(table, run, at)

    for number in range(worker * runs, (worker + 1) * runs):
        append_run(table, "ingest", partial(write, at=number), 0)


@pytest.mark.sweep
def test_no_committed_file_is_gone_when_writers_race_with_a_sweep_whose_clock_is_ahead(table: Location) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append_runs, args=(table, worker, 25)) for worker in range(2)]
    for process in writers:
        process.start()
    while any(process.is_alive() for process in writers):
        with suppress(Conflict):
            sweep_early(table)
    for process in writers:
        process.join()
    assert [process.exitcode for process in writers] == [0, 0]
    assert times_in(table) == list(range(50))
