"""Recorded retention: which rows were removed from the contents of an append-only collection, when, and by which rule.

A commit that removes rows states the time and the number of all rows removed so far. Before that commit, a note with
the same numbers is appended to `proofs/`. A note counts only if the table's state or the next note refers to it, so the
note of a process that was stopped before its commit does not count. Needs no JVM.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelake.errors import DamagedTable
from tidelake.protocol.iso_times import iso_to_the_second
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import read_rows
from tidelake.store.format import FORMAT, RETENTION_VERSION
from tidelake.store.layout import PROOFS_SCHEMA, RETENTION_RUN, TIME
from tidelake.store.state import LEFT_AT, ROWS_LEFT


@dataclass(frozen=True)
class Departure:
    """Rows that retention removed from the contents at one time."""

    time: int
    before: int | None
    """The previous time at which rows were removed; None if these are the first."""
    rows: int
    """Number of rows; a row that occurs twice counts twice."""
    total: int
    """Number of rows removed so far, including these."""
    column: str
    """The column that says how old a row is, or `_time`."""
    cutoff_ms: int
    """Rows were removed if their point in time was before this one, in milliseconds since 1970."""
    at_ms: int
    """When they were removed, by the clock of the process, in milliseconds since 1970."""

    @property
    def sentence(self) -> str:
        """The removal, in words."""
        rows, were = ("1 row", "was") if self.rows == 1 else (f"{self.rows:,} rows", "were")
        cutoff = iso_to_the_second(self.cutoff_ms)
        return f"{rows} with `{self.column}` before {cutoff} {were} removed from the contents"

    @property
    def values(self) -> dict[str, int]:
        """The values set by the commit that removes the rows."""
        return {LEFT_AT: self.time, ROWS_LEFT: self.total, FORMAT: RETENTION_VERSION}

    @property
    def note(self) -> dict[str, Any]:
        """The row of its note in `proofs/`."""
        return {
            TIME: self.time,
            "kind": "retention",
            "lower": self.before,
            "upper": self.cutoff_ms,
            "counted": self.rows,
            "announced": self.total,
            "detail": json.dumps({"column": self.column}),
            "at_ms": self.at_ms,
        }

    def as_json(self) -> dict[str, Any]:
        """Return, as JSON values, the fields that people see."""
        names = ("time", "rows", "total", "column", "cutoff_ms", "at_ms")
        return {name: getattr(self, name) for name in names}


def read_departures(collection: Collection, table: OpenTable) -> list[Departure]:
    """Return what retention had removed from the contents as of a version of the updates table, oldest first.

    Raises:
        DamagedTable: a note is missing.

    Cost: nothing if no row was removed; otherwise reads the notes in `proofs/`, one for each time at which rows were
    removed.
    """
    time, total = table.value(LEFT_AT), table.value(ROWS_LEFT) or 0
    if time is None:
        return []
    path = collection.paths.proofs
    files = [file for file in OpenTable(path).files() if file.run.startswith(RETENTION_RUN)]
    rows = read_rows(path, files, PROOFS_SCHEMA).sort_by("at_ms").to_pylist()
    # Notes with the same time and total agree on the contents; the newest describes the commit.
    notes = {(row[TIME], row["announced"]): row for row in rows}
    chain: list[Departure] = []
    while time is not None:
        row = notes.pop((time, total), None)
        if row is None:
            raise DamagedTable(str(path), f"the note of the rows removed at time {time} is missing")
        chain.append(_departure(row))
        time, total = row["lower"], total - row["counted"]
    return chain[::-1]


def _departure(row: Mapping[str, Any]) -> Departure:
    column = json.loads(row["detail"])["column"]
    return Departure(row[TIME], row["lower"], row["counted"], row["announced"], column, row["upper"], row["at_ms"])
