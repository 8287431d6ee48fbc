"""A topic or a registry cannot be read or written, or lacks something."""

from __future__ import annotations

from collections.abc import Iterable

from tidelake.errors.base import InvalidUsage, TidelakeError


def name_in_kafka(topic: str) -> str:
    """Return a topic's name without the number that tables add if the topic was recreated, as in `orders#1`."""
    return topic.partition("#")[0]


class SourceError(TidelakeError):
    """A source of a collection cannot be read any further; nothing was skipped, and data already read stays valid."""


class TopicGap(SourceError):
    """Offsets that a topic should have are missing; nothing was skipped."""

    topic: str
    partition: int
    from_offset: int
    to_offset: int
    """The first offset that exists again; if the topic ends before what was read, the next offset to read."""
    why: str
    hint = (
        "restore what is missing, or accept the gap: `tidelake resolve gap NAME --offsets "
        "{topic}:{partition}:{from_offset}-{to_offset} --reason …` ({to_offset} is excluded); its unread messages are "
        "then lost"
    )

    @property
    def fact(self) -> str:
        """The missing offsets, from the first to the last, and why they are missing."""
        last = self.to_offset - 1
        are = f"offset {last} is" if last == self.from_offset else f"offsets {self.from_offset} to {last} are"
        return f"topic '{self.topic}', partition {self.partition}: {are} missing: {self.why}"


class TopicChanged(TopicGap):
    """A topic was recreated, or ends before what was read: what was read from `from_offset` to `to_offset` is gone."""

    fact = (
        "topic '{topic}', partition {partition}, was read up to offset {to_offset}, but its messages from offset "
        "{from_offset} on are gone: {why}"
    )
    hint = (
        "correct the topic or its name, or continue with the topic as it is: `tidelake resolve topic NAME --topic "
        "{name} --reason …`; messages that have not been read yet are then lost"
    )

    @property
    def name(self) -> str:
        """The topic's name in Kafka, without the number of the recreated topic."""
        return name_in_kafka(self.topic)


class EventBlocked(TopicGap):
    """An event cannot be assigned to a transaction; its partition is read up to the event, and nothing was skipped."""

    fact = "topic '{topic}', partition {partition}: the event at offset {from_offset} {why}"
    hint = (
        "correct the connector, or continue without the event: `tidelake resolve gap NAME --offsets "
        "{topic}:{partition}:{from_offset} --reason …`; it then goes to the quarantine; with TOPIC:PARTITION:FROM-TO, "
        "so do all events without a transaction in this range"
    )


class SnapshotBySignal(TopicGap):
    """A signal requested a snapshot; its rows were read after the log position that they state. Nothing was skipped."""

    fact = "topic '{topic}', partition {partition}: the event at offset {from_offset} {why}"
    hint = (
        "continue without its rows: `tidelake resolve gap NAME --offsets {topic}:{partition}:{from_offset}-{to_offset} "
        "--reason …` leaves out all events without a transaction in this range; for a new snapshot, stop the "
        "connector, delete its offsets, and resume it"
    )


class SnapshotUnfinished(TopicGap):
    """The connector stopped in the middle of a snapshot, and now reads changes without having repeated it."""

    lsn: int
    rows: int
    fact = (
        "topic '{topic}': the snapshot at {lsn} has no last row (rows read: {rows}), but later transactions were "
        "read: the connector abandoned it, and then either began no other one, or began one and found the table empty"
    )
    hint = (
        "if the table was empty then, discard the snapshot: `tidelake resolve count NAME --time {lsn} --count 0 "
        "--reason …`; if the snapshot is complete, accept it with `--count {rows}`"
    )


class SnapshotRepeated(TopicGap):
    """A table without a key was read in another snapshot, which does not say which of the earlier rows are gone."""

    lsn: int
    rows: int
    fact = (
        "topic '{topic}': the connector took another snapshot, at {lsn}, of a table without a key: its rows ({rows}) "
        "do not tell which of the rows read earlier are gone"
    )
    hint = (
        "read the topic into a new collection, starting with the snapshot; or continue without the snapshot, if no "
        "change was lost before it: `tidelake resolve count NAME --time {lsn} --count 0 --reason …`"
    )


