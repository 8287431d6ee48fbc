"""The form of change events: statements with `before` and `after`, stored as they were stated.

The model is `tidelake.model.events`. Where readers can no longer tell times apart, a merge combines the rows and writes
the result as events, too. These have only `after`, and a diff that says how many times the row is added or, if
negative, removed.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.forms.form import Form, RowFilter
from tidelake.forms.key_states import Range, rows_of_keys, states_by_time
from tidelake.forms.keyed import count_breaches, keyed_contents, newest_rows
from tidelake.forms.sums import add_up
from tidelake.protocol.intervals import merge_intervals
from tidelake.schema.change_events import AFTER, BEFORE, Interval
from tidelake.spark.conditions import all_of, any_of
from tidelake.spark.equality import fingerprint
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Entry
from tidelake.store.layout import DIFF, TIME
from tidelake.store.runs import spark_schema
from tidelake.store.table_schema import data_fields


class EventForm(Form):
    """Change events. With a key, the newest row of each key is kept; without a key, equal rows are added up."""

    cancels_copies = True
    moves_times = True
    is_additive = False
    makes_base = False
    key_of_values: Sequence[str] | None = None

    def __init__(self, entry: Entry, table: OpenTable | None = None) -> None:
        """Take the columns, the key and the contents of `before` from a collection's entry."""
        self.event_fields = data_fields(entry.record_schema)
        self.fields = row_fields(self.event_fields)
        self.row = [field.name for field in self.fields]
        self.key = entry.key
        self.before_is_whole = entry.before == "whole"
        # If `before` is a whole row, an event that has not arrived yet may still cancel one of two rows.
        self.breaches_stay = not self.before_is_whole

    @property
    def _key_before(self) -> Sequence[str]:
        return () if self.before_is_whole else self.key

    def contents(
        self, rows: DataFrame, columns: Sequence[str], keep: RowFilter, base: DataFrame | None = None
    ) -> DataFrame:
        """Add up the rows that events add and remove; with a key, take the newest. See `Form.contents`."""
        updates = row_updates(rows, self._key_before)
        selected = [*(f"`{name}`" for name in columns), DIFF]
        if not self.key:
            return add_up(keep(updates).select(*selected), columns)
        by_time = added_up_by_key(updates, self.row, self.key)
        return keep(keyed_contents(by_time, self.key, self.row)).select(*selected)

    def row_updates(self, rows: DataFrame) -> DataFrame | None:
        """Return the updates of rows; None with a key."""
        return None if self.key else row_updates(rows)

    def key_states(self, rows: Range, with_errors: bool) -> DataFrame:
        """Add up the updates of each touched key, and take the newest; see `Form.key_states`."""
        between = row_updates(rows.between, self._key_before)
        touched = between.select(*(f"`{name}`" for name in self.key))
        before = row_updates(rows.earlier(touched), self._key_before)
        earlier = rows_of_keys(before, touched, self.key, self.key, rows.few)
        by_time = added_up_by_key(between.unionByName(earlier), self.row, self.key)
        return states_by_time(by_time, self.key, self.row, rows.after)

    def merged(self, sealed: DataFrame, through: int, others: Sequence[Interval]) -> DataFrame:
        """Merge events; see `merged_events`."""
        return merged_events(sealed, self.event_fields, self.key, through, others, self._key_before)

    def suspect_times(self, unsealed: DataFrame) -> DataFrame | None:
        """See the functions `suspect_times` and `suspect_times_of_keys`."""
        if not self.key:
            return None
        if not self.before_is_whole:
            return suspect_times_of_keys(unsealed, self.key)
        return suspect_times(unsealed, self.row, self.key)

    def breaches(self, grouped: DataFrame) -> DataFrame | None:
        """Count the keys left with two rows or, if `before` has only the key, the keys with two events."""
        effective = grouped.where(~F.col("_discarded"))
        if not self.key:
            return None
        if not self.before_is_whole:
            return count_key_breaches(effective, self.key)
        return count_breaches(row_nets(effective, self.row), self.key, self.row)

    def rows_brought(self) -> Column:
        """See the function `rows_brought`."""
        return rows_brought()

    def rows_by_key(self, sealed: DataFrame, effects: DataFrame) -> DataFrame | None:
        """Count the rows of each key. If `before` has only the key, count the events about each key instead.

        Two events about a key at the same time break the envelope, because they have no order.
        """
        if not self.key:
            return None
        key = [f"`{name}`" for name in self.key]
        if not self.before_is_whole:
            touched = keys_touched(effects.withColumn(DIFF, F.lit(1)), self.key)
            return touched.groupBy(*key, TIME).agg(F.count(F.lit(1)).alias("_rows"))
        nets = row_updates(sealed).groupBy(*(f"`{name}`" for name in self.row), TIME)
        totals = nets.agg(F.sum(F.col(DIFF).cast("decimal(38,0)")).alias("_net"))
        return totals.groupBy(*key, TIME).agg(F.count_if(F.col("_net") > 0).alias("_rows"))


