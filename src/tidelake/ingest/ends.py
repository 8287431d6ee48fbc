"""Reads the topic of transactions: which transactions have ended, and which messages are unusable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tidelake.errors import TopicGap
from tidelake.ingest.position import check_undivided, plan_next
from tidelake.ingest.source_messages import ReadMessage, message_reader
from tidelake.ingest.went_back import error_at, sort_new
from tidelake.protocol.message import Progress
from tidelake.protocol.transactions import Begin, End, NotATransaction, Sorted, ends_of, read_mark
from tidelake.settings.transactions import TransactionSettings
from tidelake.store.columns import carry_columns
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import write_run
from tidelake.store.layout import PROGRESS_SCHEMA, QUARANTINE_SCHEMA, RUN, TRANSACTIONS_SCHEMA
from tidelake.store.runs import append_run
from tidelake.store.transactions import read_transactions
from tidelake.topic.topic import OffsetRange, Topic

_MALFORMED = "malformed_transaction"
_BACK_MAX = 3
"""If a range starts with an END, how many offsets to look back for the BEGIN of its transaction: markers of
exactly-once producers may take up the offsets between the two."""


@dataclass
class ReadEnds:
    """The range that a tick reads from the topic of transactions."""

    offsets: OffsetRange
    sorted: Sorted = field(default_factory=lambda: Sorted([], []))
    malformed: list[dict[str, Any]] = field(default_factory=list)
    """The messages that are neither a BEGIN nor an END, with the reason as `detail`."""
    gaps: list[TopicGap] = field(default_factory=list)


def read_ends(
    spark: SparkSession,
    collection: Collection,
    settings: TransactionSettings,
    topic: Topic,
    table: OpenTable,
    last: int,
) -> ReadEnds:
    """Read the new messages of the topic of transactions, up to the first END that goes back.

    An END goes back if its transaction is unknown although its commit position is at or before one that was read.

    Args:
        spark: the session, which reads messages from brokers.
        collection: the collection.
        settings: its settings.
        topic: the topic of transactions.
        table: the updates table.
        last: the greatest commit position that was already read; -1 if there is none.

    Raises:
        TransactionTopicDivided: the topic has more than one partition.
        SourceError: the topic is missing or malformed, or its brokers or the registry do not answer.

    Cost: the driver holds at most `messages_per_tick_max` messages.
    """
    check_undivided(topic, topic.end_offsets())
    offsets, gaps = plan_next(topic, table, collection, settings.messages_per_tick_max)
    read = ReadEnds(offsets, gaps=gaps)
    if not offsets.intervals:
        return read
    marks: list[Begin | End] = []
    value_of = message_reader(settings, settings.transaction_topic)
    for row in _messages(spark, topic, offsets):
        try:
            marks.append(read_mark(value_of(row["value"]), settings.table, row["offset"]))
        except NotATransaction as error:
            read.malformed.append(row | {"detail": str(error)})
    begun = None
    if marks and isinstance(marks[0], End):
        (start, _), *_ = offsets.intervals.values()
        begun = _begin_before(topic, start, value_of, settings.table)
    found = ends_of(marks, begun)
    read.sorted = sort_new(collection, found, last)
    if read.sorted.went_back is not None:
        _stop_at(read, topic, read.sorted.went_back, last)
    return read


def contradicting_statements(collection: Collection, ends: Sorted) -> list[tuple[int, Progress]]:
    """Return the statements of repeated ENDs that contradict their transaction's first END, each with its offset."""
    if not ends.repeated:
        return []
    times = [end.lsn for end in ends.repeated]
    known = read_transactions(collection, min(times), max(times) + 1)
    counts = {end.lsn: (end.events, end.events_in_all) for end in ends.new}
    counts |= {found.time: (found.events, found.events_in_all) for found in known if not found.is_snapshot}
    differing = [end for end in ends.repeated if end.lsn in counts and end.contradicts(*counts[end.lsn])]
    return [
        (end.offset, Progress([end.lsn], [end.lsn + 1], [(end.lsn, end.events)] if end.events else []))
        for end in differing
    ]


