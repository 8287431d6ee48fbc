"""Processes that race on one table, without Spark: each commits small runs, by append or by swap."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from tests.lakes.places import store_root
from tidelake.errors import Conflict, Indeterminate, StoreUnreachable
from tidelake.storage.location import Location
from tidelake.store.commit import Committed, OpenTable, create_table, maintain
from tidelake.store.files import discard_run, read_rows, write_run
from tidelake.store.layout import RUN, new_run
from tidelake.store.retry import pause_after_conflicts
from tidelake.store.table_log import nonce_of, read_entry, seq_of

SCHEMA = pa.schema([("_time", pa.int64()), ("worker", pa.int64()), (RUN, pa.string())])
_MERGED_MAX = 6
JOIN_MAX_S = 3600.0
"""The time limit of a race: a thousand commits by eight processes take up to half an hour in S3."""
_ATTEMPTS_MAX = 20
"""The number of attempts after which a merge gives up. If the outcome of an attempt is unknown by then, the merge
goes on until it has found out."""
_UNANSWERED_MAX = 50
"""The number of unanswered attempts that a worker tolerates. After more, it fails: the store may be gone forever."""
CONFLICTS, UNKNOWN, UNANSWERED = "conflicts", "unknown outcomes", "unanswered calls"
T = TypeVar("T")
_met: Counter[str] = Counter()
"""How often this process met each kind of failure instead of committing."""


@dataclass(frozen=True)
class Race:
    """The result of a race: each acknowledged commit, and the rows that these commits appended."""

    table: Location
    acknowledged: list[dict[str, Any]]
    rows: set[tuple[int, int]]
    met: Counter[str]
    """How often the processes met a conflict, an unknown outcome, or a store that answered none of several requests."""


def race(folder: Path, seed: int, workers: int, operations: int, endpoint: str | None = None) -> Race:
    """Make `operations` commits in total with `workers` processes; a commit that loses a race is tried again.

    Args:
        folder: the folder for the processes' output; the table is in the store of a lake in this folder.
        seed: the source of all randomness.
        workers: the number of processes.
        operations: the number of commits.
        endpoint: the endpoint through which the processes, but not this one, reach S3; None: that of this process.
    """
    table = store_root(folder) / "updates"
    create_table(table, SCHEMA, {"upper": 0})
    shares = [operations // workers + (worker < operations % workers) for worker in range(workers)]
    context = multiprocessing.get_context("spawn")
    racers = [
        context.Process(target=run_worker, args=(table, seed, worker, share, str(folder / f"{worker}.jsonl")))
        for worker, share in enumerate(shares)
    ]
    with pytest.MonkeyPatch.context() as patch:
        if endpoint is not None:
            patch.setenv("AWS_ENDPOINT_URL", endpoint)
        for racer in racers:
            racer.start()
    for racer in racers:
        racer.join(JOIN_MAX_S)
    assert [racer.exitcode for racer in racers] == [0] * workers
    commits = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    rows = [tuple(commit["row"]) for commit in commits if commit["row"] is not None]
    assert len(rows) == len(set(rows))
    met = sum((Counter(json.loads(path.read_text())) for path in folder.glob("*.met")), Counter[str]())
    return Race(table, commits, set(rows), met)


def make_tables(root: Location, number: int, start: Barrier) -> None:
    """Create tables; all processes begin each table at the same moment."""
    for index in range(number):
        start.wait(60)
        create_table(root / f"table-{index}", SCHEMA, {"upper": 0})


def run_worker(path: Location, seed: int, worker: int, operations: int, words: str) -> None:
    """Append rows, and sometimes swap some live runs for a single run with all their rows."""
    rng = Random(f"{seed} {worker}")
    with Path(words).open("a", encoding="utf-8") as file:
        for number in range(operations):
            merges = rng.random() < 0.25
            row = None if merges else (number, worker)
            done = _merge(path, rng, worker) if merges else None
            if done is None:
                row = (number, worker)
                done = _append(path, row)
            file.write(json.dumps({"version": done.version, "seq": done.seq, "nonce": done.nonce, "row": row}) + "\n")
            file.flush()
            if rng.random() < 0.05:
                _answered(lambda: maintain(path))
    Path(words).with_suffix(".met").write_text(json.dumps(_met), encoding="utf-8")


def _answered(work: Callable[[], T]) -> T:
    """Repeat work, which must be safe to repeat, until the store answers all its requests."""
    for _ in range(_UNANSWERED_MAX):
        with suppress(StoreUnreachable):
            return work()
        _met[UNANSWERED] += 1
    return work()


def _settled(path: Location, unknown: list[Indeterminate]) -> Committed | None:
    """Return the commit of unknown outcome that was written after all, or None; forget those that others overtook."""
    for attempt in list(unknown):
        entry = _answered(lambda attempt=attempt: read_entry(path, attempt.version))  # type: ignore[misc]
        if entry is not None and nonce_of(entry) == attempt.nonce:
            return Committed(attempt.version, seq_of(entry) or 0, attempt.nonce)
        if entry is not None:
            unknown.remove(attempt)
    return None


def _append(path: Location, row: tuple[int, int]) -> Committed:
    """Commit a row; after a lost race, commit the same file again, as ingest does."""
    rows, total = pa.table({"_time": [row[0]], "worker": [row[1]]}), f"worker/{row[1]}"
    files = _answered(lambda: write_run(path, new_run("ingest", OpenTable(path).seq), rows))
    unknown: list[Indeterminate] = []
    unanswered = conflicts = 0
    while True:
        began_s = time.monotonic()
        try:
            table = OpenTable(path)
            if (done := _settled(path, unknown)) is not None:
                return done
            return table.commit({"upper": (table.value("upper") or 0) + 1, total: (table.value(total) or 0) + 1}, files)
        except Indeterminate as attempt:
            _met[UNKNOWN] += 1
            unknown.append(attempt)
        except Conflict:
            conflicts += 1
            _lost(conflicts, began_s)
        except StoreUnreachable:
            _met[UNANSWERED] += 1
            unanswered += 1
            if unanswered > _UNANSWERED_MAX:
                raise


def _merge(path: Location, rng: Random, worker: int) -> Committed | None:
    """Swap a few live runs for a single run; None if there were too few, or if others were always faster."""
    unknown: list[Indeterminate] = []
    attempts = conflicts = 0
    while unknown or attempts < _ATTEMPTS_MAX:
        attempts += 1
        began_s = time.monotonic()
        table = _answered(lambda: OpenTable(path))
        if (done := _settled(path, unknown)) is not None:
            return done
        files = table.files()
        runs = sorted({file.run for file in files})
        if len(runs) < 2 and not unknown:
            return None
        chosen = rng.sample(runs, min(len(runs), rng.randint(2, _MERGED_MAX)))
        run = new_run("merge", table.seq)
        try:
            rows = read_rows(path, [file for file in files if file.run in chosen], SCHEMA)
            return table.commit({}, write_run(path, run, rows), chosen)
        except Indeterminate as attempt:
            _met[UNKNOWN] += 1
            unknown.append(attempt)
        except StoreUnreachable:
            _met[UNANSWERED] += 1
        except Conflict:
            _answered(lambda run=run: discard_run(path, run))  # type: ignore[misc]
            conflicts += 1
            _lost(conflicts, began_s)
    return None


def _lost(conflicts: int, began_s: float) -> None:
    """Count an attempt that another process's commit made useless, and pause as the jobs do."""
    _met[CONFLICTS] += 1
    pause_after_conflicts(conflicts, time.monotonic() - began_s)


def rows_of(table: Location) -> Counter[tuple[int, int]]:
    """How often each row occurs in the live files."""
    rows = read_rows(table, OpenTable(table).files(), SCHEMA)
    return Counter(zip(rows["_time"].to_pylist(), rows["worker"].to_pylist(), strict=True))
