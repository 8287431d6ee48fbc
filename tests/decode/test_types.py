"""Every part of the code knows every declared Avro type, and all parts agree on it."""

from __future__ import annotations

from typing import Any

import pytest

from tidelake.codec.avro import AvroCodec
from tidelake.codec.json import AvroJsonCodec
from tidelake.codec.typed import encode_data
from tidelake.decode.debezium.values import CONVERSIONS
from tidelake.decode.json_types import record_form
from tidelake.decode.landing import land_record
from tidelake.decode.types import SPARK_TYPES
from tidelake.errors import SchemaRefused
from tidelake.protocol.message import Updates
from tidelake.schema.avro import resolved_schema
from tidelake.schema.connect import landing_record, wire_types
from tidelake.schema.connect_agreement import differing_wire_types
from tidelake.schema.types import DECIMAL, SCALARS, Family, ScalarType, is_promotion
from tidelake.store.table_schema import data_fields

VALUES: dict[Family, Any] = {
    Family.BOOLEAN: True,
    Family.INTEGER: 5,
    Family.REAL: 0.5,
    Family.TEXT: "text",
    Family.SYMBOL: "red",
    Family.BINARY: b"abcd",
    Family.DECIMAL: b"\x00\x00\x00\x05",
}
"""A value of each family, in the codec's form; a fixed type has four bytes."""
every_scalar = pytest.mark.parametrize(
    "scalar", SCALARS.values(), ids=lambda scalar: f"{scalar.base} {scalar.logical}".strip()
)


def record_of(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "data", "fields": [{"name": "c", "type": kind}]}


def schema_of(scalar: ScalarType) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": scalar.base}
    if scalar.base in ("enum", "fixed"):
        kind |= {"name": "named"} | ({"symbols": ["red"]} if scalar.base == "enum" else {"size": 4})
    if scalar.logical:
        kind["logicalType"] = scalar.logical
    return kind | ({"precision": 9, "scale": 2} if scalar.logical == DECIMAL else {})


def test_spark_has_an_entry_for_every_declared_type_and_for_no_other() -> None:
    assert SCALARS.keys() == SPARK_TYPES.keys()


def test_spark_has_a_function_for_every_declared_conversion() -> None:
    declared = {form.conversion for scalar in SCALARS.values() for form in scalar.connect_forms}
    assert declared | {"as_is"} == CONVERSIONS.keys()


@every_scalar
def test_decoded_records_have_the_fields_of_the_table(scalar: ScalarType) -> None:
    record = record_of(schema_of(scalar))
    assert list(land_record(record).arrow) == data_fields(record)


@every_scalar
def test_the_codecs_read_what_they_write(scalar: ScalarType) -> None:
    record, value = record_of(schema_of(scalar)), VALUES[scalar.family]
    message = Updates([({"c": value}, 1, 1)])
    for codec in (AvroCodec(record), AvroJsonCodec(record)):
        assert codec.decode(codec.encode(message)) == message


@every_scalar
def test_a_user_can_enter_a_value_of_every_type(scalar: ScalarType) -> None:
    record, value = record_of(schema_of(scalar)), VALUES[scalar.family]
    typed = {Family.BINARY: "abcd", Family.DECIMAL: "0.05"}.get(scalar.family, value)
    expected = b"\x05" if scalar.family is Family.DECIMAL and scalar.base == "bytes" else value
    assert encode_data(record, {"c": typed}) == AvroCodec(record).encode_data({"c": expected})


@every_scalar
def test_json_is_read_as_a_type_that_spark_has(scalar: ScalarType) -> None:
    form = record_form(resolved_schema(record_of(schema_of(scalar))))
    assert form.ddl.startswith("struct<`c`: ") and form.ddl.removeprefix("struct<`c`: ").removesuffix(">") in {
        "boolean",
        "int",
        "bigint",
        "float",
        "double",
        "string",
    }


