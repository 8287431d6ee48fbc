"""Every type that lands, decoded on the JVM and compared with the core's codec."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.lakes.every_type import ALL, everything
from tests.lakes.lake import RECORD, Lake, encode, progress, updates
from tidelake.codec.avro import AvroCodec
from tidelake.decode.cdcv2 import Decoder
from tidelake.decode.landing import land_record
from tidelake.decode.sentinel import SENTINEL
from tidelake.errors import CodecError, MalformedMessage, SchemaRefused
from tidelake.read.snapshot import snapshot
from tidelake.store.table_schema import data_fields, updates_schema

pytestmark = pytest.mark.spark


def test_every_type_lands_as_the_codec_reads_it(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, schema=ALL)
    codec = AvroCodec(ALL)
    variants = [
        everything(),
        everything(several={"int": 5}),
        everything(several={"string": "5"}),
        everything(several={"place": {"city": "Ulm"}}),
        everything(several=None, two={"double": 0.5}),
    ]
    from tidelake.protocol.message import Progress, Updates

    lake.send(codec.encode(Updates([(datum, 1, 1) for datum in variants])), codec.encode(Progress([0], [2], [(1, 5)])))
    assert lake.run().upper == 2
    rows = [row.asDict(recursive=True) for row in snapshot(spark, lake.collection, 1).contents.collect()]
    assert len(rows) == 5
    landed = next(row for row in rows if row["several"] and row["several"]["long"] == 5)
    assert landed["several"] == {"int": None, "long": 5, "string": None, "place": None}
    assert (landed["i"], landed["l"], landed["d"], bytes(landed["by"]), landed["s"]) == (
        -(2**31),
        2**63 - 1,
        1e300,
        b"\0\xff",
        "żółw 🐢",
    )
    assert (str(landed["day"]), str(landed["ms"]), str(landed["us"])) == (
        "2022-01-08",
        "2023-11-14 22:13:20.123000",
        "1969-12-31 23:59:59.999999",
    )
    assert (landed["dec"], bytes(landed["fix"]), landed["color"], landed["again"]) == (
        Decimal("-1234.567"),
        b"abcd",
        "green",
        None,
    )
    assert (landed["list"], landed["place"], landed["home"]) == ([1, None, -1], {"city": ""}, None)
    assert (landed["two"], landed["many"]) == (
        {"float": 0.5, "double": None},
        [{"int": 1, "long": None}, {"int": None, "long": 1}],
    )
    assert sum(row["several"] is None for row in rows) == 1
    assert {"int": 5, "long": None, "string": None, "place": None} in [row["several"] for row in rows]


def test_columns_have_the_documented_types() -> None:
    schema = updates_schema(ALL)
    assert schema.names[:2] == ["_time", "_diff"]
    assert schema.field("ms").type == pa.timestamp("us", "UTC")
    assert schema.field("dec").type == pa.decimal128(20, 3)
    assert schema.field("clock").type == pa.int64()
    assert schema.field("several").type.names == ["int", "long", "string", "place"]


def test_files_have_statistics_on_time_even_if_columns_are_structs(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, schema=ALL)
    lake.send(encode([], ALL))
    codec = AvroCodec(ALL)
    from tidelake.protocol.message import Updates

    lake.send(codec.encode(Updates([(everything(), 4, 1), (everything(), 9, 1)])))
    lake.ingest()
    assert [(file.time_min, file.time_max) for file in lake.table.files()] == [(4, 9)]


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "map", "values": "long"},
        {"type": "array", "items": {"type": "map", "values": "long"}},
        ["null", {"type": "long", "logicalType": "local-timestamp-millis"}],
        ["null"],
    ],
)
def test_the_schema_of_a_table_refuses_a_type_that_cannot_land(kind: Any) -> None:
    record = {"type": "record", "name": "data", "fields": [{"name": "c", "type": kind}]}
    with pytest.raises(SchemaRefused, match="c"):
        updates_schema(record)


def test_no_prefix_of_the_sentinel_is_also_a_suffix() -> None:
    assert all(SENTINEL[size:] != SENTINEL[:-size] for size in range(1, len(SENTINEL)))


def mutated(rng: random.Random, value: bytes) -> bytes:
    changed = bytearray(value)
    for _ in range(rng.randint(1, 3)):
        choice = rng.random()
        if choice < 0.5 and changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        elif choice < 0.75:
            changed.insert(rng.randrange(len(changed) + 1), rng.randrange(256))
        elif changed:
            del changed[rng.randrange(len(changed))]
    return bytes(changed)


def test_the_jvm_accepts_and_refuses_the_same_mutated_messages_as_the_codec(spark: SparkSession) -> None:
    rng = random.Random(20_260)
    sources = [
        updates(((1, 5), 1, 1), ((2, None), 2, -1)),
        updates((3, 3, 3)),
        progress([0], [5], {1: 2, 4: 1}),
        progress([2], []),
    ]
    values = [mutated(rng, rng.choice(sources)) for _ in range(4_000)]
    raw = spark.createDataFrame(
        [(0, offset, 0, None, bytearray(value)) for offset, value in enumerate(values)],
        "partition int, offset bigint, timestamp_ms bigint, key binary, value binary",
    )
    decoder = Decoder(RECORD)
    judged: dict[int, str | None] = {}
    for frame in (decoder.progress(raw), decoder.updates(raw)):
        for row in frame.select("offset", "reason").collect():
            assert row["offset"] not in judged
            judged[row["offset"]] = row["reason"]
    codec = AvroCodec(RECORD)
    for offset, value in enumerate(values):
        expected: set[str | None] = {None}
        try:
            codec.decode(value)
        except CodecError as error:
            expected = {error.reason}
        except MalformedMessage as error:
            expected = {kind for kind, _ in error.problems}
        assert judged[offset] in expected, (offset, value.hex(), judged[offset], expected)
    assert len(judged) == len(values)
    assert sum(reason is None for reason in judged.values()) > 100


def test_a_message_is_decoded_once_unless_a_number_may_be_truncated(spark: SparkSession) -> None:
    raw = spark.createDataFrame(
        [(0, 0, 0, None, bytearray(updates((1, 1, 1))))],
        "partition int, offset bigint, timestamp_ms bigint, key binary, value binary",
    )
    from tidelake.decode.statements import explode_updates

    rows = explode_updates(Decoder(RECORD).updates(raw), RECORD).where(F.col("_time") >= 0)
    plan = rows._jdf.queryExecution().optimizedPlan().toString()
    # Once for every message, and once more for messages whose bytes may hide a truncated number.
    assert plan.count("from_avro") == 2, plan
    assert plan.count("THEN CASE WHEN NOT (to_avro(from_avro(") == 1, plan


def test_a_table_stores_the_types_that_decoding_gives() -> None:
    assert list(land_record(ALL).arrow) == data_fields(ALL)
