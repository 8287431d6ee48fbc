"""What an operator may accept of a topic: only what ingest stops at now."""

from __future__ import annotations

import re

from tidelake.configuration import CollectionSettings
from tidelake.delta.catalog import Collection
from tidelake.delta.commit import OpenTable
from tidelake.delta.position import MADE_ANEW, next_offsets, plan_next
from tidelake.delta.topic import OffsetRange, Topic, open_topics
from tidelake.errors import RuleBroken, TopicChanged, TopicGap
from tidelake.order import INT64_MAX

_GAP = re.compile(r"(?s)(.+):(\d{1,19}):(\d{1,19})-(\d{1,19})", re.ASCII)


def read_gap(collection: Collection, settings: CollectionSettings, text: str) -> tuple[str, int, int, int]:
    """Read a gap, `TOPIC:PARTITION:FROM-TO`, and check that it is, or lies within, one that ingest would stop at now.

    Raises:
        RuleBroken: it is none.
        TopicChanged: the topic is not what it was, which is another thing to accept.
    """
    match = _GAP.fullmatch(text)  # from the right: a topic may have a colon in its name
    name = match.group(1) if match else ""
    partition, start, end = (int(one) for one in match.groups()[1:]) if match else (0, 0, 0)
    if start >= end or end > INT64_MAX:
        raise RuleBroken(f"'{text}' is not a gap", "write TOPIC:PARTITION:FROM-TO, e.g. orders:0:100-200")
    topic, _, gaps = _stops_at(collection, settings, name)
    if gaps and isinstance(gaps[0], TopicChanged):
        raise gaps[0]
    if not any(one.partition == partition and one.from_offset <= start and end <= one.to_offset for one in gaps):
        named = ", ".join(f"{one.topic}:{one.partition}:{one.from_offset}-{one.to_offset}" for one in gaps)
        raise RuleBroken(
            f"'{text}' is not within a gap that ingest stops at now; there are: {named or 'none'}",
            "accept what ingest names, or a part of it",
        )
    return topic.name, partition, start, end


def read_changed_topic(
    collection: Collection, settings: CollectionSettings, name: str
) -> tuple[str, int, dict[int, int]]:
    """Which topic of a name there is now, and where to begin in it, where it is not what was read.

    A topic that was made anew begins at its beginning; one that was cut short where it ends, or where it was read to.

    Raises:
        RuleBroken: it is what was read, or none was read yet.
    """
    topic, offsets, gaps = _stops_at(collection, settings, name)
    changed = [one for one in gaps if isinstance(one, TopicChanged)]
    if not changed:
        raise RuleBroken(
            f"the topic '{name}' is the one that '{collection.name}' has read, or none was read yet",
            "accept a topic only where ingest says that it is not what was read",
        )
    starts = {}
    if changed[0].why != MADE_ANEW:
        ends = topic.end_offsets()
        read = next_offsets(OpenTable(collection.paths.updates), topic.name)
        starts = {one: min(end, ends[one]) for one, end in read.items() if one in ends}
    return topic.name.partition("#")[0], offsets.identity or 0, starts


def _stops_at(
    collection: Collection, settings: CollectionSettings, name: str
) -> tuple[Topic, OffsetRange, list[TopicGap]]:
    """A topic, and at what ingest would stop there now."""
    for at, topic in zip(settings.topics, open_topics(settings, collection.entry.decisions), strict=True):
        if name in (at, topic.name):
            return topic, *plan_next(topic, OpenTable(collection.paths.updates), collection, 1)
    raise RuleBroken(f"'{settings.name}' reads the topic '{settings.topic}', not '{name}'", "mend the topic's name")
