"""An in-memory keyed collection, the model for tables of the upsert family.

A statement `(key, value, time, +1)` sets a key's value from its time onwards, `-1` deletes it, and both at the same
time replace it. Diffs are not added up and no time is ever advanced: compaction keeps, for each key, the newest
statement at or before `since` with its own time, and all later statements.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from tidelake.errors import SinceError, UpperError


class KeyedStatement(NamedTuple):
    """A value of a key from a time onwards (+1), or its deletion (-1)."""

    key: Hashable
    value: Hashable
    time: int
    diff: int

    @property
    def position(self) -> tuple[int, bool]:
        """The order of one key's statements: by time; at the same time, a value wins over a delete."""
        return self.time, self.diff > 0


def newest(statements: Iterable[KeyedStatement]) -> dict[Hashable, KeyedStatement]:
    """Return the statement with the greatest position, by key.

    >>> set_to_a, set_to_b = KeyedStatement("k", "a", 3, +1), KeyedStatement("k", "b", 5, +1)
    >>> newest([set_to_a, set_to_b, KeyedStatement("k", "a", 5, -1)])["k"].value
    'b'
    """
    by_key: dict[Hashable, KeyedStatement] = {}
    for statement in statements:
        if statement.key not in by_key or by_key[statement.key].position < statement.position:
            by_key[statement.key] = statement
    return by_key


def contents(statements: Iterable[KeyedStatement], as_of: int) -> dict[Hashable, Hashable]:
    """Return the value of each key's newest statement at or before a time, unless that statement deletes it."""
    by_key = newest(statement for statement in statements if statement.time <= as_of)
    return {key: statement.value for key, statement in by_key.items() if statement.diff > 0}


def breaches(statements: Iterable[KeyedStatement]) -> set[int]:
    """Return the times at which some key has two values, or a diff is neither +1 nor -1.

    >>> two_values = [KeyedStatement("k", "a", 1, 1), KeyedStatement("k", "b", 1, 1)]
    >>> sorted(breaches([*two_values, KeyedStatement("k", "a", 2, -2)]))
    [1, 2]
    """
    values: dict[tuple[Hashable, int], Hashable] = {}
    times = set()
    for key, value, time, diff in statements:
        if abs(diff) != 1 or (diff > 0 and values.setdefault((key, time), value) != value):
            times.add(time)
    return times


class KeyedCollection:
    """Runs of statements, some of them merged.

    >>> tides = KeyedCollection()
    >>> tides.append([KeyedStatement("k", "low", 1, 1)]); tides.append([KeyedStatement("k", "high", 4, 1)])
    >>> tides.seal(6); tides.merge([0, 1], since=5)
    >>> tides.runs, tides.read(5)
    ([[KeyedStatement(key='k', value='high', time=4, diff=1)]], {'k': 'high'})
    """

    def __init__(self) -> None:
        self.runs: list[list[KeyedStatement]] = []
        self.since, self.upper = 0, 0

    def append(self, statements: Iterable[KeyedStatement]) -> None:
        """Add a run; copies of existing statements are harmless."""
        self.runs.append(list(statements))

    def seal(self, upper: int) -> None:
        """Advance upper."""
        self.upper = max(self.upper, upper)

    def read(self, as_of: int) -> dict[Hashable, Hashable]:
        """Return the contents AS OF a time in [since, upper).

        Raises:
            SinceError: the time is before since.
            UpperError: the time is at or after upper.
        """
        if as_of < self.since:
            raise SinceError(as_of, [self.since], None)
        if as_of >= self.upper:
            raise UpperError(as_of, [self.upper])
        return contents((statement for run in self.runs for statement in run), as_of)

    def merge(self, chosen: Iterable[int], since: int) -> None:
        """Replace the chosen runs with one.

        A delete is dropped only if the merge includes every run with a statement at or before `since`. Otherwise,
        another run may hold an older value that the delete still hides.
        """
        self.since = max(self.since, since)
        through = min(self.since, self.upper - 1)
        indexes = set(chosen)
        merged_statements = [statement for index in sorted(indexes) for statement in self.runs[index]]
        left = [run for index, run in enumerate(self.runs) if index not in indexes]
        takes_all = not any(statement.time <= through for run in left for statement in run)
        old = newest(statement for statement in merged_statements if statement.time <= through).values()
        remaining = [statement for statement in old if statement.diff > 0 or not takes_all]
        later = dict.fromkeys(statement for statement in merged_statements if statement.time > through)
        self.runs = [*left, [*remaining, *later]]
