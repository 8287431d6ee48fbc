"""The counts at open times: the type that passes through a seal, from counting to the proof and the commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class TimeCount:
    """The counts at one open time."""

    distinct: int
    """The number of distinct statements, without discarded statements."""
    copies: int = 0
    """The number of surplus rows: copies, and every row of a discarded statement."""
    conflict: tuple[int, int] | None = None
    """Two diffs that are stated for the same data."""
    evidence: str | None = None
    """The data of a conflict or a breach, as JSON."""
    doubled: int = 0
    """The number of keys with two values; 0 without keys."""
    large: int = 0
    """In collections with a key, the number of statements whose diff is neither +1 nor -1; otherwise 0."""
    differing: int = 0
    """With transactions, the number of events that differ from their copies, after all discards; otherwise 0."""


@dataclass
class OpenCounts:
    """The counts at all open times."""

    rows: int = 0
    by_time: dict[int, TimeCount] = field(default_factory=dict)
    suspects: set[int] = field(default_factory=set)
    """The times whose counts are valid only once Spark has compared the statements themselves."""
    surplus: list[pa.Table] = field(default_factory=list)
    """If diffs are summed, the statements that have copies: the data's columns, _time, _diff, number of copies."""
    statements: DataFrame | None = None
    """The result of `fingerprints.group_statements` for the times that Spark compared; see `OpenRows.count`."""

    def add(self, other: OpenCounts) -> None:
        """Add the counts at other times."""
        self.rows += other.rows
        self.by_time |= other.by_time
        self.suspects |= other.suspects
        self.surplus += other.surplus
