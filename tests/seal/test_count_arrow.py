"""Counting in Arrow agrees with Spark's exact comparison, for all types and any mix of rows."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidelake.errors import DamagedTable
from tidelake.seal import count_arrow as counting_in_arrow
from tidelake.seal.count_arrow import SURPLUS, compensating_table, count_in_arrow
from tidelake.seal.counts import TimeCount
from tidelake.seal.fingerprints import compensating_rows, count_statements, group_statements
from tidelake.storage.location import Location, locate
from tidelake.store.files import HASHED_BYTES_MAX, RunFile, write_run
from tidelake.store.layout import DIFF, TIME
from tidelake.store.runs import read_files

KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False, None]),
    "whole": (pa.int32(), [0, 1, -(2**31)]),
    "text": (pa.string(), ["", "a", "A", "\u00e9", "e\u0301", None]),
    "raw": (pa.binary(), [b"", b"\x00", None]),
    "ratio": (pa.float64(), [0.0, -0.0, math.nan, 1.5, None]),
    "single": (pa.float32(), [0.0, -0.0, math.nan, None]),
    "money": (pa.decimal128(20, 2), [Decimal("1.10"), Decimal("-1.10"), None]),
    "day": (pa.date32(), [0, 1, None]),
    "moment": (pa.timestamp("us", tz="UTC"), [0, 1, None]),
}
SCHEMA = pa.schema(
    [
        pa.field(TIME, pa.int64()),
        pa.field(DIFF, pa.int64()),
        *(pa.field(name, kind) for name, (kind, _) in KINDS.items()),
        pa.field("_run", pa.string()),
    ]
)
DATA = list(KINDS)
WITHIN = range(3, 40)


@pytest.fixture
def table(tmp_path: Path) -> Location:
    return locate(tmp_path)


def write(table: Location, run: str, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> list[RunFile]:
    stored = pa.schema([field for field in schema if field.name != "_run"])
    return write_run(table, run, pa.Table.from_pylist(rows, stored))


def random_rows(random: Random, rows: int, columns: int) -> list[dict[str, Any]]:
    """Rows of which many are copies of others, because only a few columns vary."""
    varied = random.sample(DATA, columns)
    return [
        {TIME: random.randrange(45), DIFF: random.choice((1, 1, 1, 1, -1, 5))}
        | {name: random.choice(values) if name in varied else values[0] for name, (_, values) in KINDS.items()}
        for _ in range(rows)
    ]


@pytest.mark.spark
@pytest.mark.parametrize("bucket_rows", [7, 10**6])
@pytest.mark.parametrize("seed", range(3))
def test_rows_are_counted_as_spark_compares_them(
    table: Location, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int, bucket_rows: int
) -> None:
    monkeypatch.setattr(counting_in_arrow, "BUCKET_ROWS", bucket_rows)
    monkeypatch.setattr(counting_in_arrow, "BATCH_ROWS", 5)
    random = Random(seed)
    files = [file for run in "abc" for file in write(table, run, random_rows(random, 90, 1 + seed))]
    counts = count_in_arrow(table, files, SCHEMA, DATA, (), WITHIN)
    assert counts is not None
    rows = read_files(spark, table, files, SCHEMA).where(F.col(TIME).between(WITHIN.start, WITHIN.stop - 1))
    grouped = group_statements(rows, DATA, None)
    exact = {row[TIME]: row for row in count_statements(grouped, DATA).toArrow().to_pylist()}
    assert counts.suspects == {time for time, row in exact.items() if row["conflicts"]}
    assert set(counts.by_time) == set(exact)
    assert counts.rows == rows.count()
    for time in set(exact) - counts.suspects:
        assert counts.by_time[time] == TimeCount(exact[time]["distinct"], exact[time]["copies"])
    surplus = pa.concat_tables(counts.surplus)
    proven = surplus.filter(pa.compute.invert(pa.compute.is_in(surplus[TIME], pa.array(counts.suspects, pa.int64()))))
    assert proven.num_rows
    cancelled = grouped.where(~F.col(TIME).isin(list(counts.suspects)))
    assert as_text(compensating_table(proven)) == as_text(compensating_rows(cancelled, DATA).toArrow())


NESTED = pa.schema(
    [
        pa.field(TIME, pa.int64()),
        pa.field(DIFF, pa.int64()),
        pa.field("tags", pa.list_(pa.float64())),
        pa.field("place", pa.struct([("x", pa.float64()), ("notes", pa.list_(pa.string()))])),
        pa.field("_run", pa.string()),
    ]
)


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(3))
def test_a_bounded_number_of_nested_rows_is_counted_as_spark_compares_them(
    table: Location, spark: SparkSession, seed: int
) -> None:
    random, data = Random(seed), ["tags", "place"]
    tags: tuple[Any, ...] = ([0.0], [-0.0], [float("nan"), 1.0], [], None, [None], [1.0, 0.0])
    places = ({"x": 0.0, "notes": ["a", "b"]}, {"x": -0.0, "notes": ["a", "b"]}, {"x": None, "notes": None}, None)
    rows = [
        {TIME: random.randrange(12), DIFF: 1, "tags": random.choice(tags), "place": random.choice(places)}
        for _ in range(200)
    ]
    files = write(table, "a", rows, NESTED)
    assert count_in_arrow(table, files, NESTED, data, (), range(12), nested_rows_max=199) is None
    counts = count_in_arrow(table, files, NESTED, data, (), range(12), nested_rows_max=200)
    assert counts is not None
    grouped = group_statements(read_files(spark, table, files, NESTED), data, None)
    exact = {row[TIME]: row for row in count_statements(grouped, data).toArrow().to_pylist()}
    assert counts.by_time == {time: TimeCount(row["distinct"], row["copies"]) for time, row in exact.items()}


def as_text(rows: pa.Table) -> list[str]:
    """Rows as text that can be compared: NaN equals NaN, and both zeros are equal."""
    return sorted(
        str([0.0 if value == 0 and isinstance(value, float) else value for value in (row[name] for name in names)])
        for names in [[TIME, DIFF, *DATA]]
        for row in rows.to_pylist()
    )


KEYED = pa.schema(
    [pa.field(name, pa.int64()) for name in (TIME, DIFF, "id", "price")] + [pa.field("_run", pa.string())]
)


def test_times_at_which_a_key_may_break_the_envelope_are_suspects(table: Location) -> None:
    statements_by_time = {
        1: [(1, 5, 1), (1, 5, 1)],  # a copy
        2: [(1, 5, 1), (1, 6, 1)],  # two values
        3: [(1, 5, 1), (1, 6, -1)],  # a replacement
        4: [(1, 5, 2)],  # a diff of 2
        5: [(1, 5, -1), (2, 5, 1)],
        6: [(1, 5, 1), (1, 5, -1)],  # a contradiction
    }
    rows = [
        {TIME: time, DIFF: diff, "id": key, "price": price}
        for time, statements in statements_by_time.items()
        for key, price, diff in statements
    ]
    counts = count_in_arrow(table, write(table, "a", rows, KEYED), KEYED, ["id", "price"], ["id"], range(9))
    assert counts is not None
    assert counts.suspects == {2, 4, 6}
    assert {time: count.copies for time, count in counts.by_time.items()} == {1: 1, 2: 0, 3: 0, 4: 0, 5: 0, 6: 1}
    assert not counts.surplus  # a keyed form needs only the newest statement, so copies change nothing


def test_sums_that_could_overflow_int64_are_compared_by_spark(table: Location) -> None:
    large = 2**62
    rows = [
        {TIME: 1, DIFF: diff, "id": diff, "price": 0} for diff in (large, -large, 2**31 - 1, -(2**63)) for _ in "ab"
    ]
    counts = count_in_arrow(table, write(table, "a", rows, KEYED), KEYED, ["id", "price"], (), range(2**63))
    assert counts is not None
    assert counts.suspects == {1}
    rows = [{TIME: 2**63 - 1, DIFF: 2**31 - 1, "id": 1, "price": 0} for _ in "abc"]
    counts = count_in_arrow(table, write(table, "b", rows, KEYED), KEYED, ["id", "price"], (), range(2**63))
    assert counts is not None
    assert not counts.suspects
    (surplus,) = counts.surplus
    assert surplus[SURPLUS].to_pylist() == [2]
    assert compensating_table(surplus)[DIFF].to_pylist() == [-2 * (2**31 - 1)]


def test_nested_columns_and_too_many_rows_are_left_to_spark(table: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    nested = pa.schema([*KEYED, pa.field("tags", pa.list_(pa.string()))])
    rows = [{TIME: time, DIFF: 1, "id": 1, "price": 0, "tags": []} for time in range(10)]
    files = write(table, "a", rows, nested)
    assert count_in_arrow(table, files, nested, ["id", "price", "tags"], (), range(10)) is None
    files = write(table, "b", rows, KEYED)
    monkeypatch.setattr(counting_in_arrow, "BUCKET_ROWS", 5)
    assert count_in_arrow(table, files, KEYED, ["id", "price"], (), range(10)) is not None
    assert count_in_arrow(table, files, KEYED, ["id", "price"], (), range(20, 30)) is not None
    monkeypatch.setattr(counting_in_arrow, "HELD_BYTES_MAX", 200)
    mixed = write(table, "c", [rows[(number * 7) % 10] for number in range(10)], KEYED)
    monkeypatch.setattr(counting_in_arrow, "BATCH_ROWS", 1)
    assert count_in_arrow(table, mixed, KEYED, ["id", "price"], (), range(10)) is None
    for bound in ("_ROW_BYTES_MAX", "_ROWS_MAX"):
        with monkeypatch.context() as patched:
            patched.setattr(counting_in_arrow, bound, 1)
            assert count_in_arrow(table, files, KEYED, ["id", "price"], (), range(10)) is None


def test_a_flipped_bit_in_a_large_file_is_not_counted(table: Location) -> None:
    random = Random(5)
    rows = [{"id": random.getrandbits(62), "price": 1, TIME: n // 50_000, DIFF: 1} for n in range(200_000)]
    (file,) = write(table, "a", rows, KEYED)
    assert file.bytes > HASHED_BYTES_MAX  # the digest covers only its footer
    path = Path(str(table / file.path))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedTable, match=f"the file {file.path} cannot be read"):
        count_in_arrow(table, [file], KEYED, ["id", "price"], (), range(10))
