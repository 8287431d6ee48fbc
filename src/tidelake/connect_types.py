"""The types of Kafka Connect and Debezium: what a row's schema says of them, how they travel, and how they land.

A column's type is declared as Avro with Debezium's own name for it (`connect.name`), as a converter for Avro writes it,
or with one of the project's logical types. What travels is the *raw* type: a count of days, text, bytes. What lands is
an Avro type that a table knows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tidelake.errors import SchemaRefused
from tidelake.schema import DECIMAL_PRECISION_MAX, PRIMITIVES, resolved_schema

AvroType = Any

_DATE = {"type": "int", "logicalType": "date"}
_TIMESTAMP = {"type": "long", "logicalType": "timestamp-micros"}


@dataclass(frozen=True, slots=True)
class Travel:
    """How one type travels, and how it lands.

    Args:
        raw: what travels: `boolean`, `int`, `long`, `float`, `double`, `string`, `bytes` (base64 in JSON), `hex` (bytes
            as hexadecimal text), `array`, `record`, or `json`: anything, kept as the text it is.
        turn: what is made of it: `as_is`, `date` (of days), `timestamp_millis`, `timestamp_micros` (of a count),
            `timestamp_text`, `decimal_bytes` (the unscaled number), `decimal_text`, or `scaled_decimal` (of a record of
            scale and unscaled number; it lands as text).
        landing: the Avro type of the column.
        item: what an array holds.
        fields: what a record holds, by name.
        scale: of `decimal_bytes`, the scale that the number was written with, where that is not the column's.
    """

    raw: str
    turn: str
    landing: AvroType
    item: Travel | None = None
    fields: tuple[tuple[str, Travel], ...] = ()
    nullable: bool = False
    scale: int | None = None


_COUNTS = {
    "io.debezium.time.Date": ("int", "date", _DATE),
    "org.apache.kafka.connect.data.Date": ("int", "date", _DATE),
    "io.debezium.time.Timestamp": ("long", "timestamp_millis", _TIMESTAMP),
    "org.apache.kafka.connect.data.Timestamp": ("long", "timestamp_millis", _TIMESTAMP),
    "io.debezium.time.MicroTimestamp": ("long", "timestamp_micros", _TIMESTAMP),
    "io.debezium.time.ZonedTimestamp": ("string", "timestamp_text", _TIMESTAMP),
}
"""Names that change what lands. Every other name (times of day, nanoseconds, durations, UUID, JSON, XML, enums, bits)
lands as it travels: there is no type in every Delta reader that would lose nothing."""

_LOGICAL = {
    ("int", "date"): ("int", "date", _DATE),
    ("long", "timestamp-millis"): ("long", "timestamp_millis", _TIMESTAMP),
    ("long", "timestamp-micros"): ("long", "timestamp_micros", _TIMESTAMP),
    ("string", "timestamp-millis"): ("string", "timestamp_text", _TIMESTAMP),
    ("string", "timestamp-micros"): ("string", "timestamp_text", _TIMESTAMP),
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_SCALED_DECIMAL = "io.debezium.data.VariableScaleDecimal"


def travels(record_schema: Mapping[str, Any]) -> tuple[tuple[str, Travel], ...]:
    """How each column of a row travels and lands.

    Raises:
        SchemaRefused: naming the column and the reason.

    >>> dict(travels({"type": "record", "name": "row", "fields": [{"name": "born", "type":
    ...     {"type": "int", "connect.name": "io.debezium.time.Date"}}]}))["born"].turn
    'date'
    """
    return _fields_of(record_schema, "", {})


def landing_record(record_schema: Mapping[str, Any]) -> dict[str, Any]:
    """The record of the table's columns that a row's schema asks for.

    Raises:
        SchemaRefused: naming the column and the reason.

    >>> landing_record({"type": "record", "name": "row", "fields": [{"name": "tags", "type":
    ...     ["null", {"type": "map", "values": "string"}]}]})["fields"]
    [{'name': 'tags', 'type': ['null', 'string']}]
    """
    fields = [{"name": name, "type": _landing(travel)} for name, travel in travels(record_schema)]
    record = {"type": "record", "name": str(record_schema.get("name", "row")), "fields": fields}
    if isinstance(record_schema.get("namespace"), str):
        record["namespace"] = record_schema["namespace"]
    resolved_schema(record)
    return record


def declared_row(schema: Any) -> dict[str, Any]:
    """The record of a row out of itself, or out of the record of a change event, which has it in `before` and `after`.

    Raises:
        SchemaRefused: it is neither.

    >>> row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]}
    >>> declared_row({"type": "record", "name": "Envelope", "fields": [{"name": "before", "type": ["null", row]},
    ...     {"name": "after", "type": ["null", "Value"]}, {"name": "op", "type": "string"}]}) == row
    True
    """
    if not isinstance(schema, dict) or schema.get("type") != "record" or not isinstance(schema.get("fields"), list):
        raise SchemaRefused("", "it is neither the record of a row nor that of a change event")
    fields: dict[Any, Any] = {one.get("name"): one.get("type") for one in schema["fields"] if isinstance(one, dict)}
    if not {"before", "after", "op"} <= set(fields):
        return schema
    for name in ("before", "after"):
        branches = fields[name] if isinstance(fields[name], list) else [fields[name]]
        rows = [one for one in branches if isinstance(one, dict) and one.get("type") == "record"]
        if rows:
            return dict(rows[0])
    raise SchemaRefused("before", "a change event has `before` and `after`, each null or the record of a row")


def without_references(record_schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The fields of a record, with each type where it is used, so that a field may stand alone.

    >>> money = {"type": "record", "name": "money", "fields": [{"name": "cents", "type": "long"}]}
    >>> fields = [{"name": "net", "type": money}, {"name": "gross", "type": ["null", "money"]}]
    >>> without_references({"type": "record", "name": "row", "fields": fields})[1]["type"][1] == money
    True
    """
    named: dict[str, Any] = {}

    def inlined(kind: Any) -> Any:
        if isinstance(kind, list):
            return [inlined(one) for one in kind]
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
            own["fields"] = [{**one, "type": inlined(one["type"])} for one in own["fields"]]
        _note_name(own, named)
        return own

    return [{**one, "type": inlined(one["type"])} for one in record_schema["fields"]]


