"""Keeping the small tables small in files: `proofs`, `quarantine` and the like gain a file or more with every tick."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tidelake.delta.commit import OpenTable, maintain
from tidelake.delta.compaction import FAN_IN, Run, live_runs
from tidelake.delta.files import discard_run, read_rows, write_run
from tidelake.delta.layout import new_run
from tidelake.delta.stops import reach
from tidelake.errors import Conflict

_ROWS_MAX = 1_000_000
_BYTES_MAX = 64 * 2**20


def merge_small_files(path: Path, schema: pa.Schema, epoch: int) -> int:
    """Merge runs of one kind and tier wherever eight have gathered; say how many merges there were.

    Rows are kept as they are. Kinds stay apart, as their readers tell them by the names of runs.
    Cost: amortised logarithmic in the rows; the driver reads at most a million rows and 64 MiB for one merge.
    """
    merges = 0
    while True:
        table = OpenTable(path)
        chosen = _chosen(live_runs(table.files()))
        if not chosen:
            return merges
        rows = read_rows(path, [file for run in chosen for file in run.files], schema)
        run = new_run(chosen[0].name.partition("-")[0])
        merged = write_run(path, run, rows)
        reach("tidy.after_write")
        try:
            table.commit({}, merged, [one.name for one in chosen], epoch)
        except Conflict:  # somebody has just appended; the next run merges
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
