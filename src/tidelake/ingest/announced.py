"""Predicts from a tick's progress statements whether its updates are repeated, or far in the future."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa

from tidelake.protocol.intervals import merge_intervals
from tidelake.protocol.order import INT64_MAX
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import read_rows
from tidelake.store.layout import PROGRESS_SCHEMA


def statements_overlap(progress: pa.Table) -> bool:
    """Return whether two statements cover the same time.

    If they do, there is a redundant or restarted writer, which repeats updates as well.
    """
    ends = [(min(lower), min(upper, default=INT64_MAX)) for lower, upper in _intervals_of(progress)]
    ends.sort()
    return any(after[0] < before[1] for before, after in pairwise(ends))


def _intervals_of(statements: pa.Table) -> Iterator[tuple[list[int], list[int]]]:
    """Yield `lower` and `upper` of the statements that cover at least one time."""
    for lower, upper in zip(statements["lower"].to_pylist(), statements["upper"].to_pylist(), strict=True):
        if lower:
            yield lower, upper


def bounds_of_future(collection: Collection, progress: pa.Table, upper: int) -> tuple[int, int] | None:
    """Find two times that separate the times to seal soon, later times, and the far future.

    The first of the two is the end of the covered interval that begins at `upper`. If no covered interval begins there,
    it is the end of the last interval. The result is None if no statement covers a time at or after `upper`, or if a
    statement closes the stream.
    """
    table = OpenTable(collection.paths.progress)
    pending = read_rows(collection.paths.progress, table.files(), PROGRESS_SCHEMA)
    intervals = []
    for part in (progress, pending):
        for lower, end in _intervals_of(part):
            if not end:
                return None
            if min(end) > max(min(lower), upper):
                intervals.append((max(min(lower), upper), min(end)))
    merged = merge_intervals(intervals)
    if not merged:
        return None
    soon = merged[0][1] if merged[0][0] == upper else merged[-1][1]
    return soon, min(soon + 8 * (soon - upper), INT64_MAX)
