"""The states of keys in a range of times: the row of each key before the range, and at each time that may change it.

All DataFrames of states have the key's columns and _time (unique together), _row struct (the data's columns; null if
the key has no row) and _error string (why the row is unknown, or null). The first state of a key may have the last
time before the range. Any later state has a time in the range, and is valid until the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidelake.spark.conditions import all_of
from tidelake.spark.equality import same_in
from tidelake.spark.runtime_constant import parameter
from tidelake.store.layout import DIFF, ERROR, TIME

ROW = "_row"


@dataclass(frozen=True)
class Range:
    """The stored rows from which the changes of a range of times are derived."""

    after: int
    """The last time before the range."""
    between: DataFrame
    """The rows in the range."""
    earlier: Callable[[DataFrame | None], DataFrame]
    """Reads the rows before the range: at least those of the given keys, or all rows if no keys are given (None).

    Each call costs a scan."""
    few: bool
    """Whether every task can hold the keys of the rows in the range in memory."""


def rows_of_keys(
    rows: DataFrame, keys: DataFrame, key: Sequence[str], nullable: Collection[str], few: bool
) -> DataFrame:
    """Return the rows of some keys.

    Args:
        rows: the rows.
        keys: the keys, a DataFrame with the key's columns; copies are allowed.
        key: the key's columns.
        nullable: the columns among them that may be null; the others are compared faster.
        few: whether to broadcast the keys.
    """
    wanted = keys.select(*_quoted(key))
    wanted = F.broadcast(wanted) if few else wanted
    same = [F.col(f"_rows.`{name}`") == F.col(f"_keys.`{name}`") for name in key if name not in nullable]
    same += [same_in("_rows", "_keys", [name]) for name in key if name in nullable]
    return rows.alias("_rows").join(wanted.alias("_keys"), all_of(same), "left_semi")


def states_by_time(rows: DataFrame, key: Sequence[str], data: Sequence[str], after: int) -> DataFrame:
    """Derive the states of keys from their newest rows; of rows with equal times, a value is newer than a delete.

    In:  the data's columns, _time, _diff: all rows of these keys until the end of the range.
    Out: states.
    Cost: one exchange of the rows, by key.
    """
    value = F.when(F.col(DIFF) > 0, whole(data))
    rank = F.struct(F.col(TIME), F.col(DIFF) > 0)
    states = rows.repartition(*_quoted(key)).groupBy(*_quoted(key), state_time(after).alias("_state_time"))
    return states.agg(F.max_by(value, rank).alias(ROW)).select(
        *_quoted(key), F.col("_state_time").alias(TIME), ROW, F.lit(None).cast("string").alias(ERROR)
    )


def newest_states(rows: DataFrame, key: Sequence[str], data: Sequence[str]) -> DataFrame:
    """Derive the last state of each key from its newest row; see `states_by_time`.

    In:  the data's columns, _time, _diff.
    Out: the key's columns (unique together), _row struct (null if the key has no row).
    Cost: one exchange of at most one row for each key and task.
    """
    value = F.when(F.col(DIFF) > 0, whole(data))
    rank = F.struct(F.col(TIME), F.col(DIFF) > 0)
    return rows.groupBy(*_quoted(key)).agg(F.max_by(value, rank).alias(ROW))


def updates_of_states(states: DataFrame, key: Sequence[str], after: int) -> DataFrame:
    """Turn states into updates of rows: remove the old row and add the new one, unless the two are equal.

    In:  states.
    Out: the data's columns, _time, _diff: 1 or -1.
    Cost: nothing is exchanged if the states are partitioned by key.
    """
    by_key = Window.partitionBy(*_quoted(key)).orderBy(TIME)
    steps = states.select(TIME, F.col(ROW).alias("_new"), F.lag(ROW).over(by_key).alias("_old"))
    changed = steps.where((F.col(TIME) > parameter(after, F.col(TIME))) & ~F.col("_old").eqNullSafe(F.col("_new")))
    both = F.array(
        F.struct(F.col("_old").alias(ROW), F.lit(-1).cast("bigint").alias(DIFF)),
        F.struct(F.col("_new").alias(ROW), F.lit(1).cast("bigint").alias(DIFF)),
    )
    present = F.explode(F.filter(both, lambda update: update[ROW].isNotNull()))
    return changed.select(TIME, present.alias("_update")).select(f"_update.{ROW}.*", TIME, f"_update.{DIFF}")


def state_time(after: int) -> Column:
    """Return the time of the first state that a row can affect: the later of its own time and `after`."""
    return F.greatest(F.col(TIME), parameter(after, F.col(TIME)))


def whole(columns: Sequence[str]) -> Column:
    """Return these columns as one struct."""
    return F.struct(*(F.col(f"`{name}`") for name in columns))


def _quoted(names: Sequence[str]) -> list[str]:
    return [f"`{name}`" for name in names]
