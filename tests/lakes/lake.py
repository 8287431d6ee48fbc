"""A small lake for a test: one topic written by hand, one collection, the real jobs."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable, Mapping
from copy import copy
from pathlib import Path
from typing import Any

import fastavro
import yaml
from pyspark.sql import SparkSession

from jobs import compact, current, ingest, seal, validate
from jobs.ingest import IngestReport
from jobs.job import Report
from tests.lakes.places import copy_lake, store_settings
from tidelake.catalog.catalog import Catalog
from tidelake.compact.compaction import CompactReport
from tidelake.read.snapshot import snapshot
from tidelake.schema.avro import cdcv2_schema
from tidelake.seal.report import SealReport
from tidelake.settings.lake import Settings, load_settings
from tidelake.store.commit import OpenTable
from tidelake.store.decision import DecisionDocument
from tidelake.store.entry import Collection
from tidelake.store.layout import Store
from tidelake.validate.validation import ValidateReport

NAME = "prices"
RECORD: dict[str, Any] = {
    "type": "record",
    "name": "data",
    "fields": [{"name": "id", "type": "long"}, {"name": "price", "type": ["null", "int"]}],
}


def encode(value: Any, record: dict[str, Any] = RECORD) -> bytes:
    """The bytes of a message. Only the types of its fields are checked, so the message may be malformed."""
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(cdcv2_schema(record)), value)
    return buffer.getvalue()


def updates(*triples: tuple[Any, int, int]) -> bytes:
    """An update message; data is an id, or `(id, price)`."""
    batch = []
    for data, time, diff in triples:
        row, price = data if isinstance(data, tuple) else (data, None)
        batch.append({"data": {"id": row, "price": price}, "time": time, "diff": diff})
    return encode(batch)


def progress(lower: Iterable[int], upper: Iterable[int], counts: dict[int, int] | None = None) -> bytes:
    """A progress statement."""
    entries = [{"time": time, "count": count} for time, count in (counts or {}).items()]
    return encode({"lower": list(lower), "upper": list(upper), "counts": entries})


class Lake:
    """One collection on one topic with one partition, in its own folder; `tests.lakes.places` chooses the store.

    Args:
        root: the folder.
        spark: the session.
        family: the family of the collection.
        lake: settings of the lake, such as those of a store elsewhere.
        more: further settings of the collection.
    """

    def __init__(
        self,
        root: Path,
        spark: SparkSession,
        family: str = "plain",
        lake: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        self.root, self.spark = root, spark
        self.topic = root / "topics" / NAME
        self.topic.mkdir(parents=True, exist_ok=True)
        self.offset = 0
        block = {"family": family, "topic": NAME, "schema": RECORD, **more}
        self.document: dict[str, Any] = {"topics": "topics", "data_docs": "docs", **(lake or {})}
        self.document["collections"] = {NAME: block}
        self.has_own_store = "store" not in self.document
        self.file = root / "collections.yaml"
        self.settings: Settings = self.written()

    def written(self) -> Settings:
        """Write the file with the settings, and read it."""
        if self.has_own_store:
            self.document |= store_settings(self.root)
        self.file.write_text(yaml.safe_dump(self.document), encoding="utf-8")
        return load_settings(self.file)

    def copy(self, root: Path) -> Lake:
        """Copy this lake with all its files, and its store if it has its own, to another folder."""
        copy_lake(self.root, root)
        lake = copy(self)
        lake.document = dict(self.document)
        lake.root, lake.topic, lake.file = root, root / self.topic.relative_to(self.root), root / self.file.name
        lake.settings = lake.written()
        return lake

    @property
    def store_folder(self) -> Path:
        """The store, if it is a folder."""
        assert isinstance(self.settings.store, Path)
        return self.settings.store

    @property
    def data_docs(self) -> Path:
        """The folder of the report."""
        assert isinstance(self.settings.data_docs, Path)
        return self.settings.data_docs

    def send(self, *values: bytes | None, partition: int = 0, at: int | None = None) -> None:
        """Append messages to the topic."""
        start = self.offset if at is None else at
        with (self.topic / f"{partition}.jsonl").open("a", encoding="utf-8") as lines:
            for offset, value in enumerate(values, start=start):
                text = None if value is None else base64.b64encode(value).decode("ascii")
                lines.write(json.dumps({"offset": offset, "timestamp_ms": offset, "value_b64": text}) + "\n")
        self.offset = start + len(values)

    def ingest(self) -> IngestReport:
        """Run the ingest job, and raise its error if there is one."""
        result = self._result(ingest.run(self.spark, self.settings))
        assert isinstance(result, IngestReport)
        return result

    def seal(self) -> SealReport:
        """Run the seal job."""
        result = self._result(seal.run(self.spark, self.settings))
        assert isinstance(result, SealReport)
        return result

    def run(self) -> SealReport:
        """Ingest and seal."""
        self.ingest()
        return self.seal()

    def compact(self, full: bool = True) -> CompactReport:
        """Run the compaction job."""
        result = self._result(compact.run(self.spark, self.settings, full))
        assert isinstance(result, CompactReport)
        return result

    def validate(self, full: bool = False) -> ValidateReport:
        """Run the validation job. Damage raises no error; the report describes it."""
        result = validate.run(self.spark, self.settings, full).results[NAME]
        assert isinstance(result, ValidateReport)
        return result

    def current(self, rebuild: bool = False) -> Report:
        """Run the job that publishes `current`."""
        return current.run(self.spark, self.settings, rebuild)

    @property
    def catalog(self) -> Catalog:
        """The store's catalog."""
        return Catalog(Store(self.settings.store))

    @property
    def collection(self) -> Collection:
        """The collection as the catalog has it now."""
        return self.catalog.find(NAME)

    @property
    def table(self) -> OpenTable:
        """The updates table in its newest state."""
        return OpenTable(self.collection.paths.updates)

    def decide(self, reason: str = "tested", **what: Any) -> None:
        """Store a decision, given as the fields of its document, without the checks of `tidelake resolve`."""
        self.catalog.decide(NAME, DecisionDocument(reason=reason, at_ms=0, **what).decision())

    def contents(self, as_of: int) -> dict[Any, int]:
        """The contents AS OF a time: how many times each `(id, price)` occurs."""
        rows = snapshot(self.spark, self.collection, as_of).contents.collect()
        counts: dict[Any, int] = {}
        for row in rows:
            counts[row["id"], row["price"]] = counts.get((row["id"], row["price"]), 0) + row["_diff"]
        return counts

    def quarantined(self) -> list[tuple[int, str]]:
        """`(offset, reason)` of each quarantined message, in order."""
        from tidelake.store.quarantine import quarantine_rows

        return [(row["offset"], row["reason"]) for row in quarantine_rows(self.collection)]

    def _result(self, report: Report) -> Any:
        if NAME in report.errors:
            raise report.errors[NAME]
        return report.results[NAME]
