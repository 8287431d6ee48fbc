"""Whether what one schema has written can be read as the columns of another, and how: column by column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidelake.column_types import Column, Primitive, column_types
from tidelake.errors import SchemaRefused

WIDER = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
}
"""From which plain type to which nothing, or no more than a decimal place, is lost."""
_DEFAULTS: dict[str, type | tuple[type, ...]] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": (int, float),
    "double": (int, float),
    "string": str,
}


@dataclass(frozen=True)
class Taken:
    """Where a column comes from: what was written, widened to the column's type where it was narrower, or a default."""

    written: bool = True
    widened: bool = False
    default: Any = None


def resolve(record: dict[str, Any], writer: dict[str, Any]) -> dict[str, Taken]:
    """By column of `record`, where it comes from in what `writer` has written.

    Raises:
        SchemaRefused: naming the first column that cannot be had, or would be lost, and why.

    >>> def of(**fields):
    ...     return {"type": "record", "name": "r", "fields": [{"name": one, "type": fields[one]} for one in fields]}
    >>> resolve(of(id="long", note=["null", "string"]), of(id="int"))
    {'id': Taken(written=True, widened=True, default=None), 'note': Taken(written=False, widened=False, default=None)}
    >>> resolve(of(id="int"), of(id="int", more="int"))
    Traceback (most recent call last):
    tidelake.errors.SchemaRefused: column 'more' is refused: it is not one of the collection's columns
    """
    theirs = {one.name: one for one in column_types(writer)}
    defaults = {one["name"]: one["default"] for one in record["fields"] if "default" in one}
    taken = {ours.name: _take(ours, theirs.pop(ours.name, None), defaults) for ours in column_types(record)}
    for name in theirs:
        raise SchemaRefused(name, "it is not one of the collection's columns")
    return taken


def _take(ours: Column, theirs: Column | None, defaults: dict[str, Any]) -> Taken:
    if theirs is None:
        if ours.name in defaults and _is_of(ours, defaults[ours.name]):
            return Taken(written=False, default=defaults[ours.name])
        if ours.nullable:
            return Taken(written=False)
        raise SchemaRefused(ours.name, "it was not written, may not be null, and has no plain default")
    if theirs.nullable and not ours.nullable:
        raise SchemaRefused(ours.name, "it was written as one that may be null, and the collection's may not")
    if theirs.type == ours.type:
        return Taken()
    if isinstance(ours.type, Primitive) and isinstance(theirs.type, Primitive):
        plain = ours.type.logical is theirs.type.logical is None
        if plain and (theirs.type.name, ours.type.name) in WIDER:
            return Taken(widened=True)
    raise SchemaRefused(ours.name, "it was written as another type, which does not widen to the collection's")


def _is_of(column: Column, default: Any) -> bool:
    """Whether a default is a plain value of the column's type; null is the default of its own kind."""
    if default is None:
        return column.nullable
    if not isinstance(column.type, Primitive) or column.type.logical is not None:
        return False
    kinds = _DEFAULTS.get(column.type.name)
    return kinds is not None and isinstance(default, kinds) and isinstance(default, bool) == (kinds is bool)
