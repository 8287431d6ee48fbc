"""Finds out what a topic states: reads its progress statements back, from where the last reader left off.

A publisher writes a progress statement only once the updates that it covers, of the shards named in its headers, are
durable. So what is stated for every shard is in the topic, no matter who wrote it. Only progress statements, which have
a header of their own, are decoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import SparkSession

from tidelake.codec.avro import AvroCodec
from tidelake.errors import (
    CodecError,
    MalformedMessage,
    PublishedTopicContradicts,
    PublishedTopicCut,
    PublishedTopicForeign,
    PublishedTopicRecreated,
)
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.intervals import Interval, merge_intervals
from tidelake.protocol.ledger.ledger import Ledger
from tidelake.protocol.message import Progress
from tidelake.protocol.order import INT64_MAX
from tidelake.publish.marked import marked_messages
from tidelake.publish.messages import confluent_header
from tidelake.publish.target import Target
from tidelake.store.entry import PublishedTopic
from tidelake.topic.topic import OffsetRange, Topic

_END = INT64_MAX + 1
"""The end of an interval that closes the stream: after every time."""
_ALL_OFFSETS = 2**62


class Stated(NamedTuple):
    """A progress statement in the topic."""

    partition: int
    offset: int
    progress: Progress
    shards: frozenset[int]
    """The shards that it covers."""
    of: int
    """The number of shards when it was made."""


@dataclass(frozen=True)
class Evidence:
    """The facts that were read from the statements of a topic."""

    by_shard: Mapping[int, int]
    """By shard, the first time that is not stated for it; `_END` if the stream is closed for it."""
    offsets: Mapping[int, int]
    """By partition, the offset from which to read next time."""
    cut: Mapping[int, int]
    """By partition, the first remaining offset, if messages before it are gone.

    The missing messages were read back earlier, unless `accepts_cut` was true.
    """
    since: int
    """The committed frontier of the topic, at which the evidence begins."""
    accepts_loss: bool = False
    """Whether messages that nobody had read back are missing. The statements after them may cover lost updates."""

    def frontier(self, shards: Sequence[int] | None = None) -> int:
        """Return the first time that is still missing for any of these shards; by default, of all shards."""
        return min(self.by_shard[shard] for shard in (self.by_shard if shards is None else shards))

    def is_closed(self, shards: Sequence[int] | None = None) -> bool:
        """Return whether the topic states that the stream is closed for these shards; by default, for all shards."""
        return self.frontier(shards) == _END


def shards_text(shards: Sequence[int], of: int) -> str:
    """Write the shards that a statement covers.

    >>> shards_text([0, 2], 4), shards_text([0, 1], 2)
    ('0,2/4', '*/2')
    """
    chosen = "*" if len(shards) == of else ",".join(map(str, shards))
    return f"{chosen}/{of}"


def shards_of(text: str) -> tuple[frozenset[int], int]:
    """Read what `shards_text` wrote.

    >>> shards_of("0,2/4") == (frozenset({0, 2}), 4), shards_of("*/2") == (frozenset({0, 1}), 2)
    (True, True)
    """
    chosen, _, number = text.partition("/")
    of = int(number)
    return frozenset(range(of) if chosen == "*" else map(int, chosen.split(","))), of


def read_evidence(
    spark: SparkSession, collection: str, published: PublishedTopic, target: Target, accepts_cut: bool = False
) -> Evidence:
    """Read back what a topic states.

    Args:
        spark: the session.
        collection: the name of the collection, for errors.
        published: what was committed about the topic, with the offsets up to which it was read back.
        target: the topic.
        accepts_cut: whether messages that nobody has read back may be missing from the beginning of the topic.

    Raises:
        PublishedTopicRecreated: the target is another topic, or ends before the offset up to which it was read back.
        PublishedTopicCut: messages that were not read back are missing, and `accepts_cut` is false; or a file topic
            still has earlier messages.
        PublishedTopicForeign: somebody else wrote to the topic.
        PublishedTopicContradicts: the topic's statements contradict each other.

    Cost: the headers of the messages at or after the offsets in `published`, and the progress statements among them.
    """
    name, source = published.topic, published.source
    _check_same(collection, published, target)
    held = target.offsets()
    starts = {partition: published.offsets.get(partition, 0) for partition in held}
    for partition, start in published.offsets.items():
        end = held.get(partition, (0, 0))[1]
        if end < start:
            problem = f"was read back up to offset {start} of partition {partition}, but ends at {end}"
            raise PublishedTopicRecreated(collection, name, source, problem)
    cut = {partition: first for partition, (first, _) in held.items() if first > 0}
    lost = {partition: first for partition, first in cut.items() if first > starts[partition]}
    for partition, first in lost.items():
        if not accepts_cut:
            raise PublishedTopicCut(collection, name, source, partition, starts[partition], first, is_inside=False)
        starts[partition] = first
    topic = target.topic()
    wanted, gaps = topic.plan(starts, _ALL_OFFSETS)
    for gap in gaps:
        missing = gap.partition, gap.from_offset, gap.to_offset
        raise PublishedTopicCut(collection, name, source, *missing, is_inside=source == "files")
    stated = _statements(spark, collection, published, topic, wanted) if wanted.messages else []
    by_shard = _coverage(collection, published, stated)
    frontier = min(by_shard.values())
    offsets = lost | {partition: end for partition, (_, end) in wanted.intervals.items()}
    for each in () if lost else stated:
        upper = [time for time in each.progress.upper if isinstance(time, int)]
        if (upper[0] if upper else _END) > frontier:
            offsets[each.partition] = min(offsets[each.partition], each.offset)
    return Evidence(by_shard, offsets, cut, published.frontier, accepts_loss=bool(lost))


def _check_same(collection: str, published: PublishedTopic, target: Target) -> None:
    identity = target.identify()
    if published.identity is not None and identity != published.identity:
        raise PublishedTopicRecreated(collection, published.topic, published.source, "was deleted and recreated")


def _statements(
    spark: SparkSession, collection: str, published: PublishedTopic, topic: Topic, wanted: OffsetRange
) -> list[Stated]:
    """Return the progress statements of a range, in the order of partitions and offsets."""
    header = confluent_header(published.schema_id)
    foreign, marked = marked_messages(spark, topic, wanted, published.id)
    if foreign is not None:
        where = foreign.partition, foreign.offset
        raise PublishedTopicForeign(collection, published.topic, published.source, *where, foreign.number)
    codec, stated = AvroCodec(published.record_schema), []
    for each in marked:
        problem = f"offset {each.offset} of partition {each.partition} is not a statement of a publisher"
        try:
            message = codec.decode((each.value or b"")[len(header) :])
            shards, of = shards_of(each.shards)
        except (CodecError, MalformedMessage, ValueError) as error:
            raise PublishedTopicContradicts(collection, published.topic, published.source, problem) from error
        if not isinstance(message, Progress):
            raise PublishedTopicContradicts(collection, published.topic, published.source, problem)
        if not message.lower.is_empty:  # otherwise it covers nothing
            stated.append(Stated(each.partition, each.offset, message, shards, of))
    return stated


def _coverage(collection: str, published: PublishedTopic, stated: Sequence[Stated]) -> dict[int, int]:
    """Return, for each shard that the topic has now, the first time that is not stated for it."""
    ledger = Ledger(Antichain.of(published.frontier))
    covered: dict[int, list[Interval]] = {shard: [] for shard in range(published.shards)}
    for each in stated:
        for contradiction in ledger.announce(each.progress):
            raise PublishedTopicContradicts(collection, published.topic, published.source, contradiction.fact)
        if each.of == published.shards:
            interval = _interval(each.progress)
            for shard in each.shards:
                covered[shard].append(interval)
    frontier = _END if published.closed else published.frontier
    return {shard: _end_of(merge_intervals(held), frontier) for shard, held in covered.items()}


def _interval(progress: Progress) -> Interval:
    (lower,), upper = progress.lower, [*progress.upper]
    assert isinstance(lower, int)
    end = upper[0] if upper else _END
    assert isinstance(end, int)
    return lower, end


def _end_of(covered: Sequence[Interval], frontier: int) -> int:
    return next((high for low, high in covered if low <= frontier < high), frontier)
