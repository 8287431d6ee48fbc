"""Processes that race on one table, without Spark: each commits small runs, by append or by swap."""

from __future__ import annotations

import json
import multiprocessing
from collections import Counter
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from tidelake.errors import Conflict
from tidelake.storage.location import Location, locate
from tidelake.store.commit import Committed, OpenTable, create_table, maintain
from tidelake.store.files import discard_run, read_rows, write_run
from tidelake.store.layout import RUN, new_run

SCHEMA = pa.schema([("_time", pa.int64()), ("worker", pa.int64()), (RUN, pa.string())])
_MERGED_MAX = 6


@dataclass(frozen=True)
class Race:
    """The result of a race: each acknowledged commit, and the rows that these commits appended."""

    table: Location
    acknowledged: list[dict[str, Any]]
    rows: set[tuple[int, int]]


def race(folder: Path, seed: int, workers: int, operations: int) -> Race:
    """Let `workers` processes make `operations` commits in total; after a lost race, a commit is tried again."""
    table = locate(folder) / "updates"
    create_table(table, SCHEMA, {"upper": 0})
    shares = [operations // workers + (worker < operations % workers) for worker in range(workers)]
    context = multiprocessing.get_context("spawn")
    racers = [
        context.Process(target=run_worker, args=(str(table), seed, worker, share, str(folder / f"{worker}.jsonl")))
        for worker, share in enumerate(shares)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(900)
    assert [racer.exitcode for racer in racers] == [0] * workers
    commits = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    rows = [tuple(commit["row"]) for commit in commits if commit["row"] is not None]
    assert len(rows) == len(set(rows))
    return Race(table, commits, set(rows))


def make_tables(folder: str, number: int, start: Barrier) -> None:
    """Create tables; all processes begin each table at the same moment."""
    for index in range(number):
        start.wait(60)
        create_table(locate(folder) / f"table-{index}", SCHEMA, {"upper": 0})


def run_worker(table: str, seed: int, worker: int, operations: int, words: str) -> None:
    """Append rows, and sometimes swap some live runs for a single run with all their rows."""
    rng = Random(f"{seed} {worker}")
    path = locate(table)
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
                maintain(path)


def _append(path: Location, row: tuple[int, int]) -> Committed:
    """Commit a row; after a lost race, commit the same file again, as ingest does."""
    files = write_run(path, new_run("ingest", OpenTable(path).seq), pa.table({"_time": [row[0]], "worker": [row[1]]}))
    while True:
        table = OpenTable(path)
        total = f"worker/{row[1]}"
        try:
            return table.commit({"upper": (table.value("upper") or 0) + 1, total: (table.value(total) or 0) + 1}, files)
        except Conflict:
            continue


def _merge(path: Location, rng: Random, worker: int) -> Committed | None:
    """Swap a few live runs for a single run; None if there were too few, or if others were always faster."""
    for _ in range(20):
        table = OpenTable(path)
        files = table.files()
        runs = sorted({file.run for file in files})
        if len(runs) < 2:
            return None
        chosen = rng.sample(runs, min(len(runs), rng.randint(2, _MERGED_MAX)))
        rows = read_rows(path, [file for file in files if file.run in chosen], SCHEMA)
        run = new_run("merge", table.seq)
        try:
            return table.commit({}, write_run(path, run, rows), chosen)
        except Conflict:
            discard_run(path, run)
    return None


def rows_of(table: Location) -> Counter[tuple[int, int]]:
    """How often each row is in the live files."""
    rows = read_rows(table, OpenTable(table).files(), SCHEMA)
    return Counter(zip(rows["_time"].to_pylist(), rows["worker"].to_pylist(), strict=True))
