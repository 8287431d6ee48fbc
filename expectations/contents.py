"""Judges the contents of a collection against the expectations in its settings, on Great Expectations' Spark engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from expectations.judge import Verdict, judge
from expectations.suite import Rule, build_own_suite
from tidelake.report.files import ReportPlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelake.settings.collection import CollectionSettings
    from tidelake.store.entry import Collection
    from tidelake.validate.validation import ValidateReport

_VALUES_SHOWN = 5


def judge_contents(
    spark: SparkSession,
    collection: Collection,
    settings: CollectionSettings,
    report: ValidateReport,
    rules: list[Rule],
    data_docs: ReportPlace | None,
) -> list[Verdict]:
    """Judge the contents at the last time before the upper of the validation.

    Keys in error are left out, as the check `no_key_is_in_error` reports them. If nothing is sealed yet, every
    expectation passes, with a note that says why.

    Cost: reads the contents once, and keeps them until they are judged.

    Raises:
        ConfigurationError: Great Expectations refuses the arguments of an expectation.
    """
    from tidelake.read.asked import last_time
    from tidelake.read.snapshot import snapshot

    if not report.upper and not report.closed:
        return [Verdict(rule.name, True, 0, 0, note="not judged yet: nothing is sealed") for rule in rules]
    suite = build_own_suite(settings)
    at = max(last_time(report.upper, report.closed), report.since)
    contents = snapshot(spark, collection, at, skip_errors=True).contents.persist()
    try:
        return judge(contents, suite, data_docs, values_shown=_VALUES_SHOWN if settings.show_values else 0)
    finally:
        contents.unpersist()
