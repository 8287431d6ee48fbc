"""Where a collection stands in a topic: what it reads next, what may stop it, and what the next commit says of it."""

from __future__ import annotations

from collections.abc import Mapping

from tidelake.delta.catalog import Collection
from tidelake.delta.commit import OpenTable
from tidelake.delta.topic import OffsetRange, Topic
from tidelake.delta.values import offset_value, partitions_value, topic_identity_value
from tidelake.errors import TopicChanged, TopicGap
from tidelake.order import INT64_MAX

MADE_ANEW = "the topic was deleted and made anew"


def next_offsets(table: OpenTable, topic: str) -> dict[int, int]:
    """By partition, the first offset that was not read yet, as a version of the updates table has it."""
    partitions = range(table.value(partitions_value(topic)) or 0)
    known = table.values(f"offset/{topic}/", [str(one) for one in partitions])
    return {int(partition): offset for partition, offset in known.items()}


def plan_next(
    topic: Topic, table: OpenTable, collection: Collection, messages_max: int
) -> tuple[OffsetRange, list[TopicGap]]:
    """The next range to read, and the gaps that stop it; of a topic that was made anew there is nothing to read.

    Raises:
        RuleBroken: the topic is not there, or not in its shape.
        TopicUnreachable: its brokers do not answer.
    """
    accepted = [
        one.accept_gap[1:]
        for one in collection.entry.decisions
        if one.accept_gap is not None and one.accept_gap[0] == topic.name
    ]
    read = next_offsets(table, topic.name)
    offsets, gaps = topic.plan(read, messages_max, accepted)
    identity = table.value(topic_identity_value(topic.name)) or topic.identity
    if identity is None or offsets.identity is None or identity == offsets.identity:
        return offsets, gaps
    anew = [TopicChanged(topic.name, one, 0, end, MADE_ANEW) for one, end in sorted((read or {0: 0}).items())]
    return OffsetRange({}, identity=offsets.identity), [*anew]


def unread(
    topic: Topic, table: OpenTable, collection: Collection, ends: Mapping[int, int]
) -> tuple[int, list[TopicGap]]:
    """How many offsets before these ends ingest has still to read, and the gaps that stop it.

    Offsets that were given up count only while a gap stops it.

    Raises: as `plan_next` does; the topic is asked only where it does not end where ingest reads on.
    """
    read = next_offsets(table, topic.name)
    if all(ends.get(partition, 0) == read.get(partition, 0) for partition in {*ends, *read}):
        return 0, []
    offsets, gaps = plan_next(topic, table, collection, INT64_MAX)
    # Of a topic that was made anew nothing can be read, and all that is there is still to be read.
    starts = {partition: read.get(partition, 0) if gaps else end for partition, end in ends.items()}
    starts |= {partition: start for partition, (start, _) in offsets.intervals.items()}
    return sum(max(0, end - starts[partition]) for partition, end in ends.items()), gaps


def values_behind(table: OpenTable, topic: str, offsets: OffsetRange) -> dict[str, int]:
    """What the commit of a range says of its topic: where to read on, how many partitions are known, which topic it is.

    The values only rise: a topic that goes on after it was made anew has another name here.
    """
    values = {offset_value(topic, partition): end for partition, (_, end) in offsets.intervals.items()}
    values[partitions_value(topic)] = max(table.value(partitions_value(topic)) or 0, 1 + max(offsets.intervals))
    return values if offsets.identity is None else values | {topic_identity_value(topic): offsets.identity}
