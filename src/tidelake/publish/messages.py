"""Encodes consolidated updates as messages: Avro by Spark in the JVM, then whole messages by Arrow.

Spark encodes each update by itself. The encoded updates of a batch lie one after the other in one Arrow buffer, so the
body of a message is a slice of it, and no row becomes a Python object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from tidelake.codec.avro import AvroCodec
from tidelake.protocol.message import Progress
from tidelake.publish.schema import data_struct, update_schema
from tidelake.store.layout import DIFF, TIME

UPDATES_MAX = 500
"""Maximum number of updates in a message."""
BYTES_MAX = 128 * 1024
"""A message ends at this size, unless it has a single update."""
COUNTS_MAX = 2_000
"""Maximum number of counts in a progress statement."""

_UPDATE, _COUNTS = "_update", "counts"
_UPDATES_BRANCH, _END_OF_ARRAY = b"\x00", b"\x00"
_MESSAGES = f"value binary, {_COUNTS} array<struct<time: bigint, count: bigint>>"
_MESSAGES_ARROW = pa.schema(
    [
        ("value", pa.binary()),
        (_COUNTS, pa.list_(pa.struct([("time", pa.int64()), ("count", pa.int64())]))),
    ]
)


class Written(NamedTuple):
    """What the messages of a range hold in all."""

    counts: dict[int, int]
    """By time, the number of distinct updates of all shards."""
    messages: int
    bytes: int


def confluent_header(schema_id: int | None) -> bytes:
    """Return the header of Confluent framing; empty if messages are bare.

    >>> confluent_header(258).hex(), confluent_header(None)
    ('0000000102', b'')
    """
    return b"" if schema_id is None else b"\x00" + schema_id.to_bytes(4, "big")


def messages_of(
    updates: DataFrame, record_schema: dict[str, Any], header: bytes, shards: Sequence[int], of: int
) -> DataFrame:
    """Encode the updates of some shards, several to a message.

    In:  the columns of `record_schema`, _time bigint, _diff bigint; data and time are unique together.
    Out: value binary, null only in rows without a message; counts array<struct<time, count>>: the updates of all
         shards, of which this row is one part.

    Args:
        updates: the updates.
        record_schema: the schema of `data`.
        header: comes before each message.
        shards: the shards to state.
        of: the number of shards.

    Cost: no exchange. Each update goes through Arrow once.
    """
    rows = updates.select(TIME, data_struct(record_schema).alias("_data"), DIFF)
    update = F.struct(F.col("_data").alias("data"), F.col(TIME).alias("time"), F.col(DIFF).alias("diff"))
    encoded = to_avro(update, json.dumps(update_schema(record_schema)))
    if len(shards) < of:
        encoded = F.when(F.pmod(F.xxhash64("_data"), F.lit(of)).isin([*shards]), encoded)
    return rows.select(TIME, encoded.alias(_UPDATE)).mapInArrow(_Regroup(header), _MESSAGES)


class _Regroup:
    """Joins encoded updates to messages. Executors run it."""

    def __init__(self, header: bytes) -> None:
        self.start = header + _UPDATES_BRANCH

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield self._messages(batch)

    def _messages(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        times, counts = np.unique(batch.column(TIME).to_numpy(zero_copy_only=False), return_counts=True)
        totals = [{"time": int(time), "count": int(count)} for time, count in zip(times, counts, strict=True)]
        mine = batch.column(_UPDATE).drop_null().cast(pa.large_binary())
        values: list[bytes | None] = list(self._bodies(mine)) or [None]
        rest: list[list[dict[str, int]]] = [[] for _ in values[1:]]
        return pa.RecordBatch.from_pylist(
            [{"value": value, _COUNTS: part} for value, part in zip(values, [totals, *rest], strict=True)],
            schema=_MESSAGES_ARROW,
        )

    def _bodies(self, updates: pa.LargeBinaryArray) -> Iterator[bytes]:
        if not len(updates):
            return
        _, ends, data = updates.buffers()
        offsets = np.frombuffer(ends, np.int64)[updates.offset : updates.offset + len(updates) + 1]
        first = 0
        while first < len(updates):
            last = int(np.searchsorted(offsets, offsets[first] + BYTES_MAX, "right")) - 1
            last = min(max(last, first + 1), first + UPDATES_MAX, len(updates))
            body = data[int(offsets[first]) : int(offsets[last])]
            yield b"".join((self.start, long_bytes(last - first), memoryview(body), _END_OF_ARRAY))
            first = last


def long_bytes(value: int) -> bytes:
    """Encode an Avro long that is not negative.

    >>> long_bytes(0).hex(), long_bytes(63).hex(), long_bytes(64).hex()
    ('00', '7e', '8001')
    """
    rest, encoded = value << 1, bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def measure(messages: DataFrame) -> tuple[DataFrame, Written]:
    """Compute messages once, and return the frame that has them, without rows that are none, and their totals.

    The caller unpersists the frame.
    """
    kept = messages.persist(StorageLevel.MEMORY_AND_DISK)
    counts = kept.select(F.explode(_COUNTS).alias("part")).groupBy("part.time").agg(F.sum("part.count").alias("count"))
    found = counts.toArrow().sort_by("time")
    by_time = dict(zip(found["time"].to_pylist(), found["count"].to_pylist(), strict=True))
    values = kept.where(F.col("value").isNotNull()).select("value")
    sizes = values.agg(F.count("value").alias("messages"), F.sum(F.length("value")).alias("bytes")).collect()[0]
    return kept, Written(by_time, sizes["messages"], sizes["bytes"] or 0)


def statements(
    record_schema: dict[str, Any], header: bytes, lower: int, upper: int | None, counts: Mapping[int, int]
) -> list[bytes]:
    """Encode progress statements that together cover an interval.

    Args:
        record_schema: the schema of `data`.
        header: comes before each message.
        lower: the first time.
        upper: the time after the last one; None closes the stream.
        counts: by time, in order, the number of updates.
    """
    codec, times = AvroCodec(record_schema), sorted(counts)
    encoded = []
    for first in range(0, max(len(times), 1), COUNTS_MAX):
        part = times[first : first + COUNTS_MAX]
        is_last = first + COUNTS_MAX >= len(times)
        end = upper if is_last else times[first + COUNTS_MAX]
        progress = Progress([lower], [] if end is None else [end], [(time, counts[time]) for time in part])
        encoded.append(header + codec.encode(progress))
        lower = 0 if end is None else end
    return encoded
