"""SQL text for DuckDB: names, strings, and columns as they are compared and ordered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa


def quoted(name: str) -> str:
    """Return a name as an identifier.

    >>> quoted('a"b')
    '"a""b"'
    """
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def text(value: str) -> str:
    """Return a string as a literal.

    >>> text("it's")
    "'it''s'"
    """
    escaped = value.replace("'", "''")
    return f"'{escaped}'"


def listed(parts: Iterable[str]) -> str:
    """Join the parts of a list."""
    return ", ".join(parts)


def names_of(names: Iterable[str]) -> str:
    """Return names as a list of identifiers."""
    return listed(map(quoted, names))


def whole(names: Iterable[str], prefix: str = "") -> str:
    """Return these columns as one struct."""
    fields = listed(f"{quoted(name)} := {prefix}{quoted(name)}" for name in names)
    return f"struct_pack({fields})"


def with_one_zero(column: str, kind: pa.DataType, depth: int = 0) -> str:
    """Return a value with 0 in place of -0, nested ones included: they are equal, so rows are grouped by either.

    >>> with_one_zero("x", pa.float32()), with_one_zero("x", pa.int64())
    ('CASE WHEN x = 0 THEN 0::FLOAT ELSE x END', 'x')
    """
    if not has_floats(kind):
        return column
    if pa.types.is_struct(kind):
        fields = (
            f"{quoted(part.name)} := {with_one_zero(f'{column}.{quoted(part.name)}', part.type, depth)}"
            for part in kind
        )
        return f"CASE WHEN {column} IS NOT NULL THEN struct_pack({listed(fields)}) END"
    if pa.types.is_list(kind):
        item = f"item_{depth}"
        return f"list_transform({column}, lambda {item}: {with_one_zero(item, kind.value_type, depth + 1)})"
    zero = "0::FLOAT" if pa.types.is_float32(kind) else "0::DOUBLE"
    return f"CASE WHEN {column} = 0 THEN {zero} ELSE {column} END"


def has_floats(kind: pa.DataType) -> bool:
    """Return whether a value of this type is a floating-point number, or has one inside."""
    if pa.types.is_struct(kind):
        return any(has_floats(part.type) for part in kind)
    if pa.types.is_list(kind):
        return has_floats(kind.value_type)
    return bool(pa.types.is_floating(kind))


def order_of(column: str, kind: pa.DataType) -> list[str]:
    """Return what to sort by so that values come in Spark's order: null first, nested ones included.

    >>> order_of("x", pa.struct([("a", pa.int64())]))
    ['x IS NOT NULL', 'x."a" NULLS FIRST']
    """
    if pa.types.is_struct(kind):
        return [f"{column} IS NOT NULL", *_each(order_of(f"{column}.{quoted(part.name)}", part.type) for part in kind)]
    if pa.types.is_list(kind):
        return [f"{_comparable(column, kind, 0)} NULLS FIRST"]
    return [f"{column} NULLS FIRST"]


def _comparable(value: str, kind: pa.DataType, depth: int) -> str:
    """Return a value that is compared as Spark compares it: each nested null is preceded by whether it is one."""
    if pa.types.is_list(kind):
        item = f"item_{depth}"
        inner = _comparable(item, kind.value_type, depth + 1)
        return f"list_transform({value}, lambda {item}: row({item} IS NOT NULL, {inner}))"
    if pa.types.is_struct(kind):
        parts = [f"{value}.{quoted(part.name)}" for part in kind]
        compared = zip(parts, (part.type for part in kind), strict=True)
        return f"row({listed(f'{part} IS NOT NULL, {_comparable(part, inner, depth)}' for part, inner in compared)})"
    return value


def _each(lists: Iterable[Sequence[str]]) -> list[str]:
    return [part for each in lists for part in each]
