"""Where the schemas of change events come from: messages, a registry, the settings; and how they grow."""

from __future__ import annotations

import io
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from jobs.lake import open_collection
from tests.delta.test_raw_debezium import Changes
from tests.services.registry import Registry
from tidelake.configuration import Settings
from tidelake.delta.key_errors import keys_in_error
from tidelake.delta.quarantine import quarantine_rows
from tidelake.errors import ConfigurationError, KeysInError

pytestmark = pytest.mark.spark

TEXT = ["null", "string"]
OPTIONAL = {"type": "string", "optional": True}


def connect_schema(**columns: Any) -> dict[str, Any]:
    """What a converter for JSON writes in front of an event."""
    fields = [{"field": name, **kind} for name, kind in columns.items()]
    row = {"type": "struct", "fields": fields, "optional": True, "name": "shop.Value"}
    event = [{**row, "field": name} for name in ("before", "after")]
    return {"type": "struct", "fields": [*event, {"field": "op", "type": "string", "optional": False}]}


ID = {"type": "int32", "optional": False}
FIRST = connect_schema(id=ID, a=OPTIONAL)
SECOND = connect_schema(id=ID, a=OPTIONAL, day={"type": "int32", "optional": True, "name": "io.debezium.time.Date"})


@dataclass
class Seat:
    """What an asset is given."""

    settings: Settings
    spark: SparkSession

    def session(self) -> SparkSession:
        return self.spark


class Told(Changes):
    """Change events whose rows are mappings, in JSON with their schema or in Avro."""

    def row(self, op: str, row: dict[str, Any] | None, before: dict[str, Any] | None = None) -> dict[str, Any]:
        record = self.event(op)
        record["value"] |= {"after": row, "before": before}
        return {"key": {"id": (row or before or {})["id"]}, "value": record["value"]}

    def wrapped(self, schema: Any, op: str, row: dict[str, Any]) -> dict[str, Any]:
        record = self.row(op, row)
        return {"key": record["key"], "value": {"schema": schema, "payload": record["value"]}}

    def columns(self) -> list[str]:
        return [one["name"] for one in self.collection.entry.record_schema["fields"]]

    def shown(self, as_of: int | None = None, **more: Any) -> dict[Any, tuple[Any, ...]]:
        found = self.rows(as_of, **more)
        return {row["id"]: tuple(str(row[one]) for one in self.columns()[1:]) for row in found}


def test_the_schema_of_the_first_message_is_taken_and_a_new_column_appears(tmp_path: Path, spark: SparkSession) -> None:
    lake = Told(tmp_path, spark, evolution="additive", messages_per_tick_max=4)
    del lake.document["collections"]["prices"]["schema"]  # type: ignore[attr-defined]
    lake.configure()
    lake.put({"key": {"id": 1}, "value": None})
    with pytest.raises(ConfigurationError, match=r"(?s)no message of prices has its schema with it.*add `schema:`"):
        lake.ingest()
    lake.put(lake.wrapped(FIRST, "c", {"id": 1, "a": "x"}))
    opened = open_collection(Seat(lake.settings, spark), "prices")  # as an asset does
    assert [one["name"] for one in opened.entry.record_schema["fields"]] == ["id", "a"]
    lake.ingest()
    assert lake.columns() == ["id", "a"] and lake.shown() == {1: ("x",)}
    first = lake.times[-1].time
    lake.put(lake.wrapped(SECOND, "u", {"id": 1, "a": "y", "day": 1}), lake.wrapped(FIRST, "c", {"id": 2, "a": "z"}))
    lake.ingest()
    assert lake.shown() == {1: ("y", "1970-01-02"), 2: ("z", "None")}
    assert lake.shown(first) == {1: ("x", "None")}
    # Not additive: the column of another name and the one that may not be null are refused with the reason, by key.
    renamed = connect_schema(id=ID, b=OPTIONAL, day=OPTIONAL)
    strict = connect_schema(id=ID, a=OPTIONAL, day=OPTIONAL, n={"type": "int32", "optional": False})
    lake.put(lake.wrapped(renamed, "u", {"id": 1, "b": "q"}), lake.wrapped(strict, "u", {"id": 2, "a": "q", "n": 1}))
    lake.ingest()
    with pytest.raises(KeysInError):
        lake.shown()
    found = " ".join(keys_in_error(lake.collection).first)
    assert "'b' is refused: it is new while 'a' is gone" in found
    assert "'n' is refused: it is new, may not be null and has no default" in found
    with_default = connect_schema(id=ID, a=OPTIONAL, day=OPTIONAL, n={"type": "int32", "optional": False, "default": 3})
    lake.put(lake.wrapped(with_default, "u", {"id": 1, "a": "r", "day": None, "n": 1}))
    lake.put(lake.wrapped(strict, "u", {"id": 2, "a": "s", "n": 2}))
    lake.ingest()
    assert lake.shown() == {1: ("r", "None", "1"), 2: ("s", "None", "2")}
    lake.compact()
    assert not lake.validate(full=True).damaged
    assert lake.shown(first) == {1: ("x", "None", "None")}


def test_a_new_column_of_the_schema_in_the_settings_appears(tmp_path: Path, spark: SparkSession) -> None:
    lake = Told(tmp_path, spark)
    lake.put(lake.event("c", (1, "x", "y")))
    lake.ingest()
    fields = [{"name": "id", "type": "int"}, *({"name": name, "type": TEXT} for name in ("b", "a", "c"))]
    lake.configure(schema={"type": "record", "name": "row", "fields": fields})
    with pytest.raises(ConfigurationError, match=r"(?s)the column 'c' is new.*`evolution: additive`"):
        lake.ingest()
    lake.configure(evolution="additive")
    lake.put(lake.row("c", {"id": 2, "a": "x", "c": "z"}))
    lake.ingest()
    assert lake.shown() == {1: ("x", "y", "None"), 2: ("x", "None", "z")}
    lake.document["collections"]["prices"].pop("schema")  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match=r"(?s)schema: is missing.*and a block `registry:`, which has it"):
        lake.configure(format="avro")


