"""A collection on a captured topic that arrives in pieces."""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
import yaml
from pyspark.sql import SparkSession

from jobs import compact, ingest, validate
from tests.captures.workload import COLUMNS, RECORD
from tests.lakes.places import store_settings
from tidelake.catalog.catalog import Catalog
from tidelake.decode.sentinel import without_logical_types
from tidelake.read.snapshot import snapshot
from tidelake.schema.connect import declared_row
from tidelake.settings.lake import load_settings
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.layout import Store
from tidelake.store.state import UPPER

FOLDER = Path(__file__).parent
BANK_FOLDER = FOLDER.parents[1] / "examples" / "bank"


def moments(capture: str) -> list[dict[str, Any]]:
    """Where the topics of a capture ended at several moments, and what the tables held then."""
    return list(json.loads(gzip.decompress((folder_of(capture) / "moments.json.gz").read_bytes())))


def folder_of(capture: str) -> Path:
    """The folder of a capture; that of `bank` is among the examples."""
    return BANK_FOLDER if capture == "bank" else FOLDER / capture


def lines(capture: str, topic: str) -> dict[int, list[str]]:
    """The lines of a captured topic, by partition."""
    folder = folder_of(capture) / "topics" / topic
    return {
        int(path.name.partition(".")[0]): gzip.decompress(path.read_bytes()).decode().splitlines()
        for path in sorted(folder.glob("*.jsonl.gz"))
    }


EVENT: dict[str, Any] = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", RECORD]},
        {"name": "after", "type": ["null", "row"]},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [
                    {"name": "version", "type": "string"},
                    {"name": "connector", "type": "string"},
                    {"name": "ts_ms", "type": "long"},
                    {"name": "snapshot", "type": ["null", "string"]},
                    {"name": "sequence", "type": ["null", "string"]},
                    {"name": "lsn", "type": ["null", "long"]},
                ],
            },
        },
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ],
}
"""The schema that an Avro converter writes for change events of the workload's rows."""


def avro_lines(lines: list[str], header: bytes, event: Mapping[str, Any] = EVENT) -> list[str]:
    """The records of these lines in Avro, with a header before each body."""
    schema, row = fastavro.parse_schema(without_logical_types(event)), declared_row(event)
    encoded = []
    for line in map(json.loads, lines):
        value = line.pop("value")
        line |= {"key": None, "value_b64": None}
        if value is not None:
            value = value.get("payload", value)
            datum = value | {name: _with_bytes(value[name], row) for name in ("before", "after")}
            body = io.BytesIO()
            fastavro.schemaless_writer(body, schema, datum)
            line["value_b64"] = base64.b64encode(header + body.getvalue()).decode()
        encoded.append(json.dumps(line))
    return encoded


def _with_bytes(value: Any, kind: Any) -> Any:
    """A JSON value in the form that an Avro writer expects: bytes are decoded from base64."""
    if isinstance(kind, list):
        kind = next(branch for branch in kind if branch != "null")
    if value is None or isinstance(kind, str):
        return base64.b64decode(value) if value is not None and kind == "bytes" else value
    if kind["type"] == "record":
        return {field["name"]: _with_bytes(value[field["name"]], field["type"]) for field in kind["fields"]}
    if kind["type"] == "array":
        return [_with_bytes(item, kind["items"]) for item in value]
    return _with_bytes(value, kind["type"])


def change_collection(topic: str, record: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The settings for a collection of reclocked change events."""
    block = {"topic": topic, "framing": "reclock", "format": "json", "envelope": "debezium", "key": ["id"]}
    return {**block, "schema": dict(record), **more}


def shown_rows(spark: SparkSession, collection: Collection, as_of: int | None = None) -> list[list[Any]]:
    """The contents of a collection that holds the workload's rows, in the form of `workload.contents`."""
    frame = snapshot(spark, collection, as_of).contents
    shown = {"bin": "lower(hex(bin))", "price": "string(price)", "seen": "unix_micros(seen)", "day": "string(day)"}
    rows = frame.selectExpr(*(shown.get(name, f"`{name}`") for name in COLUMNS), "_diff").collect()
    assert all(row["_diff"] == 1 for row in rows)
    return sorted(list(row)[:-1] for row in rows)


class ChangeLake:
    """A collection of reclocked change events on its own file topic."""

    def __init__(self, root: Path, spark: SparkSession, topic: str, record: Mapping[str, Any], **more: Any) -> None:
        self.spark, self.topic = spark, root / "topics" / topic
        self.topic.mkdir(parents=True)
        document: dict[str, Any] = {"collections": {"table": change_collection(topic, record, **more)}}
        document |= {**store_settings(root), "topics": "topics", "data_docs": "docs"}
        self.file = root / "collections.yaml"
        self.file.write_text(yaml.safe_dump(document, allow_unicode=True), encoding="utf-8")
        self.settings = load_settings(self.file)
        self._pieces = 0

    def send(self, lines: Mapping[int, list[str]]) -> None:
        """Add lines to the topic."""
        for partition, more in lines.items():
            with (self.topic / f"{partition}.jsonl").open("a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in more)

    def ingest(self) -> Any:
        """Read the topic to its end and return the report."""
        report = ingest.run(self.spark, self.settings)
        if report.errors:
            raise next(iter(report.errors.values()))
        return report.results["table"]

    def compact(self) -> None:
        """Run a full compaction."""
        assert not compact.run(self.spark, self.settings, True).errors

    def validate(self) -> Any:
        """Run a full validation and return the report."""
        return validate.run(self.spark, self.settings, True).results["table"]

    @property
    def collection(self) -> Collection:
        """The collection, read from the catalog."""
        return Catalog(Store(self.settings.store)).find("table")

    @property
    def time(self) -> int:
        """The last time that can be read."""
        return (OpenTable(self.collection.paths.updates).value(UPPER) or 0) - 1

    def rows(self, as_of: int | None = None) -> list[list[Any]]:
        """The contents, in the form of `workload.contents`."""
        return shown_rows(self.spark, self.collection, as_of)


class CaptureLake(ChangeLake):
    """A collection on the topic of one captured table."""

    def __init__(self, root: Path, spark: SparkSession, capture: str, table: str, **more: Any) -> None:
        super().__init__(root, spark, f"{capture}.public.{table}", RECORD, **more)
        self._lines = lines(capture, f"{capture}.public.{table}")
        self._sent = dict.fromkeys(self._lines, 0)

    def send_to(self, offsets: Mapping[str, int]) -> None:
        """Add the lines before these offsets, except those that are already in the topic."""
        ends = {int(partition): end for partition, end in offsets.items()}
        self.send({partition: self._lines[partition][self._sent[partition] : end] for partition, end in ends.items()})
        self._sent |= ends
