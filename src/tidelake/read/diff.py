"""The difference between the contents AS OF two times, from one version of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.forms.sums import add_up
from tidelake.plugins.envelope import form_of
from tidelake.protocol.order import INT64_MIN
from tidelake.read.snapshot import snapshot
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.holds import check_time
from tidelake.store.layout import DIFF, TIME
from tidelake.store.runs import read_files


@dataclass(frozen=True)
class Difference:
    """The difference between the contents AS OF two times.

    `rows` has the compared columns and `_diff`: a row's multiplicity at `last` minus its multiplicity at `first`, never
    0. A changed row appears twice: the old row with `_diff` -1, and the new row with 1.
    """

    first: int
    last: int
    since: int
    upper: int
    closed: bool
    version: int
    rows: DataFrame
    key: tuple[str, ...]
    """The columns that identify a row; empty if the collection has no key, or if a key column is not compared."""


@dataclass(frozen=True)
class KeyChanges:
    """The numbers of keys that were set, changed and deleted between two times."""

    set: int
    """Keys that have a row only at the last time."""
    changed: int
    """Keys whose rows at the two times differ."""
    deleted: int
    """Keys that have a row only at the first time."""


def difference(
    spark: SparkSession,
    collection: Collection,
    times: tuple[int, int],
    columns: Sequence[str] = (),
    where: str | None = None,
    skip_errors: bool = False,
) -> Difference:
    """Read the difference between the contents AS OF two times.

    Args:
        spark: the session.
        collection: the collection, with its newest catalog entry.
        times: the time whose contents are subtracted, and the time whose contents are added.
        columns: columns of the contents; all if empty. Diffs of rows that are equal in these columns are summed.
        where: a Spark SQL predicate on the columns of the contents.
        skip_errors: leave out keys in error.

    Raises: what `snapshot` raises, for either time.

    Cost: if the collection's contents are the sums of its stored diffs, the rows between the two times; otherwise two
    reads, and one exchange of their rows.
    """
    for argument, time in zip(("first", "last"), times, strict=True):
        check_time(argument, time)
    table = OpenTable(collection.paths.updates)
    before, after = (snapshot(spark, collection, time, columns, where, skip_errors, table) for time in times)
    names = [name for name in after.contents.columns if name != DIFF]
    form = form_of(collection.entry, table)
    if form.is_additive:
        first, last = sorted(times)
        between = _rows_between(spark, collection, table, first, last)
        rows = form.contents(
            between, names, lambda all_columns: all_columns if where is None else all_columns.where(where)
        )
        rows = rows if times == (first, last) else negated(rows)
    else:
        rows = add_up(after.contents.unionByName(negated(before.contents)), names)
    key = collection.entry.key if set(collection.entry.key) <= set(names) else ()
    return Difference(*times, after.since, after.upper, after.closed, table.version, rows, key)


def _rows_between(spark: SparkSession, collection: Collection, table: OpenTable, first: int, last: int) -> DataFrame:
    """Read the rows after a time, up to and including another. No merge has moved their times: `first` is readable."""
    files = [file for file in table.files() if file.reach[0] <= last and file.reach[1] > first]
    rows = read_files(spark, table.path, files, collection.updates_schema())
    return rows.where((F.col(TIME) > first) & (F.col(TIME) <= last))


def negated(rows: DataFrame) -> DataFrame:
    """Return the same rows with negated diffs. The least int64 has no negation, and becomes two rows."""
    half = F.lit(2**62)
    diffs = F.when(F.col(DIFF) == INT64_MIN, F.array(half, half)).otherwise(F.array(-F.col(DIFF)))
    names = [f"`{name}`" for name in rows.columns if name != DIFF]
    return rows.select(*names, F.explode(diffs).alias(DIFF))


def count_keys(difference: Difference) -> KeyChanges | None:
    """Count the keys that a difference adds, changes and removes; None if there is no key.

    Cost: one exchange of the rows of the difference.
    """
    if not difference.key:
        return None
    has = {"_came": F.max(F.col(DIFF) > 0), "_left": F.max(F.col(DIFF) < 0)}
    by_key = difference.rows.groupBy(*(f"`{name}`" for name in difference.key)).agg(
        *(column.alias(name) for name, column in has.items())
    )
    came, left = F.col("_came"), F.col("_left")
    counts = by_key.agg(
        F.count_if(came & ~left).alias("set"),
        F.count_if(came & left).alias("changed"),
        F.count_if(~came & left).alias("deleted"),
    ).collect()[0]
    return KeyChanges(counts["set"], counts["changed"], counts["deleted"])
