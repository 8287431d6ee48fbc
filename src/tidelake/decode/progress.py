"""Reads the progress statements of a tick on the driver, if the topic is in files.

Few messages are progress statements, and one byte identifies them, so Arrow finds them in one scan of a column; a Spark
job would spend most of its time on planning. `AvroCodec` decodes each statement, with the same verdict as the JVM's
decoder. Spark reads the statements if there are many, or if the topic is on a broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.codec.avro import AvroCodec
from tidelake.decode.cdcv2 import PROGRESS_BYTE, Decoder
from tidelake.decode.framing import ID_HEADER, MAGIC_BYTES
from tidelake.errors import CodecError, MalformedMessage
from tidelake.store.layout import PROGRESS_SCHEMA
from tidelake.topic.topic import OffsetRange, Topic

STATEMENTS_MAX = 2_000
"""Maximum number of statements that are decoded here; if there are more, Spark decodes them."""
COLUMNS = ("partition", "offset", "lower", "upper", "count_times", "count_values")


@dataclass(frozen=True)
class Statements:
    """The good progress statements of a range, and the number of bad ones."""

    good: pa.Table
    """`COLUMNS`, as in `PROGRESS_SCHEMA`."""
    bad: int


def read_on_driver(topic: Topic, offsets: OffsetRange, decoder: Decoder) -> Statements | None:
    """Read the progress statements of a range without Spark.

    Args:
        topic: the topic.
        offsets: the range.
        decoder: how the topic is read.

    Returns:
        The statements; None if Spark must, or should, read the topic instead.

    Cost: one pass over the values of the range, in Arrow.
    """
    columns = ["partition", "offset", "value", *(() if decoder.writer_schemas is None else ("headers",))]
    tables = []
    number = 0
    batches = topic.batches(offsets, columns)
    if batches is None:
        return None
    for rows in batches:
        candidates = rows.filter(_may_be_progress(rows["value"], decoder))
        number += candidates.num_rows
        if number > STATEMENTS_MAX:
            return None
        tables.append(candidates)
    codec = AvroCodec(decoder.record_schema)
    good: list[dict[str, Any]] = []
    bad = 0
    for row in _rows(tables, decoder):
        try:
            good.append(_statement(codec, row))
        except (CodecError, MalformedMessage):  # the reason is determined when the message is quarantined
            bad += 1
    return Statements(pa.Table.from_pylist(good, pa.schema([PROGRESS_SCHEMA.field(name) for name in COLUMNS])), bad)


def _may_be_progress(value: pa.ChunkedArray, decoder: Decoder) -> pa.ChunkedArray:
    if decoder.writer_schemas is None:
        is_progress = pc.equal(pc.binary_slice(value, 0, 1), PROGRESS_BYTE)
    else:
        magic = pc.equal(pc.binary_slice(value, 0, 1), bytes(1))
        is_progress = pc.and_(magic, pc.equal(pc.binary_slice(value, MAGIC_BYTES, MAGIC_BYTES + 1), PROGRESS_BYTE))
    return pc.fill_null(is_progress, False)


def _rows(tables: list[pa.Table], decoder: Decoder) -> Iterator[dict[str, Any]]:
    """Yield the candidates to decode here, with Confluent framing removed from their values.

    Those with unusable framing are left to `Decoder.updates`, which reports them.
    """
    for row in (row for rows in tables for row in rows.to_pylist()):
        if decoder.writer_schemas is None:
            yield row
        elif int.from_bytes(row["value"][1:MAGIC_BYTES], "big") in decoder.writer_schemas and not any(
            header["key"] == ID_HEADER.format("value") for header in row["headers"] or ()
        ):
            yield row | {"value": row["value"][MAGIC_BYTES:]}


def _statement(codec: AvroCodec, row: dict[str, Any]) -> dict[str, Any]:
    statement = codec.decode_progress(row["value"])
    return {
        "partition": row["partition"],
        "offset": row["offset"],
        "lower": statement["lower"],
        "upper": statement["upper"],
        "count_times": [entry["time"] for entry in statement["counts"]],
        "count_values": [entry["count"] for entry in statement["counts"]],
    }