class TransactionWentBack(TopicGap):
    """The END of an unknown transaction has a lower commit position than an END read before it; ingest stops there."""

    transaction: str
    lsn: int
    last: int
    fact = (
        "topic '{topic}', offset {from_offset}: transaction {transaction} ends at {lsn}, but an END at {last}, "
        "a later position, was read before it"
    )
    hint = (
        "if the database was restored from a backup, its log positions begin again: let the connector write to new "
        "topics, with another `topic.prefix`, and read these into new collections; if only this END came late, leave "
        "out the transaction's events: `tidelake resolve transaction NAME --transaction {transaction} --reason …`"
    )


class TransactionTopicDivided(SourceError):
    """The topic of transactions has more than one partition, so the order of commits is lost."""

    topic: str
    partitions: int
    fact = "topic '{topic}' has {partitions} partitions, but transactions are in order only in a topic with one"
    hint = "recreate it with one partition: see docs/guides/transactions.md"


class TopicMissing(SourceError):
    """Kafka has no such topic."""

    servers: str
    topic: str
    fact = "Kafka at {servers} has no topic '{topic}'"
    hint = "create it, or correct its name"


class FolderMissing(SourceError):
    """The folder of a file topic does not exist."""

    topic: str
    folder: str
    fact = "the topic '{topic}' has no folder {folder}"

    @property
    def hint(self) -> str:
        """How to create the folder; in an object store, a folder exists if anything is in it."""
        if "://" in self.folder:
            return "write its first file, or an empty object whose name begins with `_`; or correct the topic's name"
        return "create it, or correct the topic's name"


class MalformedTopic(SourceError):
    """A file of a file topic is not in the expected format, or cannot be read."""

    file: str
    problem: str
    fix: str
    fact = "{file} {problem}"
    hint = "{fix}"


class MalformedLine(SourceError):
    """A line of a file topic in JSON Lines is not a message."""

    file: str
    line: int
    problem: str
    fact = "{file}, line {line}: {problem}"
    hint = 'write one message per line: {{"offset": 0, "timestamp_ms": 0, "value_b64": "…"}}'


class RepeatedOffset(SourceError):
    """A file topic has two messages with the same offset."""

    topic: str
    partition: int
    offset: int
    where: str
    fact = "the offset {offset} of partition {partition} of the topic '{topic}' is {where}"
    hint = "an offset belongs to one message: remove the copy, or give the other message an offset of its own"


class TopicUnreachable(SourceError):
    """The brokers of a topic did not answer, or refused access; nothing was read, and nothing is lost."""

    topic: str
    servers: str
    detail: str
    fact = "the topic '{topic}' cannot be read from {servers}: {detail}"
    hint = (
        "check that the brokers are running and that the settings under `kafka:` are correct; the next run continues "
        "from here"
    )


class TopicUnwritable(SourceError):
    """The brokers of a topic did not accept a record; records that they accepted earlier stay in the topic."""

    topic: str
    servers: str
    detail: str
    fact = "the topic '{topic}' cannot be written to at {servers}: {detail}"
    hint = (
        "check that the brokers are running and that the settings under `kafka:` are correct; records that were "
        "accepted stay in the topic"
    )


class RegistryUnreachable(SourceError):
    """The schema registry did not respond, or its response is unusable; nothing was read, and nothing is lost."""

    url: str
    detail: str
    fact = "the schema registry at {url} cannot be queried: {detail}"
    hint = (
        "check that it is running and that the settings under `registry:` are correct; the next run continues from here"
    )


class UnknownTopic(InvalidUsage):
    """No collection of the lake reads a topic with this name, or a collection does not read it."""

    topic: str
    topics: Iterable[str]
    """The topics that are read: by the collection, or by any collection of the lake."""
    collection: str | None
    """The collection that does not read it; None if no collection does."""

    @property
    def fact(self) -> str:
        """The topic, and who does not read it."""
        reader = "no collection reads" if self.collection is None else f"'{self.collection}' does not read"
        return f"{reader} the topic '{self.topic}'"

    @property
    def hint(self) -> str:
        """The nearest name, and the names of all topics that are read."""
        from difflib import get_close_matches  # imported late: every command imports this file

        nearest = get_close_matches(self.topic, self.topics, n=1)
        start = f"did you mean '{nearest[0]}'? " if nearest else ""
        names = ", ".join(self.topics) or "none"
        if self.collection is not None:
            return f"{start}'{self.collection}' reads these topics: {names}; `Lake.trace` asks all collections"
        return f"{start}{'These' if nearest else 'these'} topics are read: {names}"
