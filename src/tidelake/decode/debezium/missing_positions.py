"""Assigns a position to each error that has none: next to the events of its partition, or after the rows of its key.

The position is after the preceding event of its partition that the tick has read or, if there is none, directly before
the following one. If there is neither, it is after the newest row of its key. All records of a key are in one
partition, so the key's later records have higher positions. See docs/decisions/positions.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidelake.decode.debezium.columns import (
    IS_LOST,
    KEY,
    NEWEST_POSITION,
    POSITION_AFTER,
    POSITION_BEFORE,
    PREVIOUS_KEY,
    REASON,
    ROW,
    STORED_KEY,
    STORED_POSITION,
)
from tidelake.spark.conditions import all_of
from tidelake.store.layout import ERROR, POSITION

_PLACE = ("topic", "partition", "offset")


def with_positions(
    changes: DataFrame, rows: DataFrame, key: Sequence[str], erased: Sequence[int], width: int
) -> DataFrame:
    """Assign a position to each error that has none.

    In:  the DataFrame that `read_events` returns, with _position array<bigint>.
    Out: the same; _position is not null if there is an _error and no _reason.

    Args:
        changes: the tick's records.
        rows: the rows of the table: the key's columns, _position, and any other columns.
        key: the columns that identify a row.
        erased: the greatest position below which rows are, or will be, erased; empty if nothing is erased.
        width: the number of integers in an event's own position.

    Cost: one sort of the records; if no event of a partition has a position in the tick, one pass over the table's keys
        and positions.
    """
    by_offset = Window.partitionBy("topic", "partition").orderBy("offset")
    before = F.last(POSITION, ignorenulls=True).over(by_offset.rowsBetween(Window.unboundedPreceding, -1))
    after = F.first(POSITION, ignorenulls=True).over(by_offset.rowsBetween(1, Window.unboundedFollowing))
    is_lost = F.col(ERROR).isNotNull() & F.col(REASON).isNull() & F.col(POSITION).isNull()
    staged = changes.withColumns({IS_LOST: is_lost, POSITION_BEFORE: before, POSITION_AFTER: after})
    isolated = staged.where(F.col(IS_LOST) & F.col(POSITION_BEFORE).isNull() & F.col(POSITION_AFTER).isNull())
    placed = staged.join(F.broadcast(_newest_of_keys(isolated, rows, key)), list(_PLACE), "left")
    # The error may have come after the erasure, unless even the next record of its partition came before the erasure.
    floor = _numbers(erased)
    may_be_above = F.col(POSITION_AFTER).isNull() | (F.col(POSITION_AFTER) > floor)
    lower_bound = F.coalesce(POSITION_BEFORE, NEWEST_POSITION, _numbers([0]))
    base = F.greatest(lower_bound, F.when(may_be_above, floor))
    whole = F.slice(F.concat(base, _numbers([0] * width)), 1, width)
    after_base = F.concat(whole, F.array("offset"))
    before_next = F.concat(F.slice(POSITION_AFTER, F.lit(1), F.size(POSITION_AFTER) - 1), F.array("offset"))
    is_first = F.col(POSITION_BEFORE).isNull() & F.col(POSITION_AFTER).isNotNull()
    position = F.coalesce(F.col(POSITION), F.when(F.col(IS_LOST), F.when(is_first, before_next).otherwise(after_base)))
    return placed.withColumn(POSITION, position).drop(IS_LOST, POSITION_BEFORE, POSITION_AFTER, NEWEST_POSITION)


def _newest_of_keys(isolated: DataFrame, rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return, for each record, the greatest position that the table holds for the record's key or its previous key.

    Out: topic, partition, offset, _newest; records whose keys are new are left out.
    """
    now = F.struct(*(F.col(f"{ROW}.{name}") for name in key))
    keys = isolated.select(*_PLACE, F.explode(F.array_compact(F.array(now, F.col(PREVIOUS_KEY)))).alias(KEY))
    stored_key = F.struct(*(F.col(f"`{name}`") for name in key))
    stored = rows.select(stored_key.alias(STORED_KEY), F.col(POSITION).alias(STORED_POSITION))
    is_same = all_of(F.col(f"{KEY}.{name}") == F.col(f"{STORED_KEY}.{name}") for name in key)
    joined = F.broadcast(keys).join(stored, is_same)
    return joined.groupBy(*_PLACE).agg(F.max(STORED_POSITION).alias(NEWEST_POSITION))


def _numbers(numbers: Sequence[int]) -> Column:
    return F.array(*map(F.lit, numbers)).cast("array<bigint>")
