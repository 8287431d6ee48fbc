"""Finds out what became of one message of a topic in a collection that reads it, without a JVM.

The trace first looks at what is small: the next offsets in the newest commit, the quarantine, the late statements, the
pending progress statements, the bindings and the decisions. A CDCv2 message, or a message of a collection with
transactions, also has to be decoded, which requires the message itself: if the topic no longer has it, what it states
remains unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidelake.codec.avro import AvroCodec, ConfluentCodec
from tidelake.errors import CodecError, MalformedMessage, SourceError, TopicGap, name_in_kafka
from tidelake.ingest.position import plan_next
from tidelake.ingest.source_messages import message_reader
from tidelake.ingest.stream_schemas import resolve_stream
from tidelake.protocol.message import Message, Updates
from tidelake.protocol.order import INT64_MAX
from tidelake.read.fates import (
    MISSING,
    NEVER_READ,
    NOT_READ,
    NULL,
    PROGRESS,
    QUARANTINED,
    READ,
    RECORD,
    SKIPPED,
    UPDATES,
    Fate,
)
from tidelake.read.stored_topics import StoredTopic, retired_topics, stored_topics
from tidelake.read.traced_event import describe_message
from tidelake.read.traced_record import TracedRecord, is_tombstone
from tidelake.read.traced_stream import TracedStream
from tidelake.read.words import counted
from tidelake.settings.collection import CollectionSettings
from tidelake.store.commit import OpenTable
from tidelake.store.decision import AcceptGap
from tidelake.store.entry import Collection
from tidelake.store.quarantine import explanation_of, quarantine_rows
from tidelake.store.state import next_offsets, offset_value, topic_identity_value
from tidelake.store.table_log import committed_ms, first_entry_beyond
from tidelake.topic.open import open_topics
from tidelake.topic.topic import Record, Topic


def trace_message(
    collection: Collection | None, settings: CollectionSettings, asked: str, partition: int, offset: int
) -> list[Fate]:
    """Find out what became of a message.

    Args:
        collection: the collection; None if it was never ingested.
        settings: its settings.
        asked: see `stored_topics`.
        partition: the partition of the message.
        offset: its offset.

    Returns:
        An answer for each of the topic's names under which the offset was read, oldest first; if it was not read, one
        answer for the newest name. Empty if the collection does not read the topic.

    Raises:
        DamagedTable: a table of the collection is damaged.

    Cost: reads the small tables, and from `updates/` the rows at the times that the message states.
    """
    decisions = () if collection is None else collection.entry.decisions
    table = None if collection is None else OpenTable(collection.paths.updates)
    retired = () if table is None else {name_in_kafka(name) for name in retired_topics(table, settings.topics)}
    settings = settings.model_copy(update={"topics": (*settings.topics, *sorted(retired))})
    names = stored_topics(asked, settings.topics, decisions)
    if not names:
        return []
    open_by_name = dict(zip(settings.topics, open_topics(settings, decisions), strict=True))
    traces = [
        _Trace(collection, settings, table, open_by_name[stored.topic], stored, partition, offset) for stored in names
    ]
    return [trace.fate() for trace in traces if trace.was_read] or [traces[-1].fate()]


class _Trace:
    """One message, under one of the names of its topic."""

    def __init__(
        self,
        collection: Collection | None,
        settings: CollectionSettings,
        table: OpenTable | None,
        topic: Topic,
        stored: StoredTopic,
        partition: int,
        offset: int,
    ) -> None:
        self.collection, self.settings, self.table = collection, settings, table
        self.topic, self.stored, self.partition, self.offset = topic, stored, partition, offset
        start = stored.starts.get(partition, 0)
        self.next = start if table is None else next_offsets(table, stored.name).get(partition, start)

    @property
    def was_read(self) -> bool:
        """Whether the offset is at or after the first offset under this name, and before the next offset to read."""
        return self.stored.starts.get(self.partition, 0) <= self.offset < self.next

    def fate(self) -> Fate:
        """Return what became of the message."""
        if not self.was_read:
            return self._not_read()
        assert self.collection is not None
        assert self.table is not None
        quarantined = self._quarantined(self.collection)
        if quarantined is not None:
            return quarantined
        if self.collection.entry.mints_times:
            return self._record(self.collection, self.table)
        if self.collection.entry.counts_positions:
            return self._event(self.collection, self.table)
        return self._message(self.collection, self.table)

    def _fate(self, kind: str, summary: str, **more: Any) -> Fate:
        return Fate(self.settings.name, self.stored.name, self.partition, self.offset, kind, summary, **more)

    # --- not read ----------------------------------------------------------------------------------------------------

    def _not_read(self) -> Fate:
        first = self.stored.starts.get(self.partition, 0)
        if self.offset < first:
            summary = f"never read: the topic was accepted as {self.stored.name}, beginning with offset {first}"
            return self._fate(NEVER_READ, summary, facts={"first_offset": first})
        facts: dict[str, Any] = {"next_offset": self.next}
        if self.stored.later:
            reason = self.stored.later[0].reason
            summary = f"never read: the topic was accepted again before ingest reached this offset: {reason}"
            return self._fate(NEVER_READ, summary, facts=facts)
        try:
            ends = self.topic.end_offsets()
            start, gap = self._plan()
        except SourceError as error:
            summary = f"not read yet: the next offset is {self.next}, and the topic cannot be read: {error.fact}"
            return self._fate(NOT_READ, summary, needs=error.hint or "make the topic readable", facts=facts)
        end = ends.get(self.partition)
        facts |= {"end_offset": end}
        if gap is not None and gap.from_offset <= self.offset:
            summary = f"not read yet: ingest stops at a gap: {gap.fact}"
            return self._fate(NOT_READ, summary, needs=gap.hint, facts=facts | {"gap": gap.fact})
        if end is None:
            partitions = ", ".join(map(str, sorted(ends))) or "none"
            return self._fate(NOT_READ, f"not read: the topic has no such partition; it has {partitions}", facts=facts)
        if self.offset >= end:
            return self._fate(NOT_READ, f"not read: the topic has no such message yet; it ends at {end}", facts=facts)
        accepted = self._accepted_gap()
        if accepted is not None and self._find()[0] is None:
            summary = f"not read yet: the next ingest skips it, by decision: {accepted.reason}"
            return self._fate(NOT_READ, summary, facts=facts)
        before = counted(self.offset - start, "offset")
        begins = "with this message" if self.offset == start else f"at offset {start}, {before} before this message"
        never = "; the collection was never ingested" if self.table is None else ""
        return self._fate(NOT_READ, f"not read yet: the next ingest begins {begins}{never}", facts=facts)

    def _plan(self) -> tuple[int, TopicGap | None]:
        """Return where the next ingest begins to read this partition, and the gap at which it stops, if any."""
        if self.collection is None or self.table is None:
            offsets, gaps = self.topic.plan({}, INT64_MAX)
        else:
            offsets, gaps = plan_next(self.topic, self.table, self.collection, INT64_MAX)
        start, _ = offsets.intervals.get(self.partition, (self.next, self.next))
        return start, next((gap for gap in gaps if gap.partition == self.partition), None)

    def _doubt(self) -> str | None:
        """Return what cannot be known about a message because a decision gave up on its offset; None if none did."""
        gap = self._accepted_gap()
        if gap is None:
            return None
        return f"whether the message was there when ingest skipped {gap.offsets}, by decision: {gap.reason}"

    def _accepted_gap(self) -> AcceptGap | None:
        decisions = () if self.collection is None else self.collection.entry.decisions
        place = (self.stored.name, self.partition, self.offset)
        return next((gap for gap in decisions if isinstance(gap, AcceptGap) and gap.offsets.holds(*place)), None)

    # --- read --------------------------------------------------------------------------------------------------------

    def _quarantined(self, collection: Collection) -> Fate | None:
        place = (self.stored.name, self.partition, self.offset)
        columns = ["topic", "partition", "offset", "timestamp_ms", "reason", "detail", "times"]
        rows = (row for row in quarantine_rows(collection, columns))
        row = next((row for row in rows if (row["topic"], row["partition"], row["offset"]) == place), None)
        if row is None:
            return None
        explained = explanation_of(row, collection.entry.decisions)
        what = row["reason"] + (f", {row['detail']}" if row["detail"] else "")
        summary = f"quarantined: {what}" + ("" if explained is None else f"; explained by decision: {explained}")
        needs = None
        if explained is None:
            needs = "acknowledge it: `tidelake resolve quarantine {} --offsets {}:{}:{} --reason …`".format(
                collection.name, *place
            )
            if row["times"]:
                times = ", ".join(map(str, row["times"]))
                needs = (
                    f"have the source send the statements again, or decide about the times {times}; otherwise {needs}"
                )
        facts = {name: row[name] for name in ("timestamp_ms", "reason", "detail", "times")} | {"explained": explained}
        if collection.entry.mints_times and self.table is not None:
            facts |= TracedRecord(collection, self.table, place).facts
        return self._fate(QUARANTINED, summary, needs=needs, facts=facts)

    def _find(self) -> tuple[Record | None, str]:
        """Return the message, or None and why it cannot be read."""
        try:
            problem = self._other_topic()
            if problem is not None:
                return None, problem
            record = self.topic.record_at(self.partition, self.offset)
        except SourceError as error:
            return None, f"the topic cannot be read: {error.fact}"
        return record, "the topic no longer has a message at this offset"

    def _other_topic(self) -> str | None:
        """Return why the message is not from the topic that exists now; None if it is."""
        if any(self.offset >= decision.starts.get(self.partition, 0) for decision in self.stored.later):
            return "the topic has since been accepted again, and now has different messages"
        read = None if self.table is None else self.table.value(topic_identity_value(self.stored.name))
        now = None if read is None else self.topic.current_identity()
        if read is not None and now is not None and read != now:
            return "the topic has since been deleted and recreated"
        return None

    def _skipped(self, again: str = "") -> Fate | None:
        """Return the fate of a skipped message; None if no decision gave up on its offset."""
        gap = self._accepted_gap()
        if gap is None:
            return None
        summary = f"skipped: the offsets {gap.offsets} were given up, by decision: {gap.reason}{again}"
        return self._fate(SKIPPED, summary, facts={"gap": str(gap.offsets)})

    def _event(self, collection: Collection, table: OpenTable) -> Fate:
        record, gone = self._find()
        if record is None:
            return self._skipped() or self._fate(RECORD, "read", unknown=f"what was in it: {gone}")
        kind, summary, facts = describe_message(
            collection, table, record.value, message_reader(self.settings, name_in_kafka(self.topic.name))
        )
        return self._fate(kind, summary, facts=facts)

    # --- reclocked ---------------------------------------------------------------------------------------------------

    def _record(self, collection: Collection, table: OpenTable) -> Fate:
        traced = TracedRecord(collection, table, (self.stored.name, self.partition, self.offset))
        record, gone = self._find()
        rows, facts = traced.rows(), traced.facts
        at = f"read at time {traced.binding.time}" if traced.binding is not None else "read"
        if rows:
            return self._rows(at, rows, traced, record)
        if record is None:
            skipped = self._skipped()
            if skipped is not None:
                return skipped
            return self._fate(RECORD, at, facts=facts, unknown=f"what was in it: {gone}")
        format = collection.entry.format
        if not collection.entry.positioned:
            return self._fate(RECORD, f"{at}: it is a row of that time", facts=facts, unknown=self._doubt())
        if is_tombstone(record, format) and self.settings.terms.of_changes:
            summary = f"{at}: a tombstone, which means nothing: the delete came before it"
            return self._fate(NULL, summary, facts=facts)
        if traced.forgets_rows:
            summary = f"{at}: a merge has since dropped its row: it was a delete, or a later record took its place"
            return self._fate(RECORD, summary, facts=facts)
        if self.settings.terms.of_changes:
            unknown = "why no row of that time has its position"
            needs = "run `tidelake verify`: the table should have a row for each change event of that time"
            return self._fate(RECORD, at, facts=facts, needs=needs, unknown=unknown)
        summary = f"{at}: a later record of its key in the same tick took its place"
        return self._fate(RECORD, summary, facts=facts)

    def _rows(self, at: str, rows: Sequence[Mapping[str, Any]], traced: TracedRecord, record: Record | None) -> Fate:
        means = {"value": "sets {}", "delete": "deletes {}", "error": "puts {} in error"}
        texts = [
            "empties the table" if row["means"] == "truncate" else means[row["means"]].format(row["key"])
            for row in rows
        ]
        error = next((row for row in rows if row["error"] is not None), None)
        summary, needs = f"{at}: {', '.join(texts)}", None
        if error is not None:
            summary += f": {error['error']}"
            if error["is_still_in_error"]:
                needs = f"send a later good value, or a delete, for the key {error['key']}"
            else:
                summary += "; a later record has cleared the error"
        unknown = None
        if traced.shares_position:
            unknown = "which partition or topic the rows came from: the tick read the same offset in several of them"
        kind = NULL if record is not None and record.value is None else RECORD
        facts = traced.facts | {"stored": list(rows)}
        return self._fate(kind, summary, needs=needs, unknown=unknown, facts=facts)

    # --- CDCv2 -------------------------------------------------------------------------------------------------------

    def _message(self, collection: Collection, table: OpenTable) -> Fate:
        stream, place = TracedStream(collection, table), (self.stored.name, self.partition, self.offset)
        record, gone = self._find()
        if record is None:
            return self._remembered(stream, gone)
        if record.value is None:
            return self._fate(NULL, "read: a null record, which means nothing", facts=self._tick(table))
        try:
            message = self._decode(collection, record.value)
        except (CodecError, MalformedMessage, SourceError) as error:
            why = f"what it states, because it cannot be decoded now: {error.fact}"
            hint = error.hint if isinstance(error, SourceError) else None
            needs = hint or "restore the schemas that were in use when it was read, because they could decode it"
            return self._fate(READ, "read, and not quarantined", unknown=why, needs=needs)
        unknown = self._doubt()
        if isinstance(message, Updates):
            statements = stream.statements(message.batch, place)
            if unknown is not None and statements and all(statement.fate == MISSING for statement in statements):
                skipped = self._skipped("; the topic has this message again, but ingest had already skipped it")
                assert skipped is not None
                return skipped
            return self._fate(
                UPDATES,
                _summary_of_statements(statements),
                statements=statements,
                unknown=unknown,
                facts=self._tick(table),
            )
        row = {
            "lower": list(message.lower),
            "upper": list(message.upper),
            "count_times": list(message.counts),
            "count_values": list(message.counts.values()),
        }
        return self._progress(stream, row, unknown)

    def _tick(self, table: OpenTable) -> dict[str, Any]:
        """Return the commit of the tick that read the message, if the log still has it."""
        found = first_entry_beyond(table.path, offset_value(self.stored.name, self.partition), self.offset)
        return {} if found is None else {"version": found[0], "at_ms": committed_ms(found[1])}

    def _decode(self, collection: Collection, value: bytes) -> Message:
        """Decode a message.

        Raises:
            CodecError, MalformedMessage: it cannot be decoded with the current schemas.
            RegistryUnreachable: the registry does not answer.
        """
        writers = resolve_stream(self.settings, collection.entry.record_schema).values.writers
        by_id = writers.by_id

        def look_up(schema_id: int) -> Any | None:
            return None if by_id is None else by_id.get(schema_id)

        names = [field["name"] for field in writers.bare["fields"]]
        codec = AvroCodec(writers.bare) if by_id is None else ConfluentCodec(look_up, names)
        message = codec.decode(value)
        assert message is not None
        return message

    def _remembered(self, stream: TracedStream, gone: str) -> Fate:
        """Return the fate, according to the small tables, of a message that can no longer be read."""
        place = (self.stored.name, self.partition, self.offset)
        pending = stream.pending_rest(place)
        if pending is not None:
            return self._progress(stream, pending, f"what it announced for times that are sealed: {gone}")
        late = stream.late_statements(place)
        if late:
            unknown = f"whether it had more statements: {gone}"
            return self._fate(UPDATES, _summary_of_statements(late), statements=late, unknown=unknown)
        skipped = self._skipped()
        if skipped is not None:
            return skipped
        summary = "read, and neither quarantined nor late: what it states was accepted"
        return self._fate(READ, summary, unknown=f"what it states: {gone}")

    def _progress(self, stream: TracedStream, row: Mapping[str, Any], unknown: str | None) -> Fate:
        counts = stream.counts(row)
        facts = {"lower": row["lower"], "upper": row["upper"]} | self._tick(stream.table)
        facts["collection_upper"] = None if stream.closed else stream.upper
        return self._fate(PROGRESS, _summary_of_progress(stream, row), facts=facts, counts=counts, unknown=unknown)


def _summary_of_statements(statements: Sequence[Any]) -> str:
    """Describe the fates of statements in a sentence."""
    numbers: dict[str, int] = {}
    for statement in statements:
        numbers[statement.fate] = numbers.get(statement.fate, 0) + 1
    fates = ", ".join(f"{number:,} {fate}" for fate, number in numbers.items())
    return f"read: updates ({fates or 'none'})"


def _summary_of_progress(stream: TracedStream, row: Mapping[str, Any]) -> str:
    """Describe a progress statement, and how far it is sealed, in a sentence."""
    lower, upper = row["lower"], row["upper"]
    if not lower or (upper and min(upper) <= min(lower)):
        return "read: a progress statement that covers no time"
    first, end = min(lower), min(upper) if upper else None
    about = f"about the times [{first}, {end})"
    if end is None:
        about = f"about all times at or after {first}, which closes the stream"
    if stream.closed or (end is not None and end <= stream.upper):
        state = "all of them are sealed"
    elif first > stream.upper:
        state = f"it is waiting: upper is {stream.upper}, and the times before {first} have to be sealed first"
    elif first == stream.upper:
        state = f"none of them is sealed: upper is {stream.upper}"
    else:
        state = f"those before {stream.upper} are sealed"
    return f"read: a progress statement {about}; {state}"
