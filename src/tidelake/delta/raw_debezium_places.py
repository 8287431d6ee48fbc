"""Where a change event stands that does not even tell its position: behind what its key and its partition have told.

Records of one key are in one partition, so whatever comes later in it lies above. See docs/decisions/positions.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidelake.delta.conditions import all_of
from tidelake.delta.layout import POSITION

_PLACE = ("topic", "partition", "offset")


def with_places(
    changes: DataFrame, rows: DataFrame, key: Sequence[str], erased: Sequence[int], width: int
) -> DataFrame:
    """Give each error a position that has none.

    In:  what `raw_debezium.told` gives, with _position array<bigint>.
    Out: the same; _position is not null where there is an _error and no _reason.

    Args:
        changes: the tick's records.
        rows: what the table holds: the key's columns and _position, any others.
        key: the columns that name a row.
        erased: the greatest position that something is erased below, or will be; empty where there is none.
        width: how many numbers a position has that an event tells.

    Cost: one sort of the records; where a partition has no event in the tick that tells its position, one pass over
        the table's keys and positions.
    """
    by_offset = Window.partitionBy("topic", "partition").orderBy("offset")
    before = F.last(POSITION, ignorenulls=True).over(by_offset.rowsBetween(Window.unboundedPreceding, -1))
    after = F.first(POSITION, ignorenulls=True).over(by_offset.rowsBetween(1, Window.unboundedFollowing))
    lost = F.col("_error").isNotNull() & F.col("_reason").isNull() & F.col(POSITION).isNull()
    seen = changes.withColumns({"_lost": lost, "_before": before, "_after": after})
    alone = seen.where(F.col("_lost") & F.col("_before").isNull() & F.col("_after").isNull())
    placed = seen.join(F.broadcast(_newest_of_keys(alone, rows, key)), list(_PLACE), "left")
    # Whether it came before what erases, nobody knows, unless the next one of its partition did.
    floor = _numbers(erased)
    may_be_above = F.col("_after").isNull() | (F.col("_after") > floor)
    known = F.coalesce("_before", "_newest", _numbers([0]))
    base = F.greatest(known, F.when(may_be_above, floor))
    whole = F.slice(F.concat(base, _numbers([0] * width)), 1, width)
    behind = F.concat(whole, F.array("offset"))
    ahead = F.concat(F.slice("_after", F.lit(1), F.size("_after") - 1), F.array("offset"))
    own = F.when(F.col("_before").isNull() & F.col("_after").isNotNull(), ahead).otherwise(behind)
    position = F.coalesce(F.col(POSITION), F.when(F.col("_lost"), own))
    return placed.withColumn(POSITION, position).drop("_lost", "_before", "_after", "_newest")


def _newest_of_keys(alone: DataFrame, rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """The greatest position of the rows that the table holds of a record's key, or of the key that it had before.

    Out: topic, partition, offset, _newest; nothing of records whose keys are new.
    """
    now = F.struct(*(F.col(f"_row.{name}") for name in key))
    wanted = alone.select(*_PLACE, F.explode(F.array_compact(F.array(now, F.col("_left")))).alias("_key"))
    held = rows.select(F.struct(*(F.col(f"`{name}`") for name in key)).alias("_held"), F.col(POSITION).alias("_at"))
    same = all_of(F.col(f"_key.{name}") == F.col(f"_held.{name}") for name in key)
    found = F.broadcast(wanted).join(held, same)
    return found.groupBy(*_PLACE).agg(F.max("_at").alias("_newest"))


def _numbers(numbers: Sequence[int]) -> Column:
    return F.array(*(F.lit(one) for one in numbers)).cast("array<bigint>")
