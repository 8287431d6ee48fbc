"""Compares the contents of two collections, which may be in different stores, AS OF one time."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from tidelake.forms.sums import add_up
from tidelake.read.asked import last_time
from tidelake.read.diff import negated
from tidelake.read.snapshot import Snapshot, snapshot
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.layout import DIFF


@dataclass(frozen=True)
class Comparison:
    """The difference between two collections AS OF a time."""

    as_of: int
    columns: tuple[str, ...]
    """The ways in which their columns differ, as sentences; empty if they are the same."""
    rows: DataFrame | None
    """The rows that differ: the columns, and `_diff`, how many more times the first collection has the row; never 0.

    None if the columns differ."""
    first: Snapshot
    second: Snapshot


@dataclass(frozen=True)
class Counts:
    """The row counts of two collections."""

    first: int
    """Rows of the first collection: a row that occurs three times counts three times."""
    second: int
    only_first: int
    """Surplus rows of the first collection: a row that occurs three times there and once in the second counts twice."""
    only_second: int

    @property
    def are_equal(self) -> bool:
        """Whether no row differs."""
        return not (self.only_first or self.only_second)


def common_time(one: Collection, other: Collection) -> int:
    """Return the latest time that both collections have; a closed collection also has every later time."""
    ends = []
    for collection in (one, other):
        _, upper, closed = collection.readable_range(OpenTable(collection.paths.updates))
        ends.append((last_time(upper, closed), closed))
    open_ends = [end for end, closed in ends if not closed]
    return max(0, min(open_ends) if open_ends else max(end for end, _ in ends))


def compare(
    spark: SparkSession,
    one: Collection,
    other: Collection,
    as_of: int | None = None,
    skip_errors: bool = False,
) -> Comparison:
    """Compare two collections.

    Args:
        spark: the session.
        one: the first collection.
        other: the second collection.
        as_of: a time that both have; by default the latest.
        skip_errors: leave out keys in error.

    Raises: what `snapshot` raises, for either collection.

    Cost: two reads, and one exchange of their rows; no row comes to the driver.
    """
    time = common_time(one, other) if as_of is None else as_of
    first, second = (snapshot(spark, each, time, skip_errors=skip_errors) for each in (one, other))
    columns = _difference(_types(first.contents), _types(second.contents))
    if columns:
        return Comparison(time, columns, None, first, second)
    names = [name for name in first.contents.columns if name != DIFF]
    both = first.contents.unionByName(negated(second.contents))
    return Comparison(time, (), add_up(both, names), first, second)


def count(comparison: Comparison, rows: DataFrame) -> Counts:
    """Count the rows of a comparison.

    Args:
        comparison: the comparison.
        rows: its rows, which the caller may have persisted.
    """
    first, second = (
        read.contents.agg(F.sum(F.col(DIFF).cast(_WIDE)).alias("rows")).collect()[0]["rows"]
        for read in (comparison.first, comparison.second)
    )
    surplus = F.col(DIFF).cast(_WIDE)
    sums = rows.agg(
        F.sum(F.when(surplus > 0, surplus)).alias("first"), F.sum(F.when(surplus < 0, -surplus)).alias("second")
    ).collect()[0]
    return Counts(int(first or 0), int(second or 0), int(sums["first"] or 0), int(sums["second"] or 0))


_WIDE = "decimal(38, 0)"
"""Sums of diffs may exceed int64."""


def _types(contents: DataFrame) -> dict[str, DataType]:
    return {field.name: field.dataType for field in contents.schema if field.name != DIFF}


def _difference(first: dict[str, DataType], second: dict[str, DataType]) -> tuple[str, ...]:
    """Describe how columns differ. Nullability is not compared: the rows show the nulls."""
    found = [f"only the first has the column '{name}'" for name in first if name not in second]
    found += [f"only the second has the column '{name}'" for name in second if name not in first]
    for name, kind in first.items():
        other = second.get(name, kind).simpleString()
        if kind.simpleString() != other:
            found.append(f"the column '{name}' is {kind.simpleString()} in the first, and {other} in the second")
    return tuple(found)
