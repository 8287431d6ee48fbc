"""The one bridge to Dagster: a validation becomes one asset check of `<name>/seal` for each expectation.

A failing check that is blocking stops whatever lies below `seal`: merges and `current` of that collection.
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
    Field,
    MetadataValue,
    multi_asset_check,
)

from expectations.data_docs import Notes
from expectations.evidence import decided_times, evidence_of
from expectations.frame import result_frame
from expectations.judge import Verdict, judge
from expectations.suite import Rule, build_suite, rules_of
from jobs.lake import Lake, open_collection
from tidelake.configuration import CollectionSettings

if TYPE_CHECKING:
    from tidelake.delta.catalog import Collection
    from tidelake.delta.status import CollectionStatus
    from tidelake.delta.validation import ValidateReport

_INT64_MAX = 2**63 - 1
_LINES_SHOWN_MAX = 20
_COUNTS = ("times", "announced", "counted", "recounted")
_OWN_NUMBERS = {
    "announced_is_counted": _COUNTS,
    "announced_is_recounted": _COUNTS,
    "sum_of_diffs_is_as_recorded": ("diff_sum",),
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
"""By check, the numbers that it shows and others do not: the page sorts them by name, so few are easy to read."""


def checks_name(name: str) -> str:
    """What the step that validates a collection is called."""
    return f"{name}__validate"


def build_checks(settings: CollectionSettings, pool: str) -> AssetChecksDefinition:
    """The checks of one collection, made by one step: it recounts once, and then judges."""
    key = AssetKey([settings.name, "seal"])
    rules = rules_of(settings)
    specs = [
        AssetCheckSpec(rule.name, asset=key, description=_sentence(rule), blocking=rule.blocking) for rule in rules
    ]

    @multi_asset_check(
        name=checks_name(settings.name),
        specs=specs,
        description=f"Recounts {settings.name} independently of its seals, and holds the result against the suite.",
        required_resource_keys={"lake"},
        pool=pool,
        config_schema={
            "full": Field(
                bool,
                default_value=False,
                description="Recount all that compaction has left, not only what is new, and write the Data Docs.",
            )
        },
    )
    def validate(context: AssetCheckExecutionContext) -> Iterator[AssetCheckResult]:
        lake: Lake = context.resources.lake
        full: bool = context.op_execution_context.op_config["full"]
        try:
            verdicts, numbers, evidence = _validate(lake, settings.name, full)
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
    """Recount and judge; the verdicts, the numbers that all checks show, and by check what it goes by.

    Raises:
        DamagedTable: there is nothing to judge by; it is noted, so `current` stops as well.
    """
    from jobs.validate import validate_one
    from tidelake.delta.status import read_status
    from tidelake.delta.topic import open_topics

    settings = lake.settings.collection(name)
    collection = open_collection(lake, name)
    report = validate_one(lake.session(), collection, full)
    if report.proofs_problem is not None:
        raise report.proofs_problem
    # A raw topic may be quiet: only what is in it and was not read says that upper should have moved.
    topics = open_topics(settings, collection.entry.decisions) if settings.framing == "reclock" else ()
    status = read_status(collection, settings.family, topics)
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
        numbers["decided"] = _listed(decided)
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
        "table_version": report.version,
    }
    # The event log holds integers of 64 bits; what is greater is shown as its digits.
    return {
        name: value if abs(value) <= _INT64_MAX else str(value) for name, value in numbers.items() if value is not None
    }


def _shown_by(check: str, numbers: dict[str, Any]) -> dict[str, Any]:
    """The numbers that a check goes by, and those that every check shows."""
    own = _OWN_NUMBERS.get(check, ())
    others = {name for names in _OWN_NUMBERS.values() for name in names} - set(own)
    return {name: value for name, value in numbers.items() if name not in others}


def frontier_age_s(collection: "Collection", status: "CollectionStatus") -> int:
    """How long ago upper last moved, or the collection was made, where it never did; 0 where it need not move.

    It need not where the stream is closed, nor where all that is in a raw topic was read.
    """
    is_read = collection.entry.framing == "reclock" and status.lag_messages == 0
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
        metadata = {"evidence": _listed(evidence), **metadata}
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
    return f"not so{at}: {rule.description}" + (f"; the first: {evidence[0]}" if evidence else "")


def _listed(lines: list[str]) -> MetadataValue[Any]:
    """Some lines for a person, as text, which the page shows without a click; the rest is counted."""
    shown = lines[:_LINES_SHOWN_MAX]
    if len(lines) > _LINES_SHOWN_MAX:
        shown = [*shown, f"and {len(lines) - _LINES_SHOWN_MAX} more"]
    return MetadataValue.text("; ".join(shown))


def _unanswered(key: AssetKey, rule: Rule, error: BaseException) -> AssetCheckResult:
    """A table that cannot be read proves nothing, so nothing may be built on it."""
    return AssetCheckResult(
        asset_key=key,
        check_name=rule.name,
        passed=False,
        severity=_severity(rule),
        description=f"could not be judged: the table cannot be read: {str(error).splitlines()[0]}",
        metadata={"error": MetadataValue.text(str(error)[:4000])},
    )


def _unreadable() -> tuple[type[BaseException], ...]:
    """What reading a damaged table raises."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from tidelake.errors import DamagedTable

    return (PySparkException, Py4JJavaError, DamagedTable, OSError)


def _severity(rule: Rule) -> AssetCheckSeverity:
    return AssetCheckSeverity.WARN if rule.warning else AssetCheckSeverity.ERROR


def _sentence(rule: Rule) -> str:
    return f"{rule.description[0].upper()}{rule.description[1:]}."
