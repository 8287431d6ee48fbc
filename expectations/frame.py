"""The small frame that expectations are held against: one row a time, and one row for the collection as a whole.

All heavy sums are done by Spark before; this is a few thousand rows at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from tidelake.delta.status import CollectionStatus
    from tidelake.delta.validation import ValidateReport

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
)
"""`row` is `time` or `total`. What a row of the other kind would say is 0, so that every number stays an integer."""


def result_frame(report: ValidateReport, status: CollectionStatus, frontier_age_s: int) -> pd.DataFrame:
    """Lay a validation out for the suite.

    Args:
        report: what the recount found.
        status: the collection as it stands.
        frontier_age_s: how long ago upper last moved; 0 where it need not move any more.

    Returns:
        `COLUMNS`; the total row comes last, is always there, and has upper as its time. `diff_sum_found` is what was
        recorded where the validation was not full, and so looked for nothing else.
    """
    import pandas as pd

    rows = []
    for one in report.times:
        rows.append({"row": TIME_ROW, **{name: one[name] for name in COLUMNS[1:7]}})
    found = report.diff_sum_found
    rows.append(
        {
            "row": TOTAL_ROW,
            "time": report.upper,
            "announced": sum(one["announced"] for one in report.times),
            "counted": sum(one["counted"] for one in report.times),
            "recounted": sum(one["recounted"] for one in report.times),
            "diff_min": min((one["diff_min"] for one in report.times), default=0),
            "diff_sum": sum(one["diff_sum"] for one in report.times),
            "readable_beyond_upper": report.readable_beyond_upper,
            "diff_sum_recorded": report.diff_sum_recorded,
            "diff_sum_found": report.diff_sum_recorded if found is None else found,
            "contradictions": sum(not one["decided"] for one in status.contradictions),
            "quarantine_unexplained": sum(status.quarantine_unexplained.values()),
            "frontier_age_s": frontier_age_s,
            "doubled": report.doubled,
            "late_contradictions": status.late_undecided + _late_unknown(report, status),
            "below_zero": report.below_zero or 0,
            "keys_in_error": status.keys_in_error,
        }
    )
    columns = {name: [row.get(name, 0) for row in rows] for name in COLUMNS}
    return pd.DataFrame(columns)


def _late_unknown(report: ValidateReport, status: CollectionStatus) -> int:
    """One contradiction more where late facts could not be compared or read: nobody knows that there is none."""
    return int(report.late_problem is not None or status.late_problem is not None)
