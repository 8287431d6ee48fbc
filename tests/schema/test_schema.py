"""Record schemas: what they may contain, by themselves and inside a CDCv2 schema."""

from __future__ import annotations

from typing import Any

import fastavro
import pytest

from tidelake.errors import SchemaRefused
from tidelake.schema.avro import cdcv2_schema, record_schema_of
from tidelake.schema.columns import Array, Branches, Column, Primitive, Struct, column_types
from tidelake.schema.connect import wire_types


def record(*fields: tuple[Any, Any], name: Any = "data") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}
INNER = record(("city", "string"), name="place")
GOOD = record(
    ("id", "long"),
    ("price", ["null", "int"]),
    ("amount", DECIMAL),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("where", INNER),
    ("also", ["place", "null"]),
    ("tags", {"type": "array", "items": ["null", "string"]}),
    ("many", ["null", "int", "string", "place"]),
    ("kind", {"type": "enum", "name": "kind", "symbols": ["A"]}),
    ("key", {"type": "fixed", "name": "key", "size": 16}),
)


def test_the_schema_around_a_record_is_avro_and_contains_the_record_unchanged() -> None:
    schema = cdcv2_schema(GOOD)
    fastavro.parse_schema(schema)
    assert record_schema_of(GOOD) == GOOD
    assert record_schema_of(schema) == GOOD
    assert cdcv2_schema(schema) == schema


def test_the_published_schema_is_recognised_with_its_documentation() -> None:
    schema = cdcv2_schema(record(("id", "long")))
    schema[0]["items"] |= {"doc": "an update"}
    assert record_schema_of(schema)["fields"] == [{"name": "id", "type": "long"}]
    dotted = cdcv2_schema(record(("id", "long")))
    dotted[0]["items"] = {**dotted[0]["items"], "name": "com.materialize.cdc.update"}
    del dotted[0]["items"]["namespace"]
    assert record_schema_of(dotted)["name"] == "data"


def test_columns_are_described_without_avro() -> None:
    columns = {column.name: column for column in column_types(GOOD)}
    assert columns["id"] == Column("id", Primitive("long"), nullable=False)
    assert columns["price"] == Column("price", Primitive("int"), nullable=True)
    assert columns["amount"].type == Primitive("bytes", "decimal", 38, 10)
    assert columns["at"].type == Primitive("long", "timestamp-millis")
    place = Struct((Column("city", Primitive("string"), nullable=False),))
    assert columns["where"] == Column("where", place, nullable=False)
    assert columns["also"] == Column("also", place, nullable=True)
    assert columns["tags"].type == Array(Column("item", Primitive("string"), nullable=True))
    assert columns["many"].nullable
    assert columns["many"].type == Branches(
        (
            Column("int", Primitive("int"), nullable=True),
            Column("string", Primitive("string"), nullable=True),
            Column("place", place, nullable=True),
        )
    )
    assert columns["kind"].type == Primitive("enum")


