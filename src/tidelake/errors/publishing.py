"""A collection cannot be published to a topic, or the topic does not match what was published."""

from __future__ import annotations

from collections.abc import Iterable

from tidelake.errors.base import InvalidUsage, Time
from tidelake.errors.topics import SourceError


class PublishedTopicError(SourceError):
    """A topic does not match the collection that is published to it; nothing more is written to it."""

    collection: str
    topic: str
    source: str
    """`files` or `kafka`."""

    @property
    def kafka(self) -> str:
        """The option that commands about the topic need if it is in Kafka."""
        return " --kafka" if self.source == "kafka" else ""


class PublishedTopicForeign(PublishedTopicError):
    """Somebody else wrote to the topic."""

    partition: int
    offset: int
    """The offset of the first message of another writer."""
    messages: int
    """The number of messages of other writers, among those that had not been read yet."""
    fact = (
        "'{topic}', to which '{collection}' is published, has messages of another writer: {messages}, the first at "
        "offset {offset} of partition {partition}"
    )
    hint = "stop the other writer, and publish to a new topic; readers of this one may have read messages of both"


class PublishedTopicCut(PublishedTopicError):
    """Messages that no publisher has read back are missing from the topic."""

    partition: int
    from_offset: int
    to_offset: int
    """The first offset that exists again."""
    is_inside: bool
    """Whether earlier messages of the partition are still there; if so, a file is missing, which may be restored."""

    @property
    def fact(self) -> str:
        """The missing offsets, from the first to the last."""
        first, last = self.from_offset, self.to_offset - 1
        lost, have = (f"offset {last}", "has") if first == last else (f"offsets {first} to {last}", "have")
        return (
            f"'{self.topic}', to which '{self.collection}' is published, has lost {lost} of partition "
            f"{self.partition}, which {have} not been read back yet"
        )

    @property
    def hint(self) -> str:
        """How to continue; `--accept-cut` accepts only what is missing at the beginning of a partition."""
        to = f"`tidelake publish {self.collection} --to"
        if self.is_inside:
            return (
                f"restore the file with these offsets; or publish to a new topic: {to} NEW_TOPIC{self.kafka}`; then "
                f"give this one up: {to} {self.topic}{self.kafka} --stop`"
            )
        return (
            "raise the retention of the topic, then publish to a new one; or state the lost updates again, for "
            f"readers who have everything before them: {to} {self.topic}{self.kafka} --accept-cut`"
        )


class PublishedTopicRecreated(PublishedTopicError):
    """The topic is not the one that was published to, or it was truncated: it lacks earlier messages."""

    problem: str
    fact = "'{topic}', to which '{collection}' is published, {problem}"
    hint = (
        "publish to a new topic; or, if this one is empty, start over in it: `tidelake publish {collection} --to "
        "{topic}{kafka} --stop`, then publish again"
    )


class PublishedTopicNotEmpty(PublishedTopicError):
    """The first publication needs an empty topic: a new reader believes everything that a topic states."""

    messages: int
    fact = "'{topic}' already has messages ({messages}), but '{collection}' is not published to it, or no longer is"
    hint = "publish to a new topic"


class PublishedTopicContradicts(PublishedTopicError):
    """The topic disagrees with the collection, or contradicts itself."""

    contradiction: str
    fact = "topic '{topic}' contradicts collection '{collection}', which is published to it: {contradiction}"
    hint = "publish to a new topic; a store that was restored from an older copy may have read its sources differently"


class PublishedTopicBehind(PublishedTopicError):
    """The collection has forgotten what the topic still lacks."""

    frontier: int
    since: Iterable[Time]
    fact = (
        "'{topic}' states everything before time {frontier}, but since of '{collection}' is {since:frontier}: the "
        "times in between were forgotten"
    )
    hint = "publish to a new topic, and do not release the hold of a published topic"


class PublishedTopicColumns(PublishedTopicError):
    """The collection has new columns, and the topic cannot state them alongside the columns that it began with."""

    columns: Iterable[str]
    problem: str
    fact = "'{topic}', to which '{collection}' is published, cannot get the columns {columns:list}: {problem}"
    hint = (
        "publish to a new topic, with a registry if more columns may be added: `tidelake publish {collection} --to "
        "NEW_TOPIC{kafka} --encoding confluent`; then give this one up: `tidelake publish {collection} --to "
        "{topic}{kafka} --stop`"
    )


class PublishedTopicUnknown(InvalidUsage):
    """The collection is not published to the topic, or no longer is."""

    collection: str
    topic: str
    fact = "'{collection}' is not published to '{topic}'"
    hint = "`tidelake holds {collection}` shows the topics that it is published to; a topic in Kafka needs `--kafka`"
