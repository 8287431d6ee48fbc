"""Contents hashes: sums of the hashes of rows, which full validations compute again and compare.

| hash | of | stays the same |
|---|---|---|
| rows | the stored rows of a run, stated by its writer | as long as the run is live |
| times | the statements of a range of times, with their times | while the range is after since |
| contents | the contents at the last time before upper, without times | while that last time is at or after since |

Validations note the last two. A statement counts once in them, however many copies of it are stored, so no merge and no
copy changes them. See docs/decisions/contents-hash.md for the weights.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.spark.row_hash import add_halves, row_hash, weighted_sum, weighted_sums
from tidelake.store.layout import DIFF
from tidelake.store.proof_log import HashNote
from tidelake.store.runs import spark_schema

Halves = tuple[int, int]


def hash_text(halves: Halves) -> str:
    """Return a weighted sum as 16 hexadecimal digits.

    >>> hash_text((1, 255))
    '00000001000000ff'
    """
    return "".join(f"{half:08x}" for half in halves)


def halves_of(text: str) -> Halves:
    """Return the weighted sum that `hash_text` shows."""
    return int(text[:8], 16), int(text[8:], 16)


def hash_of(fields: Sequence[pa.Field]) -> Column:
    """Return the hash of these columns of a row."""
    return row_hash(spark_schema(pa.schema(fields)).json())


@dataclass(frozen=True)
class TimeHash:
    """The hashes of the rows stored at one time."""

    times: Halves
    contents: Halves | None
    """What the time adds to the hash of the contents; None if diffs are not summed."""


def time_hashes(recounted: Iterable[Mapping[str, Any]]) -> dict[int, TimeHash]:
    """Return the hashes by time, from the result of `Framing.recount`."""
    return {row["time"]: TimeHash(row["times_hash"], row["contents_hash"]) for row in recounted}


def compare_times(hashes: Mapping[int, TimeHash], notes: Sequence[HashNote], lower: int) -> list[str]:
    """Compare the statements in each range of times with what an earlier validation noted; return the differences.

    Args:
        hashes: the hashes of all times at or after `lower`.
        notes: the notes of earlier validations.
        lower: the first time that no compaction has changed.

    >>> note = HashNote(lower=3, upper=5, closed=False, times="0000000300000003")
    >>> compare_times({3: TimeHash((1, 1), None), 4: TimeHash((2, 2), None)}, [note], 0)
    []
    >>> compare_times({3: TimeHash((1, 1), None), 4: TimeHash((2, 3), None)}, [note], 0)
    ['times 3 to 4: the statements hash to 0000000300000004, but hashed to 0000000300000003 when validated']
    """
    times = sorted(hashes)
    sums = list(accumulate((hashes[time].times for time in times), lambda a, b: add_halves([a, b]), initial=(0, 0)))
    different = []
    for note in notes:
        if note.lower < lower or note.times is None:
            continue
        start, end = bisect_left(times, note.lower), len(times) if note.closed else bisect_left(times, note.upper)
        found = hash_text(add_halves([sums[end], _negated(sums[start])]))
        if found != note.times:
            until = "and later" if note.closed else f"to {note.upper - 1}"
            different.append(
                f"times {note.lower} {until}: the statements hash to {found}, but hashed to {note.times} when validated"
            )
    return different


def hash_contents(contents: DataFrame, fields: Sequence[pa.Field]) -> str:
    """Return the hash of contents, in which each row counts as many times as it occurs.

    Cost: one pass over the contents.
    """
    sums = contents.agg(*weighted_sums(hash_of(fields), F.col(DIFF))).first()
    assert sums is not None
    return hash_text(weighted_sum(sums.asDict()))


def compare_contents(notes: Sequence[HashNote], read: Callable[[int], str | None]) -> list[str]:
    """Hash the contents again at the newest `as_of` in the notes, if it is still readable; return any difference.

    Args:
        notes: the notes of earlier validations.
        read: hashes the contents AS OF a time; returns None if the time is before since.
    """
    noted = [note for note in notes if note.as_of is not None]
    if not noted:
        return []
    newest = max(noted, key=lambda note: note.as_of or 0)
    assert newest.as_of is not None
    found = read(newest.as_of)
    if found in (None, newest.contents):
        return []
    return [f"the contents at time {newest.as_of} hash to {found}, but hashed to {newest.contents} when validated"]


def _negated(halves: Halves) -> Halves:
    return -halves[0], -halves[1]
