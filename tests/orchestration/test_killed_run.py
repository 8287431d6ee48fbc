"""A run that is killed and started again gives the same tables as a run that was not killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from dagster import DagsterInstance, DagsterRunStatus
from pyspark.sql import SparkSession

from orchestration.dead_runs import fail_dead_runs
from orchestration.run_once import run_tick_job
from orchestration.settings import PROJECT
from tests.lakes.dagster_lakes import HISTORY, Lakes, failed_checks
from tidelake.store.commit import OpenTable
from tidelake.store.table_log import check_log

pytestmark = pytest.mark.spark


@pytest.mark.sweep  # the jobs themselves are killed in tests/crash
@pytest.mark.parametrize("stop", ["ingest.after_progress", "seal.after_proofs"])
def test_a_killed_run_that_is_started_again_ends_with_the_same_table(
    tmp_path: Path, spark: SparkSession, instance: DagsterInstance, stop: str
) -> None:
    killed, whole = (Lakes(tmp_path / name, {"prices": "plain"}) for name in ("killed", "whole"))
    for lake in (killed, whole):
        lake.send("prices", *HISTORY)
    home = str(tmp_path / "home")
    command = [sys.executable, "-m", "tests.orchestration.killed_run", str(killed.config), home, stop]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
    (dead,) = instance.get_runs()
    assert dead.status == DagsterRunStatus.STARTED
    assert fail_dead_runs(instance) == [dead.run_id]
    assert killed.upper("prices") == 0

    for lake in (killed, whole):
        result = run_tick_job(lake.config, instance)
        assert result.success
        assert failed_checks(result) == {}
    assert killed.upper("prices") == whole.upper("prices") == 6
    for as_of in range(6):
        assert killed.contents(spark, "prices", as_of) == whole.contents(spark, "prices", as_of)
    rows = [
        sum(file.rows for file in OpenTable(lakes.collection("prices").paths.updates).files())
        for lakes in (killed, whole)
    ]
    assert rows[0] == rows[1] == 4
    check_log(killed.collection("prices").paths.updates)
