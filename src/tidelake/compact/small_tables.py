"""Merges the files of small tables, such as `proofs` and `quarantine`: each commit adds at least one file to them."""

from __future__ import annotations

import pyarrow as pa

from tidelake.compact.compaction import FAN_IN, Run, live_runs
from tidelake.errors import Conflict
from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable, maintain
from tidelake.store.failpoints import reach
from tidelake.store.files import discard_run, read_rows, write_run
from tidelake.store.layout import new_run

_ROWS_MAX = 1_000_000
_BYTES_MAX = 64 * 2**20


def merge_small_files(path: Location, schema: pa.Schema, epoch: int) -> int:
    """Merge groups of eight or more runs of one kind and tier that fit in the driver; return the number of merges.

    Rows do not change. Kinds are not mixed: readers distinguish them by the names of runs.

    Cost: each row is merged O(log n) times, n being the number of rows; the driver reads at most a million rows and
    64 MiB for one merge.
    """
    merges = 0
    while True:
        table = OpenTable(path)
        chosen = _chosen(live_runs(table.files()))
        if not chosen:
            return merges
        rows = read_rows(path, [file for run in chosen for file in run.files], schema)
        run = new_run(chosen[0].name.partition("-")[0], table.seq)
        merged = write_run(path, run, rows)
        reach("tidy.after_write")
        try:
            table.commit({}, merged, [old.name for old in chosen], epoch)
        except Conflict:  # another process has just committed; the next compaction tries again
            discard_run(path, run)
            return merges
        reach("tidy.after_commit")
        maintain(path)
        merges += 1


def _chosen(runs: list[Run]) -> list[Run]:
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.name.partition("-")[0], run.tier), []).append(run)
    for group in groups.values():
        size = sum(file.bytes for run in group for file in run.files)
        if len(group) >= FAN_IN and sum(run.rows for run in group) <= _ROWS_MAX and size <= _BYTES_MAX:
            return group
    return []