REFUSED: dict[str, tuple[Any, str, str]] = {
    "a map": (record(("m", {"type": "map", "values": "int"})), "m", "maps"),
    "a map deep inside": (
        record(("a", record(("b", ["null", {"type": "map", "values": "int"}]), name="r"))),
        "a.b",
        "maps",
    ),
    "a map in an array": (record(("a", {"type": "array", "items": {"type": "map", "values": "int"}})), "a[]", "maps"),
    "a local timestamp": (record(("t", {"type": "long", "logicalType": "local-timestamp-micros"})), "t", "zone"),
    "a local timestamp in a union": (
        record(("t", ["null", {"type": "long", "logicalType": "local-timestamp-millis"}])),
        "t",
        "zone",
    ),
    "only null": (record(("n", "null")), "n", "void"),
    "a union of only null": (record(("n", ["null"])), "n", "void"),
    "an array of null": (record(("n", {"type": "array", "items": "null"})), "n[]", "void"),
    "recursion": (record(("next", ["null", "data"])), "next", "contains itself"),
    "recursion through another record": (
        record(("a", record(("b", {"type": "array", "items": "data"}), name="other"))),
        "a.b[]",
        "contains itself",
    ),
    "a decimal with too many digits": (record(("d", {**DECIMAL, "precision": 39})), "d", "38"),
    "a fixed decimal with too many digits": (
        record(("d", {"type": "fixed", "name": "f", "size": 20, "logicalType": "decimal", "precision": 40})),
        "d",
        "38",
    ),
    "a decimal without precision": (record(("d", {"type": "bytes", "logicalType": "decimal"})), "d", "precision"),
    "a scale beyond the precision": (record(("d", {**DECIMAL, "scale": 39})), "d", "scale"),
    "names that differ only in case": (record(("Price", "int"), ("price", "int")), "price", "clashes with 'Price'"),
    "one name twice": (record(("a", "int"), ("a", "int")), "a", "clashes"),
    "inner names that differ only in case": (
        record(("a", record(("x", "int"), ("X", "int"), name="r"))),
        "a.X",
        "clashes",
    ),
    "a system column": (record(("_time", "long")), "_time", "system"),
    "any name that begins with an underscore": (record(("_mine", "long")), "_mine", "system"),
    "a name with a hyphen": (record(("a-b", "int")), "", "legal name"),
    "a name that begins with a digit": (record(("1st", "int")), "", "legal name"),
    "an empty name": (record(("", "int")), "", "legal name"),
    "a name that is not a string": (record((5, "int")), "", "a field has the name 5, which is not text"),
    "a field without a name": ({"type": "record", "name": "r", "fields": [{"type": "int"}]}, "", "a name and a type"),
    "a field that is a name": (
        {"type": "record", "name": "r", "fields": ["id"]},
        "",
        "the field 'id' is not an object",
    ),
    "fields that are a mapping": ({"type": "record", "name": "r", "fields": {"id": "int"}}, "", "a list of at least"),
    "a union without types": (record(("a", [])), "a", "its union has no types"),
    "a union of null": (record(("a", ["null"])), "a", "null as its only type"),
    "a type without a name": (record(("a", record(("x", "int"), name=None))), "a", "must have a name"),
    "a type whose name is a number": (record(("a", record(("x", "int"), name=7))), "a", "has the name 7, which is not"),
    "a namespace that is a number": (record(("a", INNER | {"namespace": 7})), "a", "has the namespace 7, which is not"),
    "a record without fields": (record(), "", "at least one field"),
    "an inner record without fields": (record(("a", record(name="r"))), "a", "at least one field"),
    "an unknown type": (record(("a", "uint32")), "a", "is unknown"),
    "a type that is a number": (record(("a", 5)), "a", "neither a name"),
    "a missing type": (record(("a", None)), "a", "neither a name"),
    "a union in a union": (record(("a", ["null", ["int"]])), "a", "inside a union"),
    "one branch twice": (record(("a", ["int", "int"])), "a", "the same name"),
    "branches whose names differ only in case": (
        record(("a", ["int", record(("x", "int"), name="Int")])),
        "a",
        "the same name",
    ),
    "one type name twice": (record(("a", INNER), ("b", INNER)), "b", "is defined twice: write only its name"),
    "a name that the protocol uses": (record(("a", record(("x", "int"), name="progress"))), "a", "of the protocol"),
    "a fixed type of zero bytes": (record(("a", {"type": "fixed", "name": "f", "size": 0})), "a", "size"),
    "an enum without symbols": (record(("a", {"type": "enum", "name": "e", "symbols": []})), "a", "symbols"),
    "an enum with a symbol that YAML reads as a boolean": (
        record(("a", {"type": "enum", "name": "e", "symbols": ["maybe", True]})),
        "a",
        "its enum has the symbol True, which is not text: in YAML, put it in quotes",
    ),
    "not a record": ("long", "", "neither a record"),
    "only an array": ({"type": "array", "items": "int"}, "", "neither a record"),
    "a union that is not of CDCv2": ([{"type": "array", "items": INNER}, INNER], "", "neither a record"),
    "nothing": (None, "", "neither a record"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_schema_that_a_table_cannot_hold_is_refused_and_the_column_is_reported(name: str) -> None:
    schema, column, reason = REFUSED[name]
    with pytest.raises(SchemaRefused) as caught:
        record_schema_of(schema)
    assert caught.value.column == column
    assert reason in str(caught.value)
    if isinstance(schema, dict) and schema.get("type") == "record":
        with pytest.raises(SchemaRefused):
            cdcv2_schema(schema)


@pytest.mark.parametrize(
    ("schema", "column", "reason"),
    [
        (
            {"type": "record", "name": "r", "fields": ["id"]},
            "",
            "the field 'id' is not an object with a name and a type",
        ),
        (record((False, "int")), "", "a field has the name False, which is not text"),
        ({"type": "record", "name": "r", "fields": [{"name": "id"}]}, "id", "its type is neither a name"),
        (record(("a", {"type": "array"})), "a[]", "its type is neither a name"),
        (record(("a", [])), "a", "its union has no types"),
        (record(("a", ["null"])), "a", "null as its only type"),
        (record(("a", ["int", "long"])), "a", "it is a union of several types"),
    ],
)
def test_a_row_of_change_events_that_a_table_cannot_hold_is_refused(schema: Any, column: str, reason: str) -> None:
    with pytest.raises(SchemaRefused, match=reason) as caught:
        wire_types(schema)
    assert caught.value.column == column


def test_the_schema_of_an_update_with_a_changed_field_is_refused() -> None:
    schema = cdcv2_schema(record(("id", "long")))
    schema[0]["items"]["fields"][1]["type"] = "int"
    with pytest.raises(SchemaRefused, match="time"):
        record_schema_of(schema)


def test_the_schema_of_a_progress_statement_with_a_missing_field_is_refused() -> None:
    first, progress = cdcv2_schema(record(("id", "long")))
    with pytest.raises(SchemaRefused, match="lower, upper and counts"):
        record_schema_of([first, {**progress, "fields": progress["fields"][:2]}])


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    schema: Any = "int"
    for _ in range(5000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(SchemaRefused, match="too deep"):
        record_schema_of(record(("a", schema)))
