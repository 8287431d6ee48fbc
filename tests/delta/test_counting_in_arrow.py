"""Counting in Arrow says what Spark's exact comparison says, whatever types there are and however rows are mixed."""

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

from tidelake.delta import counting_in_arrow
from tidelake.delta.counting_in_arrow import SURPLUS, compensating_table, count_in_arrow
from tidelake.delta.files import RunFile, write_run
from tidelake.delta.layout import DIFF, TIME
from tidelake.delta.proof import compensating_rows, count_statements, group_statements
from tidelake.delta.runs import read_files

KINDS = {
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


def write(table: Path, run: str, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> list[RunFile]:
    stored = pa.schema([one for one in schema if one.name != "_run"])
    return write_run(table, run, pa.Table.from_pylist(rows, stored))


def random_rows(random: Random, rows: int, columns: int) -> list[dict[str, Any]]:
    """Rows that are often copies, as only a few of their columns differ."""
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
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int, bucket_rows: int
) -> None:
    monkeypatch.setattr(counting_in_arrow, "_BUCKET_ROWS", bucket_rows)
    monkeypatch.setattr(counting_in_arrow, "_BATCH_ROWS", 5)
    random = Random(seed)
    files = [file for run in "abc" for file in write(tmp_path, run, random_rows(random, 90, 1 + seed))]
    found = count_in_arrow(tmp_path, files, SCHEMA, DATA, (), WITHIN)
    assert found is not None
    rows = read_files(spark, tmp_path, files, SCHEMA).where(F.col(TIME).between(WITHIN.start, WITHIN.stop - 1))
    grouped = group_statements(rows, DATA, None)
    exact = {one[TIME]: one for one in count_statements(grouped, DATA).toArrow().to_pylist()}
    assert found.suspects == {time for time, one in exact.items() if one["conflicts"]}
    assert set(found.distinct) == set(exact)
    assert found.rows == rows.count()
    for time in set(exact) - found.suspects:
        assert (found.distinct[time], found.copies[time]) == (exact[time]["distinct"], exact[time]["copies"])
    surplus = pa.concat_tables(found.surplus)
    proven = surplus.filter(pa.compute.invert(pa.compute.is_in(surplus[TIME], pa.array(found.suspects, pa.int64()))))
    assert proven.num_rows
    cancelled = grouped.where(~F.col(TIME).isin(list(found.suspects)))
    assert as_text(compensating_table(proven)) == as_text(compensating_rows(cancelled, DATA).toArrow())


def as_text(rows: pa.Table) -> list[str]:
    """Rows that can be compared; NaN is no other than NaN, and there is one zero."""
    return sorted(
        str([0.0 if value == 0 and isinstance(value, float) else value for value in (row[name] for name in names)])
        for names in [[TIME, DIFF, *DATA]]
        for row in rows.to_pylist()
    )


KEYED = pa.schema(
    [pa.field(name, pa.int64()) for name in (TIME, DIFF, "id", "price")] + [pa.field("_run", pa.string())]
)


def test_times_at_which_a_key_may_break_the_envelope_are_suspects(tmp_path: Path) -> None:
    stated = {
        1: [(1, 5, 1), (1, 5, 1)],  # a copy
        2: [(1, 5, 1), (1, 6, 1)],  # two values
        3: [(1, 5, 1), (1, 6, -1)],  # a replacement
        4: [(1, 5, 2)],  # twice at once
        5: [(1, 5, -1), (2, 5, 1)],
        6: [(1, 5, 1), (1, 5, -1)],  # a contradiction
    }
    rows = [
        {TIME: time, DIFF: diff, "id": key, "price": price}
        for time, statements in stated.items()
        for key, price, diff in statements
    ]
    found = count_in_arrow(tmp_path, write(tmp_path, "a", rows, KEYED), KEYED, ["id", "price"], ["id"], range(9))
    assert found is not None
    assert found.suspects == {2, 4, 6}
    assert found.copies == {1: 1, 2: 0, 3: 0, 4: 0, 5: 0, 6: 1}
    assert not found.surplus  # the newest counts: copies change nothing


def test_what_could_leave_int64_is_compared_by_spark(tmp_path: Path) -> None:
    large = 2**62
    rows = [
        {TIME: 1, DIFF: diff, "id": diff, "price": 0} for diff in (large, -large, 2**31 - 1, -(2**63)) for _ in "ab"
    ]
    found = count_in_arrow(tmp_path, write(tmp_path, "a", rows, KEYED), KEYED, ["id", "price"], (), range(2**63))
    assert found is not None
    assert found.suspects == {1}
    rows = [{TIME: 2**63 - 1, DIFF: 2**31 - 1, "id": 1, "price": 0} for _ in "abc"]
    found = count_in_arrow(tmp_path, write(tmp_path, "b", rows, KEYED), KEYED, ["id", "price"], (), range(2**63))
    assert found is not None
    assert not found.suspects
    (surplus,) = found.surplus
    assert surplus[SURPLUS].to_pylist() == [2]
    assert compensating_table(surplus)[DIFF].to_pylist() == [-2 * (2**31 - 1)]


def test_what_is_no_value_of_one_column_or_too_much_to_hold_is_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nested = pa.schema([*KEYED, pa.field("tags", pa.list_(pa.string()))])
    rows = [{TIME: time, DIFF: 1, "id": 1, "price": 0, "tags": []} for time in range(10)]
    files = write(tmp_path, "a", rows, nested)
    assert count_in_arrow(tmp_path, files, nested, ["id", "price", "tags"], (), range(10)) is None
    files = write(tmp_path, "b", rows, KEYED)
    monkeypatch.setattr(counting_in_arrow, "_BUCKET_ROWS", 5)
    assert count_in_arrow(tmp_path, files, KEYED, ["id", "price"], (), range(10)) is not None
    assert count_in_arrow(tmp_path, files, KEYED, ["id", "price"], (), range(20, 30)) is not None
    monkeypatch.setattr(counting_in_arrow, "HELD_BYTES_MAX", 200)
    mixed = write(tmp_path, "c", [rows[(one * 7) % 10] for one in range(10)], KEYED)
    monkeypatch.setattr(counting_in_arrow, "_BATCH_ROWS", 1)
    assert count_in_arrow(tmp_path, mixed, KEYED, ["id", "price"], (), range(10)) is None
    for bound in ("_ROW_BYTES_MAX", "_ROWS_MAX"):
        with monkeypatch.context() as patched:
            patched.setattr(counting_in_arrow, bound, 1)
            assert count_in_arrow(tmp_path, files, KEYED, ["id", "price"], (), range(10)) is None
