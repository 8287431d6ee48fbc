"""How a message's own schema has written the columns of a row, against how the collection reads them.

A source changes the type of a column, and what travels may look as before: a count of milliseconds where microseconds
were. So each schema is held against the collection's types, column by column, before a value of its messages counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from tidelake.connect_types import (
    Travel,
    avro_of_field,
    fields_of_connect,
    key_row_of,
    travels,
    without_references,
)
from tidelake.errors import SchemaRefused
from tidelake.resolution import WIDER

AvroType = Any

_TIMES = "io.debezium.time."
_ALIASES = {f"org.apache.kafka.connect.data.{name}": f"{_TIMES}{name}" for name in ("Date", "Time", "Timestamp")}
_FAMILIES = (
    frozenset({"timestamp_millis", "timestamp_micros", "timestamp_text"}),
    frozenset({"decimal_bytes", "decimal_text"}),
)
"""Within each, what was written in one way can be read exactly as a column that is written in another."""
_TEXTS = frozenset({"string", "json"})
_SCALE_MAX = 38


def written_otherwise(record: Mapping[str, Any], schema: Any) -> dict[str, Travel]:
    """By column, how it has to be read where it was not written as the collection reads it; most often nothing.

    A plain type agrees with one that the collection's schema says more of, unless that has Connect's name of it, which
    a converter would have written. Columns that one of the two does not have, and nulls, are not looked at.

    Args:
        record: the row of the collection, with Connect's names of types.
        schema: the `schema` part of a JSON message; one that is about no row says nothing.

    Raises:
        SchemaRefused: naming the first column that cannot be read as the collection's, and why.

    >>> def of(kind, **more):
    ...     return {"type": "struct", "fields": [{"field": "at", "type": kind, **more}]}
    >>> row = {"type": "record", "name": "row", "fields": [
    ...     {"name": "at", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}}]}
    >>> written_otherwise(row, of("int64", name="io.debezium.time.Timestamp"))["at"].turn
    'timestamp_millis'
    >>> written_otherwise(row, of("int64"))
    Traceback (most recent call last):
    tidelake.errors.SchemaRefused: column 'at' is refused: it is written as int64, and the collection reads \
io.debezium.time.MicroTimestamp (timestamp_micros)
    """
    theirs = {one["field"]: one for one in fields_of_connect(schema)}
    found = {}
    for one in without_references(record):
        name = one["name"]
        if name not in theirs:
            continue
        written = avro_of_field(theirs[name])
        if not _is_same(one["type"], written, name):
            found[name] = _turned(name, one["type"], written, theirs[name])
    return found


def says_key(record: Mapping[str, Any], key: Collection[str], schema: Any) -> bool:
    """Whether the key's columns out of a message can be told, though its schema was refused.

    A wider number can: where it does not fit, there is none.
    """
    theirs = {one["field"]: one for one in fields_of_connect(schema)}
    for one in key_row_of(record, key)["fields"]:
        name, ours = one["name"], one["type"]
        try:
            written = avro_of_field(theirs[name]) if name in theirs else ours
            if not (_is_same(ours, written, name) or _is_same(written, ours, name)):
                return False
        except SchemaRefused:
            return False
    return True


def _is_same(ours: AvroType, theirs: AvroType, column: str) -> bool:
    """Whether what was written as one type is read as the other without being taken for something else."""
    ours, theirs = _bare(ours), _bare(theirs)
    mine, other = _travel(ours, column), _travel(theirs, column)
    if mine.turn == other.turn == "as_is" and mine.raw == other.raw == "array":
        return _is_same(ours["items"], theirs["items"], column)
    if mine.turn == other.turn == "as_is" and mine.raw == other.raw == "record":
        written = {one["name"]: one["type"] for one in theirs["fields"]}
        both = [one for one in ours["fields"] if one["name"] in written]
        return all(_is_same(one["type"], written[one["name"]], column) for one in both)
    names = _name(ours), _name(theirs)
    if mine.turn == other.turn:
        if mine.turn != "as_is":
            return mine.turn != "decimal_bytes" or bool(mine.landing["scale"] == other.landing["scale"])
        if all(names) and names[0] != names[1] and any(one.startswith(_TIMES) for one in names):
            return False  # a number of another unit
        wider = (other.raw, mine.raw) in WIDER or {mine.raw, other.raw} <= _TEXTS
        encoded = other.raw == "string" and "encoding" in ours
        return mine.raw == other.raw or wider or encoded
    # The collection's schema says what a plain value stands for.
    return other.turn == "as_is" and mine.raw == other.raw and not any(names)


def _turned(name: str, ours: AvroType, theirs: AvroType, field: Mapping[str, Any]) -> Travel:
    """How to read what was written as `theirs`, so that it is a value of `ours`."""
    mine, other = _travel(ours, name), _travel(theirs, name)
    if any({mine.turn, other.turn} <= family for family in _FAMILIES):
        if other.turn != "decimal_bytes":
            return replace(other, landing=mine.landing, nullable=mine.nullable)
        scale = other.landing["scale"]
        if 0 <= scale <= _SCALE_MAX:
            return replace(other, landing=mine.landing, scale=scale, nullable=mine.nullable)
    written = _said(str(field.get("name") or ""), str(field.get("type")))
    read = _said(str(_bare(ours).get("connect.name") or ""), mine.raw if mine.turn == "as_is" else mine.turn)
    raise SchemaRefused(name, f"it is written as {written}, and the collection reads {read}")


def _said(name: str, kind: str) -> str:
    return f"{name} ({kind})" if name else kind


def _bare(kind: AvroType) -> dict[str, Any]:
    """A type without the null beside it, and without types around it that say nothing."""
    while not isinstance(kind, dict) or isinstance(kind.get("type"), dict | list):
        if isinstance(kind, list):
            kind = next(one for one in kind if one not in ("null", {"type": "null"}))
        else:
            kind = {"type": kind} if isinstance(kind, str) else kind["type"]
    return kind


def _travel(kind: AvroType, column: str) -> Travel:
    return travels({"fields": [{"name": column, "type": kind}]})[0][1]


def _name(kind: Mapping[str, Any]) -> str:
    """Connect's name of a type, one of two where they mean the same; empty where it has none."""
    name = str(kind.get("connect.name") or "")
    return _ALIASES.get(name, name)
