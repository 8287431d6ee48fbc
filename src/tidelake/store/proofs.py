"""Reads the proofs of sealed times from `proofs/`. Needs no JVM."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

import pyarrow.compute as pc

from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable
from tidelake.store.files import read_rows
from tidelake.store.layout import PROOF_RUN, PROOFS_SCHEMA, TIME

_INTERVALS_MAX = 100


class Proven(NamedTuple):
    """The proof of a time."""

    announced: int
    counted: int
    copies: int
    decision: str | None
    """The reason for the decision by which the time was sealed, or None."""


def read_proven(proofs: Location, intervals: Sequence[tuple[int, int]]) -> dict[int, Proven]:
    """Read the newest proof of each time. A time may have two, if a seal was interrupted or ran during an ingest.

    Args:
        proofs: the table's folder.
        intervals: the times to read, as sorted and disjoint intervals `[first, end)`.

    Returns:
        By time, the proofs in the intervals; if there are more than a hundred intervals, also those between them.

    Cost: the files whose bounds overlap an interval; Arrow returns only the rows in an interval.
    """
    if len(intervals) > _INTERVALS_MAX:
        intervals = [(intervals[0][0], intervals[-1][1])]
    if not intervals:
        return {}
    files = [
        file
        for file in OpenTable(proofs).files()
        if file.run.startswith(PROOF_RUN)
        and (
            file.time_min is None
            or file.time_max is None
            or any(first <= file.time_max and file.time_min < end for first, end in intervals)
        )
    ]
    # `<= end - 1`, as `end` may exceed int64.
    within = [(pc.field(TIME) >= first) & (pc.field(TIME) <= end - 1) for first, end in intervals]
    columns = [TIME, *Proven._fields]
    wanted = reduce(or_, within)
    rows = read_rows(proofs, files, PROOFS_SCHEMA, [*columns, "at_ms"], wanted).sort_by("at_ms").to_pydict()
    return {time: Proven(*proof) for time, *proof in zip(*(rows[name] for name in columns), strict=True)}
