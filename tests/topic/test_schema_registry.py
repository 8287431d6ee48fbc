"""A real registry is asked for unknown schema ids; schemas are resolved by column, and refused ids are reported."""

from __future__ import annotations

import io
import json
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
import yaml
from pyspark.sql import SparkSession

from tests.lakes.lake import NAME, RECORD, Lake, encode, progress, updates
from tests.lakes.raw_lake import RawLake
from tests.services.registry import Registry
from tidelake.catalog.catalog import Catalog
from tidelake.decode.writers import SourceSchemas
from tidelake.errors import ConfigurationError, RegistryUnreachable
from tidelake.ingest.source_schemas import resolve_records
from tidelake.schema.avro import cdcv2_schema
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.lake import load_settings
from tidelake.settings.reclock import ReclockSettings
from tidelake.settings.registry import RegistrySettings
from tidelake.store.layout import Store
from tidelake.store.quarantine import quarantine_rows
from tidelake.topic.schema_registry import SchemaRegistry

pytestmark = pytest.mark.services


def record(*fields: tuple[str, Any], name: str = "visit", **defaults: Any) -> dict[str, Any]:
    columns = [
        {"name": column, "type": kind} | ({"default": defaults[column]} if column in defaults else {})
        for column, kind in fields
    ]
    return {"type": "record", "name": name, "namespace": "shop", "fields": columns}


TEXT = ["null", "string"]
COLUMNS = record(("id", "long"), ("page", TEXT), ("seconds", "double"), seconds=0.5)


def framed(schema_id: int, schema: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), row)
    return {"value_b64": b64encode(b"\x00" + schema_id.to_bytes(4, "big") + buffer.getvalue()).decode("ascii")}


class RegistryLake(RawLake):
    """A reclocked collection whose schema ids are looked up."""

    def __init__(self, root: Path, spark: SparkSession, registry: Registry) -> None:
        super().__init__(root, spark, format="avro", schema=COLUMNS)
        self.document["registry"] = {"url": registry.url, "cache": "cache"}
        self.configure(encoding="confluent", subject="record")


@pytest.mark.spark
def test_each_record_is_read_with_its_writers_schema_or_refused_with_a_reason(
    tmp_path: Path, spark: SparkSession, registry: Registry
) -> None:
    lake = RegistryLake(tmp_path, spark, registry)
    narrow = record(("seconds", "int"), ("id", "int"))
    wide = record(("id", "long"), ("page", TEXT), ("seconds", "double"), ("referrer", TEXT))
    lake.put(framed(10**6, COLUMNS, {"id": 0, "page": None, "seconds": 0.0}))
    assert lake.ingest().reasons == {"unknown_schema_id": 1}  # the subject does not exist yet
    first, second, third = (registry.register("shop.visit", schema) for schema in (COLUMNS, narrow, wide))
    other = registry.register("shop.other", record(("id", "long"), name="other"))
    in_header = framed(first, COLUMNS, {"id": 9, "page": None, "seconds": 0.0})
    lake.put(
        framed(first, COLUMNS, {"id": 1, "page": "a", "seconds": 1.5}),
        framed(second, narrow, {"seconds": 7, "id": 2}),
        framed(third, wide, {"id": 3, "page": "c", "seconds": 0.0, "referrer": "d"}),
        framed(other, record(("id", "long")), {"id": 4}),
        {**in_header, "headers": [{"key": "__value_schema_id", "value": "x"}]},
        {"value_b64": b64encode(b"\x01" + bytes(16)).decode("ascii")},
    )
    lake.ingest()
    assert lake.rows() == [
        {"id": 1, "page": "a", "seconds": 1.5, "_diff": 1},
        {"id": 2, "page": None, "seconds": 7.0, "_diff": 1},
    ]
    refused = [(row["offset"], row["reason"], row["detail"]) for row in quarantine_rows(lake.collection)][1:]
    assert [(offset, reason) for offset, reason, _ in refused] == [
        (3, "schema_not_resolved"),
        (4, "unknown_schema_id"),
        (5, "schema_id_in_header"),
        (6, "wrong_magic_byte"),
    ]
    assert "'referrer'" in refused[0][2] and f"schema id {third}" in refused[0][2]
    assert refused[1][2] == f"schema id {other}"

    fourth = registry.register("shop.visit", without := record(("id", "long"), ("page", "string")))
    lake.put(framed(fourth, without, {"id": 5, "page": "e"}))
    lake.document["registry"] = {"url": "http://127.0.0.1:1", "cache": "cache"}
    lake.configure()
    with pytest.raises(RegistryUnreachable, match=r"127\.0\.0\.1:1 cannot be queried: .*refused"):
        lake.ingest()
    lake.document["registry"] = {"url": registry.url, "cache": "cache"}
    lake.configure()
    lake.ingest()
    assert {"id": 5, "page": "e", "seconds": 0.5, "_diff": 1} in lake.rows()
    lake.configure(evolution="additive")
    lake.put(framed(third, wide, {"id": 6, "page": None, "seconds": 0.0, "referrer": "d"}))
    lake.ingest()
    assert [(row["id"], row["referrer"]) for row in lake.rows()] == [(1, None), (2, None), (5, None), (6, "d")]


