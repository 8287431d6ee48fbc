"""The sensor for new offsets on a real instance: when it requests a tick, and for which collections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import DagsterInstance, DagsterRunStatus, RunConfig, build_sensor_context
from pyspark.sql import SparkSession

from assets.names import Names
from assets.options import RunOptions
from orchestration.jobs import TICK
from orchestration.location import build_location
from orchestration.run_once import run_tick_job
from orchestration.settings import Environment
from tests.lakes.commands import resolve
from tests.lakes.dagster_lakes import Lakes, RawLakes, materialized, metadata
from tests.lakes.lake import updates
from tests.services.kafka import Broker, Record
from tidelake.catalog.catalog import Catalog
from tidelake.read.words import counted
from tidelake.settings.lake import load_settings
from tidelake.store.decision import AcceptTopic
from tidelake.store.layout import Store


def evaluated(lakes: Lakes, instance: DagsterInstance, cursor: str | None = None) -> Any:
    location = build_location(Environment(config_file=lakes.config))
    new_offsets = location.get_repository_def().get_sensor_def("new_offsets")
    with build_sensor_context(instance=instance, cursor=cursor) as context:
        return new_offsets.evaluate_tick(context)


def still_unread(messages: int) -> str:
    """The sensor's words about messages that the requested tick has not read."""
    return (
        f"prices: {counted(messages, 'message')} still unread after the tick that was requested; waiting for the "
        "schedule or for new messages"
    )


@pytest.mark.services
@pytest.mark.spark
def test_new_offsets_start_one_tick_of_their_collection(
    spark: SparkSession, instance: DagsterInstance, lakes: Lakes, broker: Broker
) -> None:
    topic = broker.create_topic()
    document = yaml.safe_load(lakes.config.read_text(encoding="utf-8"))
    document["kafka"] = {"bootstrap_servers": broker.bootstrap_servers}
    document["collections"]["prices"] |= {"source": "kafka", "topic": topic}
    lakes.config.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert evaluated(lakes, instance).skip_message == "no topic has new messages"

    broker.produce(topic, [Record(updates((1, 1, 1)))])
    first = evaluated(lakes, instance)
    (request,) = first.run_requests or []
    keys = [Names(load_settings(lakes.config).lake).collection("prices")]
    assert request.asset_selection == keys
    # A tick is requested only once: the schedule repeats a run that fails or stops at a gap.
    assert evaluated(lakes, instance, first.cursor).skip_message == still_unread(1)

    job = build_location(Environment(config_file=lakes.config)).resolve_job_def(TICK)
    run = instance.create_run_for_job(job, status=DagsterRunStatus.STARTED)
    broker.produce(topic, [Record(updates((2, 1, 1)))])
    assert evaluated(lakes, instance, first.cursor).skip_message == f"run {run.run_id} is not finished"
    instance.report_run_failed(run, "over")
    second = evaluated(lakes, instance, first.cursor)
    assert len(second.run_requests or []) == 1

    result = job.execute_in_process(instance=instance, asset_selection=keys)
    assert result.success
    assert materialized(result) == {"prices"}
    assert len(result.get_asset_check_evaluations()) == 13
    assert evaluated(lakes, instance).skip_message == "no topic has new messages"


