"""Validate: recount independently of seal what was published, record whether it agrees, and compare what came late."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from jobs.job import Report, log, run_main, run_step
from tidelake.configuration import CollectionSettings, Settings
from tidelake.delta.catalog import Collection
from tidelake.delta.status import read_late
from tidelake.delta.validation import ValidateReport, validate
from tidelake.errors import DamagedTable, StepFailed

_LATE_LOGGED_MAX = 5


def run(spark: SparkSession, settings: Settings, full: bool = False) -> Report:
    """Recount every collection: what was sealed since the last recount that agreed, or all of it.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """

    def step(spark: SparkSession, collection: Collection, one: CollectionSettings, report: Report) -> ValidateReport:
        validated = validate_one(spark, collection, full)
        if validated.damaged:
            report.errors[collection.name] = DamagedTable(
                str(collection.paths.updates), "; ".join(validated.mismatches)
            )
        elif validated.late_problem is not None:
            report.errors[collection.name] = StepFailed(
                "validate", collection.name, "late statements could not be compared", validated.late_problem
            )
        return validated

    return run_step(spark, settings, "validate", step)


def validate_one(spark: SparkSession, collection: Collection, full: bool) -> ValidateReport:
    """Recount one collection; what it finds is in its report."""
    validated = validate(spark, collection, full)
    log.info("validated", collection=collection.name, upper=validated.upper, times=len(validated.times))
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
    """Recount everything that compaction has left."""
    return run(spark, settings, full=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Recount everything, from spark-submit or the shell."""
    return run_main(run_full, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