@pytest.mark.parametrize(
    ("scalar", "form"),
    [(scalar, form) for scalar in SCALARS.values() for form in scalar.connect_forms if not form.names],
    ids=lambda value: getattr(value, "conversion", None) or f"{value.base} {value.logical}",
)
def test_connect_sends_a_logical_type_as_it_is_declared(scalar: ScalarType, form: Any) -> None:
    kind = schema_of(scalar) | {"type": form.wire}
    wire = dict(wire_types(record_of(kind)))["c"]
    assert (wire.name, wire.conversion) == (form.wire, form.conversion)
    landed = resolved_schema(landing_record(record_of(kind)))["fields"][0]["type"]
    assert landed["logicalType"] == scalar.connect_column_type


@pytest.mark.parametrize(
    ("scalar", "form", "name"),
    [(scalar, form, name) for scalar in SCALARS.values() for form in scalar.connect_forms for name in form.names],
    ids=lambda value: value.rpartition(".")[2] if isinstance(value, str) else "",
)
def test_a_connect_name_determines_the_conversion(scalar: ScalarType, form: Any, name: str) -> None:
    wire = dict(wire_types(record_of({"type": form.wire, "connect.name": name})))["c"]
    assert (wire.name, wire.conversion) == (form.wire, form.conversion)


def test_a_promotion_never_narrows() -> None:
    promotions = {(a, b) for a, _ in SCALARS for b, _ in SCALARS if is_promotion(a, b)}
    assert promotions == {
        ("int", "long"),
        ("int", "float"),
        ("int", "double"),
        ("long", "float"),
        ("long", "double"),
        ("float", "double"),
    }


def test_a_timestamp_sent_as_text_can_be_read_as_one_sent_as_a_number() -> None:
    fields = [{"name": "c", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}}]
    row = {"type": "record", "name": "row", "fields": fields}
    field = {"field": "c", "type": "string", "name": "io.debezium.time.ZonedTimestamp"}
    wire = differing_wire_types(row, {"type": "struct", "fields": [field]})["c"]
    assert wire.conversion == "timestamp_text"


def _decimal(scale: int) -> dict[str, Any]:
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": str(scale)}}


@pytest.mark.parametrize(
    ("ours", "theirs", "refusal"),
    [
        (
            {"type": "array", "items": "string"},
            {"type": "array", "items": {"type": "int64"}},
            r"'c\[\]' is refused: it is written as int64, but the collection reads string",
        ),
        (
            {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}]},
            {"type": "struct", "fields": [{"field": "a", "type": "int32"}, {"field": "b", "type": "boolean"}]},
            r"'c\.b' is refused: it is written as boolean, but the collection reads int",
        ),
        (
            {"type": "array", "items": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"type": "array", "items": _decimal(3)},
            r"Decimal \(bytes\) with scale 3, but the collection reads decimal_bytes with scale 2",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            _decimal(39),
            "it is a decimal with scale 39, but a scale must be from 0 to 38",
        ),
    ],
)
def test_the_part_of_a_column_that_is_written_differently_is_named(
    ours: dict[str, Any], theirs: dict[str, Any], refusal: str
) -> None:
    with pytest.raises(SchemaRefused, match=refusal):
        differing_wire_types(record_of(ours), {"type": "struct", "fields": [{"field": "c", **theirs}]})


@pytest.mark.parametrize(("base", "logical"), [("int", "timestamp-millis"), ("long", "date"), ("long", "time-micros")])
def test_an_undeclared_logical_type_is_treated_as_its_primitive_everywhere(base: str, logical: str) -> None:
    record, plain = record_of({"type": base, "logicalType": logical}), record_of(base)
    assert land_record(record) == land_record(plain)
    assert data_fields(record) == data_fields(plain)
    forms = [record_form(resolved_schema(schema)) for schema in (record, plain)]
    assert forms[0].ddl == forms[1].ddl and forms[0].problem is not None
    assert encode_data(record, {"c": 7}) == encode_data(plain, {"c": 7})
