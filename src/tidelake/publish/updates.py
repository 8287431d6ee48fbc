"""Writes the updates of a range of times to a topic, and counts them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql import functions as F

from tidelake.errors import DamagedTable
from tidelake.publish.containers import Block, container_blocks, container_counts, write_containers
from tidelake.publish.distinct import Updates
from tidelake.publish.messages import Written, measure, messages_of
from tidelake.publish.target import Headers, Target
from tidelake.storage import blobs
from tidelake.store.runs import runs_here

_CHUNK_BYTES = 64 * 1024 * 1024
"""The driver collects messages up to about this size, and then writes them."""


def write_updates(
    updates: Updates,
    record_schema: dict[str, Any],
    header: bytes,
    shards: Sequence[int],
    of: int,
    target: Target,
    headers: Headers,
    partition: int,
) -> Written:
    """Write the updates of some shards; they are durable afterwards. After an error, some may be in the topic.

    Args:
        updates: the columns of `record_schema`, _time, _diff.
        record_schema: the schema of `data`.
        header: comes before each message.
        shards: the shards to write.
        of: the number of shards.
        target: the topic.
        headers: the headers of each message.
        partition: see `Target.write`.

    Returns:
        The totals of what was written, with the counts of all shards.

    Raises:
        TopicUnwritable, StoreUnreadable: the messages could not be written.
        DamagedTable: the rows are not those that were counted; nothing was written.

    Cost: the updates are computed once. If the target is a folder, all of Spark runs on this machine, and either all
    shards are written or the counts are known, Spark writes the updates to Avro files, whose bytes are copied into
    messages. Otherwise, each update goes through Arrow, and messages are cached.
    """
    is_whole = len(shards) == of
    spark = updates.rows.sparkSession
    if not (target.takes_values and runs_here(spark) and (is_whole or updates.counts is not None)):
        kept, written = measure(messages_of(updates.rows, record_schema, header, shards, of))
        try:
            target.write(kept.where(F.col("value").isNotNull()), written.bytes, headers, partition)
        finally:
            kept.unpersist()
        return written
    with blobs.scratch_folder() as scratch:
        folder = scratch / "updates"
        write_containers(updates.rows, record_schema, folder, shards, of)
        counts = updates.counts
        if counts is None:
            counts = container_counts(spark, record_schema, folder)
        number, counted = sum(block.number for block in container_blocks(folder)), sum(counts.values())
        if number != counted if is_whole else number > counted:
            raise DamagedTable(updates.table, f"updates counted: {counted}, but read: {number}")
        messages = size = 0
        for values in _chunks(container_blocks(folder), header):
            target.write_few(values, headers, partition)
            messages, size = messages + len(values), size + sum(map(len, values))
    return Written(counts, messages, size)


def _chunks(blocks: Iterable[Block], header: bytes) -> Iterator[list[bytes]]:
    """Yield the messages made of blocks, in lists of about `_CHUNK_BYTES`."""
    values: list[bytes] = []
    size = 0
    for block in blocks:
        value = block.message(header)
        values.append(value)
        size += len(value)
        if size >= _CHUNK_BYTES:
            yield values
            values, size = [], 0
    if values:
        yield values
