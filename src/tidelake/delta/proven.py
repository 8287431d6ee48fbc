"""What was proven at each sealed time, as `proofs/` has it; the one reader of it, without a JVM."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc

from tidelake.delta.commit import OpenTable
from tidelake.delta.files import read_rows
from tidelake.delta.layout import PROOF_RUN, PROOFS_SCHEMA, TIME

_INTERVALS_MAX = 100


class Proven(NamedTuple):
    """The proof of one time."""

    announced: int
    counted: int
    copies: int
    decision: str | None
    """Why it was sealed by decision; None where it was not."""


def read_proven(proofs: Path, intervals: Sequence[tuple[int, int]]) -> dict[int, Proven]:
    """By time, what was proven; of times noted twice, after a stop or beside an ingest, the newest note stands.

    Args:
        proofs: the table's folder.
        intervals: the times that are wanted, `(first, end)` each, in order and apart.

    Returns:
        The proofs in the intervals; where there are very many, in all that lies between the first and the last.

    Cost: the files whose bounds meet an interval; only rows within leave Arrow.
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
    # Up to the last time and not before the end, which may lie beyond int64.
    within = [(pc.field(TIME) >= first) & (pc.field(TIME) <= end - 1) for first, end in intervals]
    columns = [TIME, *Proven._fields]
    wanted = reduce(lambda one, other: one | other, within)
    rows = read_rows(proofs, files, PROOFS_SCHEMA, [*columns, "at_ms"], wanted).sort_by("at_ms").to_pydict()
    return {one[0]: Proven(*one[1:]) for one in zip(*(rows[name] for name in columns), strict=True)}
