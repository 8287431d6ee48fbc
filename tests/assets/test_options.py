"""The options of a run: which collections, how much is validated again, and how much is merged."""

from __future__ import annotations

from typing import Any

import pytest
from dagster import DagsterInstance, ExecuteInProcessResult, RunConfig
from pyspark.sql import SparkSession

from assets.names import Names
from assets.options import RunOptions
from orchestration.jobs import TICK
from orchestration.location import build_location
from orchestration.settings import Environment
from tests.lakes.dagster_lakes import HISTORY, Lakes, compacted, log_of, materialized
from tests.lakes.lake import progress, updates

NAMES = Names("lakes")
pytestmark = pytest.mark.spark


def tick(lakes: Lakes, instance: DagsterInstance, **options: Any) -> ExecuteInProcessResult:
    job = build_location(Environment(config_file=lakes.config)).resolve_job_def(TICK)
    config = RunConfig(resources={NAMES.options: RunOptions(**options)})
    return job.execute_in_process(instance=instance, run_config=config, raise_on_error=False)


def numbers(result: ExecuteInProcessResult, check: str) -> dict[str, Any]:
    (evaluation,) = (
        candidate
        for candidate in result.get_asset_check_evaluations()
        if (candidate.asset_key.path[1], candidate.check_name) == ("prices", check)
    )
    return {name: value.value for name, value in evaluation.metadata.items()}


@pytest.mark.sweep
def test_a_run_does_what_its_options_say(spark: SparkSession, instance: DagsterInstance, lakes: Lakes) -> None:
    for name in ("prices", "visits"):
        lakes.send(name, *HISTORY)
    first = tick(lakes, instance, collections=["prices"])
    assert first.success
    assert (materialized(first), compacted(first)) == ({"prices"}, set())  # nobody asked for a merge

    lakes.send("prices", updates(((5, 50), 7, 1)), progress([6], [9], {7: 1}))
    second = tick(lakes, instance, collections=["prices"], validate_from=2, compact_all=True)
    assert (second.success, compacted(second)) == (True, {"prices"})
    recounted = numbers(second, "announced_is_recounted")
    # A validation that recounts more than the new times names its numbers differently, so no plot of ticks jumps.
    assert (recounted["again_times"], recounted["again_recounted"], recounted["range"]) == (3, 3, "[2, 9)")
    assert not {"times", "recounted", "rows_compared", "validate_s"} & recounted.keys()
    third = tick(lakes, instance, collections=["prices"], validate_all=True)
    assert numbers(third, "announced_is_recounted")["all_times"] == 4
    assert numbers(tick(lakes, instance), "announced_is_recounted")["times"] == 0


@pytest.mark.sweep
def test_running_a_check_by_hand_merges_nothing(spark: SparkSession, instance: DagsterInstance, lakes: Lakes) -> None:
    lakes.send("prices", *HISTORY)
    assert tick(lakes, instance, collections=["prices"]).success
    defs = build_location(Environment(config_file=lakes.config))
    graph = defs.resolve_asset_graph()
    by_hand = defs.resolve_implicit_global_asset_job_def()
    for chosen in ({"topic_complete"}, {"announced_is_recounted", "frontier_moves"}):
        keys = {key for key in graph.asset_check_keys if key.asset_key.path[1] == "prices" and key.name in chosen}
        result = by_hand.get_subset(asset_check_selection=keys, asset_selection=set()).execute_in_process(
            instance=instance
        )
        evaluated = {evaluation.check_name: evaluation.passed for evaluation in result.get_asset_check_evaluations()}
        assert evaluated == dict.fromkeys(chosen, True)
        assert materialized(result) == set()


def test_the_log_of_a_run_shows_each_step(spark: SparkSession, instance: DagsterInstance, lakes: Lakes) -> None:
    lakes.send("prices", *HISTORY)
    result = tick(lakes, instance, collections=["prices"], compact=True)
    ingest = log_of(instance, result, "lakes__prices.ingest")
    assert "6 unread messages in prices" in ingest
    assert "ingested: tick=1, messages=6, updates=4, copies=2, quarantined=0, late=0" in ingest
    assert "sealed: lower=0, upper=6, times=3" in log_of(instance, result, "lakes__prices.seal")
    assert "validated: upper=6, times=3" in log_of(instance, result, "lakes__prices__validate")
    assert "compacted: since=[0]" in log_of(instance, result, "lakes__prices__compact")
    assert "not selected by the options of this run" in log_of(instance, result, "lakes__visits.ingest")


@pytest.mark.sweep
def test_a_run_adds_to_the_history_of_a_collection_and_of_its_topic(
    spark: SparkSession, instance: DagsterInstance, lakes: Lakes
) -> None:
    lakes.send("prices", *HISTORY)
    assert tick(lakes, instance, collections=["prices"]).success
    record = instance.fetch_observations(NAMES.topic("files", "prices"), limit=1).records[0]
    observation = record.event_log_entry.asset_observation
    assert observation is not None
    seen = {name: value.value for name, value in observation.metadata.items()}
    assert (seen["end_offsets_sum"], seen["lag_messages"], seen["lag_s"]) == (6, 0, 0.0)
    assert observation.data_version == "0:6"
