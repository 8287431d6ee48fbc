"""What the progress statements of a tick say before its updates are read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa

from tidelake.delta.catalog import Collection
from tidelake.delta.commit import OpenTable
from tidelake.delta.files import read_rows
from tidelake.delta.layout import PROGRESS_SCHEMA
from tidelake.delta.topic import merge_intervals
from tidelake.order import INT64_MAX


def are_stated_twice(progress: pa.Table) -> bool:
    """Whether two statements are about one time: then redundant writers, or a writer again, state updates twice too."""
    ends = [(min(lower), min(upper, default=INT64_MAX)) for lower, upper in _intervals_of(progress)]
    ends.sort()
    return any(after[0] < before[1] for before, after in pairwise(ends))


def _intervals_of(statements: pa.Table) -> Iterator[tuple[list[int], list[int]]]:
    """Lower and upper of the statements that are about any time."""
    for lower, upper in zip(statements["lower"].to_pylist(), statements["upper"].to_pylist(), strict=True):
        if lower:
            yield lower, upper


def bounds_of_future(collection: Collection, progress: pa.Table, upper: int) -> tuple[int, int] | None:
    """Two times that part what can be sealed soon from what comes later, and from the far future.

    The first is the end of what statements cover from upper on; where nothing is covered there, the end of all that is
    covered. None where no statement is known, or where one closes the stream.
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
