"""DuckDB and Spark give the same rows and the same errors, for every form, type and time."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cli.commands import call
from tests.lakes.every_type import ALL, everything
from tests.lakes.generated import FORMS, Tide
from tests.lakes.lake import NAME, RECORD, Lake
from tests.lakes.positioned_table import Table
from tests.model.sources import Ticks, random_source
from tests.query.both_engines import check_all, check_changes, check_diff, check_read
from tests.sweeps import seeds
from tidelake.codec.avro import AvroCodec
from tidelake.compact import compaction
from tidelake.protocol.message import Progress, Updates

pytestmark = pytest.mark.spark


def check_stream(root: Path, spark: SparkSession, form: str, seed: str, size: tuple[int, int]) -> None:
    """Send a topic in pieces with random merges, and compare the engines in between."""
    rng = Random(f"{form}/{seed}")
    tide = Tide(root, spark, form, rng, size)
    while tide.files:
        tide.arrive(rng.randint(1, len(tide.files)))
        tide.lake.run()
        if rng.random() < 0.6:
            tide.lake.compact(full=rng.random() < 0.6)
        if tide.readable and (not tide.files or rng.random() < 0.3):
            check_all(spark, tide.lake.collection, tide.readable, rng, ["customer"], "id % 2 = 0")


def check_source(root: Path, spark: SparkSession, seed: str, length: int) -> None:
    """Read a random source of positioned statements with random merges, and compare the engines."""
    rng = Random(seed)
    table, since, last = Table(root, spark), 0, 0
    ticks = Ticks(rng, random_source(rng, 2, length), 40)
    while not ticks.done:
        if not (read := list(dict.fromkeys(ticks.tick()))):
            continue
        table.tick(read)
        last = max(last, *(statement.time for statement in read))
        if rng.random() < 0.3:
            since = rng.randint(since, (since + ticks.time) // 2)
            table.compact(since, full=rng.random() < 0.6)
    check_all(spark, table.collection, range(since, last + 1), rng, ["c1"], "id <> 'x'")


@pytest.mark.sweep
@pytest.mark.parametrize("form", ["upsert"])
def test_both_engines_agree_on_a_generated_stream(tmp_path: Path, spark: SparkSession, form: str) -> None:
    check_stream(tmp_path, spark, form, "every day", (24, 5))


@pytest.mark.sweep
def test_both_engines_agree_on_a_random_source(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "FAN_IN", 2)
    check_source(tmp_path, spark, "every day", 10)


@pytest.mark.sweep
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stream", range(40))
@pytest.mark.parametrize("seed", seeds())
def test_both_engines_agree_on_generated_streams(
    tmp_path: Path, interpreted: SparkSession, seed: int, stream: int, form: str
) -> None:
    check_stream(tmp_path, interpreted, form, f"{seed}/{stream}", (36, 6))


@pytest.mark.sweep
@pytest.mark.parametrize("source", range(100))
@pytest.mark.parametrize("seed", seeds())
def test_both_engines_agree_on_random_sources(
    tmp_path: Path, interpreted: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int, source: int
) -> None:
    monkeypatch.setattr(compaction, "FAN_IN", 2)
    check_source(tmp_path, interpreted, f"{seed}/{source}", 24)


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


@pytest.mark.parametrize("family", ["plain", "upsert"])
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
