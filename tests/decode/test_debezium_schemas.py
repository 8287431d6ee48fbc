"""Where the schemas of change events come from (messages, a registry, the settings), and how they get new columns."""

from __future__ import annotations

import io
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from jobs.lake import open_collection
from tests.lakes.changes import Changes
from tests.lakes.connect_schemas import OPTIONAL, connect_row
from tests.services.registry import Registry
from tests.sweeps import swept
from tidelake.errors import ConfigurationError, KeysInError
from tidelake.forms.key_errors import keys_in_error
from tidelake.store.quarantine import quarantine_rows

pytestmark = pytest.mark.spark

TEXT = ["null", "string"]


def connect_schema(**columns: Any) -> dict[str, Any]:
    """The schema that Connect sends with the events of a table that has these columns."""
    row = connect_row(**columns)
    event = [{**row, "field": name} for name in ("before", "after")]
    return {"type": "struct", "fields": [*event, {"field": "op", "type": "string", "optional": False}]}


ID = {"type": "int32", "optional": False}
DAY = {"type": "int32", "optional": True, "name": "io.debezium.time.Date"}
FIRST = connect_schema(id=ID, a=OPTIONAL)
SECOND = connect_schema(id=ID, a=OPTIONAL, day=DAY)


class RowChanges(Changes):
    """Change events whose rows are mappings, in JSON with their schema or in Avro."""

    def row(self, op: str, row: dict[str, Any] | None, before: dict[str, Any] | None = None) -> dict[str, Any]:
        record = self.event(op)
        record["value"] |= {"after": row, "before": before}
        return {"key": {"id": (row or before or {})["id"]}, "value": record["value"]}

    def wrapped(self, schema: Any, op: str, row: dict[str, Any]) -> dict[str, Any]:
        record = self.row(op, row)
        return {"key": record["key"], "value": {"schema": schema, "payload": record["value"]}}

    def columns(self) -> list[str]:
        return [field["name"] for field in self.collection.entry.record_schema["fields"]]

    def shown(self, as_of: int | None = None, **more: Any) -> dict[Any, tuple[Any, ...]]:
        rows = self.rows(as_of, **more)
        return {row["id"]: tuple(str(row[column]) for column in self.columns()[1:]) for row in rows}


@pytest.mark.sweep
def test_the_schema_of_the_first_message_is_used_and_a_new_column_appears(tmp_path: Path, spark: SparkSession) -> None:
    lake = RowChanges(tmp_path, spark, evolution="additive", messages_per_tick_max=4)
    del lake.document["collections"]["prices"]["schema"]
    lake.configure()
    lake.put({"key": {"id": 1}, "value": None})
    with pytest.raises(ConfigurationError, match=r"(?s)no message of prices has an embedded schema.*add `schema:`"):
        lake.ingest()
    lake.put(lake.wrapped(FIRST, "c", {"id": 1, "a": "x"}))
    opened = open_collection(spark, lake.settings, "prices")  # as an asset does
    assert [field["name"] for field in opened.entry.record_schema["fields"]] == ["id", "a"]
    lake.ingest()
    assert lake.columns() == ["id", "a"] and lake.shown() == {1: ("x",)}
    first = lake.times[-1].time
    lake.put(lake.wrapped(SECOND, "u", {"id": 1, "a": "y", "day": 1}), lake.wrapped(FIRST, "c", {"id": 2, "a": "z"}))
    lake.ingest()
    assert lake.shown() == {1: ("y", "1970-01-02"), 2: ("z", "None")}
    assert lake.shown(first) == {1: ("x", "None")}
    # Renaming a column is not additive, nor is adding one that cannot be null and has no default: the keys of events
    # with such a schema are in error.
    renamed = connect_schema(id=ID, b=OPTIONAL, day=DAY)
    strict = connect_schema(id=ID, a=OPTIONAL, day=DAY, n={"type": "int32", "optional": False})
    lake.put(lake.wrapped(renamed, "u", {"id": 1, "b": "q"}), lake.wrapped(strict, "u", {"id": 2, "a": "q", "n": 1}))
    lake.ingest()
    with pytest.raises(KeysInError):
        lake.shown()
    errors = " ".join(keys_in_error(lake.collection).first)
    assert "'b' is refused: it is new, but 'a' is missing" in errors
    assert "'n' is refused: it is new, cannot be null and has no default" in errors
    with_default = connect_schema(id=ID, a=OPTIONAL, day=DAY, n={"type": "int32", "optional": False, "default": 3})
    lake.put(lake.wrapped(with_default, "u", {"id": 1, "a": "r", "day": None, "n": 1}))
    lake.put(lake.wrapped(strict, "u", {"id": 2, "a": "s", "n": 2}))
    lake.ingest()
    assert lake.shown() == {1: ("r", "None", "1"), 2: ("s", "None", "2")}
    lake.compact()
    assert not lake.validate(full=True).damaged
    assert lake.shown(first) == {1: ("x", "None", "None")}


