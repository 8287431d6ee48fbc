"""Checks embedded Connect schemas against the collection's column types.

If a source changes the type of a column, for example from microseconds to milliseconds, its values may look the same.
So each schema is compared with the collection's types, column by column, before any value of a message is used.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from tidelake.errors import SchemaRefused
from tidelake.schema.connect import (
    WireType,
    avro_of_field,
    fields_of_connect,
    key_row_of,
    wire_types,
    without_references,
)
from tidelake.schema.types import SCALARS, is_promotion

AvroType = Any

_TIMES = "io.debezium.time."
_ALIASES = {f"org.apache.kafka.connect.data.{name}": f"{_TIMES}{name}" for name in ("Date", "Time", "Timestamp")}
_COLUMN_TYPE = attrgetter("connect_column_type")
_CONVERSIONS = [
    {form.conversion for scalar in scalars for form in scalar.connect_forms}
    for _, scalars in groupby(sorted(SCALARS.values(), key=_COLUMN_TYPE), key=_COLUMN_TYPE)
]
"""Sets of conversions to the same column type: a column of this type holds exactly what any of them returns."""
_TEXTS = frozenset({"string", "json"})
_SCALE_MAX = 38


def differing_wire_types(record: Mapping[str, Any], schema: Any) -> dict[str, WireType]:
    """Return the wire types that differ from the collection's, by column; usually empty.

    A plain type agrees with a logical type of the collection's schema, unless the logical type has a Connect name,
    which a converter would have written. Nullability, and columns that only one of the two schemas has, are ignored.

    Args:
        record: the row of the collection, with Connect's type names.
        schema: the `schema` part of a JSON message; a schema without a row is ignored.

    Raises:
        SchemaRefused: names the first column that cannot be read as the collection's type, and the reason.

    >>> def of(kind, **others):
    ...     return {"type": "struct", "fields": [{"field": "at", "type": kind, **others}]}
    >>> row = {"type": "record", "name": "row", "fields": [
    ...     {"name": "at", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}}]}
    >>> differing_wire_types(row, of("int64", name="io.debezium.time.Timestamp"))["at"].conversion
    'timestamp_millis'
    >>> differing_wire_types(row, of("int64"))
    Traceback (most recent call last):
    tidelake.errors.SchemaRefused: column 'at' is refused: it is written as int64, but the collection reads \
