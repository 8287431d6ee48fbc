"""The sensor observes topics without a run and without a JVM: ends, unread messages, and how long they have waited."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dagster import AssetObservation, DagsterInstance, DagsterRunStatus, SensorResult, build_sensor_context

from assets.names import Names
from orchestration.dead_runs import KILLED_TAG
from orchestration.jobs import OBSERVE, TICK
from orchestration.location import build_location
from orchestration.settings import Environment
from tests.lakes.dagster_lakes import Lakes

NAMES = Names("lakes")


def evaluated(lakes: Lakes, instance: DagsterInstance, cursor: str | None = None) -> SensorResult:
    location = build_location(Environment(config_file=lakes.config))
    sensor = location.get_repository_def().get_sensor_def("new_offsets")
    with build_sensor_context(instance=instance, cursor=cursor, definitions=location) as context:
        result = sensor(context)
    assert isinstance(result, SensorResult)
    return result


def observed(result: SensorResult) -> dict[str, dict[str, Any]]:
    events = [event for event in result.asset_events if isinstance(event, AssetObservation)]
    return {
        event.asset_key.to_user_string(): {name: value.value for name, value in event.metadata.items()}
        | {"version": event.data_version}
        for event in events
    }


def test_a_topic_that_changes_is_observed_with_its_ends_as_version(instance: DagsterInstance, lakes: Lakes) -> None:
    lakes.send("prices", b"1", b"2")
    first = evaluated(lakes, instance)
    seen = observed(first)
    assert set(seen) == {"lakes/topics/files/prices", "lakes/topics/files/visits"}
    assert seen["lakes/topics/files/prices"] == {
        "end_offsets_sum": 2,
        "lag_messages": 2,
        "lag_s": 0.0,
        "end_offsets": {"0": 2},
        "version": "0:2",
    }
    assert seen["lakes/topics/files/visits"]["lag_messages"] == 0
    again = evaluated(lakes, instance, first.cursor)
    assert observed(again) == {}
    lakes.send("visits", b"1")
    assert set(observed(evaluated(lakes, instance, again.cursor))) == {"lakes/topics/files/visits"}


def test_the_lag_in_seconds_is_how_long_messages_have_been_waiting(instance: DagsterInstance, lakes: Lakes) -> None:
    lakes.send("prices", b"1")
    cursor = json.loads(evaluated(lakes, instance).cursor or "")
    cursor["waiting_since"]["prices"] -= 400
    for seen in cursor["observed"].values():
        seen[2] -= 400  # long enough for an unchanged topic to be observed again
    later = observed(evaluated(lakes, instance, json.dumps(cursor)))
    assert set(later) == {"lakes/topics/files/prices"}
    assert 400 <= later["lakes/topics/files/prices"]["lag_s"] < 500


def test_topics_are_observed_while_a_run_is_unfinished(instance: DagsterInstance, lakes: Lakes) -> None:
    job = build_location(Environment(config_file=lakes.config)).resolve_job_def(TICK)
    run = instance.create_run_for_job(job, status=DagsterRunStatus.STARTED)
    lakes.send("prices", b"1")
    result = evaluated(lakes, instance)
    assert result.skip_reason is not None
    assert result.skip_reason.skip_message == f"run {run.run_id} is not finished"
    assert len(observed(result)) == 2


def test_messages_left_unread_by_a_run_are_still_reported(instance: DagsterInstance, lakes: Lakes) -> None:
    lakes.send("prices", b"1", b"2")
    first = evaluated(lakes, instance)
    assert [request.asset_selection for request in first.run_requests or []] == [[NAMES.collection("prices")]]
    job = build_location(Environment(config_file=lakes.config)).resolve_job_def(TICK)
    failed = instance.create_run_for_job(job, status=DagsterRunStatus.FAILURE)
    second = evaluated(lakes, instance, first.cursor)
    assert not second.run_requests
    assert second.skip_reason is not None
    assert "prices: 2 messages still unread after the tick" in str(second.skip_reason.skip_message)
    # A killed run proves nothing about its messages: another one is started.
    instance.add_run_tags(failed.run_id, {KILLED_TAG: "true"})
    assert len(evaluated(lakes, instance, second.cursor).run_requests or []) == 1


def test_a_cursor_of_an_earlier_version_is_understood(instance: DagsterInstance, lakes: Lakes) -> None:
    lakes.send("prices", b"1")
    assert not evaluated(lakes, instance, json.dumps({"prices": {"prices:0": 1}})).run_requests


def test_all_topics_are_observed_by_one_step_on_demand(instance: DagsterInstance, lakes: Lakes) -> None:
    lakes.send("prices", b"1")
    job = build_location(Environment(config_file=lakes.config)).resolve_job_def(OBSERVE)
    result = job.execute_in_process(instance=instance)
    assert len([event for event in result.all_events if event.is_step_start]) == 1
    for name, version in (("prices", "0:1"), ("visits", "")):
        record = instance.fetch_observations(NAMES.topic("files", name), limit=1).records[0]
        observation = record.event_log_entry.asset_observation
        assert observation is not None
        assert observation.data_version == version


@pytest.mark.parametrize("readers", [1, 2])
def test_a_topic_with_several_readers_is_one_asset_with_the_lag_of_the_slowest(
    instance: DagsterInstance, lakes: Lakes, readers: int
) -> None:
    if readers == 2:
        lakes.document["collections"]["visits"]["topic"] = "prices"
        lakes.write(lakes.document)
    lakes.send("prices", b"1")
    seen = observed(evaluated(lakes, instance))
    assert len(seen) == 3 - readers
    assert seen["lakes/topics/files/prices"]["lag_messages"] == 1
