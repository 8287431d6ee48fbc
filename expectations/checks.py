"""Dagster's checks: a validation becomes one asset check of `<name>/seal` for each expectation.

A blocking check that fails stops the assets downstream of `seal`: `compact` and `current` of that collection.
"""

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
from expectations.data_docs import INDEX
from expectations.judge import Verdict
from expectations.sentences import failure_of
from expectations.suite import Rule, rules_of
from jobs.lake import Lake, open_collection
from tidelake.settings.collection import CollectionSettings

if TYPE_CHECKING:
    from tidelake.read.status import CollectionStatus
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
    from jobs.pages import judge_and_report, report_unreadable
    from jobs.validate import validate_collection

    settings = lake.settings.collection(name)
    collection = open_collection(lake.session(), lake.settings, name)
    try:
        report = validate_collection(lake.session(), collection, full, settings.verify_every_days)
    except Exception as error:
        if full:
            report_unreadable(lake.settings, settings, collection, error)
        raise
    judged = judge_and_report(lake.session(), lake.settings, settings, collection, report, full)
    if judged is None:
        assert report.proofs_problem is not None
        raise report.proofs_problem
    verdicts, evidence, decided = judged.judgement.verdicts, judged.judgement.evidence, judged.judgement.decided
    numbers = _numbers(report, judged.status, judged.judgement.frame)
    if decided:
        numbers["decided"] = listed(decided)
    if judged.page is not None:
        numbers["report"] = MetadataValue.url(judged.page.resolve().as_uri())
        numbers["data_docs"] = MetadataValue.url((lake.settings.data_docs / INDEX).resolve().as_uri())
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


def _answered(
    key: AssetKey, rule: Rule, verdict: Verdict, numbers: dict[str, Any], evidence: list[str]
) -> AssetCheckResult:
    metadata = {"rows_compared": verdict.rows, "rows_failed": verdict.failed, **_shown_by(rule.name, numbers)}
    if verdict.note is not None:
        metadata["note"] = verdict.note
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
    if rule.is_own:
        return failure_of(rule, verdict)
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
