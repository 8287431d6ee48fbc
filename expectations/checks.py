"""Dagster's checks: a validation becomes one asset check of `<name>/seal` for each expectation.

A blocking check that fails stops the assets downstream of `seal`: `compact` and `current` of that collection.
"""

import time as clock
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetKey,
    Config,
    MetadataValue,
    ResourceParam,
    multi_asset_check,
)
from pydantic import Field

from assets.metadata import listed
from expectations.data_docs import Notes
from expectations.evidence import decided_times, evidence_of
from expectations.frame import result_frame
from expectations.judge import Verdict, judge
from expectations.suite import Rule, build_suite, rules_of
from jobs.lake import Lake, open_collection
from tidelake.settings.collection import CollectionSettings

if TYPE_CHECKING:
    from tidelake.read.status import CollectionStatus
    from tidelake.store.entry import Collection
    from tidelake.validate.validation import ValidateReport

_INT64_MAX = 2**63 - 1
_COUNTS = ("times", "announced", "counted", "recounted")
_OWN_NUMBERS = {
    "announced_is_counted": _COUNTS,
    "announced_is_recounted": _COUNTS,
    "sum_of_diffs_is_as_recorded": ("diff_sum",),
    "rows_are_as_recorded": ("hash_mismatches", "times_hash", "contents_hash"),
    "contents_never_fall": ("times", "diff_sum"),
    "nothing_accumulates_below_zero": ("below_zero", "diff_sum"),
    "nothing_is_contradicted": ("contradictions",),
    "no_key_is_in_error": ("keys_in_error",),
    "late_statements_are_copies": (
        "late_rows",
        "late_copies",
        "late_contradictions",
        "late_contradictions_undecided",
        "late_untold",
    ),
    "quarantine_is_explained": ("quarantined", "quarantined_unexplained"),
    "frontier_moves": ("frontier_age_s",),
}
"""The numbers that not every check shows, by check. The UI sorts them by name; a short list is easier to read."""


class ValidateConfig(Config):
    """Configuration of the step that validates a collection."""

    full: bool = Field(
        default=False,
        description="Recount all updates that compaction has kept, not only new times, and write the Data Docs.",
    )


def checks_name(name: str) -> str:
    """Return the name of the step that validates a collection."""
    return f"{name}__validate"


def build_checks(settings: CollectionSettings, pool: str) -> AssetChecksDefinition:
    """Build the checks of a collection. One step recounts once, and reports the results of all checks."""
    key = AssetKey([settings.name, "seal"])
    rules = rules_of(settings)
    specs = [
        AssetCheckSpec(rule.name, asset=key, description=_sentence(rule), blocking=rule.blocking) for rule in rules
    ]

    @multi_asset_check(
        name=checks_name(settings.name),
        specs=specs,
        description=f"Recounts {settings.name} independently of its seals, and validates the result against the suite.",
        pool=pool,
    )
    def validate(
        context: AssetCheckExecutionContext, config: ValidateConfig, lake: ResourceParam[Lake]
    ) -> Iterator[AssetCheckResult]:
        try:
            verdicts, numbers, evidence = _validate(lake, settings.name, config.full)
        except _unreadable() as error:
            context.log.exception("the recount could not read the table")
            for rule in rules:
                yield _unanswered(key, rule, error)
            return
        by_check = {verdict.check: verdict for verdict in verdicts}
        for rule in rules:
            yield _answered(key, rule, by_check[rule.name], numbers, evidence.get(rule.name, []))

    return validate


def _validate(lake: Lake, name: str, full: bool) -> tuple[list[Verdict], dict[str, Any], dict[str, list[str]]]:
    """Recount and judge.

    Returns:
        The verdicts, the numbers that checks show, and the evidence by check.

    Raises:
        DamagedTable: the proofs cannot be read. The damage is recorded, so `current` stops as well.
    """
    from jobs.validate import validate_collection
    from tidelake.read.status import read_status
    from tidelake.topic.open import open_topics

    settings = lake.settings.collection(name)
    collection = open_collection(lake.session(), lake.settings, name)
    report = validate_collection(lake.session(), collection, full, settings.verify_every_days)
    if report.proofs_problem is not None:
        raise report.proofs_problem
    # A reclocked topic may be idle: upper should have moved only if the topic has unread messages.
    topics = open_topics(settings, collection.entry.decisions) if settings.mints_times else ()
    status = read_status(collection, topics, settings.stalled_after_s)
    frame = result_frame(report, status, frontier_age_s(collection, status))
    evidence = evidence_of(report, status)
    decided = decided_times(status)
    suite = build_suite(settings)
    if full:
        verdicts = judge(frame, suite, lake.settings.data_docs, Notes(decided, evidence))
    else:
        verdicts = judge(frame, suite)
    numbers = _numbers(report, status, frame)
    if decided:
        numbers["decided"] = listed(decided)
    if full:
        numbers["data_docs"] = MetadataValue.url((lake.settings.data_docs / "index.html").resolve().as_uri())
    return verdicts, numbers, evidence


