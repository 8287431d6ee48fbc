"""Counts by fingerprint: the number of rows and of distinct statements at each time, without moving the rows.

Equal statements have equal fingerprints. If a time has as many distinct fingerprints as rows, this proves that no row
is a copy of another. Otherwise the statements themselves are compared; a fingerprint alone never removes anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.spark.equality import fingerprint, same_in
from tidelake.store.layout import DIFF, TIME


def count_fingerprints(unsealed: DataFrame, data: Sequence[str]) -> DataFrame:
    """Count rows and distinct fingerprints of the data, by time.

    In:  the data's columns, _time bigint, _diff bigint.
    Out: _time bigint (unique), rows bigint, distinct bigint, conflicts bigint (fingerprints with more than one diff).
    Cost: one exchange of three longs per row, and one of the result.
    """
    high, low = fingerprint(unsealed, data)
    marked = unsealed.select(TIME, DIFF, high.alias("_high"), low.alias("_low"))
    by_fingerprint = marked.groupBy(TIME, "_high", "_low").agg(
        F.count(F.lit(1)).alias("n"), F.min(DIFF).alias("least"), F.max(DIFF).alias("greatest")
    )
    return by_fingerprint.groupBy(TIME).agg(
        F.sum("n").alias("rows"),
        F.count(F.lit(1)).alias("distinct"),
        F.count_if(F.col("least") != F.col("greatest")).alias("conflicts"),
    )


def group_statements(rows: DataFrame, data: Sequence[str], discards: DataFrame | None) -> DataFrame:
    """Compare the statements themselves.

    In:  the data's columns, _time, _diff; `discards` has the same columns, one row for each discarded statement.
    Out: the same columns (unique), _copies bigint (how many times the statement was made), _discarded boolean.
    Cost: one exchange of whole rows.
    """
    grouped = rows.groupBy(*(f"`{name}`" for name in data), TIME, DIFF).agg(F.count(F.lit(1)).alias("_copies"))
    if discards is None:
        return grouped.withColumn("_discarded", F.lit(False))
    left, right = (
        grouped.alias("stated"),
        F.broadcast(discards.distinct().withColumn("_discarded", F.lit(True))).alias("ruled"),
    )
    return left.join(right, same_in("stated", "ruled", [*data, TIME, DIFF]), "left").select(
        "stated.*", F.coalesce(F.col("ruled._discarded"), F.lit(False)).alias("_discarded")
    )


def count_statements(grouped: DataFrame, data: Sequence[str]) -> DataFrame:
    """Count distinct statements by time.

    In:  the result of `group_statements`.
    Out: _time (unique), distinct bigint, copies bigint (surplus rows), conflicts bigint, least, greatest bigint (the
         diffs of one conflict, or null), evidence string (the data of that conflict, as JSON).
    """
    effective = F.when(~F.col("_discarded"), F.col(DIFF))
    columns = [F.col(f"`{name}`") for name in data]
    # No data column's name begins with `_`.
    by_data = grouped.groupBy(*columns, TIME).agg(
        F.count(effective).alias("_diffs"),
        F.min(effective).alias("_least"),
        F.max(effective).alias("_greatest"),
        F.sum(F.when(F.col("_discarded"), F.col("_copies")).otherwise(F.col("_copies") - 1)).alias("_surplus"),
    )
    clash = F.col("_diffs") > 1
    first = F.when(clash, F.col("_least"))
    return by_data.groupBy(TIME).agg(
        F.count_if(F.col("_diffs") > 0).alias("distinct"),
        F.sum("_surplus").alias("copies"),
        F.count_if(clash).alias("conflicts"),
        F.min_by(F.col("_least"), first).alias("least"),
        F.min_by(F.col("_greatest"), first).alias("greatest"),
        F.min_by(F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}), first).alias("evidence"),
    )


def compensating_rows(grouped: DataFrame, data: Sequence[str]) -> DataFrame:
    """Return rows that cancel every surplus copy and every discarded statement.

    In:  the result of `group_statements`, for sealed times.
    Out: the data's columns, _time, _diff. Together with the stored rows, they give each statement its effect once,
         and a discarded statement none.
    """
    surplus = F.when(F.col("_discarded"), F.col("_copies")).otherwise(F.col("_copies") - 1)
    return (
        grouped.withColumn("_surplus", surplus)
        .where(F.col("_surplus") > 0)
        .select(
            *(f"`{name}`" for name in data), TIME, F.explode(_cancelling(F.col(DIFF), F.col("_surplus"))).alias(DIFF)
        )
    )


def _cancelling(diff: Column, copies: Column) -> Column:
    """Return diffs that add up to `-diff * copies`: one number, or several if one could exceed int64."""
    small = (diff > -(2**31)) & (diff < 2**31) & (copies < 2**31)
    half = F.shiftright(diff, 1)
    return F.when(small, F.array(-diff * copies)).otherwise(
        F.flatten(F.array_repeat(F.array(-half, -(diff - half)), copies.cast("int")))
    )
