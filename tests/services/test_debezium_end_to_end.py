"""PostgreSQL → Debezium → Kafka → Tidelake: equal tables, row for row, under concurrent sessions and kills."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.captures.record import Services
from tests.captures.workload import Workload
from tests.crash.harness import Nursery
from tests.services.pipeline import Pipeline
from tests.sweeps import seeds, swept

pytestmark = [pytest.mark.services, pytest.mark.spark]

_SEEDS = {"nothing": 4, "forget": 0}
"""The histories with a fixed seed: what happens to the connector, mapped to the seed. With seed 4, a job is killed."""


def _work(made: Pipeline, seed: int, rounds: tuple[str, ...], sessions: int) -> None:
    rng, connect = Random(f"end to end {seed}"), made.source.services.connect
    with Workload(made.source.services.postgres, made.source.database, seed, sessions, pause_s=0.02):
        for what in rounds:
            job = made.start_job("ingest", *(["compact"] if rng.random() < 0.5 else []))
            time.sleep(rng.random() * 3)
            if what == "kill":
                connect.restart(kill=True)
                connect.wait_until_running(made.source.name)
            elif what == "forget":
                made.source.forget_offsets()
                time.sleep(rng.random())
                connect.resume(made.source.name)
            if rng.random() < 0.6:
                os.kill(job, signal.SIGKILL)
            assert made.nursery.wait(job) in (0, -9)
    made.check()


@pytest.mark.parametrize("what", swept(_SEEDS, ["nothing"]))
def test_tables_end_up_equal_to_the_database(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, services: Services, what: str
) -> None:
    with Pipeline(tmp_path, spark, nursery, services, f"fixed{what}") as made:
        _work(made, _SEEDS[what], (what,), sessions=3)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", seeds())
def test_tables_end_up_equal_to_the_database_whatever_is_killed(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, services: Services, seed: int
) -> None:
    with Pipeline(tmp_path, spark, nursery, services, f"seed{seed}") as made:
        rounds = Random(f"rounds {seed}").choices(("kill", "forget", "nothing"), k=3)
        _work(made, seed, tuple(rounds), sessions=5)
        made.run_job("compact", "validate")
        made.check_tables()
