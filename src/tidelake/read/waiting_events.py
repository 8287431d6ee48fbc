"""The events that make ingest wait: the first unread event of each partition of a table's topic. Needs no JVM."""

from __future__ import annotations

import time as clock
from dataclasses import asdict, dataclass
from typing import Any

from tidelake.ingest.source_messages import ReadMessage, message_reader
from tidelake.protocol.transactions import NotATransaction, is_by_signal, payload_of, transaction_of
from tidelake.read.words import duration
from tidelake.settings.collection import CollectionSettings
from tidelake.store.commit import OpenTable
from tidelake.store.state import next_offsets
from tidelake.topic.topic import Topic


@dataclass(frozen=True)
class WaitingEvent:
    """The first unread event of a partition."""

    topic: str
    partition: int
    offset: int
    transaction: str | None
    """The id of its transaction; None if it belongs to no transaction."""
    age_s: int | None
    """How long ago the connector processed the event; None if that is unknown."""
    is_by_signal: bool = False
    """Whether it is a row of a snapshot that a signal asked for."""

    @property
    def sentence(self) -> str:
        """Why the event is waiting."""
        waits = "" if self.age_s is None else f"; it has been waiting for {duration(self.age_s)}"
        place = f"topic '{self.topic}', partition {self.partition}, offset {self.offset}"
        if self.is_by_signal:
            return f"{place}: the event is a row of a snapshot that a signal asked for{waits}"
        if self.transaction is None:
            return f"{place}: the event belongs to no transaction{waits}"
        age = "" if self.age_s is None else f", for {duration(self.age_s)}"
        return f"{place}: the event is waiting for the END of transaction {self.transaction}{age}"

    def as_json(self) -> dict[str, Any]:
        """Return the fields and the sentence as JSON values."""
        return asdict(self) | {"sentence": self.sentence}


def waiting_events(settings: CollectionSettings | None, table: OpenTable, topic: Topic) -> list[WaitingEvent]:
    """Return the first unread message of each partition of a table's topic, if it is an event that makes ingest wait.

    Such an event is a change, a truncate, or a row of a snapshot that a signal asked for.

    Args:
        settings: the collection's settings; if None, events in Avro are not read.
        table: the updates table.
        topic: the topic with the table's events.

    Raises:
        SourceError: the topic is missing or malformed, or its brokers or the registry do not answer.

    Cost: one message of each partition with unread messages.
    """
    read, events = next_offsets(table, topic.name), []
    read_message = payload_of if settings is None else message_reader(settings, settings.topics[0])
    for partition, end in sorted(topic.end_offsets().items()):
        offset = read.get(partition, 0)
        record = topic.record_at(partition, offset) if offset < end else None
        event = None if record is None or record.value is None else _event_of(record.value, read_message)
        if record is None or event is None:
            continue
        by_signal = event.get("op") == "r" and is_by_signal(event.get("source"))
        if event.get("op") not in ("c", "u", "d", "t") and not by_signal:
            continue
        transaction, stamp = event.get("transaction"), event.get("ts_ms")
        named = transaction_of(transaction.get("id")) if isinstance(transaction, dict) else None
        at_ms = stamp if type(stamp) is int else record.timestamp_ms
        age_s = None if at_ms is None else max(0, int(clock.time() - at_ms / 1000))
        events.append(WaitingEvent(topic.name, partition, offset, named, age_s, by_signal))
    return events


def _event_of(value: bytes, read_message: ReadMessage) -> dict[str, Any] | None:
    """Return a decoded message, without an embedded schema; None if it cannot be an event."""
    try:
        event = read_message(value)
    except NotATransaction:
        return None
    return event if isinstance(event, dict) else None
