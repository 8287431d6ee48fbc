"""A 64-bit hash of each row, and sums of hashes that tell whether two sets of rows are equal, in any order.

Equal rows have equal hashes: all NaNs are equal, and so are both zeros; an int hashes like a long, and a float like a
double. A null column adds nothing, so a new column does not change the hashes of earlier rows. The hash of a row
depends on the names of its columns, but not on their order.

`store.row_hash` computes the same hashes of an Arrow table.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructType

from tidelake.spark.column_cache import cached
from tidelake.spark.equality import shape_of

MODULUS = 2**31 - 1
"""Sums with weights are computed modulo this prime, for each half of the hash: no product and no sum overflows."""
_LOW, _HIGH = "_hash_low", "_hash_high"
_FIRST, _SECOND = "_first", "_second"


def column_id(name: str) -> int:
    """Return the int64 that stands for a column's name in hashes."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little", signed=True)


@cached
def row_hash(schema: str) -> Column:
    """Return the hash of a row, bigint, over the columns of a schema in JSON."""
    fields = StructType.fromJson(json.loads(schema)).fields
    hashes = [_column_hash(field.name, field.dataType) for field in fields]
    while len(hashes) > 1:  # in pairs: a chain would be as deep as the number of columns
        pairs = [left.bitwiseXOR(right) for left, right in zip(hashes[::2], hashes[1::2], strict=False)]
        hashes = pairs + hashes[2 * len(pairs) :]
    return F.xxhash64(hashes[0])


@cached
def hash_sums(schema: str) -> list[Column]:
    """Return the aggregates from which `sum_of_hashes` computes the sum of all row hashes."""
    value = row_hash(schema)
    # Each half is below 2**32, so no sum of fewer than 2**31 rows overflows.
    low, high = value.bitwiseAND(F.lit(0xFFFFFFFF)), F.shiftrightunsigned(value, 32)
    return [F.sum(low).alias(_LOW), F.sum(high).alias(_HIGH)]


def sum_of_hashes(aggregates: Mapping[str, int | None]) -> str:
    """Return the sum of all row hashes modulo 2**64, as 16 hexadecimal digits.

    >>> sum_of_hashes({"_hash_low": 2**33, "_hash_high": 1})
    '0000000300000000'
    """
    return as_text(((aggregates[_HIGH] or 0) << 32) + (aggregates[_LOW] or 0))


def as_text(total: int) -> str:
    """Return a sum of row hashes modulo 2**64, as 16 hexadecimal digits."""
    return f"{total % 2**64:016x}"


def weighted_sums(value: Column, weight: Column, name: str = "_weighted") -> list[Column]:
    """Return the aggregates from which `weighted_sum` computes the sum of hashes, each multiplied by a weight.

    Args:
        value: the hash, bigint.
        weight: any integer; its type may be decimal. The sum is linear in it: rows whose weights cancel add nothing.
        name: the prefix of the aggregates' names.
    """
    factor = F.pmod(weight, F.lit(MODULUS)).cast("bigint")
    halves = {_FIRST: value.bitwiseAND(F.lit(MODULUS)), _SECOND: F.shiftrightunsigned(value, 33)}
    return [F.sum(factor * half % MODULUS).alias(name + part) for part, half in halves.items()]


def weighted_names(name: str) -> tuple[str, str]:
    """Return the names of the aggregates of `weighted_sums`; each can be added up further."""
    return name + _FIRST, name + _SECOND


def weighted_sum(aggregates: Mapping[str, int | None], name: str = "_weighted") -> tuple[int, int]:
    """Return the sum of weighted hashes, modulo `MODULUS` for each half; see `add_halves` for adding up such sums.

    >>> weighted_sum({"_weighted_first": 2**31, "_weighted_second": None})
    (1, 0)
    """
    return (aggregates[name + _FIRST] or 0) % MODULUS, (aggregates[name + _SECOND] or 0) % MODULUS


def add_halves(sums: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Add up weighted sums, half by half.

    >>> add_halves([(2**31 - 2, 1), (3, 4)]), add_halves([])
    ((2, 5), (0, 0))
    """
    first, second = 0, 0
    for one, other in sums:
        first, second = (first + one) % MODULUS, (second + other) % MODULUS
    return first, second


def _column_hash(name: str, kind: DataType) -> Column:
    column = F.col(f"`{name}`")
    shape = shape_of(column, kind) if isinstance(kind, StructType | ArrayType) else []
    value = F.xxhash64(F.lit(column_id(name)).cast("bigint"), _widest(column, kind), *shape)
    return F.when(column.isNotNull(), value).otherwise(F.lit(0).cast("bigint"))


def _widest(column: Column, kind: DataType) -> Column:
    """Return the value in the widest type of its kind."""
    match kind.typeName():
        case "boolean" | "byte" | "short" | "integer":
            return column.cast("bigint")
        case "float":
            return column.cast("double")
        case "date":
            return F.unix_date(column).cast("bigint")
        case "timestamp":
            return F.unix_micros(column)
    return column
