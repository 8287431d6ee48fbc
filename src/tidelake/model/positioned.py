"""An in-memory positioned collection, the model for reclocked upsert and Debezium tables.

A statement has a *time*, that of the tick that read it, and a *position*, its place in the order of its source. The
two differ: a connector that restarts sends older events at a later time. The newest statement of a key is the statement
with the greatest position, whichever tick read it.

- A diff of +1 sets the values of a key, -1 deletes it.
- A diff of 0 is a *barrier*: it erases all statements of all keys at lower positions (a truncated table, or rows that
  a repeated snapshot no longer states).
- A column may be *unavailable*: it has the last known value from a lower position, but not from before a delete, a
  barrier or an error.
- A statement with an *error* says that the new value of its key is unknown: its record cannot be used.

A source may repeat a statement for a while, at most `resent_within` after it was first read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from tidelake.errors import SinceError, UpperError

Position = tuple[int, ...]
Key = Hashable


class PositionedStatement(NamedTuple):
    """The statement of one record of a source; a barrier has no key."""

    key: Key
    values: tuple[Hashable, ...]
    position: Position
    time: int
    diff: int = 1
    unavailable: frozenset[int] = frozenset()
    """The indexes of the columns that have no value of their own."""
    error: str | None = None

    @property
    def rank(self) -> tuple[Position, bool, int]:
        """The order of one key's statements: by position; then a value wins over a delete; then the later time wins."""
        return self.position, self.diff > 0, self.time


class Contents(NamedTuple):
    """The contents at one time."""

    rows: dict[Key, tuple[Hashable, ...]]
    """The values by key; None for a column whose value is unknown."""
    unknown: dict[Key, frozenset[int]]
    """The columns whose last value was never stated, by key."""
    errors: dict[Key, str]
    """The keys in error, which have no row."""


def contents(statements: Iterable[PositionedStatement], as_of: int) -> Contents:
    """Replay the statements read at or before a time, in the order of positions.

    >>> old, older = (PositionedStatement("k", ("old", 1), (5,), 1), PositionedStatement("k", ("older", 0), (3,), 3))
    >>> contents([old, PositionedStatement("k", (None, 2), (7,), 2, 1, frozenset({0})), older], as_of=9)
    Contents(rows={'k': ('old', 2)}, unknown={}, errors={})
    """
    replayed = Contents({}, {}, {})
    read = (statement for statement in statements if statement.time <= as_of)
    for statement in sorted(_standing(read), key=lambda statement: statement.rank):
        key, unavailable = statement.key, statement.unavailable
        row, unknown = replayed.rows.get(key), replayed.unknown.get(key, frozenset())
        for part in replayed:
            part.pop(key, None)
        if statement.error is not None:
            replayed.errors[key] = statement.error
        elif statement.diff > 0:
            old = row or (None,) * len(statement.values)
            missing = unavailable if row is None else unavailable & unknown
            replayed.rows[key] = tuple(
                old[place] if place in unavailable else value for place, value in enumerate(statement.values)
            )
            if missing:
                replayed.unknown[key] = missing
    return replayed


def merged(
    statements: Iterable[PositionedStatement], through: int, takes_all: bool, resent_within: int
) -> list[PositionedStatement]:
    """Return the statements still needed once times at or before `through` can no longer be distinguished.

    No time is advanced. A key keeps its newest statement, and what the unavailable columns of that statement need: for
    each column, the newest earlier statement that has a value, or the delete or error that ends the search. If the
    newest statement is a delete, it is dropped if no other run holds anything at or before `through` and nothing that
    it hides can be stated again. The greatest barrier stays.

    Args:
        statements: the statements of the merged runs.
        through: the last of the times that can no longer be distinguished.
        takes_all: whether no other run holds a statement at or before `through`.
        resent_within: how long a statement may be repeated after it was first read.
    """
    statements = list(dict.fromkeys(statements))
    old = [statement for statement in statements if statement.time <= through]
    barriers = [statement for statement in old if statement.diff == 0]
    needed = [max(barriers, key=lambda statement: statement.rank)] if barriers else []
    by_key: dict[Key, list[PositionedStatement]] = {}
    for statement in sorted(_standing(old), key=lambda statement: statement.rank, reverse=True):
        by_key.setdefault(statement.key, []).append(statement)
    for newest_first in by_key.values():
        top = newest_first[0]
        if top.diff > 0 or not takes_all or top.time > through - resent_within:
            needed += _needed(newest_first)
    return [*needed, *(statement for statement in statements if statement.time > through)]


def _needed(newest_first: Sequence[PositionedStatement]) -> list[PositionedStatement]:
    """Return the newest statement of a key, and the statements that fill its unavailable columns."""
    top = newest_first[0]
    needed, missing = [top], top.unavailable if top.error is None and top.diff > 0 else frozenset()
    for statement in newest_first[1:]:
        if not missing:
            break
        if statement.diff < 0 or statement.error is not None:
            return [*needed, statement]
        if missing - statement.unavailable:
            needed.append(statement)
            missing &= statement.unavailable
    return needed


def _standing(statements: Iterable[PositionedStatement]) -> list[PositionedStatement]:
    """Return the statements about keys, without those that one of the barriers erases."""
    read = list(statements)
    barrier = max((statement.position for statement in read if statement.diff == 0), default=())
    return [statement for statement in read if statement.diff != 0 and statement.position >= barrier]


class PositionedCollection:
    """Runs of statements, one for each tick, some of them merged.

    >>> tides = PositionedCollection()
    >>> tides.tick([PositionedStatement("k", ("high",), (8,), 1)])
    >>> tides.tick([PositionedStatement("k", ("low",), (5,), 2)])
    >>> tides.merge([0, 1], since=2)
    >>> [statement.values for run in tides.runs for statement in run], tides.read(2).rows
    ([('high',)], {'k': ('high',)})
    """

    def __init__(self, resent_within: int = 0) -> None:
        self.runs: list[list[PositionedStatement]] = []
        self.since, self.upper = 0, 0
        self.resent_within = resent_within

    def tick(self, statements: Iterable[PositionedStatement]) -> None:
        """Add the statements of one tick, which are sealed at once."""
        run = list(statements)
        self.runs.append(run)
        self.upper = max([self.upper, *(statement.time + 1 for statement in run)])

    def read(self, as_of: int) -> Contents:
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
        """Replace the chosen runs with one."""
        self.since = max(self.since, since)
        through = min(self.since, self.upper - 1)
        indexes = set(chosen)
        merged_statements = [statement for index in sorted(indexes) for statement in self.runs[index]]
        left = [run for index, run in enumerate(self.runs) if index not in indexes]
        takes_all = not any(statement.time <= through for run in left for statement in run)
        self.runs = [*left, merged(merged_statements, through, takes_all, self.resent_within)]