def key_row_of(row: Mapping[str, Any], key: Collection[str]) -> dict[str, Any]:
    """The record of a row with the columns of its key alone."""
    return {**row, "fields": [one for one in without_references(row) if one["name"] in key]}


def row_schema_of_connect(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The row's schema out of the `schema` part of a JSON message: that of a change event, or of a bare row.

    Raises:
        SchemaRefused: it is neither, or a column's type is not known.

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
    """The columns of the row that a message's schema is about; none where it is about no row.

    >>> fields_of_connect({"type": "struct", "fields": [{"field": "id", "type": "int32"}]})
    [{'field': 'id', 'type': 'int32'}]
    """
    return [one for one in _stated_fields(_row_of_connect(schema)) if isinstance(one.get("field"), str)]


def avro_of_field(field: Any, column: str | None = None) -> AvroType:
    """The Avro type of a Connect schema; of a field of it, under its own name.

    Raises:
        SchemaRefused: its type is not known, or it is no schema.
    """
    try:
        return _avro_of_connect(field, field["field"] if column is None else column, _Counter())
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):  # a stranger has written it
        raise SchemaRefused(column or "", "the message's schema is not one of Kafka Connect's") from None


def _row_of_connect(schema: Any) -> Any:
    """The row in the schema of a change event; any other as it is."""
    fields = {one["field"]: one for one in _stated_fields(schema) if isinstance(one.get("field"), str)}
    return fields["after"] if {"after", "op"} <= set(fields) else schema


def _stated_fields(schema: Any) -> list[Mapping[str, Any]]:
    stated = schema.get("fields") if isinstance(schema, Mapping) else None
    return [one for one in stated if isinstance(one, Mapping)] if isinstance(stated, list) else []


@dataclass
class _Counter:
    used: int = 0

    def name(self) -> str:
        self.used += 1
        return f"struct{self.used}"


_CONNECT = {
    **{f"int{bits}": "int" for bits in (8, 16, 32)},
    "int64": "long",
    **{name: name for name in ("boolean", "string", "bytes", "float", "double")},
    "float32": "float",
    "float64": "double",
}


def _avro_of_connect(schema: Mapping[str, Any], column: str, counter: _Counter) -> AvroType:
    """The Avro type of a Connect schema, with its name and parameters, as a converter for Avro writes it."""
    kind, name = schema.get("type"), schema.get("name")
    avro: AvroType
    if kind == "struct":
        fields = [
            {"name": one["field"], "type": _avro_of_connect(one, f"{column}.{one['field']}".lstrip("."), counter)}
            | ({"default": one["default"]} if "default" in one else {})
            for one in list(schema.get("fields") or ())
        ]
        avro = {"type": "record", "name": counter.name(), "fields": fields}
    elif kind == "array":
        avro = {"type": "array", "items": _avro_of_connect(schema["items"], f"{column}[]", counter)}
    elif kind == "map":
        avro = {"type": "map", "values": "string"}
    elif kind in _CONNECT:
        avro = _CONNECT[kind]
    else:
        raise SchemaRefused(column, f"the type {kind!r} of the message's schema is not known")
    if name:
        avro = ({"type": avro} if isinstance(avro, str) else avro) | {"connect.name": name}
    if schema.get("parameters"):
        avro = ({"type": avro} if isinstance(avro, str) else avro) | {"connect.parameters": schema["parameters"]}
    return ["null", avro] if schema.get("optional") else avro


