"""Reads the changes of a range of times: the consolidated updates that turn one snapshot into a later one.

If diffs are summed, these are the stored updates. With a key, the stored rows do not always state which rows they
replace, so the updates are derived from the stored rows of the range and from the earlier rows of its keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.forms.form import Form
from tidelake.forms.key_states import Range, updates_of_states
from tidelake.forms.sums import add_up
from tidelake.plugins.envelope import form_of
from tidelake.read.asked import columns_asked, readable
from tidelake.read.predicate import check_predicate
from tidelake.read.snapshot import refuse_errors, snapshot
from tidelake.store.base import LATER_ROWS_MAX
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import RunFile
from tidelake.store.layout import DIFF, ERROR, TIME
from tidelake.store.runs import read_files, spark_schema


@dataclass(frozen=True)
class Changes:
    """The changes of the times after `after`, up to and including `through`.

    `updates` has the requested columns, `_time` bigint and `_diff` bigint, never 0: at that time, the multiplicity of
    the row changes by `_diff`. The columns and `_time` are unique together, unless a sum of diffs exceeds int64. Row
    order means nothing.
    """

    after: int | None
    """None if the changes begin with the contents AS OF `since`, which have the time `since`."""
    through: int
    since: int
    upper: int
    closed: bool
    version: int
    updates: DataFrame
    files_read: int
    """Maximum number of files that the read opens."""
    rows_read: int
    """Number of rows in these files. Fewer may be read: row groups without a row of the range are skipped."""


@dataclass
class _Reads:
    """The version of a table from which changes are read, and the files that were needed."""

    spark: SparkSession
    collection: Collection
    table: OpenTable
    files: set[RunFile] = field(default_factory=set)

    def rows(self, after: int, through: int) -> DataFrame:
        """Read the rows after a time, up to and including another."""
        live = [file for file in self.table.files() if file.reach[0] <= through and file.reach[1] > after]
        self.files.update(live)
        rows = read_files(self.spark, self.table.path, live, self.collection.updates_schema())
        # Compare only if needed: Spark compiles the comparison again for each new number.
        if any(file.reach[1] > through for file in live):
            rows = rows.where(F.col(TIME) <= through)
        if any(file.reach[0] <= after for file in live):
            rows = rows.where(F.col(TIME) > after)
        return rows

    def are_few(self, after: int, through: int) -> bool:
        """Return whether the rows of a range are few enough for every task to hold their keys."""
        live = [file for file in self.table.files() if file.reach[0] <= through and file.reach[1] > after]
        return sum(file.rows for file in live) <= LATER_ROWS_MAX or self.rows(after, through).count() <= LATER_ROWS_MAX


def changes(
    spark: SparkSession,
    collection: Collection,
    after: int | None,
    through: int | None = None,
    columns: Sequence[str] = (),
    where: str | None = None,
    skip_errors: bool = False,
    table: OpenTable | None = None,
) -> Changes:
    """Read the changes of a range of times.

    Args:
        spark: the session.
        collection: the collection, with its newest catalog entry.
        after: a time in [since, upper); the range begins after it. None begins with the contents AS OF `since`.
        through: a time in [since, upper), at or after `after`; the range includes it. By default the last time.
        columns: columns of the contents; all if empty. Diffs of rows that are equal in these columns are summed.
        where: a Spark SQL predicate on the columns of the contents; other rows are left out.
        skip_errors: treat keys in error as keys without a row, so that their rows are retracted.
        table: the version of the table to read; by default the newest.

    Raises:
        SinceError: `after` or `through` is before `since`.
        UpperError: `through` is at or after upper, or nothing is sealed yet.
        ArgumentRefused: `after` is later than `through`, or one of them is not a time.
        KeysInError: there are keys in error at `after` or at a time in the range, and `skip_errors` is false.
        UnknownColumn, PredicateRefused: as for `snapshot`.

    Cost: the files with rows in the range. If the collection has a key, also the files with earlier rows: one scan with
    a semi-join by the keys in the range, and one exchange of the rows of these keys. A barrier in the range, such
    as a truncate, costs an exchange of all rows.
    """
    table = table if table is not None else OpenTable(collection.paths.updates)
    times = readable(collection, table)
    end = times.range(after, through)
    form = form_of(collection.entry, table)
    names = [field.name for field in form.fields]
    selected = columns_asked(collection, names, columns)
    if where is not None:
        check_predicate(spark, where, spark_schema(pa.schema(form.fields)))
    reads = _Reads(spark, collection, table)
    start = times.since if after is None else after
    updates = _consolidated(_updates(reads, form, start, end, skip_errors), names, selected, where)
    if after is None:
        initial = snapshot(spark, collection, start, columns, where, skip_errors, table).contents
        reads.rows(-1, start)
        updates = updates.unionByName(initial.withColumn(TIME, F.lit(start).cast("bigint")))
    rows_read = sum(file.rows for file in reads.files)
    return Changes(
        after, end, times.since, times.upper, times.closed, table.version, updates, len(reads.files), rows_read
    )


@dataclass(frozen=True)
class NewestStates:
    """The rows at the end of a range of times, for the keys that have a statement in the range.

    `states` has the key's columns (unique together) and `_row` struct, null if the key no longer has a row. The row may
    be the same as before the range.
    """

    since: int
    upper: int
    states: DataFrame


def newest_states(spark: SparkSession, collection: Collection, after: int, through: int) -> NewestStates | None:
    """Read the rows AS OF `through` of the keys that have a statement between `after` (exclusive) and `through`.

    None if they depend on earlier rows, or if the collection has no key; `changes` can be used instead.

    Raises:
        SinceError, UpperError, ArgumentRefused: as for `changes`.

    Cost: the files with rows in the range, and one exchange of at most one row for each key and task.
    """
    table = OpenTable(collection.paths.updates)
    times = readable(collection, table)
    end = times.range(after, through)
    states = form_of(collection.entry, table).newest_states(_Reads(spark, collection, table).rows(after, end))
    return None if states is None else NewestStates(times.since, times.upper, states)


def _updates(reads: _Reads, form: Form, after: int, through: int, skip_errors: bool) -> tuple[DataFrame, bool]:
    """Return the updates of a range, with all columns of the contents, and whether they are consolidated."""
    between = reads.rows(after, through)
    summed = form.row_updates(between)
    if summed is not None:
        return summed, False
    key = reads.collection.entry.key
    few = reads.are_few(after, through)
    states = form.key_states(Range(after, between, lambda keys: reads.rows(-1, after), few), not skip_errors)
    if not skip_errors and form.stores_errors:
        _refuse(reads.collection, states)
    return updates_of_states(states, key, after), True


def _refuse(collection: Collection, states: DataFrame) -> None:
    """If any key is in error, raise `KeysInError` with the earliest time of an error."""
    failed = states.where(F.col(ERROR).isNotNull())
    first = failed.agg(F.min(TIME)).collect()[0][0]
    if first is not None:
        refuse_errors(collection, failed.where(F.col(TIME) == first), first)


def _consolidated(
    updates: tuple[DataFrame, bool], names: Sequence[str], selected: Sequence[str], where: str | None
) -> DataFrame:
    """Filter updates, select columns, and add up the diffs of rows that are equal in these columns and their time."""
    rows, is_consolidated = updates
    kept = (rows if where is None else rows.where(where)).select(*(f"`{name}`" for name in selected), TIME, DIFF)
    return kept if is_consolidated and set(names) <= set(selected) else add_up(kept, [*selected, TIME])
