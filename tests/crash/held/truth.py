"""The collection that histories are about: a function of time that every process can compute without a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from random import Random

_ROWS = 6
Row = int
Updates = dict[tuple[Row, int], int]
"""The diff, never 0, by row and time."""


@cache
def updates_at(seed: str, time: int) -> tuple[tuple[Row, int], ...]:
    """The updates of one time, as `(row, diff)`; many times have none."""
    rng = Random(f"{seed} at {time}")
    diffs: Counter[Row] = Counter()
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        diffs[rng.randrange(_ROWS)] += rng.choice((1, 1, 1, 2, -1))
    return tuple((row, diff) for row, diff in sorted(diffs.items()) if diff)


def updates_between(seed: str, after: int, through: int) -> Updates:
    """The updates after one time, through another."""
    return {(row, time): diff for time in range(after + 1, through + 1) for row, diff in updates_at(seed, time)}


@cache
def _contents(seed: str, time: int) -> tuple[tuple[Row, int], ...]:
    rows = Counter(dict(_contents(seed, time - 1)) if time > 0 else {})
    for row, diff in updates_at(seed, time):
        rows[row] += diff
    return tuple(sorted((row, diff) for row, diff in rows.items() if diff))


def contents_at(seed: str, time: int) -> dict[Row, int]:
    """The multiplicity, never 0, of each row at a time."""
    for earlier in range(0, time, 200):  # recursion must not be deep
        _contents(seed, earlier)
    return dict(_contents(seed, time))


def added(rows: dict[Row, int], updates: Iterable[tuple[tuple[Row, int], int]], through: int) -> dict[Row, int]:
    """Earlier contents plus the updates at or before a time."""
    sums = Counter(rows)
    for (row, time), diff in updates:
        if time <= through:
            sums[row] += diff
    return {row: diff for row, diff in sums.items() if diff}
