"""Offsets of one partition as intervals: what a file holds, and what is held twice."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

Interval = tuple[int, int]
"""Offsets from the first on, and before the second."""


def intervals_of(offsets: np.ndarray[Any, np.dtype[np.int64]]) -> list[Interval]:
    """The offsets of a file as disjoint intervals, in order; before them, those that it has twice once more.

    >>> intervals_of(np.array([0, 1, 2, 7])), intervals_of(np.array([3, 2, 1, 2]))
    ([(0, 3), (7, 8)], [(2, 3), (1, 4)])
    """
    if (np.diff(offsets) > 0).all():  # to sort takes longer than to look
        return _runs_of(offsets)
    unique, counts = np.unique(offsets, return_counts=True)
    return [*_runs_of(unique[counts > 1]), *_runs_of(unique)]


def first_doubled(held: Iterable[tuple[int, int, Path]], wanted: Interval) -> tuple[int, Path, Path] | None:
    """The first offset within an interval that is held twice, and where; None where there is none.

    Args:
        held: intervals, each with the file that holds it; they may interleave.
        wanted: where to look.

    >>> first_doubled([(0, 3, Path("a")), (1, 5, Path("b"))], (0, 9)), first_doubled([(0, 3, Path("a"))], (0, 9))
    ((1, PosixPath('a'), PosixPath('b')), None)
    """
    inside = sorted((max(start, wanted[0]), end, path) for start, end, path in held if start < wanted[1])
    whole = [one for one in inside if one[0] < one[1]]
    doubled = ((start, path, other) for (_, end, path), (start, _, other) in pairwise(whole) if start < end)
    return next(doubled, None)


def _runs_of(rising: np.ndarray[Any, np.dtype[np.int64]]) -> list[Interval]:
    """Offsets that rise, as intervals without a break."""
    if len(rising) == 0:
        return []
    breaks = np.flatnonzero(np.diff(rising) != 1)
    starts = np.concatenate(([rising[0]], rising[breaks + 1]))
    ends = np.concatenate((rising[breaks], [rising[-1]])) + 1
    return [(int(start), int(end)) for start, end in zip(starts, ends, strict=True)]
