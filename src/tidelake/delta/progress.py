"""The progress statements of a tick, read on the driver where its topic is in files.

They are few among the messages and told by one byte, so finding them is one look at a column in Arrow, and a job of
Spark would be mostly planning. Each is decoded by the core's codec, whose verdict is that of the JVM's decoder. Where
statements are many, or the topic is a broker's, Spark reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.codec import AvroCodec
from tidelake.delta.decode import ID_HEADER, MAGIC_BYTES, PROGRESS_BYTE, Decoder
from tidelake.delta.layout import PROGRESS_SCHEMA
from tidelake.delta.topic import OffsetRange, Topic
from tidelake.errors import CodecError, MalformedMessage

STATEMENTS_MAX = 2_000
"""More of them than this are decoded by Spark."""
COLUMNS = ("partition", "offset", "lower", "upper", "count_times", "count_values")


@dataclass(frozen=True)
class Statements:
    """The good progress statements of a range, and how many are bad."""

    good: pa.Table
    """`COLUMNS`, as in `PROGRESS_SCHEMA`."""
    bad: int


def read_on_driver(topic: Topic, offsets: OffsetRange, decoder: Decoder) -> Statements | None:
    """Read the progress statements of a range without Spark.

    Args:
        topic: where they are.
        offsets: the range.
        decoder: how the topic is read.

    Returns:
        None where only Spark can read the topic, or should.

    Cost: one pass over the values of the range, in Arrow.
    """
    columns = ["partition", "offset", "value", *(() if decoder.writer_schemas is None else ("headers",))]
    found = []
    number = 0
    batches = topic.batches(offsets, columns)
    if batches is None:
        return None
    for rows in batches:
        stated = rows.filter(_may_be_progress(rows["value"], decoder))
        number += stated.num_rows
        if number > STATEMENTS_MAX:
            return None
        found.append(stated)
    codec = AvroCodec(decoder.record_schema)
    good: list[dict[str, Any]] = []
    bad = 0
    for row in _rows(found, decoder):
        try:
            good.append(_statement(codec, row))
        except (CodecError, MalformedMessage):  # the quarantine gives the reason, when it is written
            bad += 1
    return Statements(pa.Table.from_pylist(good, pa.schema([PROGRESS_SCHEMA.field(name) for name in COLUMNS])), bad)


def _may_be_progress(value: pa.ChunkedArray, decoder: Decoder) -> pa.ChunkedArray:
    if decoder.writer_schemas is None:
        found = pc.equal(pc.binary_slice(value, 0, 1), PROGRESS_BYTE)
    else:
        magic = pc.equal(pc.binary_slice(value, 0, 1), bytes(1))
        found = pc.and_(magic, pc.equal(pc.binary_slice(value, MAGIC_BYTES, MAGIC_BYTES + 1), PROGRESS_BYTE))
    return pc.fill_null(found, False)


def _rows(found: list[pa.Table], decoder: Decoder) -> Iterator[dict[str, Any]]:
    """The messages that are progress statements by their framing; others are counted where updates are decoded."""
    for row in (row for rows in found for row in rows.to_pylist()):
        if decoder.writer_schemas is None:
            yield row
        elif int.from_bytes(row["value"][1:MAGIC_BYTES], "big") in decoder.writer_schemas and not any(
            header["key"] == ID_HEADER.format("value") for header in row["headers"] or ()
        ):
            yield row | {"value": row["value"][MAGIC_BYTES:]}


def _statement(codec: AvroCodec, row: dict[str, Any]) -> dict[str, Any]:
    stated = codec.decode_progress(row["value"])
    return {
        "partition": row["partition"],
        "offset": row["offset"],
        "lower": stated["lower"],
        "upper": stated["upper"],
        "count_times": [one["time"] for one in stated["counts"]],
        "count_values": [one["count"] for one in stated["counts"]],
    }
