"""The sensor for new offsets, on a real instance: when it asks for a tick, of what, and when it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from dagster import AssetKey, DagsterInstance, DagsterRunStatus, build_sensor_context
from dagster._core.definitions.sensor_definition import SensorExecutionData
from pyspark.sql import SparkSession

from orchestration.jobs import TICK
from orchestration.location import build_location
from orchestration.settings import Environment
from tests.delta.lake import updates
from tests.orchestration.lakes import Lakes, materialized
from tests.services.kafka import Broker, Record


def evaluated(lakes: Lakes, instance: DagsterInstance, cursor: str | None = None) -> SensorExecutionData:
    location = build_location(Environment(config_file=lakes.config))
    new_offsets = location.get_repository_def().get_sensor_def("new_offsets")
    with build_sensor_context(instance=instance, cursor=cursor) as context:
        return new_offsets.evaluate_tick(context)


@pytest.mark.services
@pytest.mark.spark
def test_new_offsets_start_a_tick_of_their_collection_once(
    spark: SparkSession, instance: DagsterInstance, lakes: Lakes, broker: Broker
) -> None:
    topic = broker.create_topic()
    document = yaml.safe_load(lakes.config.read_text(encoding="utf-8"))
    document["kafka"] = {"bootstrap_servers": broker.bootstrap_servers}
    document["collections"]["prices"] |= {"source": "kafka", "topic": topic}
    lakes.config.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert evaluated(lakes, instance).skip_message == "no topic has anything new"

    broker.produce(topic, [Record(updates((1, 1, 1)))])
    first = evaluated(lakes, instance)
    (request,) = first.run_requests or []
    keys = [AssetKey(["prices", verb]) for verb in ("ingest", "seal", "compact")]
    assert request.asset_selection == keys
    # Asked for once: a run that fails, or stops at a gap, is the schedule's to repeat.
    assert evaluated(lakes, instance, first.cursor).skip_message == "no topic has anything new"

    job = build_location(Environment(config_file=lakes.config)).resolve_job_def(TICK)
    run = instance.create_run_for_job(job, status=DagsterRunStatus.STARTED)
    broker.produce(topic, [Record(updates((2, 1, 1)))])
    assert evaluated(lakes, instance, first.cursor).skip_message == f"run {run.run_id} is not finished"
    instance.report_run_failed(run, "over")
    second = evaluated(lakes, instance, first.cursor)
    assert len(second.run_requests or []) == 1

    result = job.execute_in_process(instance=instance, asset_selection=keys)
    assert result.success
    assert materialized(result) == {"prices/ingest", "prices/seal", "prices/compact"}
    assert len(result.get_asset_check_evaluations()) == 10
    assert evaluated(lakes, instance).skip_message == "no topic has anything new"


def test_a_topic_that_cannot_be_asked_keeps_no_other_from_its_tick(
    instance: DagsterInstance, lakes: Lakes, tmp_path: Path
) -> None:
    document = yaml.safe_load(lakes.config.read_text(encoding="utf-8"))
    document["kafka"] = {"bootstrap_servers": "127.0.0.1:1", "request_timeout_s": 1}
    document["collections"]["prices"] |= {"source": "kafka"}
    lakes.config.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert "cannot be read from 127.0.0.1:1" in (evaluated(lakes, instance).skip_message or "")
    lakes.send("visits", updates((1, 1, 1)))
    (request,) = evaluated(lakes, instance).run_requests or []
    assert AssetKey(["visits", "ingest"]) in (request.asset_selection or [])