@pytest.mark.services
@pytest.mark.spark
@pytest.mark.sweep
def test_a_reclocked_topic_gets_one_tick_and_another_after_it_is_recreated_and_accepted(
    spark: SparkSession, instance: DagsterInstance, tmp_path: Path, broker: Broker
) -> None:
    lakes = RawLakes(tmp_path / "lakes", {"prices": "upsert", "visits": "append_only"})
    topic = broker.create_topic()
    lakes.document["kafka"] = {"bootstrap_servers": broker.bootstrap_servers}
    lakes.document["collections"]["prices"] |= {"source": "kafka", "topic": topic}
    lakes.write(lakes.document)
    job = build_location(Environment(config_file=lakes.config)).resolve_job_def(TICK)
    keys = [Names(load_settings(lakes.config).lake).collection("prices")]

    def tick_once(cursor: str | None) -> str | None:
        """Check that a tick is requested once for new offsets and reads them; return the cursor."""
        requested = evaluated(lakes, instance, cursor)
        assert [request.asset_selection for request in requested.run_requests or []] == [keys]
        assert evaluated(lakes, instance, requested.cursor).skip_message == still_unread(1)
        result = job.execute_in_process(instance=instance, asset_selection=keys)
        assert result.success
        assert metadata(result, "prices")["lag_messages"] == 0
        assert evaluated(lakes, instance).skip_message == "no topic has new messages"
        read: str | None = requested.cursor
        return read

    assert evaluated(lakes, instance).skip_message == "no topic has new messages"
    broker.produce(topic, [Record(b'{"id":1,"price":10}', b'{"id":1}')])
    cursor = tick_once(None)

    broker.delete_topic(topic)
    broker.create_topic(topic, partitions=2)
    broker.produce(topic, [Record(b'{"id":2,"price":20}', b'{"id":2}', 1)])
    assert evaluated(lakes, instance).run_requests, "messages at which ingest stopped are still unread"
    resolve(lakes, "topic", "--topic", topic, "--reason", "tested")
    tick_once(cursor)
    assert lakes.contents(spark, "prices", lakes.upper("prices") - 1) == {(1, 10): 1, (2, 20): 1}

    # If a topic was truncated, ingest continues at its end: there is nothing to read, and nothing to request.
    catalog = Catalog(Store(load_settings(lakes.config).store))
    catalog.decide("prices", AcceptTopic(topic=topic, starts={0: 0, 1: 1}, reason="tested"))
    assert evaluated(lakes, instance).skip_message == "no topic has new messages"


@pytest.mark.services
@pytest.mark.spark
@pytest.mark.sweep
def test_a_missing_topic_stops_its_collection_before_anything_is_written(
    spark: SparkSession, instance: DagsterInstance, lakes: Lakes, broker: Broker
) -> None:
    lakes.document["kafka"] = {"bootstrap_servers": broker.bootstrap_servers}
    lakes.document["collections"]["prices"] |= {"source": "kafka", "topic": "nowhere"}
    lakes.write(lakes.document)
    result = run_tick_job(lakes.config, instance)
    assert not result.success
    assert materialized(result) == {"visits"}
    assert [entry.name for entry in Catalog(Store(lakes.root / "store")).entries()] == ["visits"]
    text = "".join(str(event.event_specific_data) for event in result.all_events if event.is_failure)
    assert f"collections.prices.topic: Kafka at {broker.bootstrap_servers} has no topic 'nowhere'" in text


@pytest.mark.spark
@pytest.mark.sweep
def test_an_unreachable_topic_does_not_stop_the_ticks_of_other_collections(
    spark: SparkSession, instance: DagsterInstance, lakes: Lakes
) -> None:
    document = yaml.safe_load(lakes.config.read_text(encoding="utf-8"))
    document["kafka"] = {"bootstrap_servers": "127.0.0.1:1", "request_timeout_s": 1}
    document["collections"]["prices"] |= {"source": "kafka"}
    lakes.config.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert "cannot be read from 127.0.0.1:1" in (evaluated(lakes, instance).skip_message or "")
    lakes.send("visits", updates((1, 1, 1)))
    (request,) = evaluated(lakes, instance).run_requests or []
    names = Names(load_settings(lakes.config).lake)
    assert request.asset_selection == [names.collection("visits")]
    job = build_location(Environment(config_file=lakes.config)).resolve_job_def(TICK)
    result = job.execute_in_process(
        instance=instance,
        run_config=RunConfig(resources={names.options: RunOptions(retries=2, retry_wait_s=0.01)}),
        raise_on_error=False,
    )
    assert materialized(result) == {"visits"}
    retried = [event.step_key for event in result.all_events if event.is_step_restarted]
    assert retried == [f"{names.lake}__prices.ingest"] * 2  # brokers may be back in a moment
    assert [entry.name for entry in Catalog(Store(lakes.root / "store")).entries()] == ["visits"]
