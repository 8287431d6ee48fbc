"""Makes a source contradict itself at chosen times of a history: it states facts that cannot all be true."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tidelake.generator.history import History, Triple
from tidelake.protocol.message import Message, Progress, Updates

OVER_COUNT = "over_count"
CONFLICTING_COUNT = "conflicting_count"
CONFLICTING_DIFF = "conflicting_diff"

_ATTEMPTS = 100


def conflicting_diffs(history: History, times: Sequence[int], random: Random) -> list[Message]:
    """Restate one update at each time, with a diff further from zero."""
    chosen = [random.choice(_updates_at(history, time)) for time in times]
    return [Updates([(row, time, diff + (1 if diff > 0 else -1))]) for row, time, diff in chosen]


def conflicting_counts(history: History, times: Sequence[int]) -> list[Message]:
    """Announce one update too many at each time."""
    return [Progress([time], [time + 1], [(time, len(_updates_at(history, time)) + 1)]) for time in times]


def unannounced_updates(history: History, times: Sequence[int]) -> list[Message]:
    """State one unannounced update at each time."""
    return [Updates([(history.new_row(history.take_id()), time, 1)]) for time in times]


def breaches(history: History, times: Sequence[int], random: Random) -> list[Triple]:
    """Delete an order at each time, preferably one from an earlier time."""
    return [(_row_before(history, time, random), time, -1) for time in times]


def second_values(history: History, times: Sequence[int]) -> list[Triple]:
    """Give one order at each time a second value. If no order is set at a time, a new order gets both values."""
    values = []
    for time in times:
        row = next((row for row, _, diff in _updates_at(history, time) if diff > 0), None)
        if row is None:
            row = history.new_row(history.take_id())
            values.append((row, time, 1))
        values.append((history.new_row(history.rows[row]["id"]), time, 1))
    return values


def _row_before(history: History, time: int, random: Random) -> int:
    used = {row for row, _, _ in _updates_at(history, time)}
    for _ in range(_ATTEMPTS):
        row, stated_at, _ = random.choice(history.updates)
        if stated_at < time and row not in used:
            return row
    return history.new_row(history.take_id())


def _updates_at(history: History, time: int) -> list[Triple]:
    return [update for update in history.updates if update[1] == time]
