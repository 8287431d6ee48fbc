"""Offsets of one partition as intervals: those that a file holds, and those that occur twice."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

Interval = tuple[int, int]
"""The offsets in `[first, second)`."""


def intervals_of(offsets: np.ndarray[Any, np.dtype[np.int64]]) -> list[Interval]:
    """Return disjoint intervals of the offsets of a file, in order.

    Before them, offsets that occur more than once are also returned as intervals of their own.

    >>> intervals_of(np.array([0, 1, 2, 7])), intervals_of(np.array([3, 2, 1, 2]))
    ([(0, 3), (7, 8)], [(2, 3), (1, 4)])
    """
    if (np.diff(offsets) > 0).all():  # sorting takes longer than this check
        return _stretches_of(offsets)
    unique, counts = np.unique(offsets, return_counts=True)
    return [*_stretches_of(unique[counts > 1]), *_stretches_of(unique)]


def first_repeated(held: Iterable[tuple[int, int, str]], wanted: Interval) -> tuple[int, str, str] | None:
    """Return the first offset in `wanted` that is in two of the intervals, with their files; None if there is none.

    Args:
        held: intervals, each with the file that holds it; they may overlap.
        wanted: the interval to search.

    >>> first_repeated([(0, 3, "a"), (1, 5, "b")], (0, 9)), first_repeated([(0, 3, "a")], (0, 9))
    ((1, 'a', 'b'), None)
    """
    inside = sorted((max(start, wanted[0]), end, path) for start, end, path in held if start < wanted[1])
    whole = [interval for interval in inside if interval[0] < interval[1]]
    repeated = ((start, path, other) for (_, end, path), (start, _, other) in pairwise(whole) if start < end)
    return next(repeated, None)


def _stretches_of(increasing: np.ndarray[Any, np.dtype[np.int64]]) -> list[Interval]:
    """Return increasing offsets as intervals without gaps."""
    if len(increasing) == 0:
        return []
    breaks = np.flatnonzero(np.diff(increasing) != 1)
    starts = np.concatenate(([increasing[0]], increasing[breaks + 1]))
    ends = np.concatenate((increasing[breaks], [increasing[-1]])) + 1
    return [(int(start), int(end)) for start, end in zip(starts, ends, strict=True)]


def merge_intervals(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the same offsets as disjoint intervals that do not touch, in order.

    >>> merge_intervals([(5, 9), (0, 2), (2, 4), (8, 10)])
    [(0, 4), (5, 10)]
    """
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
