"""An in-memory keyed collection: the model of what the upsert family's tables have to do.

A statement `(key, value, time, +1)` sets a key's value from its time on, `-1` deletes it, both at one time are a
replacement. Nothing is added up and no time is ever advanced: compaction keeps, for each key, the newest statement at
or before `since` with its own time, and everything later.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from tidelake.errors import SinceError, UpperError


class Statement(NamedTuple):
    """What is stored of one upsert."""

    key: Hashable
    value: Hashable
    time: int
    diff: int

    @property
    def position(self) -> tuple[int, bool]:
        """What orders the statements of one key: its time, and at one time a value beats a delete."""
        return self.time, self.diff > 0


def newest(statements: Iterable[Statement]) -> dict[Hashable, Statement]:
    """The statement with the greatest position, by key.

    >>> newest([Statement("k", "a", 3, +1), Statement("k", "b", 5, +1), Statement("k", "a", 5, -1)])["k"].value
    'b'
    """
    found: dict[Hashable, Statement] = {}
    for one in statements:
        if one.key not in found or found[one.key].position < one.position:
            found[one.key] = one
    return found


def contents(statements: Iterable[Statement], as_of: int) -> dict[Hashable, Hashable]:
    """Per key the value of its newest statement at or before a time, unless that deletes it."""
    seen = newest(one for one in statements if one.time <= as_of)
    return {key: one.value for key, one in seen.items() if one.diff > 0}


def breaches(statements: Iterable[Statement]) -> set[int]:
    """The times at which some key has two values, or a diff is neither +1 nor -1.

    >>> sorted(breaches([Statement("k", "a", 1, 1), Statement("k", "b", 1, 1), Statement("k", "a", 2, -2)]))
    [1, 2]
    """
    values: dict[tuple[Hashable, int], Hashable] = {}
    found = set()
    for one in statements:
        if abs(one.diff) != 1 or (one.diff > 0 and values.setdefault((one.key, one.time), one.value) != one.value):
            found.add(one.time)
    return found


class KeyedCollection:
    """Runs of statements, and merges of some of them.

    >>> tides = KeyedCollection()
    >>> tides.append([Statement("k", "low", 1, 1)]); tides.append([Statement("k", "high", 4, 1)])
    >>> tides.seal(6); tides.merge([0, 1], since=5)
    >>> tides.runs, tides.read(5)
    ([[Statement(key='k', value='high', time=4, diff=1)]], {'k': 'high'})
    """

    def __init__(self) -> None:
        self.runs: list[list[Statement]] = []
        self.since, self.upper = 0, 0

    def append(self, statements: Iterable[Statement]) -> None:
        """Add a run; copies of what is there are harmless."""
        self.runs.append(list(statements))

    def seal(self, upper: int) -> None:
        """Move upper."""
        self.upper = max(self.upper, upper)

    def read(self, as_of: int) -> dict[Hashable, Hashable]:
        """The contents AS OF a time in [since, upper).

        Raises:
            SinceError: the time is before since.
            UpperError: the time is at or after upper.
        """
        if as_of < self.since:
            raise SinceError(as_of, [self.since])
        if as_of >= self.upper:
            raise UpperError(as_of, [self.upper])
        return contents((one for run in self.runs for one in run), as_of)

    def merge(self, chosen: Iterable[int], since: int) -> None:
        """Replace some runs by one.

        A delete leaves only when the merge takes every run that holds a statement at or before since: in another run
        there may be an older value that it still hides.
        """
        self.since = max(self.since, since)
        through = min(self.since, self.upper - 1)
        indexes = set(chosen)
        taken = [one for index in sorted(indexes) for one in self.runs[index]]
        left = [run for index, run in enumerate(self.runs) if index not in indexes]
        takes_all = not any(one.time <= through for run in left for one in run)
        old = newest(one for one in taken if one.time <= through).values()
        kept = [one for one in old if one.diff > 0 or not takes_all]
        later = dict.fromkeys(one for one in taken if one.time > through)
        self.runs = [*left, [*kept, *later]]
