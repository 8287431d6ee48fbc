"""Source errors fail checks but do not stop runs; decisions settle them, and every report shows the decisions."""

from __future__ import annotations

from typing import Any

import pytest
from dagster import DagsterInstance, ExecuteInProcessResult
from pyspark.sql import SparkSession

from expectations.offline import list_results
from orchestration.run_once import run_current_job, run_nightly_job, run_tick_job
from tests.lakes.commands import resolve
from tests.lakes.dagster_lakes import HISTORY, Lakes, compacted, failed_checks, metadata
from tests.lakes.lake import progress, updates

pytestmark = pytest.mark.spark

DECIDED = "time 7, sealed by decision"
REASON = "the shop has counted again: 2"


def check_metadata(result: ExecuteInProcessResult, check: str) -> dict[str, Any]:
    """The metadata of a check of `prices`, with its description."""
    (evaluation,) = [
        candidate
        for candidate in result.get_asset_check_evaluations()
        if (candidate.asset_key.path[1], candidate.check_name) == ("prices", check)
    ]
    return {name: value.value for name, value in evaluation.metadata.items()} | {"description": evaluation.description}


@pytest.mark.sweep
def test_a_contradiction_fails_its_check_but_does_not_stop_the_run_and_is_sealed_by_decision(
    spark: SparkSession, instance: DagsterInstance, lakes: Lakes
) -> None:
    lakes.send("prices", *HISTORY)
    assert failed_checks(run_tick_job(lakes.config, instance)) == {}
    lakes.send("prices", b"\xff\xff", updates(((1, 10), 1, 5), ((2, 20), 1, 1)))
    lakes.send("prices", updates(((5, 50), 7, 1), ((6, 60), 7, 1), ((1, 10), 8, -3)), progress([6], [9], {7: 1, 8: 1}))
    contradicted = run_tick_job(lakes.config, instance)
    assert contradicted.success
    assert compacted(contradicted) == {"prices", "visits"}
    assert failed_checks(contradicted) == {
        "prices/nothing_is_contradicted": "ERROR",
        "prices/late_statements_are_copies": "ERROR",
        "prices/quarantine_is_explained": "WARN",
    }
    late = check_metadata(contradicted, "late_statements_are_copies")
    place = "(topic 'prices', partition 0, offset 7)"
    evidence = f'{{"id":1,"price":10}} is stated with diff 5, but was published with 1 {place}'
    assert evidence in late["evidence"]
    assert evidence in late["description"]
    assert (late["late_copies"], late["late_contradictions"], late["upper"]) == (1, 1, 7)
    assert "quarantined" not in late  # each check shows its own numbers
    assert check_metadata(contradicted, "quarantine_is_explained")["quarantined_unexplained"] == 1
    shown = run_current_job(lakes.config, instance)
    assert shown.success
    assert metadata(shown, "prices", "current")["as_of"] == 6  # what is proven is published

    resolve(lakes, "count", "--time", "7", "--count", "2", "--reason", REASON)
    late_update = '{"data": {"id": 1, "price": 10}, "diff": 5}'
    resolve(lakes, "discard", "--time", "1", "--statement", late_update, "--reason", "taken back")
    resolve(lakes, "quarantine", "--offsets", "prices:0:6", "--reason", "a test message")
    healed = run_tick_job(lakes.config, instance)
    assert failed_checks(healed) == {}
    sealed = metadata(healed, "prices")
    assert (sealed["upper"], sealed["sealed_by_decision"]) == (9, 1)
    assert sealed["decided"] == f"{DECIDED}: {REASON}"

    nightly = run_nightly_job(lakes.config, instance)
    assert failed_checks(nightly) == {"prices/nothing_accumulates_below_zero": "WARN"}
    below_zero = check_metadata(nightly, "nothing_accumulates_below_zero")
    assert (below_zero["below_zero"], below_zero["evidence"]) == (1, '{"id":1,"price":10}: -2')
    seen = check_metadata(nightly, "quarantine_is_explained")
    assert (below_zero["sealed_by_decision"], seen["quarantined"], seen["quarantined_unexplained"]) == (1, 1, 0)
    assert below_zero["decided"] == f"{DECIDED} with 2 updates: {REASON}"
    docs = lakes.root / "docs"
    (page,) = [result for result in list_results(docs) if result.suite == "prices"]
    assert (page.decided, page.failed) == (1, ("nothing_accumulates_below_zero",))
    text = (docs / page.page).read_text(encoding="utf-8")
    assert f"{DECIDED} with 2 updates: {REASON}" in text
    assert "{&quot;id&quot;:1,&quot;price&quot;:10}: -2" in text
    report = (docs / "collections" / "prices.html").read_text(encoding="utf-8")
    assert f"time 7 with 2 updates: {REASON}" in report and "<td>a test message</td>" in report