io.debezium.time.MicroTimestamp (timestamp_micros)

    If only a part of a column cannot be read, the error names this part.

    >>> row = {"type": "record", "name": "row", "fields": [
    ...     {"name": "at", "type": {"type": "array", "items": {"type": "array", "items": "string"}}}]}
    >>> differing_wire_types(row, of("array", items={"type": "array", "items": {"type": "int64"}}))
    Traceback (most recent call last):
    tidelake.errors.SchemaRefused: column 'at[][]' is refused: it is written as int64, but the collection reads string
    """
    theirs = {field["field"]: field for field in fields_of_connect(schema)}
    others = {}
    for field in without_references(record):
        name = field["name"]
        if name not in theirs:
            continue
        written = avro_of_field(theirs[name])
        if not _is_same(field["type"], written, name):
            others[name] = _converted(name, field["type"], written, theirs[name])
    return others


def can_read_key(record: Mapping[str, Any], key: Collection[str], schema: Any) -> bool:
    """Return whether the key columns of a message can be read, even though the message's schema was refused.

    Numbers of a wider type can be read; one that does not fit becomes null.
    """
    theirs = {field["field"]: field for field in fields_of_connect(schema)}
    for field in key_row_of(record, key)["fields"]:
        name, ours = field["name"], field["type"]
        try:
            written = avro_of_field(theirs[name]) if name in theirs else ours
            if not (_is_same(ours, written, name) or _is_same(written, ours, name)):
                return False
        except SchemaRefused:
            return False
    return True


def _is_same(ours: AvroType, theirs: AvroType, column: str) -> bool:
    """Return whether a value written as `theirs` and read as `ours` keeps its meaning."""
    ours, theirs = _bare(ours), _bare(theirs)
    parts = _parts(ours, theirs, column)
    if parts is not None:
        return all(_is_same(mine, other, f"{column}{part}") for part, (mine, other) in parts.items())
    mine, other = _wire_type(ours, column), _wire_type(theirs, column)
    names = _name(ours), _name(theirs)
    if mine.conversion == other.conversion:
        if mine.conversion != "as_is":
            return mine.conversion != "decimal_bytes" or bool(mine.landing["scale"] == other.landing["scale"])
        if all(names) and names[0] != names[1] and any(name.startswith(_TIMES) for name in names):
            return False  # a number in a different unit
        wider = is_promotion(other.name, mine.name) or {mine.name, other.name} <= _TEXTS
        encoded = other.name == "string" and "encoding" in ours
        return mine.name == other.name or wider or encoded
    # The collection's schema gives a plain value its meaning.
    return other.conversion == "as_is" and mine.name == other.name and not any(names)


def _parts(ours: AvroType, theirs: AvroType, column: str) -> dict[str, tuple[AvroType, AvroType]] | None:
    """Return the types of the parts of two arrays (`[]`) or two records (`.name`); None for other types."""
    mine, other = _wire_type(ours, column), _wire_type(theirs, column)
    if not mine.conversion == other.conversion == "as_is" or mine.name != other.name:
        return None
    if mine.name == "array":
        return {"[]": (ours["items"], theirs["items"])}
    if mine.name == "record":
        written = {field["name"]: field["type"] for field in theirs["fields"]}
        both = [(field["name"], field["type"]) for field in ours["fields"] if field["name"] in written]
        return {f".{name}": (kind, written[name]) for name, kind in both}
    return None


def _converted(name: str, ours: AvroType, theirs: AvroType, field: Mapping[str, Any]) -> WireType:
    """Return the wire type that converts a value written as `theirs` to a value of `ours`."""
    mine, other = _wire_type(ours, name), _wire_type(theirs, name)
    if any({mine.conversion, other.conversion} <= family for family in _CONVERSIONS):
        if other.conversion != "decimal_bytes":
            return replace(other, landing=mine.landing, nullable=mine.nullable)
        scale = other.landing["scale"]
        if 0 <= scale <= _SCALE_MAX:
            return replace(other, landing=mine.landing, scale=scale, nullable=mine.nullable)
        raise SchemaRefused(name, f"it is a decimal with scale {scale}, but a scale must be from 0 to {_SCALE_MAX}")
    raise _refusal(name, ours, theirs, field)


def _refusal(column: str, ours: AvroType, theirs: AvroType, field: Mapping[str, Any]) -> SchemaRefused:
    """Return the error about a column, or about its first part that cannot be read; `field` is its Connect schema."""
    ours, theirs = _bare(ours), _bare(theirs)
    for part, (mine, other) in (_parts(ours, theirs, column) or {}).items():
        if not _is_same(mine, other, f"{column}{part}"):
            fields = {f".{inner['field']}": inner for inner in field.get("fields") or ()}
            return _refusal(f"{column}{part}", mine, other, field["items"] if part == "[]" else fields[part])
    mine, other = _wire_type(ours, column), _wire_type(theirs, column)
    written = _named(str(field.get("name") or ""), str(field.get("type")))
    read = _named(str(ours.get("connect.name") or ""), mine.name if mine.conversion == "as_is" else mine.conversion)
    if mine.conversion == other.conversion == "decimal_bytes":
        written, read = (
            f"{text} with scale {wire.landing['scale']}" for text, wire in ((written, other), (read, mine))
        )
    return SchemaRefused(column, f"it is written as {written}, but the collection reads {read}")


def _named(name: str, kind: str) -> str:
    return f"{name} ({kind})" if name else kind


def _bare(kind: AvroType) -> dict[str, Any]:
    """Return a type without its null branch, and without objects that only wrap it."""
    while not isinstance(kind, dict) or isinstance(kind.get("type"), dict | list):
        if isinstance(kind, list):
            kind = next(branch for branch in kind if branch not in ("null", {"type": "null"}))
        else:
            kind = {"type": kind} if isinstance(kind, str) else kind["type"]
    return kind


def _wire_type(kind: AvroType, column: str) -> WireType:
    return wire_types({"fields": [{"name": column, "type": kind}]})[0][1]


def _name(kind: Mapping[str, Any]) -> str:
    """Return Connect's name for a type; aliases give the same name, and a type without a name gives an empty text."""
    name = str(kind.get("connect.name") or "")
    return _ALIASES.get(name, name)
