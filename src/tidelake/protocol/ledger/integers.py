"""The ledger's implementation for integer times: merged intervals and sorted open times, without rescans.

Every open time is in exactly one of two sorted lists. For a time in `_plain`, no statement has announced 0 by omission
yet; the next statement that covers it may do so. For a time in `_fixed`, a statement has done so, or there is a
decision: another omission changes nothing. A statement visits only the plain times in its interval: either it names
them, or they move to `_fixed` for good. So each fact costs O(log n) amortised, however often wide statements repeat.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, cast

from tidelake.errors import ConflictingCount, Contradiction, OverCount
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.ledger.saved import conflicting_count, contradiction_from_json, contradictions_to_json
from tidelake.protocol.ledger.sorted_times import SortedTimes
from tidelake.protocol.message import Progress
from tidelake.protocol.order import INT64_MAX, Time

NEVER = INT64_MAX + 1
"""The upper of a statement that closes the stream; no time is at or after it."""


class IntegerBook:
    """Open integer times. `Ledger` documents the methods."""

    def __init__(self, start: Antichain) -> None:
        self._frontier: int = cast(int, start.elements[0]) if start.elements else NEVER
        self.settled_times: list[Time] = []
        self._lowers = SortedTimes()  # of the covered intervals, which neither overlap nor touch
        self._uppers: dict[int, int] = {}  # by lower
        self._named: dict[int, int] = {}  # the greatest announced count of each named time
        self._values: dict[int, set[int]] = {}  # all announced counts of a time if they disagree
        self._counted: dict[int, int] = {}
        self._poisoned: dict[int, Contradiction] = {}
        self._decided: dict[int, int] = {}
        self._plain = SortedTimes()
        self._fixed = SortedTimes()

    @property
    def frontier(self) -> Antichain:
        """The first unsettled time."""
        return Antichain() if self._frontier == NEVER else Antichain((self._frontier,))

    @property
    def coverage(self) -> list[tuple[Antichain, Antichain]]:
        """The merged intervals."""
        return [
            (Antichain((max(lower, self._frontier),)), Antichain(() if upper == NEVER else (upper,)))
            for lower, upper in self._intervals()
        ]

    def _intervals(self) -> list[tuple[int, int]]:
        return [(lower, self._uppers[lower]) for lower in self._lowers]

    def announce(self, progress: Progress) -> list[Contradiction]:
        """Accept a statement."""
        if not progress.lower.elements:
            return []
        low = max(cast(int, progress.lower.elements[0]), self._frontier)
        high = cast(int, progress.upper.elements[0]) if progress.upper.elements else NEVER
        if low >= high:
            return []
        counts = cast(dict[int, int], progress.counts)
        if low > cast(int, progress.lower.elements[0]):
            counts = {time: count for time, count in counts.items() if time >= low}
        plain = self._plain.between(low, high)
        overlapping = self._overlaps(low, high)
        errors: list[Contradiction] = []
        if plain or overlapping or self._fixed:
            for time in plain:
                if time not in counts:
                    self._record_omitted(time, errors)
            fresh = [time for time, count in counts.items() if self._record_named(time, count, overlapping, errors)]
        else:
            self._named.update(counts)
            fresh = list(counts)
        self._plain.add_run(sorted(fresh))
        self._cover(low, high)
        return errors

    def _record_named(self, time: int, count: int, overlapping: bool, errors: list[Contradiction]) -> bool:
        """Record that a statement announces `count`, which is not 0; return whether to add `time` to `_plain`."""
        if time in self._decided:
            return False
        named = self._named.get(time)
        if named is None:
            self._named[time] = count
            is_new = time not in self._counted and time not in self._poisoned
            if overlapping and self._covers(time):  # by a statement that leaves it out
                self._values[time] = {0, count}
                if is_new:
                    self._fixed.add_run([time])
                errors.append(ConflictingCount(time, 0, count))
                return False
            if self._counted.get(time, 0) > count:
                errors.append(OverCount(time, count, self._counted[time]))
            return is_new
        if named != count:
            values = self._values.setdefault(time, {named})
            if count not in values:
                errors.append(ConflictingCount(time, named, count))
                values.add(count)
                self._named[time] = max(values)
        return False

    def _record_omitted(self, time: int, errors: list[Contradiction]) -> None:
        """Record that a statement covers the plain time `time` without naming it."""
        self._plain.remove(time)
        self._fixed.add_run([time])
        named = self._named.get(time)
        if named is not None:
            self._values.setdefault(time, {named}).add(0)
            errors.append(ConflictingCount(time, named, 0))
        elif time in self._counted:
            errors.append(OverCount(time, 0, self._counted[time]))

    def _overlaps(self, low: int, high: int) -> bool:
        before = self._lowers.floor(high - 1)
        return before is not None and self._uppers[before] > low

    def _covers(self, time: int) -> bool:
        before = self._lowers.floor(time)
        return before is not None and self._uppers[before] > time

    def _cover(self, low: int, high: int) -> None:
        """Add `[low, high)` to the coverage, merged with every interval that it overlaps or touches."""
        before = self._lowers.floor(low)
        if before is not None and self._uppers[before] >= low:
            low, high = before, max(high, self._uppers[before])
        for absorbed in self._lowers.between(low, high + 1):
            high = max(high, self._uppers[absorbed])
            if absorbed != low:
                self._lowers.remove(absorbed)
                del self._uppers[absorbed]
        if low not in self._uppers:
            self._lowers.add_run([low])
        self._uppers[low] = high

    def count_all(self, counts: Iterable[tuple[Time, int]]) -> list[Contradiction]:
        """Add new distinct updates."""
        errors: list[Contradiction] = []
        fresh: list[int] = []
        for time, distinct in cast(Iterable[tuple[int, int]], counts):
            if time < self._frontier or not distinct:
                continue
            before = self._counted.get(time)
            counted = self._counted[time] = (before or 0) + distinct
            announced = self._named.get(time)
            if announced is None:
                announced = self._decided.get(time)
            if announced is None:
                covered = self._covers(time)
                if before is None and time not in self._poisoned:
                    if covered:
                        self._fixed.add_run([time])
                    else:
                        fresh.append(time)
                if not covered:
                    continue
                announced = 0
            if counted > announced:
                errors.append(OverCount(time, announced, counted))
        self._plain.add_run(sorted(fresh))
        return errors

    def contradict(self, error: Contradiction) -> None:
        """Prevent a time from settling."""
        time = cast(int, error.time)
        if time < self._frontier:
            return
        if not (time in self._named or time in self._counted or time in self._decided or time in self._poisoned):
            (self._fixed if self._covers(time) else self._plain).add_run([time])
        self._poisoned.setdefault(time, error)

    def decide(self, time: Time, count: int) -> list[Contradiction]:
        """Replace every announced count with `count`."""
        time = cast(int, time)
        if time < self._frontier:
            return []
        if time in self._plain:
            self._plain.remove(time)
        if time not in self._fixed:
            self._fixed.add_run([time])
        self._named.pop(time, None)
        self._values.pop(time, None)
        self._decided[time] = count
        counted = self._counted.get(time, 0)
        return [OverCount(time, count, counted)] if counted > count else []

    def _is_met(self, time: int) -> bool:
        """Return whether a covered time is settled."""
        expected = self._decided[time] if time in self._decided else self._named.get(time, 0)
        return self._counted.get(time, 0) == expected and time not in self._values and time not in self._poisoned

    def advance(self) -> None:
        """Advance the frontier, and forget everything before it."""
        self.settled_times = []
        lower = next(iter(self._lowers), NEVER)
        if lower > self._frontier or self._frontier == NEVER:
            return
        frontier = upper = self._uppers[lower]
        settled: list[int] = []
        decided = 0
        for time in heapq.merge(self._plain, self._fixed) if self._fixed else self._plain:
            if time >= upper:
                break
            if not self._is_met(time):
                frontier = time
                break
            settled.append(time)
            decided += time in self._decided
        # The settled times in `_fixed` are those with a decision: a fixed time without one is contradicted.
        self._fixed.drop_first(decided)
        self._plain.drop_first(len(settled) - decided)
        self._frontier = frontier
        if frontier >= upper:
            self._lowers.drop_first(1)
            del self._uppers[lower]
        self.settled_times = [time for time in settled if time in self._counted]
        is_empty = not self._plain and not self._fixed
        for values in (self._named, self._counted, self._decided):
            if is_empty:
                values.clear()
            elif values:
                for time in settled:
                    values.pop(time, None)

    def announced(self, time: Time) -> int | None:
        """Return the count announced for a time."""
        time = cast(int, time)
        if not self._covers(time):
            return None
        return self._decided[time] if time in self._decided else self._named.get(time, 0)

    def outstanding(self) -> list[tuple[Time, int | None, int]]:
        """Return the times that the frontier is waiting for."""
        times = {time for time in chain(self._plain, self._fixed) if not (self._covers(time) and self._is_met(time))}
        if self._frontier != NEVER and not self._covers(self._frontier):
            times.add(self._frontier)
        return [(time, self.announced(time), self._counted.get(time, 0)) for time in sorted(times)]

    def contradictions(self) -> dict[Time, list[Contradiction]]:
        """Return the current contradictions, by time."""
        by_time: dict[Time, list[Contradiction]] = {}
        for time in sorted(chain(self._plain, self._fixed)):
            errors: list[Contradiction] = []
            if time in self._poisoned:
                errors.append(self._poisoned[time])
            if time in self._values:
                errors.append(conflicting_count(time, self._values[time]))
            announced, counted = self._decided.get(time, self.announced(time)), self._counted.get(time, 0)
            if announced is not None and counted > announced:
                errors.append(OverCount(time, announced, counted))
            if errors:
                by_time[time] = errors
        return by_time

    def save(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "book": "integers",
            "frontier": [] if self._frontier == NEVER else [self._frontier],
            "coverage": [[lower, None if upper == NEVER else upper] for lower, upper in self._intervals()],
            "named": [[time, self._named[time]] for time in sorted(self._named)],
            "values": [[time, sorted(self._values[time])] for time in sorted(self._values)],
            "counted": [[time, self._counted[time]] for time in sorted(self._counted)],
            "poisoned": contradictions_to_json(self._poisoned[time] for time in sorted(self._poisoned)),
            "decided": [[time, self._decided[time]] for time in sorted(self._decided)],
        }

    @staticmethod
    def restore(state: Mapping[str, Any]) -> IntegerBook:
        """Create a book that continues from a saved state."""
        book = IntegerBook(Antichain(state["frontier"]))
        book._uppers = {lower: NEVER if upper is None else upper for lower, upper in state["coverage"]}
        book._lowers = SortedTimes(book._uppers)
        book._named = dict(state["named"])
        book._values = {time: set(values) for time, values in state["values"]}
        book._counted = dict(state["counted"])
        book._decided = dict(state["decided"])
        errors = [contradiction_from_json(value) for value in state["poisoned"]]
        book._poisoned = {cast(int, error.time): error for error in errors}
        known = {*book._named, *book._counted, *book._decided, *book._poisoned}
        fixed = {time for time in known if book._ignores_omission(time)}
        book._plain = SortedTimes(known - fixed)
        book._fixed = SortedTimes(fixed)
        return book

    def _ignores_omission(self, time: int) -> bool:
        if time in self._decided or 0 in self._values.get(time, ()):
            return True
        return time not in self._named and self._covers(time)
