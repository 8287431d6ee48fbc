"""Schema resolution: reads the records of one schema as the columns of another, column by column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidelake.errors import SchemaRefused
from tidelake.schema.columns import Column, Primitive, column_types
from tidelake.schema.types import is_promotion, scalar_type


@dataclass(frozen=True)
class ColumnSource:
    """The source of a column: the written value, promoted to the column's type if it is narrower, or a default."""

    written: bool = True
    widened: bool = False
    default: Any = None


def resolve(record: dict[str, Any], writer: dict[str, Any]) -> dict[str, ColumnSource]:
    """Return the source of each column of `record` in the records of `writer`.

    Raises:
        SchemaRefused: names the first column that cannot be read, or would be lost, and the reason.

    >>> def of(**fields):
    ...     return {"type": "record", "name": "r", "fields": [{"name": name, "type": fields[name]} for name in fields]}
    >>> sources = resolve(of(id="long", note=["null", "string"]), of(id="int"))
    >>> sources["id"], sources["note"].written
    (ColumnSource(written=True, widened=True, default=None), False)
    >>> resolve(of(id="int"), of(id="int", extra="int"))
    Traceback (most recent call last):
    tidelake.errors.SchemaRefused: column 'extra' is refused: it is not one of the collection's columns
    """
    theirs = {column.name: column for column in column_types(writer)}
    defaults = {field["name"]: field["default"] for field in record["fields"] if "default" in field}
    sources = {ours.name: _source_of(ours, theirs.pop(ours.name, None), defaults) for ours in column_types(record)}
    for name in theirs:
        raise SchemaRefused(name, "it is not one of the collection's columns")
    return sources


def _source_of(ours: Column, theirs: Column | None, defaults: dict[str, Any]) -> ColumnSource:
    if theirs is None:
        if ours.name in defaults and _is_value_of(ours, defaults[ours.name]):
            return ColumnSource(written=False, default=defaults[ours.name])
        if ours.nullable:
            return ColumnSource(written=False)
        raise SchemaRefused(ours.name, "it was not written, cannot be null, and has no plain default")
    if theirs.nullable and not ours.nullable:
        raise SchemaRefused(ours.name, "it was written as nullable, but the collection's column cannot be null")
    if theirs.type == ours.type:
        return ColumnSource()
    if isinstance(ours.type, Primitive) and isinstance(theirs.type, Primitive):
        plain = ours.type.logical is theirs.type.logical is None
        if plain and is_promotion(theirs.type.name, ours.type.name):
            return ColumnSource(widened=True)
    raise SchemaRefused(ours.name, "it was written as a different type, which does not widen to the collection's")


def _is_value_of(column: Column, default: Any) -> bool:
    """Return whether a default is a plain value of the column's type, or null for a nullable column."""
    if default is None:
        return column.nullable
    if not isinstance(column.type, Primitive) or column.type.logical is not None:
        return False
    types = scalar_type(column.type.name).default_types
    return isinstance(default, types) and isinstance(default, bool) == (bool in types)
