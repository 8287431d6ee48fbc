"""Change events as a table holds them: what was stated, as it was stated, with `before` and `after`.

The model is `tidelake.debezium`. What compaction makes of rows whose times cannot be told apart any more are events
too: `after` alone, with a diff that says how often the row comes, or below 0 how often it leaves.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.debezium import AFTER, BEFORE, Interval
from tidelake.delta.conditions import all_of, any_of
from tidelake.delta.keyed import newest_rows
from tidelake.delta.layout import DIFF, TIME
from tidelake.delta.proof import fingerprint
from tidelake.delta.sums import add_up
from tidelake.delta.topic import merge_intervals
from tidelake.delta.types import spark_schema


def row_fields(event_fields: Sequence[pa.Field]) -> list[pa.Field]:
    """The columns of a row, from the columns of an event."""
    return list(next(one for one in event_fields if one.name == AFTER).type)


def rows_brought(event: Column | None = None) -> Column:
    """How many more rows there are after an event than before it: 1, 0 or -1."""
    before, after = (F.col(name) if event is None else event[name] for name in (BEFORE, AFTER))
    return after.isNotNull().cast("bigint") - before.isNotNull().cast("bigint")


def row_updates(events: DataFrame, key_before: Sequence[str] = ()) -> DataFrame:
    """The updates of rows that events stand for.

    In:  before, after struct, _time, _diff, any others.
    Out: the columns of a row, _time, _diff: `before` with the diff's negation, and `after` with the diff.

    Args:
        events: the events.
        key_before: the key's columns where `before` has just those: then it counts only where its key has no row after.
    """
    before = F.col(BEFORE)
    if key_before:
        before = F.when(~F.coalesce(_same_key(key_before), F.lit(False)), before)
    leaves = F.struct(before.alias("_row"), (-F.col(DIFF)).alias(DIFF))
    comes = F.struct(F.col(AFTER).alias("_row"), F.col(DIFF).alias(DIFF))
    stated = F.filter(F.array(leaves, comes), lambda one: one["_row"].isNotNull())
    return events.select(TIME, F.explode(stated).alias("_update")).select("_update._row.*", TIME, f"_update.{DIFF}")


def _same_key(key: Sequence[str]) -> Column:
    """Whether an event has both rows, and they have one key; null or false where not."""
    return all_of(F.col(BEFORE)[name] == F.col(AFTER)[name] for name in key)


def added_up_by_key(updates: DataFrame, row: Sequence[str], key: Sequence[str]) -> DataFrame:
    """Updates of equal rows at one time, added up.

    In, out: the columns of a row, _time, _diff.
    Cost: one exchange of whole rows, by key; what is asked of keys after it needs no other.
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
    """What is left of sealed events when times at or before `through` cannot be told apart any more.

    In, out: the columns of an event, _time, _diff.

    Args:
        sealed: the events.
        event_fields: the columns of an event.
        key: the key's columns; none where rows add up.
        through: the last of those times; -1 where there are none.
        others: from which time to which the runs that are not merged reach. At those times an update elsewhere may
            cancel one that is here.
        key_before: the key's columns where `before` has just those.
    """
    names = [one.name for one in event_fields]
    later = add_up(sealed.where(F.col(TIME) > through), [*names, TIME])
    if through < 0:
        return later
    row = [one.name for one in row_fields(event_fields)]
    updates = row_updates(sealed.where(F.col(TIME) <= through), key_before)
    if key:
        kept = _newest_updates(added_up_by_key(updates, row, key), key, through, others)
    else:
        kept = add_up(updates.withColumn(TIME, F.lit(through).cast("bigint")), [*row, TIME])
    return _as_events(kept, event_fields, row).unionByName(later)


def _newest_updates(updates: DataFrame, key: Sequence[str], through: int, others: Sequence[Interval]) -> DataFrame:
    """Of each key the newest update of a settled time, and all updates of times that are not settled."""
    reaching = merge_intervals([(first, last + 1) for first, last in others if first <= through])
    if not reaching:
        return newest_rows(updates, key).where(F.col(DIFF) > 0)
    time = F.col(TIME)
    open_times = any_of((time >= low) & (time <= end - 1) for low, end in reaching)
    return newest_rows(updates.where(~open_times), key).unionByName(updates.where(open_times))


def _as_events(updates: DataFrame, event_fields: Sequence[pa.Field], row: Sequence[str]) -> DataFrame:
    """Updates of rows as events that have `after` alone."""
    after = F.struct(*(F.col(f"`{name}`") for name in row))
    kinds = spark_schema(pa.schema(event_fields))
    columns = [(after if kind.name == AFTER else F.lit(None)).cast(kind.dataType).alias(kind.name) for kind in kinds]
    return updates.select(*columns, TIME, DIFF)


def suspect_times(unsealed: DataFrame, row: Sequence[str], key: Sequence[str]) -> DataFrame:
    """The times at which a key may be left with two rows, or with one row more than once.

    In:  the columns of an event, _time, _diff.
    Out: _time (unique). A time that is not here has no breach, unless two rows share a 128-bit fingerprint.
    Cost: two exchanges of at most two times six longs an event.
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
    """The keys that events are about.

    In:  before, after struct, _time, _diff, any others.
    Out: the key's columns, _time, _diff, _event string: one row for each event and key.
    """
    rows = F.array_distinct(F.array(*(_key_of(F.col(name), key) for name in (BEFORE, AFTER))))
    shown = F.to_json(F.struct(BEFORE, AFTER), {"ignoreNullFields": "false"})
    about = events.select(TIME, DIFF, shown.alias("_event"), F.explode(F.filter(rows, F.isnotnull)).alias("_key"))
    return about.select("_key.*", TIME, DIFF, "_event")


def suspect_times_of_keys(unsealed: DataFrame, key: Sequence[str]) -> DataFrame:
    """The times at which several events, or copies of one, are about one key, or a diff is not +1.

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


def count_key_breaches(stated: DataFrame, key: Sequence[str]) -> DataFrame:
    """Count breaches of the envelope by time, where `before` is just the key; as `keyed.count_breaches` does.

    In:  the columns of an event, _time, _diff (unique together).
    """
    by_key = (
        keys_touched(stated, key)
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
    """The key of a row as a struct; null where there is no row."""
    return F.when(row.isNotNull(), F.struct(*(row[name].alias(name) for name in key)))


def row_nets(events: DataFrame, row: Sequence[str]) -> DataFrame:
    """What events amount to, by row and time.

    In:  the columns of an event, _time, _diff.
    Out: the columns of a row, _time (unique together), _diff: the sum, or 2 or -2 where it is beyond; never 0.
    """
    nets = row_updates(events).groupBy(*(f"`{name}`" for name in row), TIME).agg(_net().alias(DIFF))
    return nets.where(F.col(DIFF) != 0)


def _net() -> Column:
    """The sum of diffs, cut to what matters: it cannot overflow."""
    return F.greatest(F.lit(-2), F.least(F.lit(2), F.sum(F.col(DIFF).cast("decimal(38,0)")))).cast("bigint")
