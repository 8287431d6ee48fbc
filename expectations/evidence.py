"""What each check goes by, as sentences for people: the same in Dagster and in the Data Docs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelake.delta.status import CollectionStatus
    from tidelake.delta.validation import ValidateReport


def evidence_of(report: ValidateReport, status: CollectionStatus) -> dict[str, list[str]]:
    """By check, the first things that it fails for; no entry where there is nothing to show."""
    found = {
        "announced_is_recounted": report.mismatches,
        "nothing_is_contradicted": [
            f"time {one['time']}: {one['detail']}" for one in status.contradictions if not one["decided"]
        ],
        "late_statements_are_copies": [
            *([f"late statements could not be compared: {report.late_problem}"] if report.late_problem else []),
            *([status.late_problem] if status.late_problem else []),
            *status.late_evidence,
        ],
        "nothing_accumulates_below_zero": report.below_zero_first,
        "no_key_is_in_error": status.keys_in_error_first,
        "quarantine_is_explained": [
            f"{count} {'message' if count == 1 else 'messages'}: {reason}"
            for reason, count in sorted(status.quarantine_unexplained.items())
        ],
    }
    return {check: lines for check, lines in found.items() if lines}


def decided_times(status: CollectionStatus) -> list[str]:
    """Every time that was sealed by decision, with the count and the reason."""
    return [
        f"time {one['time']}, sealed by decision with {one['announced']} updates: {one['reason']}"
        for one in status.sealed_by_decision
    ]
