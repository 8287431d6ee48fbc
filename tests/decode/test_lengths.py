"""The length check accepts a message only if the codec and the careful reading accept it, too."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tests.lakes.lake import RECORD, Lake, progress, updates
from tests.lakes.mutations import mutate
from tests.lakes.random_data import random_datum
from tests.sweeps import seeds, swept
from tidelake.codec.avro import AvroCodec
from tidelake.decode import columns as decoded
from tidelake.decode.cdcv2 import Decoder, Reading
from tidelake.decode.statements import explode_messages, explode_updates
from tidelake.errors import CodecError
from tidelake.ingest import cdcv2 as tick
from tidelake.protocol.message import Updates
from tidelake.schema.avro import resolved_schema
from tidelake.storage.location import Location
from tidelake.store.runs import WrittenUpdates, write_updates
from tidelake.store.state import LENGTHS_INSUFFICIENT

pytestmark = pytest.mark.spark

MESSAGES = 4_000
PLACE = {"type": "record", "name": "place", "fields": [{"name": "city", "type": ["null", "string"]}]}
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "small", "type": "int"},
    {"name": "ratio", "type": "double"},
    {"name": "part", "type": ["float", "null"]},
    {"name": "raw", "type": "bytes"},
    {"name": "name", "type": ["null", "string"]},
    {"name": "price", "type": ["null", "int"]},
    {"name": "sum", "type": ["long"]},
    {"name": "where", "type": ["null", PLACE]},
    {"name": "colour", "type": {"type": "enum", "name": "colour", "symbols": ["red", "blue", "green"]}},
    {"name": "tag", "type": {"type": "fixed", "name": "tag", "size": 4}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "ms", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
]
MANY = {"type": "record", "name": "data", "fields": FIELDS}
NOT_MEASURED: list[Any] = [
    "boolean",
    ["null", "boolean"],
    {"type": "array", "items": "long"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "enum", "name": "many", "symbols": [f"s{number}" for number in range(65)]},
    {"type": "record", "name": "inner", "fields": [{"name": "on", "type": "boolean"}]},
    ["null", "long", "string"],
]
NO_DATA = {"type": "record", "name": "data", "fields": [{"name": "id", "type": "long"}]}


def raw_of(spark: SparkSession, values: list[bytes]) -> DataFrame:
    """Messages at the offsets 0, 1, and so on."""
    rows = [(0, offset, 0, None, bytearray(value)) for offset, value in enumerate(values)]
    return spark.createDataFrame(
        rows, "partition int, offset bigint, timestamp_ms bigint, key binary, value binary"
    ).coalesce(1)


def measured(spark: SparkSession, decoder: Decoder, values: list[bytes]) -> dict[int, tuple[int, bool]]:
    """For each message: the number of bytes that its statements do not account for, and whether it is doubtful."""
    messages = decoder.updates(raw_of(spark, values), Reading.MEASURED).where(F.col("updates").isNotNull())
    statement, is_first = F.col(decoded.STATEMENT), F.coalesce(F.col(decoded.PLACE), F.lit(0)) == 0
    lengths = decoder.lengths(statement)
    message_bytes = F.when(is_first, F.col("bytes")).otherwise(0)
    statement_bytes = F.when(statement.isNotNull(), lengths.bytes).otherwise(0)
    columns = [
        F.col("offset").alias("_offset"),
        (message_bytes - statement_bytes).alias("_excess"),
        F.when(lengths.is_doubtful, True).otherwise(False).alias("_doubtful"),
    ]
    rows = explode_messages(messages, decoder.record_schema, Reading.MEASURED, columns)
    sums = rows.groupBy("_offset").agg(F.sum("_excess").alias("excess"), F.max("_doubtful").alias("doubtful"))
    return {row["_offset"]: (row["excess"], row["doubtful"]) for row in sums.collect()}


def check_damaged(spark: SparkSession, seed: int) -> None:
    """Check that no message is too short for its statements, and that messages of the right length are read exactly.

    Messages with a doubtful number or an unusable statement are left out of the second check.
    """
    text = F.col("updates").cast("string").alias("updates")  # dates may be beyond Python's range
    random = Random(seed)
    resolved = resolved_schema(MANY)
    codec = AvroCodec(MANY)

    def datum() -> dict[str, Any]:
        data = random_datum(random, resolved)
        # Larger numbers are doubtful, and a message with this many numbers would always have some.
        return {
            name: value >> 5 if name in ("small", "price", "day") and value else value for name, value in data.items()
        }

    good = [
        codec.encode(Updates([(datum(), random.randrange(2**40), 1) for _ in range(size)]))
        for size in (*range(4), *range(62, 67), 130)
        for _ in range(8)
    ]
    values = [*good, *mutate(random, good, MESSAGES)]
    decoder = Decoder(MANY)
    lengths = measured(spark, decoder, values)
    assert [lengths[offset][0] for offset in range(len(good))] == [0] * len(good)
    careful = {
        row["offset"]: row["updates"]
        for row in decoder.updates(raw_of(spark, values)).select("offset", "reason", text).collect()
        if row["reason"] is None
    }
    quick = {
        row["offset"]: row["updates"]
        for row in decoder.updates(raw_of(spark, values), Reading.MEASURED).select("offset", text).collect()
        if row["updates"] is not None
    }
    assert careful.keys() - quick.keys() == set(), "a good message was not read"
    assert min(excess for excess, _ in lengths.values()) == 0
    shown = {offset for offset, (excess, doubtful) in lengths.items() if not excess and not doubtful}
    broken = {
        row["offset"]
        for row in decoder.updates(raw_of(spark, values), Reading.MEASURED)
        .select("offset", F.explode("updates").alias("u"))
        .where(decoder.broken(F.col("u")))
        .select("offset")
        .collect()
    }
    assert shown - broken <= careful.keys()
    assert all(quick[offset] == careful[offset] for offset in shown - broken)
    assert len(shown - broken) > len(good) / 2
    only_longer = {offset for offset, (excess, _) in lengths.items() if excess} - careful.keys() - broken
    assert len(only_longer) > 20, "too few messages were damaged in a way that only their length shows"


@pytest.mark.sweep
def test_a_message_of_the_right_length_is_good(spark: SparkSession) -> None:
    check_damaged(spark, 0)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", seeds())
def test_a_message_of_the_right_length_is_good_for_every_seed(spark: SparkSession, seed: int) -> None:
    check_damaged(spark, 1 + seed)


def test_the_computed_length_of_every_number_is_that_of_its_encoding(spark: SparkSession) -> None:
    edges = {0, *(sign * (1 << bit) + more for bit in range(63) for more in (-1, 0, 1) for sign in (-1, 1))}
    edges |= {2**63 - 1, -(2**63)}
    codec = AvroCodec(NO_DATA)
    numbers = sorted(edge for edge in edges if -(2**63) <= edge < 2**63)
    values = [codec.encode(Updates([({"id": number}, 1, 1)])) for number in numbers]
    lengths = measured(spark, Decoder(NO_DATA), values)
    assert {numbers[offset] for offset, (excess, _) in lengths.items() if not excess} == set(numbers)
    assert {numbers[offset] for offset, (_, doubtful) in lengths.items() if doubtful} == {
        number for number in numbers if number >= 2**62 or number < -(2**62)
    }


@pytest.mark.parametrize("size", swept([0, 1, 63, 64, 8_191, 8_192, 20_000], [0, 64, 8_192]))
def test_a_message_has_as_many_bytes_as_its_statements_and_their_framing(spark: SparkSession, size: int) -> None:
    value = AvroCodec(NO_DATA).encode(Updates([({"id": 1}, 1, 1)] * size))
    assert measured(spark, Decoder(NO_DATA), [value]) == {0: (0, False)}


ONE = bytes([0, 2, 2, 2, 2, 0])  # the branch, one statement (its id, time and diff), and the end


LEFT_OVER, PADDED = ONE + b"\x00", ONE[:2] + b"\x82\x00" + ONE[3:]
TWO_BLOCKS = b"\x00\x02\x02\x02\x02\x02\x02\x02\x02\x00"  # blocks of one statement each, instead of one block of two


@pytest.mark.parametrize(
    "value",
    swept(
        [
            LEFT_OVER,
            PADDED,
            b"\x00\x82\x00" + ONE[2:],
            b"\x80\x00" + ONE[1:],
            TWO_BLOCKS,
            b"\x00\x01\x06" + ONE[2:],  # a block that states its size in bytes
            b"\x00\x00\x00",
            ONE[:2] + b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02" + ONE[3:],  # 2^63, which Java reads as 0
        ],
        [LEFT_OVER, PADDED, TWO_BLOCKS],
    ),
)
def test_bytes_that_no_encoder_writes_are_longer_than_their_statements(spark: SparkSession, value: bytes) -> None:
    ((excess, _),) = measured(spark, Decoder(NO_DATA), [value]).values()
    assert excess > 0


def test_a_number_that_was_truncated_without_a_change_of_length_is_doubtful(spark: SparkSession) -> None:
    value = ONE[:2] + b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x03" + ONE[3:]  # more than 2^63, read as 2^62
    assert measured(spark, Decoder(NO_DATA), [value]) == {0: (0, True)}


@pytest.mark.parametrize("kind", NOT_MEASURED, ids=str)
def test_messages_are_searched_if_values_do_not_determine_the_length_of_their_encoding(kind: Any) -> None:
    schema = {"type": "record", "name": "data", "fields": [{"name": "one", "type": kind}]}
    assert Decoder(schema).readings == [Reading.TRUSTING, Reading.CAREFUL]


def decimal(kind: Any) -> dict[str, Any]:
    """A record schema with a column of this type."""
    return {"type": "record", "name": "data", "fields": [{"name": "price", "type": kind}]}


BYTES = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
FIXED = {"type": "fixed", "name": "twelve", "size": 12, "logicalType": "decimal", "precision": 9, "scale": 2}
TEN_BYTES = {
    "too large, but its last eight bytes fit": b"\x01" + bytes(8) + b"\x05",
    "too small, but its last eight bytes fit": b"\xfe" + bytes(8) + b"\x05",
    "padded": bytes(9) + b"\x05",
    "negative and padded": b"\xff" * 9 + b"\xfb",
    "of ten digits": bytes(6) + (10**9).to_bytes(4, "big"),
    "of nine digits": bytes(6) + (10**9 - 1).to_bytes(4, "big"),
    "of nineteen digits": bytes(2) + (10**18).to_bytes(8, "big"),
    "the largest": b"\x7f" + b"\xff" * 9,
}


@pytest.mark.parametrize(
    ("kind", "in_union"),
    swept(
        [(kind, in_union) for kind in (BYTES, FIXED) for in_union in (False, True)],
        [(BYTES, True), (FIXED, False)],
        ids=lambda case: f"{case[0]['type']}-{case[1]}",
        unpack=True,
    ),
)
def test_no_decimal_is_truncated(spark: SparkSession, kind: Any, in_union: bool) -> None:
    nested = {"type": "record", "name": "nested", "fields": [{"name": "deep", "type": kind}]}
    schema = decimal(["null", "string", nested] if in_union else kind)
    values, expected = [], {}
    for offset, number in enumerate(TEN_BYTES.values()):
        sign = b"\xff" if number[0] > 127 else b"\x00"
        before = b"\x14" if kind is BYTES else sign * 2  # the length (ten), or two bytes before the ten
        values.append(b"\x00\x02" + (b"\x04" if in_union else b"") + before + number + b"\x02\x02\x00")
        if offset in (2, 3, 5):
            price = Decimal(int.from_bytes(number, "big", signed=True)).scaleb(-2)
            expected[offset] = Row(string=None, nested=Row(deep=price)) if in_union else price
    decoder = Decoder(schema)
    for reading in decoder.readings:
        messages = decoder.updates(raw_of(spark, values), reading)
        refused = {row["offset"] for row in messages.select("offset", "reason").collect() if row["reason"]}
        if reading is not Reading.CAREFUL:
            rows = messages.select("offset", F.explode("updates").alias("u")).where(decoder.broken(F.col("u")))
            refused |= {row["offset"] for row in rows.select("offset").collect()}
        prices = {row["_offset"]: row["price"] for row in explode_updates(messages, schema, reading).collect()}
        assert {offset: price for offset, price in prices.items() if offset not in refused} == expected
        assert refused == set(range(len(values))) - expected.keys()
    core = AvroCodec(schema)
    for offset in set(range(len(values))) - expected.keys():
        with pytest.raises(CodecError):
            core.decode(values[offset])


def test_too_many_digits_take_precedence_over_trailing_bytes(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, schema=decimal(BYTES))
    ten_digits = b"\x00\x02\x08" + (10**9).to_bytes(4, "big") + b"\x02\x02\x00"
    lake.send(ten_digits, ten_digits + b"\x00")
    lake.ingest()
    assert lake.quarantined() == [(0, "undecodable"), (1, "undecodable")]
    with pytest.raises(CodecError, match="out of range for its type"):
        AvroCodec(decimal(BYTES)).decode(ten_digits + b"\x00")


def test_messages_are_searched_if_a_writer_has_a_different_schema() -> None:
    wider = {"type": "record", "name": "data", "fields": [{"name": "id", "type": "int"}, RECORD["fields"][1]]}
    assert Decoder(RECORD, {1: RECORD}).readings == [Reading.MEASURED, Reading.COMPARED, Reading.CAREFUL]
    assert Decoder(RECORD, {1: RECORD, 2: wider}).readings == [Reading.TRUSTING, Reading.CAREFUL]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all runs of updates that ticks have written, including discarded runs."""
    names: list[str] = []

    def write(frame: DataFrame, table: Location, run: str, *more: Any) -> WrittenUpdates:
        names.append(run)
        return write_updates(frame, table, run, *more)

    monkeypatch.setattr(tick, "write_updates", write)
    return names


