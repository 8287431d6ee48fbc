"""Two tables of a bank, read with framing `transactions` from captured topics that arrive in pieces."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import SparkSession

from jobs import compact, ingest, seal, validate
from tests.captures.bank import BANK, RECORDS
from tests.captures.lake import lines, moments
from tests.lakes.places import store_settings
from tidelake.catalog.catalog import Catalog
from tidelake.read.snapshot import snapshot
from tidelake.settings.lake import load_settings
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.layout import Store
from tidelake.store.state import UPPER

CAPTURE = "bank"
MARKS = "shop.transaction"
TOPICS = (MARKS, *(f"shop.public.{table}" for table in BANK))
Lines = Mapping[str, Mapping[int, Sequence[str]]]
"""Lines by topic and partition."""


def captured() -> dict[str, dict[int, list[str]]]:
    """Return all lines of the capture."""
    return {topic: lines(CAPTURE, topic) for topic in TOPICS}


def times_of_marks() -> list[tuple[int, dict[str, list[list[Any]]]]]:
    """Return the commit position of each moment of the capture, and what the tables held then."""
    ends = {}
    for line in lines(CAPTURE, MARKS)[0]:
        value = json.loads(line)["value"]
        transaction, _, lsn = value["id"].partition(":")
        if value["status"] == "END":
            ends[transaction] = int(lsn)
    return [(ends[moment["transaction"]], moment["rows"]) for moment in moments(CAPTURE)]


def bank_collection(table: str, **more: Any) -> dict[str, Any]:
    """Return the settings of a table's collection."""
    block = {"topic": f"shop.public.{table}", "envelope": "debezium", "framing": "transactions", "format": "json"}
    return {**block, "transaction_topic": MARKS, "key": ["id"], "schema": RECORDS[table], **more}


class BankLake:
    """A collection for each table of the bank, on file topics."""

    def __init__(self, root: Path, spark: SparkSession, **more: Any) -> None:
        self.spark, self.topics = spark, root / "topics"
        for topic in TOPICS:
            (self.topics / topic).mkdir(parents=True)
        document: dict[str, Any] = {"collections": {table: bank_collection(table, **more) for table in BANK}}
        document |= {**store_settings(root), "topics": "topics", "data_docs": "docs"}
        self.file = root / "collections.yaml"
        self.file.write_text(yaml.safe_dump(document, allow_unicode=True), encoding="utf-8")
        self.settings = load_settings(self.file)

    def send(self, more: Lines) -> None:
        """Append lines to the topics."""
        for topic, partitions in more.items():
            for partition, some in partitions.items():
                with (self.topics / topic / f"{partition}.jsonl").open("a", encoding="utf-8") as file:
                    file.writelines(f"{line}\n" for line in some)

    def line(self, offset: int, value: dict[str, Any]) -> str:
        """Return the line of a message."""
        return json.dumps({"offset": offset, "key": {}, "value": value})

    def ingest(self) -> Any:
        """Read all topics to their ends, and return the report."""
        return ingest.run(self.spark, self.settings)

    def run(self) -> dict[str, Any]:
        """Ingest and seal, and return the seals' reports."""
        ingested = self.ingest()
        if ingested.errors:
            raise next(iter(ingested.errors.values()))
        sealed = seal.run(self.spark, self.settings)
        assert not sealed.errors, sealed.errors
        return dict(sealed.results)

    def seal(self) -> dict[str, Any]:
        """Seal, and return the seals' reports."""
        sealed = seal.run(self.spark, self.settings)
        assert not sealed.errors, sealed.errors
        return dict(sealed.results)

    def validate(self) -> dict[str, Any]:
        """Run a full validation of both tables."""
        return dict(validate.run(self.spark, self.settings, True).results)

    def compact(self) -> None:
        """Run a full compaction of both tables."""
        assert not compact.run(self.spark, self.settings, True).errors

    def collection(self, table: str) -> Collection:
        """Return a table's collection, read from the catalog."""
        return Catalog(Store(self.settings.store)).find(table)

    def upper(self, table: str) -> int:
        """Return the first unsealed time of a table."""
        return OpenTable(self.collection(table).paths.updates).value(UPPER) or 0

    def rows(self, table: str, as_of: int | None = None) -> list[list[Any]]:
        """Return the contents of a table."""
        rows = snapshot(self.spark, self.collection(table), as_of).contents.collect()
        assert all(row["_diff"] == 1 for row in rows)
        return sorted(list(row)[:-1] for row in rows)
