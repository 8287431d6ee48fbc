"""The quarantine: unusable messages, each with its place and reason, and whether a decision explains it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tidelake.store.commit import OpenTable
from tidelake.store.decision import AcceptGap, Acknowledge, Decision, Park, reasons_in
from tidelake.store.entry import Collection
from tidelake.store.files import read_rows
from tidelake.store.layout import QUARANTINE_SCHEMA

_PLACE = ("topic", "partition", "offset")
PARKED, NO_TRANSACTION = "parked_transaction", "no_transaction"
"""With transactions, the reasons given for events that a decision has left out: their transaction was parked, or they
belong to none."""


def quarantine_rows(
    collection: Collection, columns: Sequence[str] | None = None, may_be_stale: bool = False
) -> list[dict[str, Any]]:
    """Return the rows of the quarantine, one for each `(topic, partition, offset)`, in that order.

    Args:
        collection: the collection.
        columns: the columns to read, which must include the place; None means all.
        may_be_stale: see `OpenTable`.
    """
    table = OpenTable(collection.paths.quarantine, may_be_stale=may_be_stale)
    rows = read_rows(collection.paths.quarantine, table.files(), QUARANTINE_SCHEMA, columns).to_pylist()
    by_place = {tuple(row[name] for name in _PLACE): row for row in rows}
    return [by_place[place] for place in sorted(by_place)]


def quarantine_reasons(
    collection: Collection, explained: bool | None = None, may_be_stale: bool = False
) -> dict[str, int]:
    """Count quarantined messages by reason.

    Args:
        collection: the collection.
        explained: True counts only explained messages, False only unexplained ones, None all; see `explanation_of`.
        may_be_stale: see `OpenTable`.
    """
    # The messages themselves are not read: they may be large and many.
    rows = quarantine_rows(collection, [*_PLACE, "reason", "times"], may_be_stale)
    decisions = collection.entry.decisions
    return dict(
        Counter(
            row["reason"]
            for row in rows
            if explained is None or (explanation_of(row, decisions) is not None) == explained
        )
    )


def explanation_of(row: dict[str, Any], decisions: Sequence[Decision]) -> str | None:
    """Return the reason why a quarantined message needs no attention, or None.

    Either the message itself was acknowledged, or a decision has left it out, or decisions settle all times that it is
    known to hold back. In all other cases, it stays unexplained.

    >>> from tidelake.store.decision import Count
    >>> row = {"topic": "orders", "partition": 0, "offset": 7, "reason": "undecodable", "times": [3]}
    >>> explanation_of(row, [Count(time=3, count=1, reason="one was lost")])
    'time 3: one was lost'
    >>> explanation_of(row, [Acknowledge(offsets=("orders", 0, 5, 7), reason="a test message")])
    """
    for decision in decisions:
        if (
            isinstance(decision, Acknowledge) or (isinstance(decision, AcceptGap) and row["reason"] == NO_TRANSACTION)
        ) and decision.offsets.holds(*(row[name] for name in _PLACE)):
            return decision.reason
    if row["reason"] == PARKED:
        return "; ".join(dict.fromkeys(decision.reason for decision in decisions if isinstance(decision, Park))) or None
    settled = reasons_in(decisions)
    times = row["times"] or []
    if times and all(time in settled for time in times):
        return "; ".join(f"time {time}: {settled[time]}" for time in sorted(times))
    return None
