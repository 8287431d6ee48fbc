"""Finds the progress statements of a topic by the headers of its messages, so that few other values are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.protocol.intervals import Interval, intervals_of
from tidelake.topic.topic import OffsetRange, Topic

ID_HEADER, SHARDS_HEADER = "tidelake.published", "tidelake.shards"
_RUNS_MAX = 50
"""Maximum number of intervals to read one by one; if there are more, everything from the first to the last is read."""


class Marked(NamedTuple):
    """A message that is marked as a progress statement."""

    partition: int
    offset: int
    shards: str
    value: bytes | None


class Foreign(NamedTuple):
    """The messages of other writers."""

    number: int
    partition: int
    """The partition and offset of the first one."""
    offset: int


def marked_messages(
    spark: SparkSession, topic: Topic, wanted: OffsetRange, id: str
) -> tuple[Foreign | None, list[Marked]]:
    """Return the messages that are marked as progress statements, in the order of partitions and offsets.

    Args:
        spark: the session; a topic in files does not need it.
        topic: the topic.
        wanted: the range to read.
        id: the id that the messages of the collection's publishers carry.

    Returns:
        The messages without the id, or None if there are none; and the marked messages, or an empty list if some
        messages lack the id.

    Cost: the headers of all messages in the range, and the values of the marked ones.
    """
    batches = topic.batches(wanted, ["partition", "offset", "headers"])
    if batches is None:
        return _by_spark(topic.read(spark, wanted), id)
    foreign: list[tuple[int, int]] = []
    shards: dict[tuple[int, int], str] = {}
    for batch in batches:
        own = _header_texts(batch, ID_HEADER)
        marks = _header_texts(batch, SHARDS_HEADER)
        for place, found, mark in zip(_places(batch), own, marks, strict=True):
            if found != id:
                foreign.append(place)
            elif mark is not None:
                shards[place] = mark
    if foreign:
        return Foreign(len(foreign), *min(foreign)), []
    values = {place: value for place, value in _values(topic, sorted(shards)) if place in shards}
    return None, [Marked(*place, shards[place], values.get(place)) for place in sorted(shards)]


def _places(batch: pa.Table) -> Iterator[tuple[int, int]]:
    return zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)


def _header_texts(batch: pa.Table, name: str) -> list[str | None]:
    """Return the first header of this name of each message, as text; None if there is none, or if its value is null."""
    found: list[str | None] = [None] * batch.num_rows
    headers = batch["headers"].combine_chunks()
    pairs = headers.flatten()
    matching = pc.fill_null(pc.equal(pairs.field("key"), name), fill_value=False)
    rows = pc.list_parent_indices(headers).filter(matching).to_pylist()
    values = pairs.field("value").filter(matching).to_pylist()
    for row, value in zip(reversed(rows), reversed(values), strict=True):
        found[row] = None if value is None else value.decode("utf-8", "replace")
    return found


def _values(topic: Topic, places: list[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], bytes | None]]:
    """Yield the values of the messages at these places, and possibly of messages between them."""
    offsets: dict[int, list[int]] = {}
    for partition, offset in places:
        offsets.setdefault(partition, []).append(offset)
    for partition, held in offsets.items():
        runs: list[Interval] = intervals_of(np.array(held, dtype=np.int64))
        if len(runs) > _RUNS_MAX:
            runs = [(runs[0][0], runs[-1][1])]
        for run in runs:
            batches = topic.batches(topic.range_of({partition: run}), ["partition", "offset", "value"])
            assert batches is not None
            for batch in batches:
                yield from zip(_places(batch), batch["value"].to_pylist(), strict=True)


def _by_spark(messages: DataFrame, id: str) -> tuple[Foreign | None, list[Marked]]:
    """Return what `marked_messages` returns, found with Spark, because only its tasks read from brokers."""
    rows = messages.select(
        "partition",
        "offset",
        "value",
        _header(ID_HEADER).eqNullSafe(id).alias("is_own"),
        _header(SHARDS_HEADER).alias("shards"),
    )
    place = F.struct("partition", "offset")
    foreign = rows.where(~F.col("is_own")).agg(F.count(F.lit(1)).alias("number"), F.min(place).alias("first"))
    found = foreign.collect()[0]
    if found["number"]:
        return Foreign(found["number"], found["first"]["partition"], found["first"]["offset"]), []
    marked = rows.where(F.col("shards").isNotNull()).select(*Marked._fields).toArrow()
    ordered = marked.sort_by([("partition", "ascending"), ("offset", "ascending")])
    return None, [Marked(**row) for row in ordered.to_pylist()]


def _header(name: str) -> Column:
    """Return the first header of this name as text; null if there is none."""
    matching = F.filter("headers", lambda header: header["key"] == name)
    return F.get(matching, F.lit(0))["value"].cast("string")