def test_a_column_that_is_added_to_the_schema_in_the_settings_appears(tmp_path: Path, spark: SparkSession) -> None:
    lake = RowChanges(tmp_path, spark)
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
    lake.document["collections"]["prices"].pop("schema")
    with pytest.raises(ConfigurationError, match=r"(?s)schema: is missing.*from a registry: .* a `registry:` block"):
        lake.configure(format="avro")


ROWS: dict[int, list[dict[str, Any]]] = {
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


def body(schema: dict[str, Any], value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return buffer.getvalue()


def framed(schema_id: int, encoded: bytes) -> str:
    return b64encode(b"\x00" + schema_id.to_bytes(4, "big") + encoded).decode("ascii")


@pytest.mark.services
@pytest.mark.sweep
def test_a_registry_knows_the_schemas_of_events_and_of_their_keys(
    tmp_path: Path, spark: SparkSession, registry: Registry
) -> None:
    topic = tmp_path.name
    lake = RowChanges(tmp_path, spark, topic=topic, evolution="additive")
    lake.document["registry"] = {"url": registry.url, "cache": "cache"}
    del lake.document["collections"]["prices"]["schema"]
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
    lake.put(*(send(1, "c", {"id": row, "a": "x"}) for row in (1, 2, 3, 4)), topic=topic)
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
    whole = b64decode(in_header["value_b64"])
    strays = b"\x01" + whole[1:], b"\x00" + (10**6 + 1).to_bytes(4, "big") + whole[5:], whole + b"\x00"
    other_magic = b64encode(b"\x01" + b64decode(only_key["key_b64"])[1:]).decode("ascii")
    lake.put(
        send(2, "u", {"id": 1, "a": "y", "price": b"\x01\x00"}),
        only_key,
        in_header,
        other_type,
        keyless,
        send(3, "c", {"id": 5}),
        *(
            {"key_b64": framed(key_id, body(KEY, {"id": key})), "value_b64": b64encode(stray).decode("ascii")}
            for key, stray in enumerate(strays, start=6)
        ),
        {**only_key, "key_b64": other_magic},
        {**only_key, "headers": [{"key": "__key_schema_id", "value": "x"}]},
        topic=topic,
    )
    report = lake.ingest()
    assert lake.shown(skip_errors=True) == {1: ("y", "2.56"), 5: ("None", "None")}
    assert (report.quarantined, report.values_in_error) == (3, 5)
    (unknown, *unnamed) = quarantine_rows(lake.collection)
    assert unknown["reason"] == "no_key" and f"schema id {10**6}" in unknown["detail"]
    assert [row["reason"] for row in unnamed] == ["no_key", "no_key"]
    errors = " ".join(keys_in_error(lake.collection).first)
    assert "schema_id_in_header" in errors and f"schema id {ids[4]}: column 'id' is refused" in errors
    for key, reason in ((6, "wrong_magic_byte"), (7, "unknown_schema_id (schema id 1000001)"), (8, "bytes_left_over")):
        assert f'{{"id":{key}}}: the event cannot be read: {reason}' in errors


def test_a_key_in_bare_avro_determines_which_row_is_deleted_and_a_map_lands_as_text(
    tmp_path: Path, spark: SparkSession
) -> None:
    tags = {"name": "tags", "type": ["null", {"type": "map", "values": TEXT}]}
    schema = event_schema([*ROWS[1], tags])
    lake = RowChanges(tmp_path, spark, format="avro", schema=schema, key_schema=KEY)
    made = [lake.row("c", {"id": row, "a": "x", "tags": {"p": "q", "r": None}}) for row in (1, 2, 3)]
    gone = lake.row("d", None, {"id": 1})
    gone["value"]["before"] = None
    messages = [
        {
            "key_b64": b64encode(body(KEY, record["key"])).decode(),
            "value_b64": b64encode(body(schema, record["value"])).decode(),
        }
        for record in (*made, gone)
    ]
    lake.put(*messages, {**messages[1], "value_b64": "AA=="})
    report = lake.ingest()
    assert lake.shown(skip_errors=True) == {3: ("x", '{"p":"q","r":null}')}
    assert report.values_in_error == 1 and report.quarantined == 0
    # Events that can be read but not used: with an unknown operation, or without a row.
    odd = lake.row("x", {"id": 3, "a": "x"}), lake.row("u", {"id": 4, "a": "x"}), lake.row("m", {"id": 5, "a": "x"})
    odd[1]["value"]["after"] = None
    encoded = [(body(KEY, record["key"]), body(schema, record["value"])) for record in odd]
    lake.put(*({"key_b64": b64encode(key).decode(), "value_b64": b64encode(value).decode()} for key, value in encoded))
    report = lake.ingest()
    assert report.reasons == {"unknown_operation": 1} and set(lake.errors()) == {2, 3, 4}


def decimal(scale: int, precision: int = 10) -> dict[str, Any]:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return {
        "type": "bytes",
        "optional": True,
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": parameters,
    }


def unscaled(number: int) -> str:
    return b64encode(number.to_bytes(8, "big", signed=True)).decode()


def time_type(name: str, kind: str = "int64") -> dict[str, Any]:
    return {"type": kind, "optional": True, "name": f"io.debezium.time.{name}"}


BEFORE: dict[str, Any] = {
    "id": ID,
    "w": time_type("MicroTimestamp"),
    "d": decimal(2),
    "n": {"type": "int64"},
    "s": OPTIONAL,
}
AT_MS = 1_700_000_000_000
DECLARED = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "w", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "d", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}]},
        {"name": "n", "type": ["null", "long"]},
        {"name": "s", "type": TEXT},
    ],
}


