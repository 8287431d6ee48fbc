"""Finds the transactions whose first changes a connector might not have sent."""

from __future__ import annotations

from tidelake.errors import TransactionCut
from tidelake.protocol.transactions import Cut
from tidelake.store.commit import OpenTable
from tidelake.store.cuts import read_cuts
from tidelake.store.entry import Collection


def cut_transactions(collection: Collection, table: OpenTable, lower: int) -> list[TransactionCut]:
    """Return a contradiction for each cut transaction that ingest found in this or another table of the connector.

    Args:
        collection: the collection.
        table: its updates table.
        lower: the first time; earlier transactions are left out.

    Cost: one listing, and one read for each cut transaction; nothing if the collection has no transactions.
    """
    if not collection.entry.counts_positions:
        return []
    cuts = read_cuts(collection, table, lower)
    return [TransactionCut(cut.lsn, cut.id, cut.begins_at, _sent(cut)) for cut in cuts]


def _sent(cut: Cut) -> str:
    """Say where the first event that was sent is or, if there is none, where the END is."""
    place = f"topic '{cut.topic}', partition {cut.partition}, offset {cut.offset}"
    if cut.first is None:
        return f"its END, in {place}, counts no event"
    return f"the first event that was sent, in {place}, is at log position {cut.first}"
