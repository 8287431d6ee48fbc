"""DuckDB and Spark give the same rows and the same errors, for every form, type and time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cli.commands import call
from tests.lakes.every_type import ALL, everything
from tests.lakes.lake import NAME, RECORD, Lake, progress, updates
from tests.query.both_engines import check_changes, check_diff, check_read
from tests.sweeps import swept
from tidelake.codec.avro import AvroCodec
from tidelake.protocol.message import Progress, Updates
from tidelake.query.contents import contents

pytestmark = pytest.mark.spark


NESTED = {
    "type": "array",
    "items": [{"type": "record", "name": "at", "fields": [{"name": "raw", "type": ["null", "double"]}]}, "string"],
}
UNUSUAL: list[dict[str, Any]] = [
    {"d": float("nan"), "f": float("-inf"), "us": 2**63 - 1, "day": 2**31 - 1, "dec": b"\x00"},
    {"d": float("nan"), "f": float("inf"), "us": -(2**63), "day": -(2**31), "place": None},
    {"d": -0.0, "f": -0.0, "two": {"double": -0.0}},
    {"d": 0.0, "f": 0.0, "two": {"double": 0.0}},
    {"d": 1e22, "f": 1e-45, "several": {"place": {"city": "x"}}, "home": {"city": "ż"}},
    {"d": 5e-324, "f": 16777216.0, "several": None, "list": []},
    {"d": 0.001, "f": 0.1, "by": b"", "again": "red", "list": [None]},
    {"d": 12345678.9, "f": 1e7, "ms": -(2**63) // 1000 + 1, "many": []},
]


@pytest.mark.parametrize("family", swept(["plain", "upsert"], ["upsert"]))
def test_both_engines_agree_on_every_type_down_to_the_printed_text(
    tmp_path: Path, spark: SparkSession, family: str
) -> None:
    schema = {**ALL, "fields": [*ALL["fields"], {"name": "nested", "type": NESTED}]}
    values = [{"at": {"raw": -0.0}}, {"at": {"raw": None}}, {"string": "\n\u202e"}, {"at": {"raw": float("nan")}}]
    rows = [everything(s=str(number % 5), nested=values[number % 3 :], **more) for number, more in enumerate(UNUSUAL)]
    key: dict[str, Any] = {"key": ["s", "d"]} if family == "upsert" else {}
    lake = Lake(tmp_path, spark, family, schema=schema, **key)
    codec = AvroCodec(schema)
    first = [(row, 1, 1) for row in rows]
    second = [(row, 2, -1 if family == "upsert" else 2**62) for row in rows[::2]]
    lake.send(codec.encode(Updates(first)), codec.encode(Updates(second)))
    lake.send(codec.encode(Progress([0], [3], [(1, len(first)), (2, len(second))])))
    assert lake.run().upper == 3
    for time in (0, 1, 2):
        check_read(spark, lake.collection, time)
    check_diff(spark, lake.collection, 1, 2)
    check_changes(spark, lake.collection, 0, 2)
    for command in (["read"], ["read", "--as-of", "1"], ["changes"], ["diff", "--from", "0", "--to", "2"]):
        for more in ((), ("--json",)):
            asked = [command[0], NAME, *command[1:], *more, "--config", str(lake.file), "--engine"]
            assert call(*asked, "duckdb") == call(*asked, "spark"), asked


def test_rows_that_are_equal_without_the_key_are_added_up(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, "upsert", key=["id"], keep=0)
    lake.send(updates(((1, 7), 1, 1), ((2, 7), 1, 1), ((3, 8), 2, 1)), progress([0], [3], {1: 2, 2: 1}))
    lake.run()
    for merged in (False, True):
        if merged:
            lake.compact()
            lake.send(updates(((4, 7), 3, 1)), progress([3], [4], {3: 1}))
            lake.run()
        check_read(spark, lake.collection, None, columns=["price"])
        check_changes(spark, lake.collection, None, 3 if merged else 2, columns=["price"])
        read = contents(lake.collection, columns=["price"])
        assert sorted(read.rows.table().to_pylist(), key=str) == [
            {"price": 7, "_diff": 3 if merged else 2},
            {"price": 8, "_diff": 1},
        ]


def test_sums_beyond_int64_come_in_pieces_from_both_engines(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark)
    codec = AvroCodec(RECORD)
    row = {"id": 1, "price": 5}
    for time, diff in enumerate([2**63 - 1, 2**63 - 1, 1, -(2**63), -(2**63), -(2**63)], start=1):
        sealed = Progress([time if time > 1 else 0], [time + 1], [(time, 1)])
        lake.send(codec.encode(Updates([(row, time, diff)])), codec.encode(sealed))
    assert lake.run().upper == 7
    for time in range(7):
        check_read(spark, lake.collection, time)
    check_diff(spark, lake.collection, 6, 0)
