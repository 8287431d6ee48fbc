"""Several collections on topics written by hand, and the results that a run over them has recorded."""

from __future__ import annotations

import base64
import json
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from dagster import DagsterInstance, ExecuteInProcessResult
from pyspark.sql import SparkSession

from expectations.checks import MERGES_KEEP_CONTENTS
from tests.lakes.lake import RECORD, progress, updates
from tests.lakes.places import store_settings
from tidelake.catalog.catalog import Catalog
from tidelake.read.snapshot import snapshot
from tidelake.settings.lake import load_settings
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.layout import Store
from tidelake.store.state import UPPER

HISTORY = (
    updates(((1, 10), 1, 1), ((2, 20), 1, 1)),
    updates(((1, 10), 1, 1), ((3, 30), 2, 1)),
    updates(((4, 40), 4, 2)),
    updates(((4, 40), 4, 2)),
    progress([0], [3], {1: 2, 2: 1}),
    progress([2], [6], {2: 1, 4: 1}),
)
"""Four distinct updates before time 6, two of them with a copy."""


class Lakes:
    """A `collections.yaml` with its topics; `tests.lakes.places` chooses the store."""

    def __init__(self, root: Path, families: dict[str, str], **more: Any) -> None:
        self.root = root
        self.offsets: Counter[str] = Counter()
        blocks = {
            name: {"family": family, "topic": name, "schema": RECORD, **more} for name, family in families.items()
        }
        for name in families:
            (root / "topics" / name).mkdir(parents=True)
        self.config = root / "collections.yaml"
        self.write({**store_settings(root), "topics": "topics", "data_docs": "docs", "collections": blocks})

    def write(self, document: dict[str, Any]) -> None:
        """Write `collections.yaml`."""
        self.document = document
        self.config.write_text(yaml.safe_dump(document), encoding="utf-8")

    def send(self, name: str, *values: bytes | None, skip: int = 0) -> None:
        """Append messages to a topic, with `skip` offsets missing before them."""
        self.offsets[name] += skip
        with (self.root / "topics" / name / "0.jsonl").open("a", encoding="utf-8") as lines:
            for value in values:
                text = None if value is None else base64.b64encode(value).decode("ascii")
                lines.write(json.dumps({"offset": self.offsets[name], "timestamp_ms": 0, "value_b64": text}) + "\n")
                self.offsets[name] += 1

    def collection(self, name: str) -> Collection:
        """A collection as the catalog has it now."""
        return Catalog(Store(load_settings(self.config).store)).find(name)

    def upper(self, name: str) -> int:
        """The `upper` of a collection."""
        return OpenTable(self.collection(name).paths.updates).value(UPPER) or 0

    def contents(self, spark: SparkSession, name: str, as_of: int) -> dict[Any, int]:
        """The contents AS OF a time: how many times each `(id, price)` occurs."""
        rows = snapshot(spark, self.collection(name), as_of).contents.collect()
        return {(row["id"], row["price"]): row["_diff"] for row in rows}


def metadata(result: ExecuteInProcessResult, *key: str) -> dict[str, Any]:
    """The metadata of an asset's materialization in a run, as plain values; `key` omits the lake's name."""
    (event,) = [
        candidate
        for candidate in result.get_asset_materialization_events()
        if candidate.asset_key and candidate.asset_key.path[1:] == [*key]
    ]
    return {name: getattr(value, "value", value) for name, value in event.materialization.metadata.items()}


def materialized(result: ExecuteInProcessResult) -> set[str]:
    """The assets that a run materialized, without the name of the lake: `name`, or `name/current`."""
    keys = [event.asset_key for event in result.get_asset_materialization_events()]
    return {"/".join(key.path[1:]) for key in keys if key is not None}


def compacted(result: ExecuteInProcessResult) -> set[str]:
    """The collections that a run compacted."""
    return {
        evaluation.asset_key.path[1]
        for evaluation in result.get_asset_check_evaluations()
        if evaluation.check_name == MERGES_KEEP_CONTENTS
    }


def failed_checks(result: ExecuteInProcessResult) -> dict[str, str]:
    """The checks of a run that did not pass, as `name/check`, with their severity."""
    return {
        f"{evaluation.asset_key.path[1]}/{evaluation.check_name}": evaluation.severity.value
        for evaluation in result.get_asset_check_evaluations()
        if not evaluation.passed
    }


def log_of(instance: DagsterInstance, result: ExecuteInProcessResult, step: str = "") -> str:
    """The messages that a run, or a step of it, has logged."""
    entries = instance.all_logs(result.run_id)
    return "\n".join(entry.user_message for entry in entries if step in (entry.step_key or ""))


class RawLakes(Lakes):
    """Reclocked collections in JSON, each on its own topic."""

    def __init__(self, root: Path, families: dict[str, str]) -> None:
        super().__init__(root, families, framing="reclock", format="json")
        document = json.loads(json.dumps(self.document))
        for block in document["collections"].values():
            if block["family"] in ("upsert", "debezium"):
                block["key"] = "id"
        self.write(document)

    def put(self, name: str, *records: dict[str, Any]) -> None:
        """Append records to a topic."""
        with (self.root / "topics" / name / "0.jsonl").open("a", encoding="utf-8") as lines:
            for record in records:
                lines.write(json.dumps({"offset": self.offsets[name]} | record) + "\n")
                self.offsets[name] += 1
