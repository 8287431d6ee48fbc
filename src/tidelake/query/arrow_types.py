"""Types of DuckDB that Arrow lacks, and those whose longest values Arrow cannot hold."""

from __future__ import annotations

from collections.abc import Iterator

from duckdb.sqltypes import DuckDBPyType

from tidelake.query.names import text

_MISSING = frozenset(("bignum", "bit", "geometry", "time with time zone", "type", "uhugeint", "variant"))
"""DuckDB hands values of these types to Arrow as bytes, or as another type, in which a UHUGEINT may be negative."""
INTERVAL_HOURS = 2_562_047
"""Intervals of at least this many whole hours are too long: Arrow counts their nanoseconds in an int64."""


def missing_type(kind: DuckDBPyType) -> str | None:
    """Return the name of a type that Arrow lacks: `kind`, or a type inside it; None if Arrow has them all."""
    return next((str(part) for part in _parts(kind) if part.id in _MISSING), None)


def has_long_interval(value: str, kind: DuckDBPyType, depth: int = 0) -> str | None:
    """Return the condition that a value is or contains an interval too long for Arrow.

    The condition is null, or false, for all other values. Return None if the type has no interval.

    Args:
        value: the value, in SQL.
        kind: its type.
        depth: the number of lists around it.
    """
    if kind.id == "interval":
        return f"abs(date_part('hour', {value})) >= {INTERVAL_HOURS}"
    if kind.id in ("list", "array"):
        return _any_item(value, _types(kind)[0], depth)
    if kind.id == "map":
        keys, values = _types(kind)
        return _any_of([_any_item(f"map_keys({value})", keys, depth), _any_item(f"map_values({value})", values, depth)])
    if kind.id in ("struct", "tuple"):
        parts = [(f"struct_extract_at({value}, {place})", part) for place, part in enumerate(_types(kind), 1)]
    elif kind.id == "union":
        parts = [
            (f"union_extract({value}, {text(name)})", part)
            for name, part in kind.children
            if name and isinstance(part, DuckDBPyType)  # the first child is the tag, which has no name
        ]
    else:
        return None
    return _any_of([has_long_interval(inner, part, depth) for inner, part in parts])


def _any_item(items: str, kind: DuckDBPyType, depth: int) -> str | None:
    item = f"item_{depth}"
    condition = has_long_interval(item, kind, depth + 1)
    return condition and f"len(list_filter({items}, lambda {item}: {condition})) > 0"


def _any_of(conditions: list[str | None]) -> str | None:
    known = [condition for condition in conditions if condition is not None]
    return f"({' OR '.join(known)})" if known else None


def _parts(kind: DuckDBPyType) -> Iterator[DuckDBPyType]:
    """Iterate over a type and all types in it."""
    yield kind
    for part in _types(kind):
        yield from _parts(part)


def _types(kind: DuckDBPyType) -> list[DuckDBPyType]:
    """Return the types of which a type consists."""
    if kind.id not in ("array", "list", "map", "struct", "tuple", "union"):
        return []
    return [part for _, part in kind.children if isinstance(part, DuckDBPyType)]  # an array's children include its size
