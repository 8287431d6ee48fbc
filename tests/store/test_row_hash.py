"""Row hashes of Arrow and of Spark: equal for equal rows, in any order, and different otherwise."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from tidelake.spark.row_hash import MODULUS, hash_sums, row_hash, sum_of_hashes, weighted_sum, weighted_sums
from tidelake.store.layout import DIFF, RUN, TIME
from tidelake.store.row_hash import row_hashes, sum_of_rows
from tidelake.store.runs import spark_schema

INNER = pa.struct([pa.field("x", pa.float32()), pa.field("day", pa.date32()), pa.field("of", pa.list_(pa.string()))])
SCHEMA = pa.schema(
    [
        pa.field(TIME, pa.int64()),
        pa.field(DIFF, pa.int64()),
        pa.field("flag", pa.bool_()),
        pa.field("small", pa.int32()),
        pa.field("real", pa.float32()),
        pa.field("double", pa.float64()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("short_decimal", pa.decimal128(18, 3)),
        pa.field("long_decimal", pa.decimal128(38, 4)),
        pa.field("text", pa.string()),
        pa.field("bytes", pa.binary()),
        pa.field("inner", INNER),
        pa.field("numbers", pa.list_(pa.int64())),
        pa.field("inners", pa.list_(INNER)),
    ]
)


def random_value(random: Random, kind: pa.DataType) -> Any:
    """A random value of a type, which may be an extreme one, or null."""
    if random.random() < 0.15:
        return None
    if pa.types.is_struct(kind):
        return {field.name: random_value(random, field.type) for field in kind}
    if pa.types.is_list(kind):
        return [random_value(random, kind.value_type) for _ in range(random.randrange(4))]
    if pa.types.is_floating(kind):
        return random.choice([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -2.25, random.randrange(10**6) / 4])
    if pa.types.is_boolean(kind):
        return random.random() < 0.5
    if pa.types.is_decimal(kind):
        largest = 10**kind.precision - 1
        number = random.choice([0, 1, -1, 127, 128, -128, -129, largest, -largest, random.randint(-largest, largest)])
        sign, digits = int(number < 0), tuple(int(digit) for digit in str(abs(number)))
        return Decimal((sign, digits, -kind.scale))
    if pa.types.is_date32(kind):
        return date.fromordinal(random.randint(date(1600, 1, 1).toordinal(), date(2500, 1, 1).toordinal()))
    if pa.types.is_timestamp(kind):
        return datetime.fromtimestamp(random.randrange(-(10**9), 4 * 10**9), UTC).replace(
            microsecond=random.randrange(10**6)
        )
    if pa.types.is_string(kind):
        return "".join(random.choice("aé漢𝄞 z\0") for _ in range(random.choice([0, 1, 3, 4, 7, 8, 12, 31, 32, 33, 70])))
    if pa.types.is_binary(kind):
        return random.randbytes(random.choice([0, 1, 3, 4, 7, 8, 12, 31, 32, 33, 64, 101]))
    bits = kind.bit_width - 1
    return random.choice([0, 1, -1, 2**bits - 1, -(2**bits), random.randint(-(2**bits), 2**bits - 1)])


def random_rows(seed: int, count: int) -> pa.Table:
    random = Random(seed)
    rows = [{field.name: random_value(random, field.type) for field in SCHEMA} for _ in range(count)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@pytest.mark.spark
def test_arrow_hashes_rows_as_spark_does(spark: SparkSession) -> None:
    rows = random_rows(7, 400)
    schema = spark_schema(SCHEMA).json()
    frame = spark.createDataFrame(rows).coalesce(1)
    stored = [value % 2**64 for value in frame.select(row_hash(schema).alias("h")).toArrow()["h"].to_pylist()]
    for number, field in enumerate(SCHEMA):  # so that a failure names the column
        one = pa.schema([field])
        hashed = frame.select(row_hash(spark_schema(one).json()).alias("h")).toArrow()["h"].to_pylist()
        assert [value % 2**64 for value in hashed] == row_hashes(rows.select([number])).tolist(), field
    assert stored == row_hashes(rows).tolist()
    aggregates = frame.repartition(3).agg(*hash_sums(schema)).first()
    assert isinstance(aggregates, Row)
    assert sum_of_hashes(aggregates.asDict()) == sum_of_rows(rows)


def test_equal_rows_have_equal_hashes() -> None:
    schema = pa.schema([pa.field("n", pa.int32()), pa.field("x", pa.float32())])
    wider = pa.schema([pa.field("new", pa.string()), pa.field("x", pa.float64()), pa.field("n", pa.int64())])
    values = [{"n": 5, "x": -0.0}, {"n": -1, "x": math.nan}, {"n": None, "x": 2.5}]
    reordered = [{"n": 5, "x": 0.0}, {"n": -1, "x": -math.nan}, {"n": None, "x": 2.5}]
    assert (
        row_hashes(pa.Table.from_pylist(values, schema=schema)).tolist()
        == row_hashes(pa.Table.from_pylist(reordered, schema=wider)).tolist()
    )


def test_a_value_that_moves_to_another_column_or_row_changes_the_sum() -> None:
    def total(*rows: tuple[int | None, int | None]) -> str:
        return sum_of_rows(pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]}))

    assert total((1, 2), (3, 4)) == total((3, 4), (1, 2))
    others = [((2, 1), (3, 4)), ((1, 4), (3, 2)), ((1, 2), (3, 4), (3, 4)), ((1, 2),), ((1, 2), (3, None))]
    assert total((1, 2), (3, 4)) not in {total(*rows) for rows in others}
    assert len({total(*rows) for rows in others}) == len(others)
    assert total((1, 2), (1, 2)) != total()  # two equal rows do not cancel


def test_the_run_of_a_row_is_not_hashed() -> None:
    rows = pa.table({"a": [1]})
    assert sum_of_rows(rows) == sum_of_rows(rows.append_column(RUN, pa.array(["x"])))


@pytest.mark.spark
def test_weighted_sums_are_linear(spark: SparkSession) -> None:
    values = [1, -1, 2**63 - 1, -(2**63), 12345, 0]
    weights = [1, -1, 2**62, -(2**62), 2**63 - 1, 0]
    rows = [(value, weight) for value in values for weight in weights]
    frame = spark.createDataFrame(rows, "value bigint, weight bigint")

    def summed(weight: Any) -> tuple[int, int]:
        found = frame.agg(*weighted_sums(F.col("value"), weight)).first()
        assert found is not None
        return weighted_sum(found.asDict())

    halves = [(value & MODULUS, (value % 2**64) >> 33) for value, _ in rows]
    expected = tuple(
        sum(weight * half[at] for half, (_, weight) in zip(halves, rows, strict=True)) % MODULUS for at in (0, 1)
    )
    assert summed(F.col("weight")) == expected
    assert summed(F.col("weight").cast("decimal(38,0)")) == expected
    doubled = summed(F.col("weight").cast("decimal(38,0)") * 2)
    assert doubled == tuple(2 * half % MODULUS for half in expected)
