"""Judges a validation of one collection: the library's verdict on the recount and, if it is full, on the contents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from expectations.contents import judge_contents
from expectations.data_docs import Notes
from expectations.evidence import decided_times, evidence_of
from expectations.frame import frontier_age_s, result_frame
from expectations.judge import Verdict, judge
from expectations.last_verdicts import last_verdicts
from expectations.sentences import failure_of, sentence_of
from expectations.suite import build_suite, rules_of
from tidelake.report.facts import CheckResult, Facts
from tidelake.report.files import ReportPlace
from tidelake.report.problems import Level

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

    from tidelake.read.status import CollectionStatus
    from tidelake.settings.collection import CollectionSettings
    from tidelake.store.entry import Collection
    from tidelake.validate.validation import ValidateReport


@dataclass(frozen=True)
class Judgement:
    """The verdicts on a validation, and what they are based on."""

    verdicts: list[Verdict]
    """A verdict for each rule of the collection, in the order of the rules."""
    frame: pd.DataFrame
    """See `result_frame`."""
    evidence: dict[str, list[str]]
    """The evidence by check."""
    decided: list[str]
    """A sentence for each time that was sealed by decision."""


def judge_collection(
    spark: SparkSession,
    collection: Collection,
    settings: CollectionSettings,
    report: ValidateReport,
    status: CollectionStatus,
    data_docs: ReportPlace,
    facts: Facts | None,
    writes_docs: bool = True,
) -> Judgement:
    """Judge a validation.

    Args:
        spark: the session.
        collection: the collection.
        settings: its settings.
        report: the result of the validation.
        status: the state of the collection after the validation.
        data_docs: the folder of the reports.
        facts: the facts for the report; None unless the validation was full. After a full validation, the contents are
            judged; after any other, the user's own expectations keep their last verdicts.
        writes_docs: whether to write Data Docs after a full validation.

    Raises:
        OSError, StoreUnreadable: the table cannot be read, or the Data Docs cannot be written.

    Cost: importing the library takes a few seconds, once per process. The contents are read once if there are
        expectations about them.
    """
    frame = result_frame(report, status, frontier_age_s(collection, status))
    evidence, decided = evidence_of(report, status), decided_times(status)
    rules = rules_of(settings)
    own = [rule for rule in rules if rule.is_own]
    suite = build_suite(settings)
    if facts is None:
        verdicts = judge(frame, suite) + last_verdicts(data_docs, settings.name, own)
    else:
        notes = Notes(decided, evidence, [text for text in (facts.verdict, facts.ahead) if text], _numbers(facts))
        docs = data_docs if writes_docs else None
        verdicts = judge(frame, suite, docs, notes)
        if own:
            verdicts += judge_contents(spark, collection, settings, report, own, docs)
    by_check = {verdict.check: verdict for verdict in verdicts}
    return Judgement([by_check[rule.name] for rule in rules], frame, evidence, decided)


def _numbers(facts: Facts) -> dict[str, str]:
    """Return the numbers that a page of the Data Docs begins with."""
    tide = facts.tide
    numbers: dict[str, Any] = {
        "since": "unreadable" if facts.since is None else facts.since,
        "upper": "closed" if facts.closed else facts.upper,
        "sealed times": f"{tide.times:,}",
        "announced": f"{tide.announced:,}",
        "counted": f"{tide.counted:,}",
        "recounted": None if facts.recounted is None else f"{facts.recounted:,}",
        "copies": f"{tide.copies:,}",
        "late": f"{facts.status['late']:,}",
        "quarantined": f"{facts.status['quarantine']:,}",
    }
    return {name: str(value) for name, value in numbers.items() if value is not None}


def check_results(settings: CollectionSettings, judgement: Judgement) -> list[CheckResult]:
    """Return the results as the report shows them, each with a sentence that has its numbers."""
    results = []
    for rule, verdict in zip(rules_of(settings), judgement.verdicts, strict=True):
        level: Level = "calm" if verdict.passed else "warning" if rule.warning else "alarm"
        sentence = sentence_of(rule, verdict, judgement.frame) if verdict.passed else failure_of(rule, verdict)
        results.append(
            CheckResult(
                check=rule.name,
                passed=verdict.passed,
                level=level,
                sentence=sentence,
                is_blocking=rule.blocking,
                evidence=judgement.evidence.get(rule.name, []) or verdict.examples,
            )
        )
    return results
