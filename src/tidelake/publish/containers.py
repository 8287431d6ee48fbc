"""Encodes updates as messages on this machine: Spark writes them as Avro files, whose blocks become the messages.

A block of an Avro file is the number of its records, its size, and the encoded records one after the other. An array of
the same records is the number, the records, and a zero. So a message is a slice of a file with a few bytes around it,
and no row becomes a Python object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.errors import CodecError
from tidelake.publish.schema import data_struct, update_schema
from tidelake.spark.session import EXACT_PATHS
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.layout import DIFF, TIME

BLOCK_BYTES = 64_000
"""A block, and so a message, ends with the update with which it reaches this size."""
_MAGIC, _SYNC_BYTES = b"Obj\x01", 16
_UPDATES_BRANCH, _END_OF_ARRAY = b"\x00", b"\x00"


def write_containers(
    updates: DataFrame, record_schema: dict[str, Any], folder: Location, shards: Sequence[int], of: int
) -> None:
    """Write the updates of some shards as Avro files.

    In: the columns of `record_schema`, _time bigint, _diff bigint; data and time are unique together.

    Args:
        updates: the updates.
        record_schema: the schema of `data`.
        folder: a folder that does not exist yet, on this machine, on which all of Spark runs.
        shards: the shards to write.
        of: the number of shards.

    Cost: that of Spark writing the rows to Avro files; no exchange.
    """
    rows = updates.select(
        data_struct(record_schema).alias("data"), F.col(TIME).alias("time"), F.col(DIFF).alias("diff")
    )
    if len(shards) < of:
        rows = rows.where(F.pmod(F.xxhash64("data"), F.lit(of)).isin([*shards]))
    options = {
        "avroSchema": json.dumps(update_schema(record_schema)),
        "compression": "uncompressed",
        "avro.mapred.sync.interval": str(BLOCK_BYTES),
    }
    rows.write.format("avro").options(**options).save(str(folder))


def container_counts(spark: SparkSession, record_schema: dict[str, Any], folder: Location) -> dict[int, int]:
    """Return the number of updates at each time in the files that `write_containers` has written.

    Cost: one pass over the files, which skips the data.
    """
    update = update_schema(record_schema)
    times = {**update, "fields": [field for field in update["fields"] if field["name"] == "time"]}
    rows = spark.read.format("avro").options(avroSchema=json.dumps(times), **EXACT_PATHS).load(str(folder))
    found = rows.groupBy("time").agg(F.count(F.lit(1)).alias("count")).toArrow()
    return dict(zip(found["time"].to_pylist(), found["count"].to_pylist(), strict=True))


def container_blocks(folder: Location) -> Iterator[Block]:
    """Yield the blocks of the files that `write_containers` has written. The files are mapped, not read."""
    for blob in blobs.list_blobs(folder):
        if blob.location.suffix == ".avro":
            with pa.memory_map(str(blob.location.local)) as file:
                yield from blocks_in(memoryview(file.read_buffer()).cast("B"))


class Block(NamedTuple):
    """A block of an Avro file."""

    number: int
    """The number of its records, more than 0."""
    encoded_number: memoryview
    records: memoryview

    def message(self, header: bytes) -> bytes:
        """Return the updates as a message; the header comes before it. Each byte is copied once."""
        return b"".join((header, _UPDATES_BRANCH, self.encoded_number, self.records, _END_OF_ARRAY))


def blocks_in(data: memoryview) -> Iterator[Block]:
    """Yield those blocks of an Avro file that have records; the records themselves are not read.

    Raises:
        CodecError: the bytes are not an Avro file.
    """
    at = _end_of_metadata(data) + _SYNC_BYTES
    sync = data[at - _SYNC_BYTES : at]
    while at < len(data):
        number, first = _long_at(data, at)
        size, body = _long_at(data, first)
        end = body + size
        if number < 0 or size < 0 or data[end : end + _SYNC_BYTES] != sync:
            raise CodecError("undecodable", f"the block at byte {at} of an Avro file is damaged")
        if number:
            yield Block(number, data[at:first], data[body:end])
        at = end + _SYNC_BYTES


def _end_of_metadata(data: memoryview) -> int:
    if data[: len(_MAGIC)] != _MAGIC:
        raise CodecError("undecodable", "a file does not begin as Avro files do")
    at = len(_MAGIC)
    while True:
        number, at = _long_at(data, at)
        if number == 0:
            return at
        if number < 0:  # the size of the block in bytes follows
            number, (_, at) = -number, _long_at(data, at)
        for _ in range(2 * number):  # names and values
            size, at = _long_at(data, at)
            at += max(size, 0)


def _long_at(data: memoryview, at: int) -> tuple[int, int]:
    """Return the Avro long that begins at a position, and the position after it.

    >>> _long_at(memoryview(bytes([0x80, 1])), 0), _long_at(memoryview(bytes([9, 3])), 1)
    ((64, 2), (-2, 2))
    """
    value = shift = 0
    while True:
        if at >= len(data):
            raise CodecError("undecodable", "an Avro file ends in the middle of a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
