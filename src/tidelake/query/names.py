"""SQL text for DuckDB: names, strings, and expressions by which columns are compared and ordered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

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
    """Join parts with commas."""
    return ", ".join(parts)


def names_of(names: Iterable[str]) -> str:
    """Return names as a list of identifiers."""
    return listed(map(quoted, names))


def whole(names: Iterable[str], prefix: str = "") -> str:
    """Return these columns as one struct."""
    fields = listed(f"{quoted(name)} := {prefix}{quoted(name)}" for name in names)
    return f"struct_pack({fields})"


def with_one_zero(column: str, kind: pa.DataType, depth: int = 0) -> str:
    """Return a value with 0 in place of -0, even in nested values: the two are equal, so a group could show either.

    >>> with_one_zero("x", pa.float32()), with_one_zero("x", pa.int64())
    ('CASE WHEN x = 0 THEN 0::FLOAT ELSE x END', 'x')
    """
    if not pa.types.is_floating(kind):
        return _mapped(column, kind, depth, with_one_zero)
    zero = "0::FLOAT" if pa.types.is_float32(kind) else "0::DOUBLE"
    return f"CASE WHEN {column} = 0 THEN {zero} ELSE {column} END"


def packed(fields: Iterable[pa.Field], others: Iterable[str] = ()) -> str:
    """Return columns as one struct that an aggregate returns unchanged; `unpacked` returns the columns.

    `arg_max` compares structs by a sort key and builds its result from that key, which would turn -0 into 0.

    Args:
        fields: the columns.
        others: the names of further columns, none of which has floating-point numbers.
    """
    values = {field.name: _kept(quoted(field.name), field.type, 0) for field in fields}
    values |= {name: quoted(name) for name in others}
    return f"struct_pack({listed(f'{quoted(name)} := {value}' for name, value in values.items())})"


def unpacked(struct: str, field: pa.Field) -> str:
    """Return a column of a struct that `packed` returned."""
    return _restored(f"{struct}.{quoted(field.name)}", field.type, 0)


def _kept(value: str, kind: pa.DataType, depth: int) -> str:
    if pa.types.is_floating(kind):
        return f"{{'value': {value}, 'is_minus_0': {value} = 0 AND signbit({value})}}"
    return _mapped(value, kind, depth, _kept)


def _restored(value: str, kind: pa.DataType, depth: int) -> str:
    if pa.types.is_floating(kind):
        zero = "CAST('-0.0' AS FLOAT)" if pa.types.is_float32(kind) else "CAST('-0.0' AS DOUBLE)"
        return f"CASE WHEN {value}.is_minus_0 THEN {zero} ELSE {value}.value END"
    return _mapped(value, kind, depth, _restored)


def _mapped(value: str, kind: pa.DataType, depth: int, convert: Callable[[str, pa.DataType, int], str]) -> str:
    """Convert the floating-point numbers inside a value."""
    if not has_floats(kind):
        return value
    if pa.types.is_struct(kind):
        parts = {part.name: convert(f"{value}.{quoted(part.name)}", part.type, depth) for part in kind}
        fields = listed(f"{quoted(name)} := {part}" for name, part in parts.items())
        return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({fields}) END"
    item = f"item_{depth}"
    return f"list_transform({value}, lambda {item}: {convert(item, kind.value_type, depth + 1)})"


def has_floats(kind: pa.DataType) -> bool:
    """Return whether a value of this type is a floating-point number, or has one inside."""
    if pa.types.is_struct(kind):
        return any(has_floats(part.type) for part in kind)
    if pa.types.is_list(kind):
        return has_floats(kind.value_type)
    return bool(pa.types.is_floating(kind))


def order_of(column: str, kind: pa.DataType) -> list[str]:
    """Return the expressions that sort values in Spark's order: nulls first, nested nulls included.

    >>> order_of("x", pa.struct([("a", pa.int64())]))
    ['x IS NOT NULL', 'x."a" NULLS FIRST']
    """
    if pa.types.is_struct(kind):
        return [f"{column} IS NOT NULL", *_each(order_of(f"{column}.{quoted(part.name)}", part.type) for part in kind)]
    if pa.types.is_list(kind):
        return [f"{_comparable(column, kind, 0)} NULLS FIRST"]
    return [f"{column} NULLS FIRST"]


def _comparable(value: str, kind: pa.DataType, depth: int) -> str:
    """Return a value that DuckDB compares as Spark does: before each nested value, a flag says whether it is null."""
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
