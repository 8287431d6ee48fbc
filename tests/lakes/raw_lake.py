"""A small lake with one reclocked collection: topics written by hand, and the real jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from jobs.job import to_json
from tests.lakes.lake import NAME, Lake
from tidelake.protocol.binding import Binding
from tidelake.read.snapshot import snapshot
from tidelake.store.bindings import read_bindings

VISIT = {
    "type": "record",
    "name": "visit",
    "fields": [{"name": "id", "type": "long"}, {"name": "page", "type": ["null", "string"]}],
}


class RawLake(Lake):
    """A reclocked collection in its own folder; the topic has the same name unless `more` names others."""

    def __init__(self, root: Path, spark: SparkSession, **more: Any) -> None:
        self.root, self.spark = root, spark
        block = {"framing": "reclock", "envelope": "append_only", "format": "json", "topic": NAME, "schema": VISIT}
        block |= more
        self.ends: dict[tuple[str, int], int] = {}
        for topic in [block["topic"]] if isinstance(block["topic"], str) else block["topic"]:
            (root / "topics" / topic).mkdir(parents=True, exist_ok=True)
        self.topic = root / "topics" / NAME
        self.file = root / "collections.yaml"
        self.document: dict[str, Any] = {"topics": "topics", "data_docs": "docs", "collections": {NAME: block}}
        self.has_own_store = True
        self.configure()

    def configure(self, **more: Any) -> None:
        """Change settings of the collection."""
        self.document["collections"][NAME] |= more
        self.settings = self.written()

    def put(self, *records: Any, partition: int = 0, topic: str = NAME) -> None:
        """Append records to a partition: values, or mappings with `value`, `key`, `headers`, `value_b64`, …."""
        start = self.ends.get((topic, partition), 0)
        with (self.root / "topics" / topic / f"{partition}.jsonl").open("a", encoding="utf-8") as lines:
            for offset, record in enumerate(records, start=start):
                whole = isinstance(record, dict) and set(record) & {"value", "value_b64", "key"}
                fields = record if whole else {"value": record}
                lines.write(json.dumps({"offset": offset, "timestamp_ms": 1000 + offset, **fields}) + "\n")
        self.ends[topic, partition] = start + len(records)

    @property
    def times(self) -> list[Binding]:
        """The bindings that are valid now, oldest first."""
        return read_bindings(self.collection, self.table)

    def rows(self, as_of: int | None = None, **more: Any) -> list[dict[str, Any]]:
        """The contents AS OF a time, sorted."""
        rows = snapshot(self.spark, self.collection, as_of, **more).contents.collect()
        return sorted(
            (row.asDict(recursive=True) for row in rows), key=lambda row: json.dumps(to_json(row), default=str)
        )
