"""A collection in the positioned form, to which tests write as ticks do, and random histories for it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import yaml
from pyspark.sql import DataFrame, SparkSession

from tests.model.sources import COLUMNS, Ticks, random_source
from tidelake.catalog.catalog import Catalog
from tidelake.compact.compaction import merge_runs
from tidelake.model.positioned import PositionedStatement
from tidelake.protocol.antichain import Antichain
from tidelake.read.snapshot import snapshot
from tidelake.settings.lake import load_settings
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.layout import Store, new_run
from tidelake.store.runs import spark_schema, write_frame
from tidelake.store.state import HAS_BARRIERS, HAS_ERRORS, HAS_UNAVAILABLE, UPPER
from tidelake.store.table_schema import updates_schema

NAMES = [f"c{place}" for place in range(COLUMNS)]
RECORD: dict[str, Any] = {
    "type": "record",
    "name": "row",
    "fields": [{"name": name, "type": ["null", "string"]} for name in ("id", *NAMES)],
}
SCHEMA = updates_schema(RECORD, positioned=True)


def frame(spark: SparkSession, statements: Iterable[PositionedStatement]) -> DataFrame:
    """Statements as rows."""
    rows = [
        {
            "_time": statement.time,
            "_diff": statement.diff,
            "_position": list(statement.position),
            "_unavailable": [NAMES[place] for place in sorted(statement.unavailable)] or None,
            "_error": statement.error,
            "id": statement.key,
            **dict(zip(NAMES, statement.values, strict=False)),
        }
        for statement in statements
    ]
    return spark.createDataFrame(rows, schema=spark_schema(SCHEMA))


def random_statements(rng: Random) -> list[PositionedStatement]:
    """A random history, in the order in which ticks read it."""
    ticks, read = Ticks(rng, random_source(rng, rng.randint(1, 2), rng.randint(6, 14)), 40), []
    while not ticks.done:
        read += ticks.tick()
    return list(dict.fromkeys(read))


class Table:
    """A collection in the positioned form, to which the tests write as ticks do."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.spark = spark
        block = {"framing": "reclock", "envelope": "debezium", "topic": "people", "format": "json", "key": ["id"]}
        self.file = file = root / "collections.yaml"
        file.write_text(yaml.safe_dump({"collections": {"people": block | {"schema": RECORD}}}), encoding="utf-8")
        settings = load_settings(file)
        self.collection = Catalog(Store(settings.store)).open_or_create(settings.collection("people").spec())
        assert self.collection.updates_schema() == SCHEMA

    def tick(self, statements: list[PositionedStatement]) -> None:
        """Store the statements that one tick has read."""
        table = OpenTable(self.collection.paths.updates)
        files = write_frame(frame(self.spark, statements).coalesce(1), table.path, new_run("ingest", table.seq), SCHEMA)
        kinds = {
            HAS_BARRIERS: any(statement.diff == 0 for statement in statements),
            HAS_UNAVAILABLE: any(statement.unavailable for statement in statements),
            HAS_ERRORS: any(statement.error is not None for statement in statements),
        }
        upper = max(statement.time for statement in statements) + 1
        table.commit({UPPER: upper} | {name: 1 for name, holds in kinds.items() if holds}, files)

    def compact(self, since: int, full: bool) -> None:
        """Move `since` in the handles, and merge."""
        catalog = Catalog(self.collection.paths.store)
        entry = catalog.update("people", lambda old: old.model_copy(update={"since": (since,)}))
        assert entry.since_frontier == Antichain((since,))
        self.collection = Collection(entry, self.collection.paths)
        merge_runs(self.spark, self.collection, full, 10_000)

    def read(self, as_of: int) -> dict[Any, tuple[Any, ...]]:
        """The rows by key, without the keys in error."""
        rows = snapshot(self.spark, self.collection, as_of, skip_errors=True).contents.collect()
        assert all(row["_diff"] == 1 for row in rows)
        return {row["id"]: tuple(row[name] for name in NAMES) for row in rows}

    @property
    def rows(self) -> int:
        """How many rows are stored."""
        return sum(file.rows for file in OpenTable(self.collection.paths.updates).files())