def _numbers(report: "ValidateReport", status: "CollectionStatus", frame: Any) -> dict[str, Any]:
    total = frame.iloc[-1]
    numbers = {
        "lower": report.lower,
        "upper": report.upper,
        "since": report.since,
        "times": len(report.times),
        "announced": int(total["announced"]),
        "counted": int(total["counted"]),
        "recounted": int(total["recounted"]),
        "diff_sum": report.diff_sum_recorded,
        "sealed_by_decision": len(status.sealed_by_decision),
        "contradictions": int(total["contradictions"]),
        "late_rows": status.late,
        "late_copies": status.late_verdicts["copy"],
        "late_contradictions": status.late_contradicted,
        "late_contradictions_undecided": status.late_undecided,
        "late_untold": status.late_verdicts["untold"],
        "quarantined": status.quarantine,
        "quarantined_unexplained": int(total["quarantine_unexplained"]),
        "below_zero": report.below_zero,
        "keys_in_error": status.keys_in_error,
        "frontier_age_s": int(total["frontier_age_s"]),
        "hash_mismatches": len(report.hash_mismatches),
        "times_hash": report.times_hash,
        "contents_hash": report.contents_hash,
        "table_version": report.version,
    }
    # Dagster's event log holds 64-bit integers; larger numbers are shown as text.
    return {
        name: value if isinstance(value, str) or abs(value) <= _INT64_MAX else str(value)
        for name, value in numbers.items()
        if value is not None
    }


def _shown_by(check: str, numbers: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of one check: its own, and those that every check shows."""
    own = _OWN_NUMBERS.get(check, ())
    others = {name for names in _OWN_NUMBERS.values() for name in names} - set(own)
    return {name: value for name, value in numbers.items() if name not in others}


def frontier_age_s(collection: "Collection", status: "CollectionStatus") -> int:
    """Return the seconds since upper last moved, or since the collection was created if upper never did.

    The result is 0 if upper need not move: the stream is closed, or a reclocked topic was read to its end.
    """
    is_read = collection.entry.mints_times and status.lag_messages == 0
    if status.closed or is_read:
        return 0
    if status.lag_s is not None:
        return max(0, int(status.lag_s))
    return max(0, int(clock.time() - collection.entry.created_at_ms / 1000))


def _answered(
    key: AssetKey, rule: Rule, verdict: Verdict, numbers: dict[str, Any], evidence: list[str]
) -> AssetCheckResult:
    metadata = {"rows_compared": verdict.rows, "rows_failed": verdict.failed, **_shown_by(rule.name, numbers)}
    if evidence:
        metadata = {"evidence": listed(evidence), **metadata}
    if verdict.times and rule.blocking:
        metadata["failed_at_times"] = MetadataValue.json(verdict.times)
    return AssetCheckResult(
        asset_key=key,
        check_name=rule.name,
        passed=verdict.passed,
        severity=_severity(rule),
        description=None if verdict.passed else _what_failed(rule, verdict, evidence),
        metadata=metadata,
    )


def _what_failed(rule: Rule, verdict: Verdict, evidence: list[str]) -> str:
    if verdict.problem is not None:
        return f"could not be judged: {verdict.problem}"
    at = f" at times {', '.join(map(str, verdict.times))}" if verdict.times and rule.blocking else ""
    return f"failed{at}: {rule.description}" + (f"; first: {evidence[0]}" if evidence else "")


def _unanswered(key: AssetKey, rule: Rule, error: BaseException) -> AssetCheckResult:
    """Fail the check: a table that cannot be read proves nothing, so nothing may be built on it."""
    return AssetCheckResult(
        asset_key=key,
        check_name=rule.name,
        passed=False,
        severity=_severity(rule),
        description=f"could not be judged: the table cannot be read: {str(error).splitlines()[0]}",
        metadata={"error": MetadataValue.text(str(error)[:4000])},
    )


def _unreadable() -> tuple[type[BaseException], ...]:
    """Return the errors that reading a damaged table may raise."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from tidelake.errors import DamagedTable

    return (PySparkException, Py4JJavaError, DamagedTable, OSError)


def _severity(rule: Rule) -> AssetCheckSeverity:
    return AssetCheckSeverity.WARN if rule.warning else AssetCheckSeverity.ERROR


def _sentence(rule: Rule) -> str:
    return f"{rule.description[0].upper()}{rule.description[1:]}."
