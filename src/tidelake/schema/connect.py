"""The types of Kafka Connect and Debezium: their declarations in a row's schema, wire types, and column types.

A column's type is declared in Avro with Debezium's own name for it (`connect.name`), as the Avro converter writes it,
or with one of the project's logical types. The *wire type* describes the value in a message: text, bytes, a
number of days. The value is converted to an Avro type that a table supports.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidelake.errors import SchemaRefused
from tidelake.schema.avro import check_not_void, fields_of, resolved_schema
from tidelake.schema.types import DECIMAL, DECIMAL_PRECISION_MAX, PRIMITIVES, SCALARS, Family

AvroType = Any


@dataclass(frozen=True, slots=True)
class WireType:
    """The type of one column's values in messages, and their conversion to the column's type.

    Args:
        name: `boolean`, `int`, `long`, `float`, `double`, `string`, `bytes` (base64 in JSON), `hex` (bytes as
            hexadecimal text), `array`, `record`, or `json`: any value, stored as its text.
        conversion: `as_is`, `date` (from days), `timestamp_millis`, `timestamp_micros` (from a count),
            `timestamp_text`, `decimal_bytes` (from the unscaled value), `decimal_text`, or `scaled_decimal` (from a
            record of a scale and an unscaled value; stored as text).
        landing: the Avro type of the column.
        item: the wire type of an array's items.
        fields: the wire types of a record's fields, by name.
        nullable: whether a value may be null.
        scale: for `decimal_bytes`, the scale of the written value if it differs from the column's.
    """

    name: str
    conversion: str
    landing: AvroType
    item: WireType | None = None
    fields: tuple[tuple[str, WireType], ...] = ()
    nullable: bool = False
    scale: int | None = None


_SCALED_DECIMAL = "io.debezium.data.VariableScaleDecimal"
_DECIMAL_FORMS = {form.wire: form for form in SCALARS["bytes", DECIMAL].connect_forms}
_DECIMAL_NAMES = {name for form in _DECIMAL_FORMS.values() for name in form.names}
_CONVERTED = [
    (scalar, form, {"type": scalar.base, "logicalType": scalar.connect_column_type})
    for scalar in SCALARS.values()
    if scalar.family is not Family.DECIMAL
    for form in scalar.connect_forms
]
_BY_NAME = {
    name: WireType(form.wire, form.conversion, landing) for _, form, landing in _CONVERTED for name in form.names
}
"""The names whose values are converted, except those of decimals. A value with any other name (times of day,
nanoseconds, durations, UUID, JSON, XML, enums, bits) is stored as its wire type: no type that every Delta reader
supports holds it without loss."""
_BY_LOGICAL = {
    (form.wire, scalar.logical): WireType(form.wire, form.conversion, landing) for scalar, form, landing in _CONVERTED
}


def wire_types(record_schema: Mapping[str, Any]) -> tuple[tuple[str, WireType], ...]:
    """Return the wire type of each column of a row.

    Raises:
        SchemaRefused: names the column and the reason.

    >>> dict(wire_types({"type": "record", "name": "row", "fields": [{"name": "born", "type":
    ...     {"type": "int", "connect.name": "io.debezium.time.Date"}}]}))["born"].conversion
    'date'
    """
    return _fields_of(record_schema, "", {})


def landing_record(record_schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of the table's columns, given a row's schema.

    Raises:
        SchemaRefused: names the column and the reason.

    >>> landing_record({"type": "record", "name": "row", "fields": [{"name": "tags", "type":
    ...     ["null", {"type": "map", "values": "string"}]}]})["fields"]
    [{'name': 'tags', 'type': ['null', 'string']}]
    """
    fields = [{"name": name, "type": _landing(wire)} for name, wire in wire_types(record_schema)]
    record = {"type": "record", "name": str(record_schema.get("name", "row")), "fields": fields}
    if isinstance(record_schema.get("namespace"), str):
        record["namespace"] = record_schema["namespace"]
    resolved_schema(record)
    return record


def declared_row(schema: Any) -> dict[str, Any]:
    """Return the record of a row, given alone or inside the record of a change event, in `before` and `after`.

    Raises:
        SchemaRefused: the schema is neither the record of a row nor that of a change event.

    >>> row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]}
    >>> declared_row({"type": "record", "name": "Envelope", "fields": [{"name": "before", "type": ["null", row]},
    ...     {"name": "after", "type": ["null", "Value"]}, {"name": "op", "type": "string"}]}) == row
    True
    """
    if not isinstance(schema, dict) or schema.get("type") != "record" or not isinstance(schema.get("fields"), list):
        raise SchemaRefused("", "it is neither the record of a row nor that of a change event")
    fields: dict[Any, Any] = {
        field.get("name"): field.get("type") for field in schema["fields"] if isinstance(field, dict)
    }
    if not {"before", "after", "op"} <= set(fields):
        return schema
    for name in ("before", "after"):
        branches = fields[name] if isinstance(fields[name], list) else [fields[name]]
        rows = [branch for branch in branches if isinstance(branch, dict) and branch.get("type") == "record"]
        if rows:
            return dict(rows[0])
    raise SchemaRefused("before", "a change event has `before` and `after`, each null or the record of a row")