def row_fields(event_fields: Sequence[pa.Field]) -> list[pa.Field]:
    """Return the columns of a row, from the columns of an event."""
    return list(next(field for field in event_fields if field.name == AFTER).type)


def rows_brought() -> Column:
    """Return the number of rows after an event minus the number before it: 1, 0 or -1."""
    return F.col(AFTER).isNotNull().cast("bigint") - F.col(BEFORE).isNotNull().cast("bigint")


def row_updates(events: DataFrame, key_before: Sequence[str] = ()) -> DataFrame:
    """Turn events into updates of rows.

    In:  before, after struct, _time, _diff, any others.
    Out: the columns of a row, _time, _diff: `before` with the negated diff, and `after` with the diff.

    Args:
        events: the events.
        key_before: the key's columns if `before` has only those; such a `before` has an effect only if `after` is not a
            row with the same key.
    """
    before = F.col(BEFORE)
    if key_before:
        before = F.when(~F.coalesce(_same_key(key_before), F.lit(False)), before)
    leaves = F.struct(before.alias("_row"), (-F.col(DIFF)).alias(DIFF))
    comes = F.struct(F.col(AFTER).alias("_row"), F.col(DIFF).alias(DIFF))
    present = F.filter(F.array(leaves, comes), lambda update: update["_row"].isNotNull())
    return events.select(TIME, F.explode(present).alias("_update")).select("_update._row.*", TIME, f"_update.{DIFF}")


def _same_key(key: Sequence[str]) -> Column:
    """Return whether an event has both rows, and these have the same key; null or false if not."""
    return all_of(F.col(BEFORE)[name] == F.col(AFTER)[name] for name in key)


def added_up_by_key(updates: DataFrame, row: Sequence[str], key: Sequence[str]) -> DataFrame:
    """Add up the updates of equal rows at the same time.

    In, out: the columns of a row, _time, _diff.
    Cost: one exchange of whole rows, by key; a later grouping by key needs no further exchange.
    """
    return add_up(updates.repartition(*(f"`{name}`" for name in key)), [*row, TIME])


def merged_events(
    sealed: DataFrame,
    event_fields: Sequence[pa.Field],
    key: Sequence[str],
    through: int,
    others: Sequence[Interval],
    key_before: Sequence[str] = (),
) -> DataFrame:
    """Merge sealed events: no reader can tell times at or before `through` apart.

    In, out: the columns of an event, _time, _diff.

    Args:
        sealed: the events.
        event_fields: the columns of an event.
        key: the key's columns; empty if there is no key.
        through: the last time that no reader can tell from an earlier one; -1 if there is none.
        others: the first and the last time of each run that is not merged. At these times and between them, an update
            in that run may cancel one of the updates here.
        key_before: the key's columns if `before` has only those.
    """
    names = [field.name for field in event_fields]
    later = add_up(sealed.where(F.col(TIME) > through), [*names, TIME])
    if through < 0:
        return later
    row = [field.name for field in row_fields(event_fields)]
    updates = row_updates(sealed.where(F.col(TIME) <= through), key_before)
    if key:
        rows = _newest_updates(added_up_by_key(updates, row, key), key, through, others)
    else:
        rows = add_up(updates.withColumn(TIME, F.lit(through).cast("bigint")), [*row, TIME])
    return _as_events(rows, event_fields, row).unionByName(later)


def _newest_updates(updates: DataFrame, key: Sequence[str], through: int, others: Sequence[Interval]) -> DataFrame:
    """Keep each key's newest update at times that only merged runs hold, and all updates at other times."""
    reaching = merge_intervals([(first, last + 1) for first, last in others if first <= through])
    if not reaching:
        return newest_rows(updates, key).where(F.col(DIFF) > 0)
    time = F.col(TIME)
    open_times = any_of((time >= low) & (time <= end - 1) for low, end in reaching)
    return newest_rows(updates.where(~open_times), key).unionByName(updates.where(open_times))


def _as_events(updates: DataFrame, event_fields: Sequence[pa.Field], row: Sequence[str]) -> DataFrame:
    """Turn updates of rows into events that have only `after`."""
    after = F.struct(*(F.col(f"`{name}`") for name in row))
    kinds = spark_schema(pa.schema(event_fields))
    columns = [(after if kind.name == AFTER else F.lit(None)).cast(kind.dataType).alias(kind.name) for kind in kinds]
    return updates.select(*columns, TIME, DIFF)


