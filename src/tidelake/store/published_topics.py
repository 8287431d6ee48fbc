"""The topics that a collection is published to, as changes to its entry. Nothing here reads a topic or writes a file.

What the first publisher commits is the rule for all later ones: from which time, with which columns, in which encoding.
The same commit adds a hold at that time, without a lease. The hold follows the frontier of the topic, so the changes
that the topic may lack can always be read. Before times are stated, they are claimed; a schema version with new columns
starts at the first time that nobody has claimed. See docs/decisions/publishing.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelake.errors import ArgumentRefused, FrontierRegression, PublishedTopicUnknown, SinceError
from tidelake.protocol.antichain import Antichain
from tidelake.store.entry import Capability, Entry, PublishedTopic, PublishedVersion

SHARDS_MAX = 1_000


def topic_of(entry: Entry, source: str, topic: str) -> PublishedTopic | None:
    """Return a topic as the entry states it; None if the collection is not published to it."""
    matches = (each for each in entry.published_topics if (each.source, each.topic) == (source, topic))
    return next(matches, None)


def find_topic(entry: Entry, source: str, topic: str) -> PublishedTopic:
    """Return a topic as the entry states it.

    Raises:
        PublishedTopicUnknown: the collection is not published to it.
    """
    found = topic_of(entry, source, topic)
    if found is None:
        raise PublishedTopicUnknown(entry.name, topic)
    return found


def topic_now(entry: Entry, known: PublishedTopic) -> PublishedTopic:
    """Return a topic, known from an earlier entry, as this entry states it.

    Raises:
        PublishedTopicUnknown: nobody publishes to it any more.
    """
    found = next((each for each in entry.published_topics if each.id == known.id), None)
    if found is None:
        raise PublishedTopicUnknown(entry.name, known.topic)
    return found


def begin(entry: Entry, first: PublishedTopic) -> Entry:
    """Add a topic and its hold; if it is already there, the entry stays as it is.

    Raises:
        ArgumentRefused: the number of shards is out of its range.
        SinceError: the time is not at or after `since`.
    """
    if topic_of(entry, first.source, first.topic) is not None:
        return entry
    check_shards(first.shards)
    if not entry.since_frontier.less_equal(first.published_from):
        raise SinceError(entry.shown(first.published_from), map(entry.shown, entry.since), entry.name)
    hold = Capability(id=first.id, kind="read", since=(first.published_from,))
    return entry.model_copy(
        update={
            "published_topics": (*entry.published_topics, first),
            "capabilities": (*entry.capabilities, hold),
        }
    )


def follow(entry: Entry, known: PublishedTopic, frontier: int, closed: bool, offsets: Mapping[int, int]) -> Entry:
    """Record how far a topic was read back, and move its hold.

    Two publishers may call this in any order: the greater frontier and offsets are kept. What was read back stays true.

    Raises:
        PublishedTopicUnknown: nobody publishes to the topic.
    """
    before = topic_now(entry, known)
    merged = {
        partition: max(before.offsets.get(partition, 0), offsets.get(partition, 0))
        for partition in sorted({*before.offsets, *offsets})
    }
    after = before.model_copy(
        update={
            "frontier": max(before.frontier, frontier),
            "closed": before.closed or closed,
            "offsets": merged,
        }
    )
    if after == before:
        return entry
    return _replace(entry, after)


def claim(
    entry: Entry,
    known: PublishedTopic,
    until: int,
    record_schema: dict[str, Any] | None = None,
    schema_id: int | None = None,
) -> Entry:
    """Claim the times before `until`: publishers state them only after this commit.

    With a schema, also add a version with new columns.

    The version in force at a claimed time never changes: a new version starts at the first time that nobody has
    claimed. So publishers that read the entry before and after this commit write the same data.

    Args:
        entry: the newest entry.
        known: the topic, from an earlier entry.
        until: the end of the times to claim. The entry has every column that has a value before `until`.
        record_schema: the schema of the new version; None if the last version has all columns.
        schema_id: with Confluent framing, the id of its CDCv2 schema.

    Raises:
        PublishedTopicUnknown: nobody publishes to the topic.
    """
    topic = topic_now(entry, known)
    update: dict[str, Any] = {"claimed": max(topic.claimed, until)}
    if record_schema is not None:
        version = PublishedVersion(starts_at=topic.claimed, record_schema=record_schema, schema_id=schema_id)
        update["later_versions"] = (*topic.later_versions, version)
    after = topic.model_copy(update=update)
    return entry if after == topic else _replace(entry, after)


def reshard(entry: Entry, known: PublishedTopic, shards: int) -> Entry:
    """Change the number of shards.

    Statements that were made under the earlier number stay true. But until that number is in force again, they are no
    evidence of what the topic has.

    Raises:
        ArgumentRefused: the number is out of its range.
        PublishedTopicUnknown: nobody publishes to the topic.
    """
    check_shards(shards)
    return _replace(entry, topic_now(entry, known).model_copy(update={"shards": shards}))


def end(entry: Entry, known: PublishedTopic) -> Entry:
    """Remove a topic and its hold. What the topic states stays true.

    Raises:
        PublishedTopicUnknown: nobody publishes to the topic.
    """
    id = topic_now(entry, known).id
    return entry.model_copy(
        update={
            "published_topics": tuple(each for each in entry.published_topics if each.id != id),
            "capabilities": tuple(each for each in entry.capabilities if each.id != id),
        }
    )


def check_shards(shards: int) -> None:
    """Check a number of shards.

    Raises:
        ArgumentRefused: it is out of its range.
    """
    if not 1 <= shards <= SHARDS_MAX:
        raise ArgumentRefused("shards", shards, f"but must be between 1 and {SHARDS_MAX}", "one is enough for most")


def _replace(entry: Entry, topic: PublishedTopic) -> Entry:
    """Replace a topic, and move its hold to the last time that the topic states."""
    capabilities = []
    for capability in entry.capabilities:
        if capability.id == topic.id:
            held = Antichain(capability.since)
            if not held.less_equal(topic.last_stated):
                raise FrontierRegression(f"since of the capability '{topic.id}'", held, (topic.last_stated,))
            capability = capability.model_copy(update={"since": (topic.last_stated,)})
        capabilities.append(capability)
    topics = (topic if each.id == topic.id else each for each in entry.published_topics)
    return entry.model_copy(update={"published_topics": tuple(topics), "capabilities": tuple(capabilities)})
