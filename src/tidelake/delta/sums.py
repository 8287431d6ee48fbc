"""Adding up diffs exactly, whatever their size."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.delta.layout import DIFF


def add_up(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Sum `_diff` by `keys` exactly; zeros vanish. A sum beyond int64 comes as several rows that add up to it."""
    # The halves of 32 bits cannot overflow, whatever is added up.
    grouped = rows.groupBy(*(f"`{name}`" for name in keys)).agg(
        F.sum(F.shiftright(DIFF, 32)).alias("_high"), F.sum(F.col(DIFF).bitwiseAND(F.lit(0xFFFFFFFF))).alias("_low")
    )
    carried = grouped.select(
        *(f"`{name}`" for name in keys),
        (F.col("_high") + F.shiftright("_low", 32)).alias("_high"),
        F.col("_low").bitwiseAND(F.lit(0xFFFFFFFF)).alias("_low"),
    )
    fits = (F.col("_high") >= -(2**31)) & (F.col("_high") < 2**31)
    total = F.shiftleft("_high", 32).bitwiseOR(F.col("_low"))
    return (
        carried.where((F.col("_high") != 0) | (F.col("_low") != 0))
        .select(
            *(f"`{name}`" for name in keys),
            F.explode(F.when(fits, F.array(total)).otherwise(_pieces(F.col("_high"), F.col("_low")))).alias(DIFF),
        )
        .where(F.col(DIFF) != 0)
    )


def _pieces(high: Column, low: Column) -> Column:
    """Numbers within int64 that add up to `high * 2**32 + low`, for a `high` that does not fit 32 bits."""
    step = F.lit(2**30)
    whole = F.expr("cast(_high div 1073741824 as int)")
    rest = high - whole.cast("bigint") * step
    piece = F.when(high < 0, F.lit(-(2**62))).otherwise(F.lit(2**62))
    return F.concat(F.array_repeat(piece, F.abs(whole)), F.array(F.shiftleft(rest, 32).bitwiseOR(low)))
