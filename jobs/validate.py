"""Validate: recount published updates independently of seal, record the outcome, and compare late statements."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from jobs.job import Report, log, run_main, run_step
from jobs.pages import judge_and_report, report_unreadable
from tidelake.errors import BlockingCheckFailed, DamagedTable, StepFailed
from tidelake.read.status import read_late
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.lake import Settings
from tidelake.store.entry import Collection
from tidelake.telemetry.steps import observed
from tidelake.validate.validation import ValidateReport, validate

_LATE_LOGGED_MAX = 5


def run(spark: SparkSession, settings: Settings, full: bool = False, writes_pages: bool = False) -> Report:
    """Recount every collection: the times sealed since the last recount that agreed, or all times.

    Args:
        spark: the session.
        settings: the settings of the lake.
        full: whether to recount everything.
        writes_pages: whether to judge each validation, and to write its page; only for full validations. A blocking
            check that fails is recorded as an error of the collection.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    lake = settings

    def step(collection: Collection, settings: CollectionSettings, report: Report) -> ValidateReport:
        try:
            validated = validate_collection(spark, collection, full, settings.verify_every_days)
        except Exception as error:
            if writes_pages:
                report_unreadable(lake, settings, collection, error)
            raise
        if validated.damaged:
            report.errors[collection.name] = validated.proofs_problem or DamagedTable(
                str(collection.paths.updates), "; ".join(validated.mismatches)
            )
        elif validated.late_problem is not None:
            report.errors[collection.name] = StepFailed(
                "validate", collection.name, "late statements could not be compared", validated.late_problem
            )
        if writes_pages:
            from expectations.suite import rules_of

            judged = judge_and_report(spark, lake, settings, collection, validated)
            failed = [] if judged is None else [check.check for check in judged.judgement.verdicts if not check.passed]
            for check in failed:
                log.warning("check failed", collection=collection.name, check=check)
            if blocking := [rule.name for rule in rules_of(settings) if rule.blocking and rule.name in failed]:
                report.errors.setdefault(
                    collection.name,
                    BlockingCheckFailed("validate", collection.name, "blocking checks", ", ".join(blocking)),
                )
        return validated

    return run_step(spark, settings, "validate", step)


@observed("validate")
def validate_collection(
    spark: SparkSession,
    collection: Collection,
    full: bool,
    verify_every_days: int = 0,
    again_from: int | None = None,
) -> ValidateReport:
    """Recount one collection. Damage is in the report; an error is raised if the table cannot be opened or read."""
    validated = validate(spark, collection, full, verify_every_days, again_from)
    log.info(
        "validated",
        collection=collection.name,
        upper=validated.upper,
        times=len(validated.times),
        files_verified=validated.files_verified,
        bytes_verified=validated.bytes_verified,
    )
    if validated.late.contradictions:
        count = validated.late.contradictions
        log.error("late statements contradict what was published", collection=collection.name, statements=count)
        for fact in read_late(collection).evidence[:_LATE_LOGGED_MAX]:
            log.error("late contradiction", collection=collection.name, fact=fact)
    if validated.late_problem is not None:
        log.error("late statements not compared", collection=collection.name, reason=validated.late_problem)
    for mismatch in validated.mismatches:
        log.error("damage below upper", collection=collection.name, fact=mismatch)
    return validated


def run_full(spark: SparkSession, settings: Settings) -> Report:
    """Recount all updates that compaction has kept."""
    return run(spark, settings, full=True)


def run_with_pages(spark: SparkSession, settings: Settings) -> Report:
    """Recount all updates that compaction has kept, judge the result, and write the pages."""
    return run(spark, settings, full=True, writes_pages=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a full recount from spark-submit or the shell, and write the pages."""
    return run_main(run_with_pages, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