@pytest.mark.spark
def test_messages_of_the_protocol_are_read_with_the_schemas_that_a_registry_has(
    tmp_path: Path, spark: SparkSession, registry: Registry
) -> None:
    lake = Lake(tmp_path, spark)
    document = yaml.safe_load(lake.file.read_text(encoding="utf-8"))
    document["registry"] = {"url": registry.url, "cache": "cache"}
    document["collections"][NAME]["encoding"] = "confluent"
    lake.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    lake.settings = load_settings(lake.file)
    backwards = RECORD | {"fields": RECORD["fields"][::-1]}
    other = RECORD | {"fields": [RECORD["fields"][0], {"name": "price", "type": ["null", "long"]}]}
    ids = [registry.register(f"{NAME}-value", cdcv2_schema(schema)) for schema in (RECORD, backwards, other)]
    header, backwards_header, other_header = (b"\x00" + schema_id.to_bytes(4, "big") for schema_id in ids)
    update = encode([{"data": {"id": 2, "price": 5}, "time": 1, "diff": 1}], backwards)
    lake.send(
        header + updates((1, 1, 1)),
        backwards_header + update,
        other_header + updates((3, 1, 1)),
        header + progress([0], [5], {1: 2}),
    )
    line = {"offset": 4, "value_b64": b64encode(header + updates((4, 1, 1))).decode()}
    with (lake.topic / "0.jsonl").open("a", encoding="utf-8") as lines:
        lines.write(json.dumps({**line, "headers": [{"key": "__value_schema_id", "value": "x"}]}) + "\n")
    assert lake.run().upper == 5
    assert lake.contents(1) == {(1, None): 1, (2, 5): 1}
    assert lake.quarantined() == [(2, "schema_not_resolved"), (4, "schema_id_in_header")]
    (first, _) = quarantine_rows(lake.collection)
    assert f"schema id {ids[2]}" in first["detail"] and "the column 'price' is long or null" in first["detail"]


def settings_of(folder: Path, registry: Registry, **more: Any) -> CollectionSettings:
    block = {"framing": "reclock", "format": "avro", "encoding": "confluent", "schema": COLUMNS, **more}
    document = {"registry": {"url": registry.url, "cache": "cache"}, "collections": {NAME: block}}
    file = folder / "collections.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return load_settings(file).collection(NAME)


def resolved(folder: Path, settings: CollectionSettings) -> SourceSchemas:
    assert isinstance(settings, ReclockSettings)
    spec = replace(settings.spec(), name=f"visits_{settings.envelope}")
    entry = Catalog(Store(folder / "store")).open_or_create(spec).entry
    return resolve_records(settings, entry, messages=lambda: pytest.fail("no message should be searched for a schema"))


def test_every_topic_has_its_own_subjects_for_keys_and_for_values(tmp_path: Path, registry: Registry) -> None:
    key = record(("id", "long"), name="key")
    ids = {
        subject: registry.register(subject, key if subject.endswith("-key") else COLUMNS | {"doc": subject})
        for subject in ("eu-key", "eu-value", "us-value", "de-value")
    }
    upserts = {"envelope": "upsert", "key": "id", "topic": ["eu", "us"]}
    schemas = resolved(tmp_path, settings_of(tmp_path, registry, **upserts))
    assert schemas.keys is not None
    assert set(schemas.values.writers.by_id or ()) == {ids["eu-value"], ids["us-value"]}
    assert set(schemas.keys.writers.by_id or ()) == {ids["eu-key"]}
    by_topic_and_record = settings_of(tmp_path, registry, envelope="append_only", topic="de", subject="topic_record")
    assert resolved(tmp_path, by_topic_and_record).values.writers.by_id == {}
    registered = registry.register("de-shop.visit", COLUMNS | {"doc": "both"})
    assert set(resolved(tmp_path, by_topic_and_record).values.writers.by_id or ()) == {registered}


def test_a_subject_is_looked_up_again_and_fetched_schemas_stay_on_disk(tmp_path: Path, registry: Registry) -> None:
    client = SchemaRegistry(RegistrySettings(url=registry.url, cache=tmp_path))
    assert client.schemas_of("nothing-value") == {}
    first = registry.register("kept-value", COLUMNS | {"doc": "kept 1"})
    assert set(client.schemas_of("kept-value")) == {first}
    second = registry.register("kept-value", COLUMNS | {"doc": "kept 2"})
    assert set(client.schemas_of("kept-value")) == {first, second}
    (first_file, second_file) = sorted(tmp_path.glob("*/*.json"))
    document = json.loads(first_file.read_text(encoding="utf-8"))
    document["schema"]["doc"] = "from the cache"
    first_file.write_text(json.dumps(document), encoding="utf-8")
    later = SchemaRegistry(client.settings)
    assert later.schemas_of("kept-value")[first]["doc"] == "from the cache"
    stale = json.loads(second_file.read_text(encoding="utf-8")) | {"id": 10**6}
    second_file.write_text(json.dumps(stale), encoding="utf-8")  # as if the subject had been removed and created again
    schemas = client.schemas_of("kept-value")
    assert [schemas[schema_id]["doc"] for schema_id in (first, second)] == ["kept 1", "kept 2"]
    assert first_file.exists()


def test_a_subject_is_refused_if_no_schema_is_looked_up(tmp_path: Path, registry: Registry) -> None:
    with pytest.raises(ConfigurationError, match="has no effect: no schema is looked up"):
        settings_of(tmp_path, registry, envelope="append_only", topic="a", subject="topic", schema_ids={1: COLUMNS})
