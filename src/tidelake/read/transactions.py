"""Sentences about the transactions of a source, for `explain`. Needs no JVM."""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.protocol.iso_times import iso_to_the_second
from tidelake.read.words import counted
from tidelake.seal.count_positions import numbers_at
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import RunFile
from tidelake.store.transactions import Transaction, read_transactions

_NAMED_MAX = 10


def facts_about(collection: Collection, time: int) -> list[str]:
    """Return a sentence about each transaction or snapshot at a time."""
    return [_fact_of(transaction) for transaction in read_transactions(collection, time, time + 1)]


def missing_events(collection: Collection, table: OpenTable, files: Sequence[RunFile], time: int) -> str | None:
    """Return a sentence that says which events of the transaction at an unsealed time are not stored.

    None if its END has not been read, or if no event of this table is missing.

    Args:
        collection: the collection.
        table: its updates table.
        files: the files that may hold its rows.
        time: the time.

    Cost: two columns of the files.
    """
    ends = [found for found in read_transactions(collection, time, time + 1) if not found.is_snapshot]
    if not ends or not ends[0].events:
        return None
    here = numbers_at(table.path, files, time)
    missing = [number for number in range(1, ends[0].events + 1) if number not in here]
    if not missing:
        return None
    named = ", ".join(map(str, missing[:_NAMED_MAX])) + (", …" if len(missing) > _NAMED_MAX else "")
    return (
        f"of the {counted(ends[0].events, 'event')} of transaction {ends[0].id} in this table, those with the numbers "
        f"{named} (data_collection_order) are not stored; if the table's topic was read to its end, they are filtered "
        "out or rerouted somewhere between the database and the topic"
    )


def _fact_of(transaction: Transaction) -> str:
    if transaction.is_snapshot:
        return (
            f"a snapshot of the table, {counted(transaction.events, 'row')}: asserted to be complete, not proven, "
            "because nothing announces the number of its rows"
        )
    ended = "" if transaction.ended_at_ms is None else f", committed at {iso_to_the_second(transaction.ended_at_ms)}"
    return (
        f"transaction {transaction.id}{ended}: {counted(transaction.events, 'event')} in this table, "
        f"{transaction.events_in_all:,} in total; "
        f"its END is in topic '{transaction.topic}', offset {transaction.offset}"
    )