@pytest.mark.parametrize(
    ("evolution", "declared"),
    swept([("additive", False), ("none", True), ("none", False)], [("additive", False)], unpack=True),
)
def test_a_column_with_a_different_type_in_a_message_is_converted_or_refused_and_named(
    tmp_path: Path, spark: SparkSession, evolution: str, declared: bool
) -> None:
    lake = RowChanges(tmp_path, spark, evolution=evolution, schema=DECLARED)
    if not declared:
        del lake.document["collections"]["prices"]["schema"]
        lake.configure()
    row = {"w": AT_MS * 1000, "d": unscaled(12345), "n": 5, "s": "x"}
    lake.put(*(lake.wrapped(connect_schema(**BEFORE), "c", {"id": number, **row}) for number in (1, 7, 8)))
    lake.ingest()
    whole = ("2023-11-14 22:13:20", "123.45", "5", "x")
    assert lake.shown() == {1: whole, 7: whole, 8: whole}

    def wrapped(number: int, changed: dict[str, Any], **kinds: Any) -> dict[str, Any]:
        return lake.wrapped(connect_schema(**BEFORE | kinds), "u", {"id": number, **row, **changed})

    finer = {"w": AT_MS, "d": unscaled(1_234_500)}
    lake.put(
        wrapped(1, {"s": "y"}),
        wrapped(2, finer, w=time_type("Timestamp"), d=decimal(4, 12), n={"type": "int32"}),
        wrapped(3, {"w": "2023-11-14T22:13:20Z"}, w=time_type("ZonedTimestamp", "string")),
        # A new column in the same message does not prevent these conversions.
        wrapped(4, finer | {"more": "m"}, w=time_type("Timestamp"), d=decimal(4), more=OPTIONAL),
        # A value that the column's type cannot hold, or that means something else in its new type, is refused, and the
        # error names the column. The event's key is then in error; if the key itself cannot be read, the message is
        # quarantined.
        wrapped(5, {"d": unscaled(1_234_567)}, d=decimal(4)),
        wrapped(6, {"s": 5}, s={"type": "int32"}),
        wrapped(7, {"n": 19_000}, n=time_type("Date", "int32")),
        wrapped(8, {}, id={"type": "int64"}),
        wrapped(9, {"w": AT_MS}, w={"type": "int64"}, s={"type": "boolean"}),
        wrapped(10, {}, id=time_type("Date", "int32")),
    )
    report = lake.ingest()
    assert (report.quarantined, report.values_in_error) == (1, 5)
    shown = {key: values[:4] for key, values in lake.shown(skip_errors=True).items()}
    assert shown == {1: (*whole[:3], "y"), 2: whole, 3: whole, 4: whole}
    assert lake.columns()[5:] == (["more"] if evolution == "additive" else [])
    errors = dict(line.split(": ", 1) for line in keys_in_error(lake.collection).first)
    assert "d cannot be read" in errors['{"id":5}']
    assert "'s' is refused: it is written as int32, but the collection reads string" in errors['{"id":6}']
    assert "'n' is refused: it is written as io.debezium.time.Date (int32), but" in errors['{"id":7}']
    assert "'id' is refused: it is written as int64, but the collection reads int" in errors['{"id":8}']
    assert f"'{'s' if declared else 'w'}' is refused" in errors['{"id":9}']
    (bad,) = quarantine_rows(lake.collection)
    assert bad["reason"] == "schema_not_resolved" and "column 'id' is refused" in bad["detail"]
    # The next tick knows these schemas, and a message with the first schema is read as before.
    lake.put(wrapped(5, {}), wrapped(6, finer, w=time_type("Timestamp"), d=decimal(4, 12), n={"type": "int32"}))
    assert lake.ingest().values_in_error == 0
    assert {key: values[:4] for key, values in lake.shown(skip_errors=True).items()} == shown | {5: whole, 6: whole}
    assert not lake.validate(full=True).damaged
