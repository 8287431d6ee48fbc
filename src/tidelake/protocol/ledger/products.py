"""The ledger's implementation for partially ordered times: the general case, simple and exact.

It keeps every statement that covers a time at or after the frontier, and for every open time the set of counts that
statements announce for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidelake.errors import ConflictingCount, Contradiction, OverCount
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.ledger.saved import (
    conflicting_count,
    contradiction_from_json,
    contradictions_to_json,
    time_from_json,
    time_to_json,
)
from tidelake.protocol.message import Progress
from tidelake.protocol.order import Time, join, total_order_key


class ProductBook:
    """The open times, which may be only partially ordered. `Ledger` documents the methods."""

    def __init__(self, start: Antichain) -> None:
        self._frontier = start
        self.settled_times: list[Time] = []
        self._statements: dict[Progress, None] = {}  # in order of arrival, each once
        self._open: dict[Time, set[int]] = {}  # the announced counts; empty if no statement covers the time
        self._counted: dict[Time, int] = {}
        self._poisoned: dict[Time, Contradiction] = {}
        self._decided: dict[Time, int] = {}

    @property
    def frontier(self) -> Antichain:
        """The minimal unsettled times."""
        return self._frontier

    @property
    def coverage(self) -> list[tuple[Antichain, Antichain]]:
        """The intervals of the statements, as stated."""
        return [(statement.lower, statement.upper) for statement in self._statements]

    def _open_time(self, time: Time) -> set[int]:
        """Open a time at or after the frontier, and return its announced counts."""
        values = self._open.get(time)
        if values is None:
            values = {statement.counts.get(time, 0) for statement in self._statements if statement.covers(time)}
            self._open[time] = values
        return values

    def _expected(self, time: Time) -> int:
        return self._decided[time] if time in self._decided else max(self._open[time], default=0)

    def announce(self, progress: Progress) -> list[Contradiction]:
        """Accept a statement."""
        if progress in self._statements or self._is_absorbed(progress):
            return []
        for time in progress.counts:
            if self._frontier.less_equal(time):
                self._open_time(time)
        self._statements[progress] = None
        errors: list[Contradiction] = []
        for time, values in self._open.items():
            if progress.covers(time):
                errors.extend(self._record_announced(time, values, progress.counts.get(time, 0)))
        return errors

    def _record_announced(self, time: Time, values: set[int], count: int) -> list[Contradiction]:
        """Record that a statement announces `count` for an open time."""
        errors: list[Contradiction] = []
        counted = self._counted.get(time, 0)
        if time not in self._decided:
            if values and count not in values:
                errors.append(ConflictingCount(time, max(values), count))
            elif not values and counted > count:
                errors.append(OverCount(time, count, counted))
        values.add(count)
        return errors

    def count_all(self, counts: Iterable[tuple[Time, int]]) -> list[Contradiction]:
        """Add new distinct updates."""
        errors: list[Contradiction] = []
        for time, distinct in counts:
            if not distinct or not self._frontier.less_equal(time):
                continue
            judged = bool(self._open_time(time)) or time in self._decided
            counted = self._counted[time] = self._counted.get(time, 0) + distinct
            if judged and counted > self._expected(time):
                errors.append(OverCount(time, self._expected(time), counted))
        return errors

    def contradict(self, error: Contradiction) -> None:
        """Prevent a time from settling."""
        if self._frontier.less_equal(error.time):
            self._open_time(error.time)
            self._poisoned.setdefault(error.time, error)

    def decide(self, time: Time, count: int) -> list[Contradiction]:
        """Replace every announced count with `count`."""
        if not self._frontier.less_equal(time):
            return []
        self._open_time(time)
        self._decided[time] = count
        counted = self._counted.get(time, 0)
        return [OverCount(time, count, counted)] if counted > count else []

    def _is_settled(self, time: Time) -> bool:
        values = self._open[time]
        return (
            bool(values)
            and self._counted.get(time, 0) == self._expected(time)
            and time not in self._poisoned
            and (len(values) == 1 or time in self._decided)
        )

    def _uncovered(self) -> list[Time]:
        """Return times that include every minimal uncovered time at or after the frontier.

        A covered time is replaced by the earliest later times that the covering statement does not cover. The search
        starts at each element of the frontier separately, so it also uses statements that cover only one of them.
        """
        waiting = list(self._frontier.elements)
        seen = set(waiting)
        uncovered: list[Time] = []
        while waiting:
            time = waiting.pop()
            statement = next((statement for statement in self._statements if statement.covers(time)), None)
            if statement is None:
                uncovered.append(time)
                continue
            moved = {join(time, element) for element in statement.upper} - seen
            seen |= moved
            waiting.extend(moved)
        return uncovered

    def advance(self) -> None:
        """Advance the frontier, and forget everything before it."""
        unsettled = [time for time in self._open if not self._is_settled(time)]
        self._frontier = Antichain((*self._uncovered(), *unsettled))
        passed = [time for time in self._open if not self._frontier.less_equal(time)]
        self.settled_times = sorted((time for time in passed if time in self._counted), key=total_order_key)
        for time in passed:
            del self._open[time]
            self._counted.pop(time, None)
            self._decided.pop(time, None)
        for statement in [statement for statement in self._statements if self._is_absorbed(statement)]:
            del self._statements[statement]

    def _is_absorbed(self, statement: Progress) -> bool:
        """Return whether a statement covers no time at or after the frontier."""
        return all(
            statement.upper.less_equal(join(mine, element)) for mine in statement.lower for element in self._frontier
        )

    def announced(self, time: Time) -> int | None:
        """Return the count announced for a time."""
        values = {statement.counts.get(time, 0) for statement in self._statements if statement.covers(time)}
        if not values:
            return None
        return self._decided[time] if time in self._decided else max(values)

    def outstanding(self) -> list[tuple[Time, int | None, int]]:
        """Return the times that the frontier is waiting for."""
        times = {time for time in self._open if not self._is_settled(time)}
        times.update(time for time in self._frontier if self.announced(time) is None)
        return [(time, self.announced(time), self._counted.get(time, 0)) for time in sorted(times, key=total_order_key)]

    def contradictions(self) -> dict[Time, list[Contradiction]]:
        """Return the current contradictions, by time."""
        by_time: dict[Time, list[Contradiction]] = {}
        for time in sorted(self._open, key=total_order_key):
            values, counted = self._open[time], self._counted.get(time, 0)
            errors: list[Contradiction] = []
            if time in self._poisoned:
                errors.append(self._poisoned[time])
            if len(values) > 1 and time not in self._decided:
                errors.append(conflicting_count(time, values))
            if (values or time in self._decided) and counted > self._expected(time):
                errors.append(OverCount(time, self._expected(time), counted))
            if errors:
                by_time[time] = errors
        return by_time

    def save(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "book": "products",
            "frontier": [time_to_json(time) for time in self._frontier],
            "statements": [
                [
                    [time_to_json(time) for time in statement.lower],
                    [time_to_json(time) for time in statement.upper],
                    [[time_to_json(time), count] for time, count in statement.counts.items()],
                ]
                for statement in self._statements
            ],
            "open": [[time_to_json(time), sorted(values)] for time, values in self._open.items()],
            "counted": [[time_to_json(time), count] for time, count in self._counted.items()],
            "poisoned": contradictions_to_json(self._poisoned.values()),
            "decided": [[time_to_json(time), count] for time, count in self._decided.items()],
        }

    @staticmethod
    def restore(state: Mapping[str, Any]) -> ProductBook:
        """Create a book that continues from a saved state."""
        book = ProductBook(Antichain(time_from_json(time) for time in state["frontier"]))
        book._statements = {Progress(lower, upper, counts): None for lower, upper, counts in state["statements"]}
        book._open = {time_from_json(time): set(values) for time, values in state["open"]}
        book._counted = {time_from_json(time): count for time, count in state["counted"]}
        errors = [contradiction_from_json(value) for value in state["poisoned"]]
        book._poisoned = {error.time: error for error in errors}
        book._decided = {time_from_json(time): count for time, count in state["decided"]}
        return book