def suspect_times(unsealed: DataFrame, row: Sequence[str], key: Sequence[str]) -> DataFrame:
    """Find the times at which a key might be left with two rows, or with one row more than once.

    In:  the columns of an event, _time, _diff.
    Out: _time (unique). Any other time has no breach, unless two rows have the same 128-bit fingerprint.
    Cost: two exchanges of at most twelve longs per event.
    """
    updates = row_updates(unsealed)
    names = ["_key_high", "_key_low", "_row_high", "_row_low"]
    marks = [*fingerprint(updates, key), *fingerprint(updates, row)]
    marked = updates.select(TIME, *(mark.alias(name) for mark, name in zip(marks, names, strict=True)), DIFF)
    nets = marked.groupBy(TIME, *names).agg(_net().alias("_net"))
    by_key = nets.groupBy(TIME, *names[:2]).agg(
        F.count_if(F.col("_net") > 0).alias("_rows"), F.max(F.abs("_net")).alias("_most")
    )
    return by_key.where((F.col("_rows") > 1) | (F.col("_most") > 1)).select(TIME).distinct()


def keys_touched(events: DataFrame, key: Sequence[str]) -> DataFrame:
    """Find the keys that events affect.

    In:  before, after struct, _time, _diff, any others.
    Out: the key's columns, _time, _diff, _event string: one row for each event and key.
    """
    rows = F.array_distinct(F.array(*(_key_of(F.col(name), key) for name in (BEFORE, AFTER))))
    shown = F.to_json(F.struct(BEFORE, AFTER), {"ignoreNullFields": "false"})
    about = events.select(TIME, DIFF, shown.alias("_event"), F.explode(F.filter(rows, F.isnotnull)).alias("_key"))
    return about.select("_key.*", TIME, DIFF, "_event")


def suspect_times_of_keys(unsealed: DataFrame, key: Sequence[str]) -> DataFrame:
    """Find the times at which several events, or copies of one, are about the same key, or at which a diff is not +1.

    In:  the columns of an event, _time, _diff.
    Out: _time (unique).
    Cost: one exchange of the keys.
    """
    by_key = keys_touched(unsealed, key).groupBy(*(f"`{name}`" for name in key), TIME)
    return (
        by_key.agg(F.count(F.lit(1)).alias("_events"), F.max(DIFF).alias("_most"))
        .where((F.col("_events") > 1) | (F.col("_most") > 1))
        .select(TIME)
        .distinct()
    )


def count_key_breaches(statements: DataFrame, key: Sequence[str]) -> DataFrame:
    """Count breaches of the envelope by time, as `keyed.count_breaches` does, if `before` has only the key's columns.

    In:  the columns of an event, _time, _diff (unique together).
    """
    by_key = (
        keys_touched(statements, key)
        .groupBy(*(f"`{name}`" for name in key), TIME)
        .agg(
            F.count(F.lit(1)).alias("_events"),
            F.count_if(F.col(DIFF) > 1).alias("_large"),
            F.sort_array(F.collect_set("_event")).alias("_shown"),
        )
    )
    evidence = F.array_join(F.slice("_shown", 1, 2), " and ")
    return (
        by_key.where((F.col("_events") > 1) | (F.col("_large") > 0))
        .groupBy(TIME)
        .agg(
            F.count_if(F.col("_events") > 1).alias("doubled"),
            F.sum("_large").alias("large"),
            F.max_by(evidence, F.col("_events")).alias("evidence"),
        )
    )


def _key_of(row: Column, key: Sequence[str]) -> Column:
    """Return the key of a row as a struct; null if there is no row."""
    return F.when(row.isNotNull(), F.struct(*(row[name].alias(name) for name in key)))


def row_nets(events: DataFrame, row: Sequence[str]) -> DataFrame:
    """Add up events by row and time.

    In:  the columns of an event, _time, _diff.
    Out: the columns of a row, _time (unique together), _diff: the sum, clamped to [-2, 2]; never 0.
    """
    nets = row_updates(events).groupBy(*(f"`{name}`" for name in row), TIME).agg(_net().alias(DIFF))
    return nets.where(F.col(DIFF) != 0)


def _net() -> Column:
    """Return the sum of diffs, clamped to [-2, 2]: larger sums need not be told apart, and nothing can overflow."""
    return F.greatest(F.lit(-2), F.least(F.lit(2), F.sum(F.col(DIFF).cast("decimal(38,0)")))).cast("bigint")
