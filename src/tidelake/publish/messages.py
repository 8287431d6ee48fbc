"""Encodes consolidated updates as messages: Avro by Spark in the JVM, then whole messages by Arrow.

Spark encodes each update separately. The encoded updates of a batch are adjacent in one Arrow buffer, so the
body of a message is a slice of it, and no row becomes a Python object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from tidelake.codec.avro import AvroCodec
from tidelake.protocol.message import Progress
from tidelake.publish.regroup import COUNTS, MESSAGES, UPDATE, Regroup
from tidelake.publish.schema import data_struct, update_schema
from tidelake.store.layout import DIFF, TIME

COUNTS_MAX = 2_000
"""Maximum number of counts in a progress statement."""


class Written(NamedTuple):
    """The totals of the messages of a range."""

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
    Out: value binary, null only in rows without a message; counts array<struct<time, count>>: this
         row's part of the number of updates at each time, in all shards.

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
    return rows.select(TIME, encoded.alias(UPDATE)).mapInArrow(Regroup(header), MESSAGES)


def measure(messages: DataFrame) -> tuple[DataFrame, Written]:
    """Compute messages once; return the DataFrame, persisted, and their totals.

    As in `messages_of`, `value` is null in rows without a message. The caller unpersists the DataFrame.
    """
    kept = messages.persist(StorageLevel.MEMORY_AND_DISK)
    counts = kept.select(F.explode(COUNTS).alias("part")).groupBy("part.time").agg(F.sum("part.count").alias("count"))
    found = counts.toArrow().sort_by("time")
    by_time = dict(zip(found["time"].to_pylist(), found["count"].to_pylist(), strict=True))
    sizes = kept.agg(F.count("value").alias("messages"), F.sum(F.length("value")).alias("bytes")).collect()[0]
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
