"""Progress statements: the driver and Spark find the same statements in damaged messages, with equal contents."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.lakes.lake import Lake, encode, progress, updates
from tests.lakes.mutations import mutate
from tidelake.decode import progress as reading
from tidelake.decode.cdcv2 import Decoder
from tidelake.decode.progress import COLUMNS, read_on_driver
from tidelake.topic.files import FileTopic
from tidelake.topic.topic import OffsetRange

pytestmark = pytest.mark.spark

RECORD = {"type": "record", "name": "data", "fields": [{"name": "id", "type": "long"}]}
WITH_INT = {"type": "record", "name": "data", "fields": [{"name": "id", "type": "int"}]}
HEADER = b"\x00" + (7).to_bytes(4, "big")
BAD = (
    progress([5], [3]),
    progress([0], [9], {9: 1}),
    progress([], [9]),
    progress([-1], [9]),
    encode({"lower": [0], "upper": [9], "counts": [{"time": 1, "count": -1}]}),
    encode({"lower": [0], "upper": [9], "counts": [{"time": 1, "count": 1}, {"time": 1, "count": 1}]}),
    b"\x02",
    b"\x02" + b"\x80" * 9 + b"\x02",
)
GOOD = (
    progress([0], [9], {1: 3, 8: 2**63 - 1}),
    progress([9], []),
    progress([4, 2], [8, 6], {3: 0}),
    progress([], []),
    progress([2**63 - 1], [2**63 - 1]),
)


def messages(random: Random, number: int) -> list[bytes]:
    """Good and bad statements, updates, and mutated statements."""
    return [*GOOD, *BAD, updates((1, 1, 1)), b"", *mutate(random, GOOD, number)]


def write_topic(folder: Path, values: list[bytes | None], headers: dict[int, list[dict[str, Any]]]) -> FileTopic:
    """Write a topic of two partitions in two Parquet files; `headers` maps the place of a value to its headers."""
    folder.mkdir()
    for number, part in enumerate((range(0, len(values), 2), range(1, len(values), 2))):
        columns = {
            "key": pa.nulls(len(part), pa.binary()),
            "value": pa.array([values[place] for place in part], pa.binary()),
            "partition": pa.array([number] * len(part), pa.int32()),
            "offset": pa.array(range(len(part)), pa.int64()),
            "timestamp": pa.nulls(len(part), pa.timestamp("us", tz="UTC")),
            "headers": pa.array(
                [headers.get(place) for place in part],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")
    return FileTopic(folder)


def both(spark: SparkSession, topic: FileTopic, offsets: OffsetRange, decoder: Decoder) -> tuple[Any, Any]:
    """The results of the driver and of Spark: the good statements in order, and how many are bad."""
    statements = decoder.progress(topic.read(spark, offsets)).select("reason", *COLUMNS).toArrow().to_pylist()
    good = [statement for statement in statements if statement.pop("reason") is None]
    read = read_on_driver(topic, offsets, decoder)
    assert read is not None
    place = ("partition", "offset")

    def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(rows, key=lambda row: [row[name] for name in place])

    return (in_order(read.good.to_pylist()), read.bad), (in_order(good), len(statements) - len(good))


@pytest.mark.parametrize("schema", [RECORD, WITH_INT], ids=["long", "int"])
def test_driver_and_spark_agree_on_bare_statements(tmp_path: Path, spark: SparkSession, schema: dict[str, Any]) -> None:
    topic = write_topic(tmp_path / "topic", [None, *messages(Random(1), 600)], {})
    offsets, _ = topic.plan({}, 10**6)
    driver, by_spark = both(spark, topic, offsets, Decoder(schema))
    assert driver == by_spark
    assert len(driver[0]) > 50
    assert driver[1] > 50


def test_driver_and_spark_agree_on_framed_statements(tmp_path: Path, spark: SparkSession) -> None:
    random = Random(2)
    framed = [HEADER + message for message in messages(random, 100)]
    framed += mutate(random, [HEADER + statement for statement in GOOD], 200)
    framed += [HEADER[:4] + b"\x08" + GOOD[0], b"\x00\x00", HEADER, HEADER + GOOD[0], HEADER + GOOD[0]]
    in_header = [{"key": "__value_schema_id", "value": b"7"}]
    other = [{"key": "trace", "value": b"x"}]
    headers = {len(framed) - 2: other, len(framed) - 1: in_header}
    topic = write_topic(tmp_path / "topic", [*framed], headers)
    whole, _ = topic.plan({}, 10**6)
    decoder = Decoder(RECORD, {7: RECORD, 9: RECORD})
    driver, by_spark = both(spark, topic, whole, decoder)
    assert driver == by_spark
    assert len(driver[0]) > 20
    assert driver[1] > 20
    part, _ = topic.plan({0: 3, 1: 5}, 40)
    assert not part.whole_files
    driver, by_spark = both(spark, topic, part, decoder)
    assert driver == by_spark
    assert driver[0]


def test_a_large_number_of_statements_is_left_to_spark_with_the_same_outcome(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates((1, 1, 1)), progress([0], [2], {1: 1}), progress([2], [3]), progress([3], [1]))
    offsets, _ = FileTopic(lake.topic).plan({}, 100)
    monkeypatch.setattr(reading, "STATEMENTS_MAX", 2)
    assert read_on_driver(FileTopic(lake.topic), offsets, Decoder(RECORD)) is None
    report = lake.ingest()
    assert (report.progress_statements, report.quarantined, report.reasons) == (2, 1, {"bad_interval": 1})
    assert lake.seal().upper == 3
