"""The small data frame to validate: one row for each time, and one for the collection as a whole.

Spark has already computed all expensive sums. The frame has a few thousand rows at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from tidelake.read.status import CollectionStatus
    from tidelake.store.entry import Collection
    from tidelake.validate.validation import ValidateReport

TIME_ROW = "time"
TOTAL_ROW = "total"

COLUMNS = (
    "row",
    "time",
    "announced",
    "counted",
    "recounted",
    "diff_min",
    "diff_sum",
    "readable_beyond_upper",
    "diff_sum_recorded",
    "diff_sum_found",
    "contradictions",
    "quarantine_unexplained",
    "frontier_age_s",
    "doubled",
    "late_contradictions",
    "below_zero",
    "keys_in_error",
    "hash_mismatches",
)
"""`row` is `time` or `total`. A column that only one kind uses is 0 in the other, so that all numbers stay integers."""


def result_frame(report: ValidateReport, status: CollectionStatus, frontier_age_s: int) -> pd.DataFrame:
    """Build the DataFrame for one validation.

    Args:
        report: the result of the recount.
        status: the current status of the collection.
        frontier_age_s: seconds since upper last moved; 0 if it need not move.

    Returns:
        A frame with `COLUMNS`. The total row always exists, comes last, and has upper as its time. Its `diff_sum_found`
        is the recorded sum unless the validation was full, as other validations do not add up diffs.
    """
    import pandas as pd

    times = report.times
    rows = [{"row": TIME_ROW, **{name: time[name] for name in COLUMNS[1:7]}} for time in times]
    diff_sum_found = report.diff_sum_found
    rows.append(
        {
            "row": TOTAL_ROW,
            "time": report.upper,
            "announced": sum(time["announced"] for time in times),
            "counted": sum(time["counted"] for time in times),
            "recounted": sum(time["recounted"] for time in times),
            "diff_min": min((time["diff_min"] for time in times), default=0),
            "diff_sum": sum(time["diff_sum"] for time in times),
            "readable_beyond_upper": report.readable_beyond_upper,
            "diff_sum_recorded": report.diff_sum_recorded,
            "diff_sum_found": report.diff_sum_recorded if diff_sum_found is None else diff_sum_found,
            "contradictions": sum(not contradiction["decided"] for contradiction in status.contradictions),
            "quarantine_unexplained": sum(status.quarantine_unexplained.values()),
            "frontier_age_s": frontier_age_s,
            "doubled": report.doubled,
            "late_contradictions": status.late_undecided + _late_not_compared(report, status),
            "below_zero": report.below_zero or 0,
            "keys_in_error": status.keys_in_error,
            "hash_mismatches": len(report.hash_mismatches),
        }
    )
    columns = {name: [row.get(name, 0) for row in rows] for name in COLUMNS}
    return pd.DataFrame(columns)


def _late_not_compared(report: ValidateReport, status: CollectionStatus) -> int:
    """Return 1 if late statements could not be compared or read: some may be contradictions, so the check must fail."""
    return int(report.late_problem is not None or status.late_problem is not None)


def frontier_age_s(collection: Collection, status: CollectionStatus) -> int:
    """Return the seconds since upper last moved, or since the collection was created if upper never did.

    The result is 0 if upper need not move: the stream is closed, or a reclocked topic was read to its end.
    """
    from tidelake.read.status import age_of_upper_s

    return age_of_upper_s(collection, status.closed, status.lag_messages, status.lag_s)
