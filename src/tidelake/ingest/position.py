"""A collection's position in a topic: the next range, the gaps, and the values for the commit."""

from __future__ import annotations

from collections.abc import Mapping

from tidelake.errors import TopicChanged, TopicGap
from tidelake.protocol.order import INT64_MAX
from tidelake.store.commit import OpenTable
from tidelake.store.decision import AcceptGap
from tidelake.store.entry import Collection
from tidelake.store.state import next_offsets, offset_value, partitions_value, topic_identity_value
from tidelake.topic.topic import OffsetRange, Topic

RECREATED = "the topic was deleted and recreated"


def plan_next(
    topic: Topic, table: OpenTable, collection: Collection, messages_max: int
) -> tuple[OffsetRange, list[TopicGap]]:
    """Plan the next range, and find the gaps that stop it. The range of a recreated topic is empty.

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


def unread(
    topic: Topic, table: OpenTable, collection: Collection, ends: Mapping[int, int]
) -> tuple[int, list[TopicGap]]:
    """Count the unread offsets before these ends, and find the gaps that stop ingest.

    Accepted offsets are counted only while a gap stops ingest.

    Raises: what `plan_next` raises. The range is planned only if the ends differ from the offsets that were read.
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

    Values only rise. A recreated topic that was accepted has a different name in the values.
    """
    values = {offset_value(topic, partition): end for partition, (_, end) in offsets.intervals.items()}
    values[partitions_value(topic)] = max(table.value(partitions_value(topic)) or 0, 1 + max(offsets.intervals))
    return values if offsets.identity is None else values | {topic_identity_value(topic): offsets.identity}
