"""The proof by counting: per time, how many rows there are and how many distinct statements, without moving the rows.

Equal statements have equal fingerprints. So where a time has as many distinct fingerprints as rows, no row is a copy of
another: a proof. Everywhere else the statements themselves are compared; a fingerprint alone never removes anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructType

from tidelake.delta.conditions import all_of
from tidelake.delta.layout import DIFF, TIME

_BITS = 62


def count_fingerprints(unsealed: DataFrame, data: Sequence[str]) -> DataFrame:
    """Count rows and distinct fingerprints of the data, by time.

    In:  the data's columns, _time bigint, _diff bigint.
    Out: _time bigint (unique), rows bigint, distinct bigint, conflicts bigint (fingerprints with more than one diff).
    Cost: one exchange of three longs a row, one of the result.
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


def fingerprint(frame: DataFrame, names: Sequence[str]) -> tuple[Column, Column]:
    """128 bits, in two longs, that equal values of some columns share.

    Spark's hash skips what is null, and how long a list is: both go in beside the values.
    """
    columns = [F.col(f"`{name}`") for name in names]
    bits: list[Column] = []
    lists: list[Column] = []
    for column, name in zip(columns, names, strict=True):
        _shape(column, frame.schema[name].dataType, bits, lists)
    hashed = [*columns, *_packed(bits), *lists]
    return F.xxhash64(F.lit(1), *hashed), F.xxhash64(F.lit(2), *hashed)


def _shape(value: Column, kind: DataType, bits: list[Column], lists: list[Column]) -> None:
    """Add what a hash skips of a value: to `bits` what is null, to `lists` how long lists are and what is in them."""
    bits.append(value.isNull())
    if isinstance(kind, StructType):
        for one in kind:
            _shape(value[one.name], one.dataType, bits, lists)
    elif isinstance(kind, ArrayType):
        lists.append(F.coalesce(F.size(value), F.lit(-1)))
        lists.append(F.transform(value, lambda one: _shape_of_item(one, kind.elementType)))


def _shape_of_item(item: Column, kind: DataType) -> Column:
    bits: list[Column] = []
    lists: list[Column] = []
    _shape(item, kind, bits, lists)
    return F.struct(*(one.alias(f"_{index}") for index, one in enumerate([*_packed(bits), *lists])))


def _packed(bits: Sequence[Column]) -> list[Column]:
    """Truth values, 62 to a long."""
    return [
        reduce(
            lambda left, right: left + right,
            [F.when(one, F.lit(1 << bit)).otherwise(F.lit(0)) for bit, one in enumerate(bits[start : start + _BITS])],
            F.lit(0).cast("bigint"),
        )
        for start in range(0, len(bits), _BITS)
    ]


def group_statements(rows: DataFrame, data: Sequence[str], discards: DataFrame | None) -> DataFrame:
    """Compare the statements themselves.

    In:  the data's columns, _time, _diff; `discards` has the same columns, one row a discarded statement.
    Out: the same columns (unique), copies bigint (how often it was stated), discarded boolean.
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


def same_in(left: str, right: str, names: Sequence[str]) -> Column:
    """Whether rows of two frames, by their aliases, agree in these columns; null agrees with null."""
    return all_of(F.col(f"{left}.`{name}`").eqNullSafe(F.col(f"{right}.`{name}`")) for name in names)


def count_statements(grouped: DataFrame, data: Sequence[str]) -> DataFrame:
    """Count distinct statements by time from what `group_statements` gives.

    Out: _time (unique), distinct bigint, copies bigint (surplus rows), conflicts bigint, least, greatest bigint (the
         diffs of one conflict, null without), evidence string (the data of that conflict, as JSON).
    """
    kept = F.when(~F.col("_discarded"), F.col(DIFF))
    columns = [F.col(f"`{name}`") for name in data]
    # Names with `_` first cannot be those of a data column.
    by_data = grouped.groupBy(*columns, TIME).agg(
        F.count(kept).alias("_diffs"),
        F.min(kept).alias("_least"),
        F.max(kept).alias("_greatest"),
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
    """Rows that cancel every surplus copy and every discarded statement.

    In:  what `group_statements` gives, for sealed times.
    Out: the data's columns, _time, _diff; with the rows that were grouped they add up to each statement once.
    """
    surplus = F.when(F.col("_discarded"), F.col("_copies")).otherwise(F.col("_copies") - 1)
    return (
        grouped.withColumn("_surplus", surplus)
        .where(F.col("_surplus") > 0)
        .select(
            *(f"`{name}`" for name in data), TIME, F.explode(_cancelling(F.col(DIFF), F.col("_surplus"))).alias(DIFF)
        )
    )


def _cancelling(diff: Column, times: Column) -> Column:
    """Diffs that add up to `-diff * times`, each within int64: one number, unless that could overflow."""
    small = (diff > -(2**31)) & (diff < 2**31) & (times < 2**31)
    half = F.shiftright(diff, 1)
    return F.when(small, F.array(-diff * times)).otherwise(
        F.flatten(F.array_repeat(F.array(-half, -(diff - half)), times.cast("int")))
    )