def _fields_of(record: Mapping[str, Any], column: str, named: dict[str, Any]) -> tuple[tuple[str, Travel], ...]:
    fields = record.get("fields")
    if not isinstance(fields, list) or not fields:
        raise SchemaRefused(column, "a record without a field")
    found = []
    for one in fields:
        name = str(one.get("name") if isinstance(one, dict) else one)
        found.append((name, _travel(one["type"], f"{column}.{name}".lstrip("."), named)))
    return tuple(found)


def _travel(kind: AvroType, column: str, named: dict[str, Any]) -> Travel:
    if isinstance(kind, list):
        real = [one for one in kind if one not in ("null", {"type": "null"})]
        if len(real) != 1:
            raise SchemaRefused(column, "a union of several types: a column of a row has one, and may be null")
        inner = _travel(real[0], column, named)
        return Travel(inner.raw, inner.turn, inner.landing, inner.item, inner.fields, len(real) < len(kind))
    if isinstance(kind, str):
        if kind in named:
            return _travel(named[kind], column, named)
        kind = {"type": kind}
    return _travel_of(kind, kind.get("type"), column, named)


def _travel_of(kind: Mapping[str, Any], base: Any, column: str, named: dict[str, Any]) -> Travel:
    name, logical = kind.get("connect.name"), kind.get("logicalType")
    _note_name(kind, named)
    if name == _SCALED_DECIMAL:
        return Travel(
            "record", "scaled_decimal", "string", fields=(("scale", _plain("int")), ("value", _plain("bytes")))
        )
    if base == "record":
        fields = _fields_of(kind, column, named)
        landing = {
            "type": "record",
            "name": f"{column.replace('.', '_').replace('[]', '_item')}_record",
            "fields": [{"name": one, "type": _landing(travel)} for one, travel in fields],
        }
        return Travel("record", "as_is", landing, fields=fields)
    if base == "array":
        item = _travel(kind.get("items"), f"{column}[]", named)
        return Travel("array", "as_is", {"type": "array", "items": _landing(item)}, item=item)
    if base == "map":
        return Travel("json", "as_is", "string")
    if (
        base in ("enum", "string")
        and logical != "decimal"
        and name not in _COUNTS
        and ("string", logical) not in _LOGICAL
    ):
        return _plain("string")
    if name == _DECIMAL or logical == "decimal":
        return _decimal(kind, str(base), column)
    if not isinstance(base, str) or base not in PRIMITIVES:
        if isinstance(base, dict | list):
            return _travel(base, column, named)
        raise SchemaRefused(column, f"the type {base!r} is not known here")
    known = _COUNTS.get(str(name)) or _LOGICAL.get((base, str(logical)))
    if known is not None:
        if known[0] != base:
            raise SchemaRefused(column, f"{name} travels as {known[0]}, and it is declared as {base}")
        return Travel(*known)
    if base == "bytes" and kind.get("encoding", "base64") not in ("base64", "hex"):
        raise SchemaRefused(column, f"the encoding {kind['encoding']!r} of bytes is neither base64 nor hex")
    return Travel("hex", "as_is", "bytes") if kind.get("encoding") == "hex" else _plain(base)


def _note_name(kind: Mapping[str, Any], named: dict[str, Any]) -> None:
    """Remember a named type by its own name, and by its full one."""
    if kind.get("type") in ("record", "enum", "fixed") and isinstance(kind.get("name"), str):
        named[kind["name"]] = kind
        if isinstance(kind.get("namespace"), str):
            named[f"{kind['namespace']}.{kind['name']}"] = kind


def _plain(base: str) -> Travel:
    return Travel(base, "as_is", base)


def _decimal(kind: Mapping[str, Any], base: str, column: str) -> Travel:
    """A decimal, as `decimal.handling.mode` sends it: the unscaled number as bytes, text, or a double."""
    parameters = kind.get("connect.parameters") or {}
    scale = kind.get("scale", parameters.get("scale", 0))
    precision = parameters.get("connect.decimal.precision", kind.get("precision", DECIMAL_PRECISION_MAX))
    try:
        precision, scale = int(precision), int(scale)
    except (TypeError, ValueError):
        raise SchemaRefused(column, f"a decimal of precision {precision!r} and scale {scale!r}") from None
    turns = {"bytes": "decimal_bytes", "string": "decimal_text", "double": "decimal_text"}
    if base not in turns:
        raise SchemaRefused(column, f"a decimal travels as bytes, string or double, not as {base}")
    landing = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    return Travel(base, turns[base], landing)


def _landing(travel: Travel) -> AvroType:
    return ["null", travel.landing] if travel.nullable else travel.landing
