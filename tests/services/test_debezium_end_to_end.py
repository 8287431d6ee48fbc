"""PostgreSQL → Debezium → Kafka → Tidelake, under concurrent sessions and kills: the tables end equal, row for row."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from tests.captures.lake import change_collection, shown_rows
from tests.captures.record import Capture, Services
from tests.captures.workload import RECORD, TABLES, Workload, contents, create_tables
from tests.crash.harness import Nursery, check_steps, said
from tests.services.connect import Connect, debezium_settings
from tests.services.kafka import Broker
from tests.services.postgres import Postgres
from tests.sweeps import seeds
from tidelake.configuration import load_settings
from tidelake.delta.catalog import Catalog
from tidelake.delta.layout import Store

pytestmark = [pytest.mark.services, pytest.mark.spark]


@pytest.fixture(scope="session")
def nursery(spark: SparkSession) -> Iterator[Nursery]:
    with Nursery(spark) as there:
        yield there


class Pipeline:
    """One database, its connector, and a collection for each of its tables."""

    def __init__(self, root: Path, spark: SparkSession, nursery: Nursery, services: Services, name: str) -> None:
        self.root, self.spark, self.nursery = root, spark, nursery
        postgres = services.postgres
        database = postgres.create_database()
        create_tables(postgres, database)
        with postgres.connect(database) as session:
            session.execute("create table marks (id serial primary key)")
        settings = debezium_settings(postgres, database, name, skipped_operations="none", slot_drop_on_stop="false")
        self.source = Capture(services, name, database, settings)
        collections = {
            table: change_collection(self.source.topic(table), RECORD, source="kafka", messages_per_tick_max=400)
            for table in TABLES
        }
        document = {"store": "store", "data_docs": "docs", "collections": collections}
        document["kafka"] = {"bootstrap_servers": services.broker.bootstrap_servers}
        self.file = root / "collections.yaml"
        self.file.write_text(yaml.safe_dump(document), encoding="utf-8")
        self.settings = load_settings(self.file)
        self.jobs = 0

    def start_job(self, *steps: str) -> int:
        """Run jobs in a process of their own, which may be killed."""
        self.jobs += 1
        return self.nursery.start({"config": str(self.file), "said": str(self._words(self.jobs)), "steps": steps})

    def run_job(self, *steps: str) -> None:
        """Run jobs to their end."""
        assert self.nursery.wait(self.start_job(*steps)) == 0
        check_steps(said(self._words(self.jobs)))

    def rows(self, table: str, as_of: int | None = None) -> list[list[Any]]:
        """What the table of a collection shows."""
        return shown_rows(self.spark, Catalog(Store(self.settings.store)).find(table), as_of)

    def held(self, table: str) -> list[list[Any]]:
        """What the database holds."""
        return sorted(contents(self.source.services.postgres, self.source.database, table))

    def check(self) -> None:
        """Catch up, and compare row for row."""
        self.source.catch_up()
        self.run_job("ingest")
        for table in TABLES:
            assert self.rows(table) == self.held(table), table

    def _words(self, job: int) -> Path:
        return self.root / f"job-{job}.jsonl"


@contextmanager
def pipeline(root: Path, spark: SparkSession, nursery: Nursery, services: Services, name: str) -> Iterator[Pipeline]:
    """A pipeline whose connector and database go again."""
    made = Pipeline(root, spark, nursery, services, name)
    made.source.start()
    made.source.catch_up()
    try:
        yield made
    finally:
        services.connect.remove(name)
        time.sleep(0.5)
        services.postgres.drop_database(made.source.database)


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


def test_tables_end_equal_to_the_database(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, broker: Broker, postgres: Postgres, connect: Connect
) -> None:
    services = Services(postgres, broker, connect)
    with pipeline(tmp_path, spark, nursery, services, "everyday") as made:
        _work(made, 0, ("forget",), sessions=3)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", seeds())
def test_tables_end_equal_to_the_database_whatever_is_killed(
    tmp_path: Path,
    spark: SparkSession,
    nursery: Nursery,
    broker: Broker,
    postgres: Postgres,
    connect: Connect,
    seed: int,
) -> None:
    services = Services(postgres, broker, connect)
    with pipeline(tmp_path, spark, nursery, services, f"seed{seed}") as made:
        rounds = Random(f"rounds {seed}").choices(("kill", "forget", "nothing"), k=3)
        _work(made, seed, tuple(rounds), sessions=5)
        made.run_job("compact", "validate")
        for table in TABLES:
            assert made.rows(table) == made.held(table), table
