"""The evidence of each check, as sentences: the same in Dagster and in the Data Docs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelake.read.words import counted, fact_of

if TYPE_CHECKING:
    from tidelake.read.status import CollectionStatus
    from tidelake.validate.validation import ValidateReport


def evidence_of(report: ValidateReport, status: CollectionStatus) -> dict[str, list[str]]:
    """Return the first reasons why each check fails, or will fail; a check without a reason has no entry."""
    evidence = {
        "announced_is_recounted": [fact for fact in report.mismatches if fact not in report.hash_mismatches],
        "rows_are_as_recorded": report.hash_mismatches,
        "nothing_is_contradicted": [
            fact_of(noted["detail"]) for noted in status.contradictions if not noted["decided"]
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
        "frontier_moves": _waiting(status),
    }
    return {check: lines for check, lines in evidence.items() if lines}


def _waiting(status: CollectionStatus) -> list[str]:
    """Say what upper is waiting for, if that is known: long before the check fails, this shows why it will."""
    missing = None if status.waiting is None else status.waiting.first_missing
    return [] if missing is None else [f"upper is waiting at {missing}"]


def decided_times(status: CollectionStatus) -> list[str]:
    """Return a sentence for each time that was sealed by decision, with the count and the reason."""
    return [
        f"time {sealed['time']}, sealed by decision with {counted(sealed['announced'], 'update')}: {sealed['reason']}"
        for sealed in status.sealed_by_decision
    ]
