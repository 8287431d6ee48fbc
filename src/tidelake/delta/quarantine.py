"""What could not be used: every message with its place and reason, and whether somebody has seen to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tidelake.delta.catalog import Collection, Decision
from tidelake.delta.commit import OpenTable
from tidelake.delta.files import read_rows
from tidelake.delta.layout import QUARANTINE_SCHEMA

_PLACE = ("topic", "partition", "offset")


def quarantine_rows(collection: Collection, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The quarantine, one row for each `(topic, partition, offset)`, in their order; some columns of it, if given."""
    table = OpenTable(collection.paths.quarantine)
    rows = read_rows(collection.paths.quarantine, table.files(), QUARANTINE_SCHEMA, columns).to_pylist()
    by_place = {tuple(row[name] for name in _PLACE): row for row in rows}
    return [by_place[place] for place in sorted(by_place)]


def quarantine_reasons(collection: Collection, explained: bool | None = None) -> dict[str, int]:
    """How many messages are in the quarantine, by reason.

    Args:
        collection: whose quarantine.
        explained: True or False: only those that are, or are not; see `explanation_of`.
    """
    # Not the messages themselves: they may be large, and many.
    rows = quarantine_rows(collection, [*_PLACE, "reason", "times"])
    decisions = collection.entry.decisions
    return dict(
        Counter(
            row["reason"]
            for row in rows
            if explained is None or (explanation_of(row, decisions) is not None) == explained
        )
    )


def explanation_of(row: dict[str, Any], decisions: Sequence[Decision]) -> str | None:
    """Why nobody has to look at a quarantined message any more, or None.

    Either somebody has acknowledged the message itself, or all the times that it is known to hold back are settled by
    decisions. What other messages say explains nothing.

    >>> row = {"topic": "orders", "partition": 0, "offset": 7, "times": [3]}
    >>> explanation_of(row, [Decision(time=3, count=1, reason="one was lost", at_ms=0)])
    'time 3: one was lost'
    >>> explanation_of(row, [Decision(quarantined=("orders", 0, 5, 7), reason="a test message", at_ms=0)])
    """
    for one in decisions:
        if one.quarantined is not None and _holds(one.quarantined, row):
            return one.reason
    settled = {one.time: one.reason for one in decisions if one.time is not None}
    times = row["times"] or []
    if times and all(time in settled for time in times):
        return "; ".join(f"time {time}: {settled[time]}" for time in sorted(times))
    return None


def _holds(quarantined: tuple[str, int, int, int], row: dict[str, Any]) -> bool:
    topic, partition, start, end = quarantined
    return (topic, partition) == (row["topic"], row["partition"]) and start <= row["offset"] < end