def append_statements(collection: Collection, topic: str, statements: Sequence[tuple[int, Progress]]) -> None:
    """Append progress statements.

    Args:
        collection: the collection.
        topic: the topic of transactions.
        statements: the statements, each with the offset of the message that it is from.
    """
    rows = [
        {
            "topic": topic,
            "partition": 0,
            "offset": offset,
            "lower": list(progress.lower),
            "upper": list(progress.upper),
            "count_times": list(progress.counts),
            "count_values": list(progress.counts.values()),
        }
        for offset, progress in statements
    ]
    schema = pa.schema([field for field in PROGRESS_SCHEMA if field.name != RUN])
    table, path = pa.Table.from_pylist(rows, schema=schema), collection.paths.progress
    append_run(path, "progress", lambda run: write_run(path, run, table), collection.entry.epoch)


def append_transactions(collection: Collection, rows: Sequence[dict[str, Any]]) -> None:
    """Append rows, if any, to `transactions/`; a table of an earlier release first gets the columns that it lacks."""
    if not rows:
        return
    path, epoch = collection.paths.transactions, collection.entry.epoch
    if OpenTable(path, may_be_stale=True).schema().names != TRANSACTIONS_SCHEMA.names:
        carry_columns(path, TRANSACTIONS_SCHEMA, epoch)
    schema = pa.schema([field for field in TRANSACTIONS_SCHEMA if field.name != RUN])
    table = pa.Table.from_pylist(list(rows), schema)
    append_run(path, "transactions", lambda run: write_run(path, run, table), epoch)


def quarantine_malformed(collection: Collection, topic: str, malformed: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Quarantine the messages that are neither a BEGIN nor an END; return their number by reason."""
    rows = [
        {"topic": topic, "partition": row["partition"], "offset": row["offset"], "reason": _MALFORMED}
        | {name: row[name] for name in ("detail", "key", "value")}
        for row in malformed
    ]
    table = pa.Table.from_pylist(rows, pa.schema([field for field in QUARANTINE_SCHEMA if field.name != RUN]))
    path = collection.paths.quarantine
    append_run(path, "quarantine", lambda run: write_run(path, run, table), collection.entry.epoch)
    return {_MALFORMED: len(rows)}


def _messages(spark: SparkSession, topic: Topic, offsets: OffsetRange) -> list[dict[str, Any]]:
    """Return the messages of a range, in the order of their offsets."""
    columns = ["partition", "offset", "key", "value"]
    batches = topic.batches(offsets, columns)
    if batches is None:
        batches = iter([topic.read(spark, offsets).select(*columns).toArrow()])
    rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: int(row["offset"]))


def _begin_before(topic: Topic, start: int, value_of: ReadMessage, table: str) -> Begin | None:
    """Return the BEGIN that is the last message before a range; None if that message is not a BEGIN, or was deleted."""
    for offset in range(start - 1, max(-1, start - 1 - _BACK_MAX), -1):
        if (record := topic.record_at(0, offset)) is not None:
            try:
                mark = read_mark(value_of(record.value), table, offset)
            except NotATransaction:
                return None
            return mark if isinstance(mark, Begin) else None
    return None


def _stop_at(read: ReadEnds, topic: Topic, end: End, last: int) -> None:
    """Shorten the range to stop before this END, whose commit position is not after that of an END already read."""
    (partition, (start, _)), *_ = read.offsets.intervals.items()
    newest = read.sorted.new[-1].lsn if read.sorted.new else last
    read.gaps.append(error_at(topic.name, end, newest))
    read.malformed = [row for row in read.malformed if row["offset"] < end.offset]
    identity = read.offsets.identity
    read.offsets = OffsetRange({})
    if start < end.offset:
        bounded = topic.range_of({partition: (start, end.offset)})
        read.offsets = OffsetRange(bounded.intervals, bounded.parquet, bounded.json_lines, identity)
