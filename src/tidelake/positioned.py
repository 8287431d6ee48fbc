"""An in-memory positioned collection: the model of what raw upsert and Debezium tables have to do.

A statement has a *time*, the tick that read it, and a *position*, its place in the order of its source. They differ: a
connector that starts again sends older events at a later time. The newest statement of a key is the one with the
greatest position, in whatever tick it came.

- A diff of +1 sets the values of a key, -1 deletes it.
- A diff of 0 is a *barrier*: it erases every statement, of whatever key, whose position is lower (a truncated table, or
  what a repeated snapshot does not state any more).
- A column may be *unavailable*: its value is the last one known below, but not across a delete, a barrier or an error.
- A statement with an *error* says that its key has changed into something that could not be decoded.

A source may state something again for a while, `resent_within` at most after it was first read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from tidelake.errors import SinceError, UpperError

Position = tuple[int, ...]
Key = Hashable


class Statement(NamedTuple):
    """What is stored of one record; a barrier has no key."""

    key: Key
    values: tuple[Hashable, ...]
    position: Position
    time: int
    diff: int = 1
    unavailable: frozenset[int] = frozenset()
    """The columns, by their place, that have no value of their own."""
    error: str | None = None

    @property
    def rank(self) -> tuple[Position, bool, int]:
        """What orders the statements of one key: its position; there a value beats a delete; then the later time."""
        return self.position, self.diff > 0, self.time


class Contents(NamedTuple):
    """What is there at one time."""

    rows: dict[Key, tuple[Hashable, ...]]
    """By key the values; None where a column's is not known."""
    unknown: dict[Key, frozenset[int]]
    """By key the columns whose last value was never stated."""
    errors: dict[Key, str]
    """The keys in error, which have no row."""


def contents(statements: Iterable[Statement], as_of: int) -> Contents:
    """Replay what was read at or before a time, in the order of positions.

    >>> contents([Statement("k", ("old", 1), (5,), 1), Statement("k", (None, 2), (7,), 2, 1, frozenset({0})),
    ...     Statement("k", ("older", 0), (3,), 3)], as_of=9)
    Contents(rows={'k': ('old', 2)}, unknown={}, errors={})
    """
    found = Contents({}, {}, {})
    for one in sorted(_standing(one for one in statements if one.time <= as_of), key=lambda one: one.rank):
        before = found.rows.get(one.key), found.unknown.get(one.key, frozenset())
        for part in found:
            part.pop(one.key, None)
        if one.error is not None:
            found.errors[one.key] = one.error
        elif one.diff > 0:
            old = before[0] or (None,) * len(one.values)
            missing = one.unavailable if before[0] is None else one.unavailable & before[1]
            found.rows[one.key] = tuple(
                old[place] if place in one.unavailable else value for place, value in enumerate(one.values)
            )
            if missing:
                found.unknown[one.key] = missing
    return found


def merged(taken: Iterable[Statement], through: int, takes_all: bool, resent_within: int) -> list[Statement]:
    """Say what is left of statements when times at or before `through` cannot be told apart any more.

    No time is advanced. Of a key stays its newest statement, and what its unavailable columns still need: for each the
    newest statement below that has it, or the delete or error that they stop at. A delete at the top leaves where no
    other run holds anything at or before `through`, and nothing that it hides can be stated again. The greatest barrier
    stays.

    Args:
        taken: the statements of the runs that are merged.
        through: the last of those times.
        takes_all: no other run holds a statement at or before `through`.
        resent_within: how long after it was first read a statement may come again.
    """
    taken = list(dict.fromkeys(taken))
    old = [one for one in taken if one.time <= through]
    kept = [max((one for one in old if one.diff == 0), key=lambda one: one.rank)] if _barriers(old) else []
    by_key: dict[Key, list[Statement]] = {}
    for one in sorted(_standing(old), key=lambda one: one.rank, reverse=True):
        by_key.setdefault(one.key, []).append(one)
    for of_key in by_key.values():
        top = of_key[0]
        if top.diff > 0 or not takes_all or top.time > through - resent_within:
            kept += _needed(of_key)
    return [*kept, *(one for one in taken if one.time > through)]


def _needed(newest_first: Sequence[Statement]) -> list[Statement]:
    """The newest statement of a key, and what fills its unavailable columns."""
    top = newest_first[0]
    kept, missing = [top], top.unavailable if top.error is None and top.diff > 0 else frozenset()
    for one in newest_first[1:]:
        if not missing:
            break
        if one.diff < 0 or one.error is not None:
            return [*kept, one]
        if missing - one.unavailable:
            kept.append(one)
            missing &= one.unavailable
    return kept


def _barriers(statements: Iterable[Statement]) -> list[Position]:
    return [one.position for one in statements if one.diff == 0]


def _standing(statements: Iterable[Statement]) -> list[Statement]:
    """The statements about keys that no barrier among them erases."""
    seen = list(statements)
    lowest = max(_barriers(seen), default=())
    return [one for one in seen if one.diff != 0 and one.position >= lowest]


class PositionedCollection:
    """Runs of statements, one a tick, and merges of some of them.

    >>> tides = PositionedCollection()
    >>> tides.tick([Statement("k", ("high",), (8,), 1)]); tides.tick([Statement("k", ("low",), (5,), 2)])
    >>> tides.merge([0, 1], since=2)
    >>> tides.runs, tides.read(2).rows
    ([[Statement(key='k', values=('high',), position=(8,), time=1, diff=1, unavailable=frozenset(), error=None)]], \
{'k': ('high',)})
    """

    def __init__(self, resent_within: int = 0) -> None:
        self.runs: list[list[Statement]] = []
        self.since, self.upper = 0, 0
        self.resent_within = resent_within

    def tick(self, statements: Iterable[Statement]) -> None:
        """Add what one tick has read; it is sealed at once."""
        run = list(statements)
        self.runs.append(run)
        self.upper = max([self.upper, *(one.time + 1 for one in run)])

    def read(self, as_of: int) -> Contents:
        """Give the contents AS OF a time in [since, upper).

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
        """Replace some runs by one."""
        self.since = max(self.since, since)
        through = min(self.since, self.upper - 1)
        indexes = set(chosen)
        taken = [one for index in sorted(indexes) for one in self.runs[index]]
        left = [run for index, run in enumerate(self.runs) if index not in indexes]
        takes_all = not any(one.time <= through for run in left for one in run)
        self.runs = [*left, merged(taken, through, takes_all, self.resent_within)]
