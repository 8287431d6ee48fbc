"""Compares the rows that were removed from the contents of an append-only collection with recorded retention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tidelake.read.words import counted

_NAMED_MAX = 10


class _Report(Protocol):
    """The part of a validation's report that receives the result."""

    rows_left: int
    mismatches: list[str]


def without_departures(
    report: _Report, recounted: Sequence[Mapping[str, Any]], recorded: Mapping[int, int]
) -> list[dict[str, Any]]:
    """Remove recorded departures (rows removed by retention) from a recount: only the source's statements remain.

    A departure that differs from its record stays in the recount, so the recount contradicts the announcements; the
    mismatches of the report name the departure.

    Args:
        report: receives the number of rows removed, and the mismatches.
        recounted: the rows of a recount; the result lacks the fields `left`, `left_recounted` and `added_min`.
        recorded: the number of rows removed, by time.
    """
    result = []
    found = {row["time"] for row in recounted}
    for row in [*recounted, *({"time": time} for time in sorted(recorded) if time not in found)]:
        time, left = row["time"], row.get("left", 0)
        numbers = {name: value for name, value in row.items() if name not in ("left", "left_recounted", "added_min")}
        if left != recorded.get(time, 0):
            if len(report.mismatches) < _NAMED_MAX:
                report.mismatches.append(
                    f"time {time}: {counted(left, 'row was', 'rows were')} removed from the contents, "
                    f"but retention recorded {recorded.get(time, 0)}"
                )
        elif left:
            report.rows_left += left
            numbers |= {"recounted": row["recounted"] - row["left_recounted"], "diff_min": row["added_min"]}
        if len(row) > 1:
            result.append(numbers)
    return result