ROWS = {
    1: [{"name": "id", "type": "int"}, {"name": "a", "type": TEXT, "default": None}],
    2: [
        {"name": "id", "type": "int"},
        {"name": "a", "type": TEXT, "default": None},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}]},
    ],
    3: [{"name": "id", "type": "int"}],
    4: [{"name": "id", "type": "string"}, {"name": "a", "type": TEXT}],
}


def event_schema(fields: list[dict[str, Any]]) -> dict[str, Any]:
    source = {
        "type": "record",
        "name": "Source",
        "fields": [
            {"name": "connector", "type": "string"},
            {"name": "snapshot", "type": TEXT},
            {"name": "sequence", "type": TEXT},
            {"name": "lsn", "type": ["null", "long"]},
        ],
    }
    row = {"type": "record", "name": "Value", "fields": fields}
    parts = {"before": ["null", row], "after": ["null", "Value"], "source": source, "op": "string"}
    parts["ts_ms"] = ["null", "long"]
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.items",
        "fields": [{"name": name, "type": kind} for name, kind in parts.items()],
    }


KEY = {"type": "record", "name": "Key", "namespace": "shop.items", "fields": [{"name": "id", "type": "int"}]}


def body(schema: dict[str, Any], given: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), given)
    return buffer.getvalue()


def framed(schema_id: int, encoded: bytes) -> str:
    return b64encode(b"\x00" + schema_id.to_bytes(4, "big") + encoded).decode("ascii")


@pytest.mark.services
def test_a_registry_knows_the_schemas_of_events_and_of_their_keys(
    tmp_path: Path, spark: SparkSession, registry: Registry
) -> None:
    topic = tmp_path.name
    lake = Told(tmp_path, spark, topic=topic, evolution="additive")
    lake.document["registry"] = {"url": registry.url, "cache": "cache"}
    del lake.document["collections"]["prices"]["schema"]  # type: ignore[attr-defined]
    lake.configure(format="avro", encoding="confluent")
    key_id = registry.register(f"{topic}-key", KEY)

    def send(version: int, op: str, row: Any, before: Any = None, key: int = key_id) -> dict[str, Any]:
        record = lake.row(op, row, before or {"id": row["id"]})
        value = record["value"] | {"before": before}
        return {
            "key_b64": framed(key, body(KEY, record["key"])),
            "value_b64": framed(ids[version], body(event_schema(ROWS[version]), value)),
        }

    lake.put({"key": None, "value": None}, topic=topic)
    with pytest.raises(ConfigurationError, match=f"the registry has no schema under '{topic}-value' yet"):
        lake.ingest()
    ids = {1: registry.register(f"{topic}-value", event_schema(ROWS[1]))}
    lake.put(*(send(1, "c", {"id": one, "a": "x"}) for one in (1, 2, 3, 4)), topic=topic)
    lake.ingest()
    assert lake.columns() == ["id", "a"] and set(lake.shown()) == {1, 2, 3, 4}

    ids |= {version: registry.register(f"{topic}-value", event_schema(ROWS[version])) for version in (2, 3, 4)}
    gone = lake.row("d", None, {"id": 2})["value"] | {"before": None}
    only_key = {
        "key_b64": framed(key_id, body(KEY, {"id": 2})),
        "value_b64": framed(ids[1], body(event_schema(ROWS[1]), gone)),
    }
    in_header = send(1, "u", {"id": 3, "a": "h"}) | {"headers": [{"key": "__value_schema_id", "value": "x"}]}
    other_type = {**send(1, "u", {"id": 4, "a": "t"}), "value_b64": framed(ids[4], b"")}
    keyless = {**send(1, "u", {"id": 9, "a": "k"}, key=10**6), "value_b64": framed(10**6, b"")}
    lake.put(
        send(2, "u", {"id": 1, "a": "y", "price": b"\x01\x00"}),
        only_key,
        in_header,
        other_type,
        keyless,
        send(3, "c", {"id": 5}),
        topic=topic,
    )
    report = lake.ingest()
    assert lake.shown(skip_errors=True) == {1: ("y", "2.56"), 5: ("None", "None")}
    assert (report.quarantined, report.values_in_error) == (1, 2)
    (row,) = quarantine_rows(lake.collection)
    assert row["reason"] == "no_key" and f"schema id {10**6}" in row["detail"]
    found = " ".join(keys_in_error(lake.collection).first)
    assert "schema_id_in_header" in found and f"schema id {ids[4]}: column 'id' is refused" in found


def test_keys_in_bare_avro_name_what_is_deleted(tmp_path: Path, spark: SparkSession) -> None:
    schema = event_schema(ROWS[1])
    lake = Told(tmp_path, spark, format="avro", schema=schema, key_schema=KEY)
    made = [lake.row("c", {"id": one, "a": "x"}) for one in (1, 2)]
    gone = lake.row("d", None, {"id": 1})
    gone["value"]["before"] = None
    stated = [
        {
            "key_b64": b64encode(body(KEY, one["key"])).decode(),
            "value_b64": b64encode(body(schema, one["value"])).decode(),
        }
        for one in (*made, gone)
    ]
    lake.put(*stated, {**stated[1], "value_b64": "AA=="})
    report = lake.ingest()
    assert lake.shown(skip_errors=True) == {} and report.values_in_error == 1 and report.quarantined == 0
