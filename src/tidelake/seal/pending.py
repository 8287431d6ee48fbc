"""The progress statements that seals still need, in one version of `progress/`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tidelake.errors import Conflict
from tidelake.protocol.message import Progress
from tidelake.store.commit import OpenTable, maintain
from tidelake.store.entry import Collection
from tidelake.store.files import discard_run, read_rows, write_run
from tidelake.store.layout import PROGRESS_SCHEMA, new_run


class Pending:
    """The pending progress statements, and the right to replace them once."""

    def __init__(self, collection: Collection, may_be_stale: bool = False) -> None:
        """Read the statements; for `may_be_stale`, see `OpenTable`.

        Cost: one read of the table, which normally has one run from the last seal, and those of later ticks.
        """
        self.path, self.epoch = collection.paths.progress, collection.entry.epoch
        self.table = OpenTable(self.path, may_be_stale=may_be_stale)
        self.rows: pa.Table = read_rows(self.path, self.table.files(), PROGRESS_SCHEMA)

    def statements(self) -> Iterator[Progress]:
        """Yield the statements as messages."""
        columns = (self.rows[name].to_pylist() for name in ("lower", "upper", "count_times", "count_values"))
        for lower, upper, times, counts in zip(*columns, strict=True):
            yield Progress(lower, upper, list(zip(times, counts, strict=True)))

    def announced(self) -> dict[int, int]:
        """Return the count that statements announce for each time that they name, independently of the ledger."""
        announced: dict[int, int] = {}
        columns = (self.rows[name].to_pylist() for name in ("count_times", "count_values"))
        for times, counts in zip(*columns, strict=True):
            announced.update(zip(times, counts, strict=True))
        return announced

    def prune(self, upper: int, closed: bool) -> None:
        """Replace the statements with what they say about times at or after `upper`; if `closed`, drop all of them."""
        remaining: dict[Any, dict[str, Any]] = {}
        # Whether a statement begins below upper. Unless it is replaced, every seal compares it with the proofs again.
        reaches_below = False
        for row in self.rows.to_pylist():
            reaches_below = reaches_below or (bool(row["lower"]) and min(row["lower"]) < upper)
            ends_before = row["upper"] and min(row["upper"]) <= upper
            if closed or ends_before or not row["lower"]:
                continue
            counts = [
                (time, count)
                for time, count in zip(row["count_times"], row["count_values"], strict=True)
                if time >= upper and count
            ]
            row["lower"] = [max(min(row["lower"]), upper)]
            row["count_times"], row["count_values"] = [time for time, _ in counts], [count for _, count in counts]
            key = (row["lower"][0], tuple(row["upper"]), tuple(sorted(counts)))
            remaining.setdefault(key, row)
        runs = sorted({file.run for file in self.table.files()})
        if not runs or (len(runs) == 1 and len(remaining) == self.rows.num_rows and not reaches_below):
            return
        self._replace(runs, pa.Table.from_pylist(list(remaining.values()), schema=PROGRESS_SCHEMA))

    def _replace(self, runs: list[str], rows: pa.Table) -> None:
        run = new_run("pending", self.table.seq)
        files = write_run(self.path, run, rows)
        try:
            self.table.commit({}, files, runs, epoch=self.epoch)
        except Conflict:  # an ingest has just appended; the next seal prunes the statements
            discard_run(self.path, run)
            return
        maintain(self.path)
