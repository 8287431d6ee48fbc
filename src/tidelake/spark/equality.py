"""Equality of rows: joins in which null equals null, and 128-bit fingerprints that equal rows share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructType

from tidelake.spark.conditions import all_of

_BITS = 62


def fingerprint(frame: DataFrame, names: Sequence[str]) -> tuple[Column, Column]:
    """Return a 128-bit fingerprint, as two longs, that rows with equal values in these columns share.

    Spark's hash skips nulls and the lengths of lists, so both are hashed alongside the values.
    """
    columns = [F.col(f"`{name}`") for name in names]
    bits: list[Column] = []
    lists: list[Column] = []
    for column, name in zip(columns, names, strict=True):
        _shape(column, frame.schema[name].dataType, bits, lists)
    hashed = [*columns, *_packed(bits), *lists]
    return F.xxhash64(F.lit(1), *hashed), F.xxhash64(F.lit(2), *hashed)


def shape_of(value: Column, kind: DataType) -> list[Column]:
    """Return the properties of a value that Spark's hash skips: which parts are null, and the lengths of lists."""
    bits: list[Column] = []
    lists: list[Column] = []
    _shape(value, kind, bits, lists)
    return [*_packed(bits), *lists]


def _shape(value: Column, kind: DataType, bits: list[Column], lists: list[Column]) -> None:
    """Add what Spark's hash skips: to `bits` whether a value is null, to `lists` the length and the shape of lists."""
    bits.append(value.isNull())
    if isinstance(kind, StructType):
        for field in kind:
            _shape(value[field.name], field.dataType, bits, lists)
    elif isinstance(kind, ArrayType):
        lists.append(F.coalesce(F.size(value), F.lit(-1)))
        lists.append(F.transform(value, lambda item: _shape_of_item(item, kind.elementType)))


def _shape_of_item(item: Column, kind: DataType) -> Column:
    return F.struct(*(part.alias(f"_{index}") for index, part in enumerate(shape_of(item, kind))))


def _packed(bits: Sequence[Column]) -> list[Column]:
    """Pack booleans, 62 into each long."""
    return [
        reduce(
            lambda left, right: left + right,
            [F.when(flag, F.lit(1 << bit)).otherwise(F.lit(0)) for bit, flag in enumerate(bits[start : start + _BITS])],
            F.lit(0).cast("bigint"),
        )
        for start in range(0, len(bits), _BITS)
    ]


def same_in(left: str, right: str, names: Sequence[str]) -> Column:
    """Return whether rows of two DataFrames, by alias, are equal in these columns; null equals null."""
    return all_of(F.col(f"{left}.`{name}`").eqNullSafe(F.col(f"{right}.`{name}`")) for name in names)
