"""The columns of a record schema, described without the types of Avro, Arrow or Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidelake.schema.avro import branch_name, resolved_schema
from tidelake.schema.types import Family, scalar_type


@dataclass(frozen=True, slots=True)
class Primitive:
    """A column without parts.

    Args:
        name: `boolean`, `int`, `long`, `float`, `double`, `bytes`, `string`, `enum` or `fixed`.
        logical: the schema's logical type, if any.
        precision: the precision of a decimal, at most 38.
        scale: the scale of a decimal.
    """

    name: str
    logical: str | None = None
    precision: int | None = None
    scale: int | None = None


@dataclass(frozen=True, slots=True)
class Struct:
    """A record inside a record."""

    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """A list; its items are a column named `item`."""

    item: Column


@dataclass(frozen=True, slots=True)
class Branches:
    """A union of several types: a nullable column for each branch, of which exactly one is not null."""

    columns: tuple[Column, ...]


ColumnType = Primitive | Struct | Array | Branches


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its type, and whether it may be null."""

    name: str
    type: ColumnType
    nullable: bool


def nullable_beside(record_schema: dict[str, Any], key: Sequence[str]) -> dict[str, Any]:
    """Return a record schema in which every column outside the key may be null.

    >>> fields = [{"name": "id", "type": "int"}, {"name": "price", "type": "int"}]
    >>> nullable_beside({"type": "record", "name": "row", "fields": fields}, ["id"])["fields"][1]
    {'name': 'price', 'type': ['null', 'int']}
    """

    def field(given: dict[str, Any]) -> dict[str, Any]:
        kind = given["type"]
        branches = kind if isinstance(kind, list) else [kind]
        if given["name"] in key or "null" in branches:
            return given
        return {name: value for name, value in given.items() if name != "default"} | {"type": ["null", *branches]}

    return record_schema | {"fields": [field(given) for given in record_schema["fields"]]}


def column_types(record_schema: dict[str, Any]) -> tuple[Column, ...]:
    """Return the columns of a record schema.

    Raises:
        SchemaRefused: a collection cannot hold the record.

    >>> for column in column_types({"type": "record", "name": "data", "fields": [
    ...         {"name": "id", "type": "long"}, {"name": "price", "type": ["null", "int", "string"]}]}):
    ...     print(column.name, column.nullable, type(column.type).__name__)
    id False Primitive
    price True Branches
    """
    return _columns(resolved_schema(record_schema))


def column_difference(
    columns: tuple[Column, ...], written: tuple[Column, ...], reader: str = "the collection"
) -> str | None:
    """Describe the first difference between the columns of two records; None if they are the same.

    Args:
        columns: the columns that are read.
        written: the columns that are written.
        reader: the name that the description gives to whatever has `columns`.
    """
    ours, theirs = ({column.name: column for column in side} for side in (columns, written))
    for name in [*ours, *theirs]:
        if name not in theirs:
            return f"the column '{name}' is missing"
        if name not in ours:
            return f"{reader} has no column '{name}'"
        if ours[name] != theirs[name]:
            return f"the column '{name}' is {_describe(theirs[name])}, but in {reader} it is {_describe(ours[name])}"
    return None


def written_difference(
    columns: tuple[Column, ...], written: tuple[Column, ...], reader: str = "the collection"
) -> str | None:
    """Describe why statements with the written columns cannot be read as these columns; None if they can.

    A nullable column may be missing: a row without it is the row with null, whichever schema wrote it. No other
    difference is allowed, because data identifies a statement: without one of its columns, two different statements
    could look the same.

    >>> price = Column("price", Primitive("int"), nullable=True)
    >>> columns = (Column("id", Primitive("long"), nullable=False), price)
    >>> written_difference(columns, columns[:1]), written_difference(columns, columns[1:])
    (None, "the column 'id' is missing")
    >>> written_difference(columns[:1], columns)
    "the collection has no column 'price'"
    """
    names = {column.name for column in written}
    return column_difference(
        tuple(each for each in columns if each.name in names or not each.nullable), written, reader
    )


def _describe(column: Column) -> str:
    """Describe a column's type and nullability for an error message."""
    kind = column.type
    match kind:
        case Primitive():
            parts = [str(digits) for digits in (kind.precision, kind.scale) if digits is not None]
            text = f"{kind.logical or kind.name}({','.join(parts)})" if parts else kind.name
            text += f" ({kind.logical})" if kind.logical and not parts else ""
        case Array(item):
            text = f"array<{_describe(item)}>"
        case Struct(columns) | Branches(columns):
            inner = ", ".join(f"{part.name}: {_describe(part)}" for part in columns)
            text = f"{'record' if isinstance(kind, Struct) else 'one of'}<{inner}>"
    return f"{text} or null" if column.nullable else text


def map_bytes(kind: ColumnType, value: Any, convert: Callable[[str], Any]) -> Any:
    """Convert the bytes in a value, which engines write as base64 text; leave all other parts unchanged.

    >>> map_bytes(Array(Column("item", Primitive("bytes"), False)), ["AQ=="], lambda text: {"b64": text})
    [{'b64': 'AQ=='}]
    """
    if value is None:
        return None
    if isinstance(kind, Struct | Branches):
        return {part.name: map_bytes(part.type, value[part.name], convert) for part in kind.columns}
    if isinstance(kind, Array):
        return [map_bytes(kind.item.type, item, convert) for item in value]
    return convert(value) if scalar_type(kind.name, kind.logical).family is Family.BINARY else value


def _columns(record: dict[str, Any]) -> tuple[Column, ...]:
    return tuple(_column(field["name"], field["type"]) for field in record["fields"])


def _column(name: str, kind: Any) -> Column:
    if not isinstance(kind, list):
        return Column(name, _type(kind), nullable=False)
    branches = [branch for branch in kind if branch != "null"]
    nullable = len(branches) < len(kind)
    if len(branches) == 1:
        return Column(name, _type(branches[0]), nullable)
    columns = tuple(Column(branch_name(branch), _type(branch), nullable=True) for branch in branches)
    return Column(name, Branches(columns), nullable)


def _type(kind: dict[str, Any]) -> ColumnType:
    if kind["type"] == "record":
        return Struct(_columns(kind))
    if kind["type"] == "array":
        return Array(_column("item", kind["items"]))
    return Primitive(kind["type"], kind.get("logicalType"), kind.get("precision"), kind.get("scale"))
