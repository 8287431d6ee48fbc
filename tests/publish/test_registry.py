"""Columns that are added while a collection is published, with a real registry that demands compatible schemas."""

from __future__ import annotations

import json
import secrets
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.publish import Asked, publish_collection
from tests.lakes.lake import NAME, Lake
from tests.lakes.raw_lake import RawLake
from tests.lakes.round_trip import check_equal, published_of
from tests.lakes.upserts import item
from tests.publish.histories import add_column, growing_lake
from tests.services.registry import Registry
from tidelake.publish.target import SCHEMA_FILE
from tidelake.schema.avro import cdcv2_schema
from tidelake.store.quarantine import quarantine_rows

pytestmark = [pytest.mark.services, pytest.mark.spark]


def demand(registry: Registry, subject: str, compatibility: str) -> None:
    """Make the registry refuse schemas of a subject that are not compatible with the earlier ones."""
    request = urllib.request.Request(
        f"{registry.url}/config/{subject}",
        method="PUT",
        data=json.dumps({"compatibility": compatibility}).encode(),
        headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urllib.request.urlopen(request, timeout=60):
        pass


def reader(root: Path, spark: SparkSession, lake: RawLake, topic: str, schema: dict[str, Any]) -> Lake:
    """A lake that reads a published folder, with the schemas of the registry."""
    places = {"topics": str(lake.root / "out"), "registry": lake.document["registry"]}
    other = Lake(root, spark, lake=places, topic=topic, schema=schema, encoding="confluent")
    other.run()
    return other


def test_a_new_column_reaches_readers_that_have_it_and_stops_those_that_do_not(
    tmp_path: Path, spark: SparkSession, registry: Registry
) -> None:
    lake, topic = growing_lake(tmp_path / "one", spark), f"grown_{secrets.token_hex(4)}"
    lake.document["registry"] = {"url": registry.url, "cache": "cache"}
    lake.settings = lake.written()
    asked = Asked(str(lake.root / "out" / topic), confluent=True)
    lake.put(item(1, 10), item(2, 20))
    lake.run()
    publish_collection(spark, lake.settings, NAME, asked)
    demand(registry, f"{topic}-value", "FULL_TRANSITIVE")
    published = published_of(lake).record_schema
    required = published | {"fields": [*published["fields"], {"name": "more", "type": "long"}]}
    with pytest.raises(urllib.error.HTTPError, match="409"):
        registry.register(f"{topic}-value", cdcv2_schema(required))
    schema_file = lake.root / "out" / topic / SCHEMA_FILE
    old = json.loads(schema_file.read_text())
    assert old == cdcv2_schema(published_of(lake).record_schema)
    add_column(lake)
    lake.put({"key": {"id": 1}, "value": {"id": 1, "price": 10, "note": "x"}})
    lake.run()
    # The options of later calls need not repeat the encoding.
    report = publish_collection(spark, lake.settings, NAME, Asked(asked.to))
    first, last = published_of(lake).versions
    assert report.columns_from == {"note": last.starts_at}
    assert json.loads(schema_file.read_text()) == cdcv2_schema(last.record_schema) != old
    grown = reader(tmp_path / "grown", spark, lake, topic, last.record_schema)
    assert grown.quarantined() == []
    assert grown.table.value("upper") == report.frontier
    check_equal(lake, grown, range(last.starts_at - 1, last.starts_at))
    check_equal(lake, grown, range(report.frontier - 1, report.frontier))
    narrow = reader(tmp_path / "narrow", spark, lake, topic, first.record_schema)
    assert narrow.table.value("upper") == last.starts_at
    assert narrow.contents(last.starts_at - 1) == {(1, 10): 1, (2, 20): 1}
    refused = list(quarantine_rows(narrow.collection))
    assert {row["reason"] for row in refused} == {"schema_not_resolved"}
    assert all("the collection has no column 'note'" in row["detail"] for row in refused)
