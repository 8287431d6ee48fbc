"""Finds out whether ingest stops reading the topic of transactions because log positions went back. Needs no JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelake.errors import TransactionWentBack
from tidelake.ingest.source_messages import message_reader
from tidelake.protocol.transactions import End, NotATransaction, Sorted, read_mark, sort_ends
from tidelake.settings.transactions import TransactionSettings
from tidelake.store.commit import OpenTable
from tidelake.store.decision import parked_in
from tidelake.store.entry import Collection
from tidelake.store.state import next_offsets
from tidelake.store.transactions import LAST, read_transactions
from tidelake.topic.topic import Topic


def went_back(
    topic: Topic, table: OpenTable, collection: Collection, settings: TransactionSettings, ends: Mapping[int, int]
) -> TransactionWentBack | None:
    """Return the error with which ingest stops at the next message of the topic of transactions; None if it goes on.

    Args:
        topic: the topic of transactions.
        table: the updates table.
        collection: the collection.
        settings: its settings.
        ends: where the topic's partitions end.

    Raises:
        SourceError: the topic is missing or malformed, or its brokers or the registry do not answer.

    Cost: one message, if any is unread.
    """
    offset, last = next_offsets(table, topic.name).get(0, 0), (table.value(LAST) or 0) - 1
    record = topic.record_at(0, offset) if offset < ends.get(0, 0) else None
    if record is None:
        return None
    try:
        mark = read_mark(message_reader(settings, settings.transaction_topic)(record.value), settings.table, offset)
    except NotATransaction:
        return None
    found = sort_new(collection, [mark], last).went_back if isinstance(mark, End) else None
    return None if found is None else error_at(topic.name, found, last)


def sort_new(collection: Collection, ends: Sequence[End], last: int) -> Sorted:
    """Sort ENDs that were just read, given what the collection knows of earlier ENDs; see `sort_ends`.

    Cost: if some of these ENDs are at or before `last`, one read of the files of `transactions/` that may have them.
    """
    low = [end.lsn for end in ends if end.lsn <= last]
    known = read_transactions(collection, min(low), max(low) + 1) if low else []
    ids = {transaction.time: transaction.id for transaction in known if transaction.id is not None}
    return sort_ends(ends, last, ids, parked_in(collection.entry.decisions).keys())


def error_at(topic: str, end: End, last: int) -> TransactionWentBack:
    """Return the error about an END that is before `last`, the greatest commit position that was read."""
    return TransactionWentBack(topic, 0, end.offset, end.offset, "the log positions went back", end.id, end.lsn, last)
