"""The definition of a reader, by brute force: it lists all times and compares each with every other.

It shares no code with the package. A message is `("updates", [(data, time, diff), ...])` or `("progress", lower, upper,
{time: count})`; times are integers, or pairs of integers.
"""

from __future__ import annotations

from itertools import product
from typing import Any


def at_or_before(first: Any, second: Any) -> bool:
    """The partial order of times, for integers and for tuples of integers."""
    if isinstance(first, tuple):
        return all(a <= b for a, b in zip(first, second, strict=True))
    return bool(first <= second)


def grid(limit: int, pairs: bool) -> list[Any]:
    """All times below `limit`; no coordinate in a message may reach `limit - 1`.

    Whether a time is settled does not depend on how far a coordinate of it lies beyond all those in messages, so the
    minimal unsettled times are in the grid.
    """
    return list(product(range(limit), range(limit))) if pairs else list(range(limit))


class Model:
    """Finds out from all facts which times are settled, by the definition of *settled*."""

    def __init__(self, limit: int, pairs: bool = False) -> None:
        self.times = grid(limit, pairs)
        self.frontier: set[Any] = {(0, 0) if pairs else 0}
        self.diffs: dict[Any, dict[Any, set[int]]] = {time: {} for time in self.times}
        """For each time and datum, the diffs that were stated."""
        self.counts: dict[Any, set[int]] = {time: set() for time in self.times}
        """For each time, the counts in the statements that cover it; 0 stands for a statement that omits the time."""

    def is_open(self, time: Any) -> bool:
        """Whether a time is at or after the frontier."""
        return any(at_or_before(element, time) for element in self.frontier)

    def is_settled(self, time: Any) -> bool:
        """Whether a time is covered, its only stated count is reached, and no datum has two diffs."""
        data = self.diffs[time]
        return self.counts[time] == {len(data)} and all(len(diffs) == 1 for diffs in data.values())

    def evidence(self) -> dict[tuple[str, Any], Any]:
        """The contradictions at open times, with the evidence for each."""
        evidence: dict[tuple[str, Any], Any] = {}
        for time in filter(self.is_open, self.times):
            data, counts = self.diffs[time], self.counts[time]
            doubtful = {(datum, diff) for datum, diffs in data.items() for diff in diffs if len(diffs) > 1}
            if doubtful:
                evidence["conflicting_diff", time] = doubtful
            if len(counts) > 1:
                evidence["conflicting_count", time] = set(counts)
            if counts and len(data) > max(counts):
                evidence["over_count", time] = set(data)
        return evidence

    def note(self, message: Any) -> None:
        """Note the facts of a message for each time that they cover."""
        if message[0] == "updates":
            for data, time, diff in message[1]:
                if self.is_open(time):
                    self.diffs[time].setdefault(data, set()).add(diff)
            return
        _, lower, upper, counts = message
        for time in self.times:
            at_or_after_lower = any(at_or_before(low, time) for low in lower)
            if at_or_after_lower and not any(at_or_before(high, time) for high in upper):
                self.counts[time].add(counts.get(time, 0))

    def receive(self, message: Any) -> tuple[list[Any], set[Any], set[tuple[str, Any]]]:
        """Receive a message, and return the published updates, the frontier, and the new contradictions.

        A contradiction is new if its evidence grew: a further diff, a further count, a further surplus update.
        """
        before = self.evidence()
        self.note(message)
        after = self.evidence()
        errors = {key for key, grounds in after.items() if not grounds <= before.get(key, set())}
        open_times = [time for time in self.times if self.is_open(time)]
        unsettled = [time for time in open_times if not self.is_settled(time)]
        self.frontier = {
            time for time in unsettled if not any(at_or_before(other, time) and other != time for other in unsettled)
        }
        published = [
            (datum, time, diff)
            for time in open_times
            if not self.is_open(time)
            for datum, diffs in sorted(self.diffs[time].items())
            for diff in diffs
        ]
        return published, self.frontier, errors
