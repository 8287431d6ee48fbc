"""PostgreSQL → Debezium → Kafka → Tidelake for a test: a database, its connector, and jobs that can be killed."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from pyspark.sql import SparkSession

from tests.captures.lake import change_collection, shown_rows
from tests.captures.record import Capture, Services
from tests.captures.workload import RECORD, TABLES, contents, create_tables
from tests.crash.harness import Nursery, check_steps, said
from tests.services.connect import debezium_settings
from tidelake.catalog.catalog import Catalog
from tidelake.settings.lake import load_settings
from tidelake.store.layout import Store


class Pipeline:
    """A database, its connector, and a collection for each table; the first two are removed after the `with` block."""

    def __init__(
        self,
        root: Path,
        spark: SparkSession,
        nursery: Nursery,
        services: Services,
        name: str,
        messages_per_tick_max: int = 400,
        compiled: bool = False,
    ) -> None:
        self.root, self.spark, self.nursery, self.compiled = root, spark, nursery, compiled
        postgres = services.postgres
        database = postgres.create_database()
        create_tables(postgres, database)
        with postgres.connect(database) as session:
            session.execute("create table marks (id serial primary key)")
        settings = debezium_settings(postgres, database, name, skipped_operations="none", slot_drop_on_stop="false")
        collections = {
            table: change_collection(
                f"{name}.public.{table}", RECORD, source="kafka", messages_per_tick_max=messages_per_tick_max
            )
            for table in TABLES
        }
        self.configure(Capture(services, name, database, settings), collections)

    def configure(self, source: Capture, collections: dict[str, Any]) -> None:
        """Write the settings of collections that read the topics of a connector."""
        self.source, self.jobs = source, 0
        document: dict[str, Any] = {"store": "store", "data_docs": "docs", "collections": collections}
        document["kafka"] = {"bootstrap_servers": source.services.broker.bootstrap_servers}
        self.file = self.root / "collections.yaml"
        self.file.write_text(yaml.safe_dump(document), encoding="utf-8")
        self.settings = load_settings(self.file)

    def __enter__(self) -> Self:
        """Start the connector, and wait until it has sent the database's contents."""
        self.source.start()
        self.source.catch_up()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        services = self.source.services
        services.connect.remove(self.source.name)
        time.sleep(0.5)
        services.postgres.drop_database(self.source.database)

    def start_job(self, *steps: str) -> int:
        """Start jobs in a process of their own, which a test can kill."""
        self.jobs += 1
        order = {"config": str(self.file), "said": str(self._words(self.jobs)), "compiled": self.compiled}
        return self.nursery.start({**order, "steps": steps})

    def run_job(self, *steps: str) -> None:
        """Run jobs, and wait until they have ended."""
        assert self.nursery.wait(self.start_job(*steps)) == 0
        check_steps(said(self._words(self.jobs)))

    def rows(self, table: str, as_of: int | None = None) -> list[list[Any]]:
        """The contents of a table's collection."""
        return shown_rows(self.spark, Catalog(Store(self.settings.store)).find(table), as_of)

    def held(self, table: str) -> list[list[Any]]:
        """The contents of a table in the database."""
        return sorted(contents(self.source.services.postgres, self.source.database, table))

    def check(self) -> None:
        """Catch up, and compare all tables row for row."""
        self.source.catch_up()
        self.run_job("ingest")
        self.check_tables()

    def check_tables(self) -> None:
        """Compare the tables with the database."""
        for table in TABLES:
            assert self.rows(table) == self.held(table), table

    def _words(self, job: int) -> Path:
        return self.root / f"job-{job}.jsonl"
