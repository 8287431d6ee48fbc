"""Processes that race to increment the same values of a table."""

from __future__ import annotations

import multiprocessing

from tidelake.errors import Conflict
from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable
from tidelake.store.table_log import check_log

WORKERS = 3


def count_up(table: Location, worker: int, rounds: int) -> None:
    """Make commits, each of which adds one to the worker's value and to the total; repeat those that lose a race."""
    done, name = 0, f"worker/{worker}"
    while done < rounds:
        opened = OpenTable(table)
        values = {name: (opened.value(name) or 0) + 1, "total": (opened.value("total") or 0) + 1}
        try:
            opened.commit(values)
        except Conflict:
            continue
        done += 1


def check_race(table: Location, rounds: int) -> None:
    """Run processes that race on a new table, and check that each commit counts once."""
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=count_up, args=(table, worker, rounds)) for worker in range(WORKERS)]
    for process in workers:
        process.start()
    for process in workers:
        process.join(120)
    assert [process.exitcode for process in workers] == [0] * WORKERS
    opened, commits = OpenTable(table), WORKERS * rounds
    assert [opened.value(f"worker/{worker}") for worker in range(WORKERS)] == [rounds] * WORKERS
    assert (opened.value("total"), opened.seq, opened.version) == (commits, commits, commits)
    assert check_log(table) == commits + 1
