"""A collection's position in a topic: the next range, the gaps, and the values for the commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelake.errors import FILE_FROM_COPY, NotRewritable, TopicChanged, TopicGap, TransactionTopicDivided
from tidelake.plugins.tick import PastTick
from tidelake.protocol.order import INT64_MAX
from tidelake.store.commit import OpenTable
from tidelake.store.decision import AcceptGap
from tidelake.store.entry import Collection
from tidelake.store.state import next_offsets, offset_value, partitions_value, topic_identity_value
from tidelake.topic.topic import OffsetRange, Topic

RECREATED = "the topic was deleted and recreated"
NAME_TOPIC_AGAIN = (
    f"if the settings no longer name its topic, name it there again, and repeat the repair; otherwise {FILE_FROM_COPY}"
)
"""What to do about a file that was made from a topic that the collection no longer reads under this name."""


def plan_next(
    topic: Topic, table: OpenTable, collection: Collection, messages_max: int
) -> tuple[OffsetRange, list[TopicGap]]:
    """Plan the next range, and find the gaps at which it stops. The range of a recreated topic is empty.

    Raises:
        SourceError: the topic is missing or malformed, or its brokers do not answer.
    """
    accepted = [
        decision.offsets[1:]
        for decision in collection.entry.decisions
        if isinstance(decision, AcceptGap) and decision.offsets.topic == topic.name
    ]
    read = next_offsets(table, topic.name)
    offsets, gaps = topic.plan(read, messages_max, accepted)
    identity = table.value(topic_identity_value(topic.name)) or topic.identity
    if identity is None or offsets.identity is None or identity == offsets.identity:
        return offsets, gaps
    recreated: list[TopicGap] = [
        TopicChanged(topic.name, partition, 0, end, RECREATED) for partition, end in sorted((read or {0: 0}).items())
    ]
    return OffsetRange({}, identity=offsets.identity), recreated


def check_undivided(topic: Topic, ends: Mapping[int, int]) -> None:
    """Refuse a topic of transactions that has more than one partition.

    Raises:
        TransactionTopicDivided: the topic has more than one partition.
    """
    if sorted(ends) not in ([], [0]):
        raise TransactionTopicDivided(topic.name, max(ends) + 1)  # of a file topic, some may be empty


def plan_topics(
    table: OpenTable, collection: Collection, topics: Sequence[Topic], messages_max: int
) -> tuple[list[tuple[Topic, OffsetRange]], list[TopicGap]]:
    """Plan the ranges of topics with new messages, at most `messages_max` in total, and find the gaps of all topics.

    Raises: as for `plan_next`.
    """
    ranges: list[tuple[Topic, OffsetRange]] = []
    gaps: list[TopicGap] = []
    left = messages_max
    for index, topic in enumerate(topics):
        share = max(1, -(-left // (len(topics) - index)))
        planned, topic_gaps = plan_next(topic, table, collection, share)
        gaps += topic_gaps
        if planned.intervals:
            ranges.append((topic, planned))
            left -= planned.messages
    return ranges, gaps


def range_read_by(past: PastTick, topic: Topic, collection: Collection) -> OffsetRange | None:
    """Return the offsets that a past tick read from a topic, if they can still be read; None if the tick read none.

    Raises:
        NotRewritable: the topic no longer has them, or was recreated.
        SourceError: the topic is missing or malformed, or its brokers do not answer.
    """
    before = next_offsets(past.table, topic.name)
    partitions = range(past.values.get(partitions_value(topic.name), 0))
    ends = {partition: past.values.get(offset_value(topic.name, partition)) for partition in partitions}
    moved = {partition: end for partition, end in ends.items() if end is not None and end > before.get(partition, 0)}
    if not moved:
        return None
    offsets, gaps = plan_next(topic, past.table, collection, INT64_MAX)
    for partition, end in moved.items():
        start, readable = offsets.intervals.get(partition, (0, 0))
        if readable < end:
            why = next((gap.why for gap in gaps if gap.partition == partition), "the topic no longer has them")
            fact = (
                f"it was made from the offsets {before.get(partition, start)} to {end - 1} of {topic.name}:{partition}"
            )
            raise NotRewritable(str(past.table.path), f"{fact}, and they cannot be read: {why}", FILE_FROM_COPY)
    return topic.range_of({partition: (offsets.intervals[partition][0], end) for partition, end in moved.items()})


def unread(
    topic: Topic, table: OpenTable, collection: Collection, ends: Mapping[int, int]
) -> tuple[int, list[TopicGap]]:
    """Count the unread offsets before `ends`, and find the gaps that stop ingest.

    Offsets in accepted gaps are counted only while another gap stops ingest.

    Raises: as for `plan_next`.

    Cost: the range is planned only if the ends differ from the offsets that were read.
    """
    read = next_offsets(table, topic.name)
    if all(ends.get(partition, 0) == read.get(partition, 0) for partition in {*ends, *read}):
        return 0, []
    offsets, gaps = plan_next(topic, table, collection, INT64_MAX)
    # No part of a recreated topic can be read, so all of it is unread.
    starts = {partition: read.get(partition, 0) if gaps else end for partition, end in ends.items()}
    starts |= {partition: start for partition, (start, _) in offsets.intervals.items()}
    return sum(max(0, end - starts[partition]) for partition, end in ends.items()), gaps


def values_after(table: OpenTable, topic: str, offsets: OffsetRange) -> dict[str, int]:
    """Return the values that the commit of a range sets for its topic: next offsets, number of partitions, identity.

    Values never decrease, so a recreated topic that was accepted has its values under a different name.
    """
    values = {offset_value(topic, partition): end for partition, (_, end) in offsets.intervals.items()}
    values[partitions_value(topic)] = max(table.value(partitions_value(topic)) or 0, 1 + max(offsets.intervals))
    return values if offsets.identity is None else values | {topic_identity_value(topic): offsets.identity}
