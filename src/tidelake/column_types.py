"""A neutral description of the columns that a record schema asks for, for whoever stores them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidelake.debezium import row_record_of
from tidelake.schema import branch_name, resolved_schema


@dataclass(frozen=True, slots=True)
class Primitive:
    """A column without parts.

    Args:
        name: `boolean`, `int`, `long`, `float`, `double`, `bytes`, `string`, `enum` or `fixed`.
        logical: the schema's logical type; None where there is none.
        precision: of a decimal, at most 38.
        scale: of a decimal.
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
    """A list; `item` has the name `item`."""

    item: Column


@dataclass(frozen=True, slots=True)
class Branches:
    """A union of several types: one nullable column for each, named by the branch, of which one is not null."""

    columns: tuple[Column, ...]


ColumnType = Primitive | Struct | Array | Branches


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its type, and whether it may be null."""

    name: str
    type: ColumnType
    nullable: bool


def column_types(record_schema: dict[str, Any]) -> tuple[Column, ...]:
    """Describe the columns of a record schema.

    Raises:
        SchemaRefused: a collection cannot hold the record.

    >>> for column in column_types({"type": "record", "name": "data", "fields": [
    ...         {"name": "id", "type": "long"}, {"name": "price", "type": ["null", "int", "string"]}]}):
    ...     print(column.name, column.nullable, type(column.type).__name__)
    id False Primitive
    price True Branches
    """
    return _columns(resolved_schema(record_schema))


def contents_types(envelope: str, record_schema: dict[str, Any], framing: str = "cdcv2") -> tuple[Column, ...]:
    """Describe the columns of a collection's contents: the record's, or those of the row that its events are about."""
    of_events = envelope == "debezium" and framing == "cdcv2"
    return _columns(row_record_of(record_schema)) if of_events else column_types(record_schema)


def column_difference(columns: tuple[Column, ...], written: tuple[Column, ...]) -> str | None:
    """The first column in which two records differ, and how; None where they have the same columns."""
    ours, theirs = {one.name: one for one in columns}, {one.name: one for one in written}
    for name in [*ours, *theirs]:
        if name not in theirs:
            return f"the column '{name}' is missing"
        if name not in ours:
            return f"the column '{name}' is not one of the collection's"
        if ours[name] != theirs[name]:
            return f"the column '{name}' is {_describe(theirs[name])}, in the collection it is {_describe(ours[name])}"
    return None


def _describe(column: Column) -> str:
    """Name a column's type and whether it may be null, for a person."""
    kind = column.type
    match kind:
        case Primitive():
            parts = [str(one) for one in (kind.precision, kind.scale) if one is not None]
            text = f"{kind.logical or kind.name}({','.join(parts)})" if parts else kind.name
            text += f" ({kind.logical})" if kind.logical and not parts else ""
        case Array(item):
            text = f"array<{_describe(item)}>"
        case Struct(columns) | Branches(columns):
            inner = ", ".join(f"{one.name}: {_describe(one)}" for one in columns)
            text = f"{'record' if isinstance(kind, Struct) else 'one of'}<{inner}>"
    return f"{text} or null" if column.nullable else text


def map_bytes(kind: ColumnType, value: Any, made: Callable[[str], Any]) -> Any:
    """The same value with `made(base64 text)` where it, or a part of it, is bytes: engines write those as base64 text.

    >>> map_bytes(Array(Column("item", Primitive("bytes"), False)), ["AQ=="], lambda text: {"b64": text})
    [{'b64': 'AQ=='}]
    """
    if value is None:
        return None
    if isinstance(kind, Struct | Branches):
        return {one.name: map_bytes(one.type, value[one.name], made) for one in kind.columns}
    if isinstance(kind, Array):
        return [map_bytes(kind.item.type, one, made) for one in value]
    return made(value) if kind.name in {"bytes", "fixed"} and kind.logical != "decimal" else value


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