def passes(lake: Lake, written: list[str]) -> int:
    """Ingest, and return how many times the run of updates was written."""
    written.clear()
    lake.ingest()
    return len(written)


def test_a_topic_with_large_numbers_is_searched_from_then_on(
    tmp_path: Path, spark: SparkSession, written: list[str]
) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates((2**62, 1, 1), (3, 1, 1)), progress([0], [2], {1: 2}))
    assert passes(lake, written) == 2
    assert lake.table.value(LENGTHS_INSUFFICIENT) == 1
    assert lake.seal().upper == 2
    lake.send(updates((-(2**62) - 1, 2, 1)), updates((5, 2, 0)), progress([2], [3], {2: 1}))
    assert passes(lake, written) == 2, "a broken statement still takes a second pass"
    lake.send(updates((2**63 - 1, 3, 1)), progress([3], [4], {3: 1}))
    assert passes(lake, written) == 1
    assert lake.seal().upper == 4
    assert lake.contents(3) == {(2**62, None): 1, (3, None): 1, (-(2**62) - 1, None): 1, (2**63 - 1, None): 1}


def test_an_int_is_doubtful_only_if_it_is_out_of_range(tmp_path: Path, spark: SparkSession, written: list[str]) -> None:
    lake = Lake(tmp_path, spark)
    rows = [(1, 2**31 - 1), (2, -(2**31)), (3, 2**27), (4, None)]
    lake.send(updates(*((row, 1, 1) for row in rows)), progress([0], [2], {1: len(rows)}))
    assert passes(lake, written) == 1
    assert lake.seal().upper == 2
    assert lake.contents(1) == dict.fromkeys(rows, 1)
    beyond = updates(((5, 2**31 - 1), 2, 1)).replace(b"\xfe\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x1f")
    lake.send(beyond, progress([2], [3]))
    assert passes(lake, written) == 2
    assert lake.quarantined() == [(2, "undecodable")]
    assert lake.table.value(LENGTHS_INSUFFICIENT) is None


@pytest.mark.sweep
def test_large_numbers_are_noticed_among_garbage(tmp_path: Path, spark: SparkSession, written: list[str]) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates((2**62, 1, 1)), updates((2, 1, 1)) + b"\x00", progress([0], [2], {1: 1}))
    assert passes(lake, written) == 2
    assert lake.table.value(LENGTHS_INSUFFICIENT) == 1


@pytest.mark.sweep
def test_garbage_alone_does_not_cause_a_topic_to_be_searched_from_then_on(
    tmp_path: Path, spark: SparkSession, written: list[str]
) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates((1, 1, 1)), updates((2, 1, 1)) + b"\x00", b"\x00\x00\x00", progress([0], [2], {1: 1}))
    assert passes(lake, written) == 2
    assert lake.table.value(LENGTHS_INSUFFICIENT) is None
    assert lake.seal().upper == 2
    lake.send(updates((2, 2, 1)), b"no avro", progress([2], [3], {2: 1}))
    assert passes(lake, written) == 1, "bytes that cannot be read at all are found in the first pass"
    assert [reason for _, reason in lake.quarantined()] == ["bytes_left_over", "bytes_left_over", "undecodable"]
