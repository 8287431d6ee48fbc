"""Runs whose process is gone are marked as failed, so that new runs need not wait; all other runs are left alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, build_schedule_context

from orchestration.dead_runs import PROCESS_TAG, fail_dead_runs, mark_process
from orchestration.jobs import TICK
from orchestration.location import build_location
from orchestration.settings import Environment
from tests.lakes.dagster_lakes import Lakes


@pytest.fixture
def run(instance: DagsterInstance, lakes: Lakes) -> DagsterRun:
    """A run that has begun."""
    job = build_location(Environment(config_file=lakes.config)).resolve_job_def(TICK)
    return instance.create_run_for_job(job, status=DagsterRunStatus.STARTED)


def status_of(instance: DagsterInstance, run: DagsterRun) -> DagsterRunStatus:
    stored = instance.get_run_by_id(run.run_id)
    assert stored is not None
    return stored.status


def test_a_run_of_a_living_process_is_left_alone(instance: DagsterInstance, run: DagsterRun) -> None:
    mark_process(instance, run.run_id)
    assert fail_dead_runs(instance) == []
    assert status_of(instance, run) == DagsterRunStatus.STARTED


def test_a_run_whose_process_was_killed_is_marked_as_failed(instance: DagsterInstance, run: DagsterRun) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mark_process(instance, run.run_id, child.pid)
    assert fail_dead_runs(instance) == []
    child.kill()
    child.communicate()
    assert fail_dead_runs(instance) == [run.run_id]
    assert status_of(instance, run) == DagsterRunStatus.FAILURE
    assert fail_dead_runs(instance) == []


def test_a_later_process_with_the_same_pid_does_not_keep_a_run_alive(
    instance: DagsterInstance, run: DagsterRun
) -> None:
    instance.add_run_tags(run.run_id, {PROCESS_TAG: f"{socket.gethostname()} {os.getpid()} 1"})
    assert fail_dead_runs(instance) == [run.run_id]


def test_runs_of_other_hosts_and_runs_with_no_recorded_process_are_left_alone(
    instance: DagsterInstance, run: DagsterRun
) -> None:
    assert fail_dead_runs(instance) == []
    instance.add_run_tags(run.run_id, {PROCESS_TAG: "elsewhere 1 1"})
    assert fail_dead_runs(instance) == []


def test_a_schedule_does_not_start_a_run_while_its_last_run_is_unfinished(
    instance: DagsterInstance, run: DagsterRun, lakes: Lakes
) -> None:
    repository = build_location(Environment(config_file=lakes.config)).get_repository_def()
    schedule = repository.get_schedule_def(f"{TICK}_schedule")
    with build_schedule_context(instance=instance) as context:
        evaluated = schedule.evaluate_tick(context)
        assert evaluated.skip_message == f"run {run.run_id} is not finished"
        instance.report_run_failed(run, "over")
        assert len(schedule.evaluate_tick(context).run_requests or []) == 1