def without_references(record_schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of a record, each self-contained: named types are written out at each use.

    >>> money = {"type": "record", "name": "money", "fields": [{"name": "cents", "type": "long"}]}
    >>> fields = [{"name": "net", "type": money}, {"name": "gross", "type": ["null", "money"]}]
    >>> without_references({"type": "record", "name": "row", "fields": fields})[1]["type"][1] == money
    True
    """
    named: dict[str, Any] = {}

    def inlined(kind: Any) -> Any:
        if isinstance(kind, list):
            return [inlined(branch) for branch in kind]
        if isinstance(kind, str):
            return named.get(kind, kind)
        if not isinstance(kind, Mapping):
            return kind
        own = dict(kind)
        if isinstance(own.get("type"), dict | list):
            own["type"] = inlined(own["type"])
        if "items" in own:
            own["items"] = inlined(own["items"])
        if isinstance(own.get("fields"), list):
            own["fields"] = [{**field, "type": inlined(field["type"])} for field in own["fields"]]
        _add_name(own, named)
        return own

    return [{**field, "type": inlined(field["type"])} for field in record_schema["fields"]]


def key_row_of(row: Mapping[str, Any], key: Collection[str]) -> dict[str, Any]:
    """Return the record of a row reduced to the columns of its key."""
    return {**row, "fields": [field for field in without_references(row) if field["name"] in key]}


def row_schema_of_connect(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's schema from the `schema` part of a JSON message, which is a change event or a bare row.

    Raises:
        SchemaRefused: the schema is neither that of a change event nor that of a row, or a column's type is unknown.

    >>> row_schema_of_connect({"type": "struct", "fields": [
    ...     {"field": "id", "type": "int32", "optional": False}, {"field": "at", "type": "int64", "optional": True,
    ...      "name": "io.debezium.time.MicroTimestamp"}]})["fields"]
    [{'name': 'id', 'type': 'int'}, {'name': 'at', 'type': ['null', {'type': 'long', 'connect.name': \
'io.debezium.time.MicroTimestamp'}]}]
    """
    avro = avro_of_field(_row_of_connect(schema), "")
    record = avro[1] if isinstance(avro, list) else avro
    if not isinstance(record, dict) or record.get("type") != "record":
        raise SchemaRefused("", "the message's schema is neither that of a change event nor that of a row")
    return record


def fields_of_connect(schema: Any) -> list[Mapping[str, Any]]:
    """Return the columns of the row in a message's schema; an empty list if the schema has no row.

    >>> fields_of_connect({"type": "struct", "fields": [{"field": "id", "type": "int32"}]})
    [{'field': 'id', 'type': 'int32'}]
    """
    return [field for field in _stated_fields(_row_of_connect(schema)) if isinstance(field.get("field"), str)]


def avro_of_field(field: Any, column: str | None = None) -> AvroType:
    """Return the Avro type of a Connect schema or of one of its fields; errors name `column`, or else the field.

    Raises:
        SchemaRefused: the type is unknown, or the value is not a schema.
    """
    try:
        return _avro_of_connect(field, field["field"] if column is None else column, _Counter())
    except (
        AttributeError,
        KeyError,
        RecursionError,
        TypeError,
        ValueError,
    ):  # another tool's schema may have any shape
        raise SchemaRefused(column or "", "the message's schema is not a Kafka Connect schema") from None


def _row_of_connect(schema: Any) -> Any:
    """Return the row in the schema of a change event; return any other schema unchanged."""
    fields = {field["field"]: field for field in _stated_fields(schema) if isinstance(field.get("field"), str)}
    return fields["after"] if {"after", "op"} <= set(fields) else schema


def _stated_fields(schema: Any) -> list[Mapping[str, Any]]:
    fields = schema.get("fields") if isinstance(schema, Mapping) else None
    return [field for field in fields if isinstance(field, Mapping)] if isinstance(fields, list) else []


@dataclass
class _Counter:
    used: int = 0

    def name(self) -> str:
        self.used += 1
        return f"struct{self.used}"


_CONNECT = {name: scalar.base for scalar in SCALARS.values() for name in scalar.connect_types}


def _avro_of_connect(schema: Mapping[str, Any], column: str, counter: _Counter) -> AvroType:
    """Return the Avro type of a Connect schema, with its name and parameters, as the Avro converter writes it."""
    kind, name = schema.get("type"), schema.get("name")
    avro: AvroType
    if kind == "struct":
        fields = [
            {"name": field["field"], "type": _avro_of_connect(field, f"{column}.{field['field']}".lstrip("."), counter)}
            | ({"default": field["default"]} if "default" in field else {})
            for field in list(schema.get("fields") or ())
        ]
        avro = {"type": "record", "name": counter.name(), "fields": fields}
    elif kind == "array":
        avro = {"type": "array", "items": _avro_of_connect(schema["items"], f"{column}[]", counter)}
    elif kind == "map":
        avro = {"type": "map", "values": "string"}
    elif kind in _CONNECT:
        avro = _CONNECT[kind]
    else:
        raise SchemaRefused(column, f"the type {kind!r} in the message's schema is unknown")
    if name:
        avro = ({"type": avro} if isinstance(avro, str) else avro) | {"connect.name": name}
    if schema.get("parameters"):
        avro = ({"type": avro} if isinstance(avro, str) else avro) | {"connect.parameters": schema["parameters"]}
    return ["null", avro] if schema.get("optional") else avro


def _fields_of(record: Mapping[str, Any], column: str, named: dict[str, Any]) -> tuple[tuple[str, WireType], ...]:
    wires = []
    for field in fields_of(record, column):
        name = field["name"]
        wires.append((name, _wire_type(field.get("type"), f"{column}.{name}".lstrip("."), named)))
    return tuple(wires)


def _wire_type(kind: AvroType, column: str, named: dict[str, Any]) -> WireType:
    if isinstance(kind, list):
        check_not_void(kind, column)
        types = [branch for branch in kind if branch not in ("null", {"type": "null"})]
        if len(types) != 1:
            raise SchemaRefused(column, "it is a union of several types, but a column has one type, and may be null")
        inner = _wire_type(types[0], column, named)
        return replace(inner, nullable=len(types) < len(kind))
    if isinstance(kind, str):
        if kind in named:
            return _wire_type(named[kind], column, named)
        kind = {"type": kind}
    if not isinstance(kind, Mapping):
        raise SchemaRefused(column, "its type is neither a name nor a union nor an object")
    return _wire_type_of(kind, kind.get("type"), column, named)


def _wire_type_of(kind: Mapping[str, Any], base: Any, column: str, named: dict[str, Any]) -> WireType:
    name, logical = kind.get("connect.name"), kind.get("logicalType")
    _add_name(kind, named)
    if name == _SCALED_DECIMAL:
        return WireType(
            "record", "scaled_decimal", "string", fields=(("scale", _plain("int")), ("value", _plain("bytes")))
        )
    if base == "record":
        fields = _fields_of(kind, column, named)
        landing = {
            "type": "record",
            "name": f"{column.replace('.', '_').replace('[]', '_item')}_record",
            "fields": [{"name": field_name, "type": _landing(wire)} for field_name, wire in fields],
        }
        return WireType("record", "as_is", landing, fields=fields)
    if base == "array":
        item = _wire_type(kind.get("items"), f"{column}[]", named)
        return WireType("array", "as_is", {"type": "array", "items": _landing(item)}, item=item)
    if base == "map":
        return WireType("json", "as_is", "string")
    is_plain = logical != DECIMAL and str(name) not in _BY_NAME and ("string", str(logical)) not in _BY_LOGICAL
    if base in ("enum", "string") and is_plain:
        return _plain("string")
    if str(name) in _DECIMAL_NAMES or logical == DECIMAL:
        return _decimal(kind, str(base), column)
    if not isinstance(base, str) or base not in PRIMITIVES:
        if isinstance(base, dict | list):
            return _wire_type(base, column, named)
        raise SchemaRefused(column, f"the type {base!r} is unknown")
    converted = _BY_NAME.get(str(name)) or _BY_LOGICAL.get((base, str(logical)))
    if converted is not None:
        if converted.name != base:
            raise SchemaRefused(column, f"{name} is sent as {converted.name}, but is declared as {base}")
        return converted
    if base == "bytes" and kind.get("encoding", "base64") not in ("base64", "hex"):
        raise SchemaRefused(column, f"the encoding {kind['encoding']!r} of bytes is neither base64 nor hex")
    return WireType("hex", "as_is", "bytes") if kind.get("encoding") == "hex" else _plain(base)


def _add_name(kind: Mapping[str, Any], named: dict[str, Any]) -> None:
    """Add a named type under its short name and its full name."""
    if kind.get("type") in ("record", "enum", "fixed") and isinstance(kind.get("name"), str):
        named[kind["name"]] = kind
        if isinstance(kind.get("namespace"), str):
            named[f"{kind['namespace']}.{kind['name']}"] = kind


def _plain(base: str) -> WireType:
    return WireType(base, "as_is", base)


def _decimal(kind: Mapping[str, Any], base: str, column: str) -> WireType:
    """Return the wire type of a decimal for any `decimal.handling.mode`: unscaled bytes, text, or a double."""
    parameters = kind.get("connect.parameters") or {}
    scale = kind.get("scale", parameters.get("scale", 0))
    precision = parameters.get("connect.decimal.precision", kind.get("precision", DECIMAL_PRECISION_MAX))
    try:
        precision, scale = int(precision), int(scale)
    except (TypeError, ValueError):
        raise SchemaRefused(column, f"invalid decimal: precision {precision!r}, scale {scale!r}") from None
    if base not in _DECIMAL_FORMS:
        raise SchemaRefused(column, f"a decimal is sent as bytes, string or double, not as {base}")
    landing = {"type": "bytes", "logicalType": DECIMAL, "precision": precision, "scale": scale}
    return WireType(base, _DECIMAL_FORMS[base].conversion, landing)


def _landing(wire: WireType) -> AvroType:
    return ["null", wire.landing] if wire.nullable else wire.landing
