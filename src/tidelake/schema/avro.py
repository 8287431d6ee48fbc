"""The CDCv2 schema for a record schema, and the types that a record schema may contain.

The protocol's schema is a union of a batch of updates, whose `data` is the record, and a progress statement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tidelake.errors import SchemaRefused
from tidelake.schema.types import DECIMAL, DECIMAL_PRECISION_MAX, PRIMITIVES, ZONELESS

NAMESPACE = "com.materialize.cdc"

_LEGAL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset(f"{NAMESPACE}.{name}" for name in ("update", "progress", "counts"))
_NOT_TEXT = "which is not text: in YAML, put it in quotes"
PROGRESS: dict[str, Any] = {
    "type": "record",
    "name": "progress",
    "namespace": NAMESPACE,
    "fields": [
        {"name": "lower", "type": {"type": "array", "items": "long"}},
        {"name": "upper", "type": {"type": "array", "items": "long"}},
        {
            "name": "counts",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "counts",
                    "fields": [{"name": "time", "type": "long"}, {"name": "count", "type": "long"}],
                },
            },
        },
    ],
}


def cdcv2_schema(record_schema: Any) -> list[Any]:
    """Return the protocol's schema for a record schema, which is given alone or inside a whole CDCv2 schema.

    Raises:
        SchemaRefused: a collection cannot hold the record.

    >>> [branch["type"] for branch in cdcv2_schema({"type": "record", "name": "data",
    ...     "fields": [{"name": "id", "type": "long"}]})]
    ['array', 'record']
    """
    record = record_schema_of(record_schema)
    update = {
        "type": "record",
        "name": "update",
        "namespace": NAMESPACE,
        "fields": [
            {"name": "data", "type": record},
            {"name": "time", "type": "long"},
            {"name": "diff", "type": "long"},
        ],
    }
    return [{"type": "array", "items": update}, PROGRESS]


def record_schema_of(schema: Any) -> dict[str, Any]:
    """Return the checked record schema of `data`, given alone or inside a whole CDCv2 schema.

    Raises:
        SchemaRefused: the schema is neither a record nor a CDCv2 schema, or a collection cannot hold the record.
    """
    record = _data_of_union(schema) if isinstance(schema, list) else schema
    if not isinstance(record, dict) or record.get("type") != "record":
        raise SchemaRefused("", "it is neither a record schema nor a union of an array of updates and progress")
    resolved_schema(record)
    return record


def resolved_schema(record_schema: dict[str, Any]) -> dict[str, Any]:
    """Return a checked record schema in which each type is written out at each use, with its full name.

    A name without a namespace gets the protocol's namespace, as it does inside the protocol's schema.

    Raises:
        SchemaRefused: the schema has a map, a timestamp without a zone, a type that is only null, recursion, a decimal
            of more than 38 digits, an illegal name, names that differ only in case, the name of a system column, or a
            record without fields.
    """
    try:
        return _Resolver().resolve_named(record_schema, "", NAMESPACE)
    except RecursionError:
        raise SchemaRefused("", "it is nested too deeply") from None


def _data_of_union(schema: list[Any]) -> Any:
    """Return the record in a CDCv2 schema; None if it is not a CDCv2 schema."""
    if len(schema) != 2 or not all(isinstance(branch, dict) for branch in schema):
        return None
    batch, progress = schema
    update = batch.get("items") if batch.get("type") == "array" else None
    if not isinstance(update, dict) or not (_is_named(update, "update") and _is_named(progress, "progress")):
        return None
    fields = dict(_field_types(update))
    if list(fields) != ["data", "time", "diff"] or (fields["time"], fields["diff"]) != ("long", "long"):
        raise SchemaRefused("", "the fields of an update must be data, time (long) and diff (long), in this order")
    if _field_types(progress) != _field_types(PROGRESS):
        raise SchemaRefused("", "the fields of progress must be lower, upper and counts, as in the protocol")
    return fields["data"]


def _is_named(schema: dict[str, Any], name: str) -> bool:
    full = schema.get("name")
    if isinstance(full, str) and "." not in full:
        full = f"{schema.get('namespace', '')}.{full}"
    return schema.get("type") == "record" and full == f"{NAMESPACE}.{name}"


def _field_types(record: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Return the names and types of a record's fields, without documentation and other attributes."""
    fields = record.get("fields")
    if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
        return []
    return [(field.get("name"), _bare(field.get("type"))) for field in fields]


def _bare(kind: Any) -> Any:
    if isinstance(kind, dict) and kind.get("type") == "array":
        return ("array", _bare(kind.get("items")))
    if isinstance(kind, dict) and kind.get("type") == "record" and str(kind.get("name")).rpartition(".")[2] == "counts":
        return ("counts", _field_types(kind))
    return kind["type"] if isinstance(kind, dict) and kind.get("type") in PRIMITIVES and len(kind) == 1 else kind


class _Resolver:
    """Walks through a schema once, and tracks which named types are resolved and which are still open."""

    def __init__(self) -> None:
        self._done: dict[str, dict[str, Any]] = {}
        self._open: set[str] = set()

    def resolve(self, kind: Any, path: str, namespace: str) -> Any:
        """Return the resolved form of any type, at the path of a column."""
        if isinstance(kind, list):
            return self._resolve_union(kind, path, namespace)
        if isinstance(kind, str):
            return self._resolve_name(kind, path, namespace)
        if not isinstance(kind, dict):
            raise SchemaRefused(path, "its type is neither a name nor a union nor an object")
        inner = kind.get("type")
        if inner in ("record", "enum", "fixed"):
            return self.resolve_named(kind, path, namespace)
        if inner == "array":
            return {"type": "array", "items": self.resolve(kind.get("items"), f"{path}[]", namespace)}
        if inner in PRIMITIVES and isinstance(inner, str):
            return _checked_logical(kind, inner, path)
        return self.resolve(inner, path, namespace)

    def _resolve_name(self, name: str, path: str, namespace: str) -> Any:
        if name in PRIMITIVES:
            return {"type": name}
        if name == "null":
            raise SchemaRefused(path, "a column cannot have null as its only type (void)")
        if name == "map":
            raise SchemaRefused(path, "maps cannot be compared or grouped; encode the map as JSON text")
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full in self._open:
            raise SchemaRefused(path, f"the type {name!r} contains itself")
        if full not in self._done:
            raise SchemaRefused(path, f"the type {name!r} is unknown")
        return self._done[full]

    def _resolve_union(self, branches: list[Any], path: str, namespace: str) -> list[Any]:
        if any(isinstance(branch, list) for branch in branches):
            raise SchemaRefused(path, "it is a union directly inside a union")
        check_not_void(branches, path)
        if sum(map(_is_null, branches)) > 1:
            raise SchemaRefused(path, "its union has null twice")
        resolved: list[Any] = []
        seen: dict[str, str] = {}
        for branch in branches:
            if _is_null(branch):
                resolved.append("null")
                continue
            checked = self.resolve(branch, path, namespace)
            name = branch_name(checked)
            if name.lower() in seen:
                raise SchemaRefused(
                    path, f"two branches of a union have the same name: {seen[name.lower()]!r}, {name!r}"
                )
            seen[name.lower()] = name
            resolved.append(checked)
        return resolved

    def resolve_named(self, kind: dict[str, Any], path: str, namespace: str) -> dict[str, Any]:
        """Return the resolved form of a record, enum or fixed."""
        full = _full_name(kind, path, namespace)
        if full in _RESERVED:
            raise SchemaRefused(path, f"the name {full!r} is the name of a type of the protocol")
        if full in self._open or full in self._done:
            raise SchemaRefused(
                path, f"the type {full!r} is defined twice: write only its name if it is the same type, or rename one"
            )
        self._open.add(full)
        resolved: dict[str, Any] = {"type": kind["type"], "name": full}
        if kind["type"] == "record":
            resolved["fields"] = self._resolve_fields(fields_of(kind, path), path, full.rpartition(".")[0])
        elif kind["type"] == "enum":
            symbols = kind.get("symbols")
            if not isinstance(symbols, list) or not symbols:
                raise SchemaRefused(path, "its enum has no list of symbols")
            for symbol in symbols:
                if not isinstance(symbol, str):
                    raise SchemaRefused(path, f"its enum has the symbol {symbol!r}, {_NOT_TEXT}")
            repeated = next((symbol for symbol in symbols if symbols.count(symbol) > 1), None)
            if repeated is not None:
                raise SchemaRefused(path, f"its enum has the symbol {repeated!r} twice")
            resolved["symbols"] = symbols
        else:
            # An array of items of zero bytes could claim billions of items in a message of a few bytes.
            if type(kind.get("size")) is not int or kind["size"] < 1:
                raise SchemaRefused(path, "a fixed type must have a size of at least one byte")
            resolved |= {"size": kind["size"], **_decimal_of(kind, path)}
        self._open.discard(full)
        self._done[full] = resolved
        return resolved

    def _resolve_fields(self, fields: list[dict[str, Any]], path: str, namespace: str) -> list[dict[str, Any]]:
        seen: dict[str, str] = {}
        resolved = []
        for field in fields:
            name = field["name"]
            if not _LEGAL_NAME.fullmatch(name):
                raise SchemaRefused(
                    path, f"{name!r} is not a legal name: use letters, digits and _, not starting with a digit"
                )
            column = f"{path}.{name}" if path else name
            if name.startswith("_") and not path:
                raise SchemaRefused(column, "names that start with _ are reserved for the system's columns")
            if name.lower() in seen:
                raise SchemaRefused(
                    column, f"it clashes with {seen[name.lower()]!r}: column names are case-insensitive"
                )
            seen[name.lower()] = name
            resolved.append({"name": name, "type": self.resolve(field.get("type"), column, namespace)})
        return resolved


def fields_of(record: Mapping[str, Any], path: str) -> list[dict[str, Any]]:
    """Return the fields of a record.

    Raises:
        SchemaRefused: they are not a list of at least one object with a name.
    """
    fields = record.get("fields")
    if not isinstance(fields, list) or not fields:
        raise SchemaRefused(path, "a record must have a list of at least one field")
    for field in fields:
        if not isinstance(field, dict) or field.get("name") is None:
            raise SchemaRefused(path, f"the field {field!r} is not an object with a name and a type")
        if not isinstance(field["name"], str):
            raise SchemaRefused(path, f"a field has the name {field['name']!r}, {_NOT_TEXT}")
    return fields


def check_not_void(branches: list[Any], path: str) -> None:
    """Refuse a union without a type other than null."""
    if not branches:
        raise SchemaRefused(path, "its union has no types")
    if all(map(_is_null, branches)):
        raise SchemaRefused(path, "a column cannot have null as its only type (void)")


def branch_name(resolved: dict[str, Any]) -> str:
    """Return the name of a union's branch: the short name of a named type, otherwise the type.

    >>> branch_name({"type": "long"}), branch_name({"type": "enum", "name": "shop.colour", "symbols": ["red"]})
    ('long', 'colour')
    """
    return str(resolved.get("name", resolved["type"])).rpartition(".")[2]


def _is_null(branch: Any) -> bool:
    return branch in ("null", {"type": "null"})


def _full_name(kind: dict[str, Any], path: str, namespace: str) -> str:
    name, space = kind.get("name"), kind.get("namespace", namespace)
    if name is None:
        raise SchemaRefused(path, "a named type must have a name")
    for part, text in (("name", name), ("namespace", space)):
        if not isinstance(text, str):
            raise SchemaRefused(path, f"a type has the {part} {text!r}, {_NOT_TEXT}")
    full = name if "." in name or not space else f"{space}.{name}"
    if not all(_LEGAL_NAME.fullmatch(part) for part in full.split(".")):
        raise SchemaRefused(path, f"{full!r} is not a legal name: use letters, digits and _, not starting with a digit")
    return full


def _checked_logical(kind: dict[str, Any], inner: str, path: str) -> dict[str, Any]:
    """Check a primitive type, and return it with its logical type."""
    logical = kind.get("logicalType")
    if isinstance(logical, str) and logical.startswith(ZONELESS):
        raise SchemaRefused(path, "it is a timestamp without a zone: write it as long, or as a timestamp in UTC")
    if logical == DECIMAL:
        return {"type": inner, **(_decimal_of(kind, path) if inner == "bytes" else {})}
    return {"type": inner, "logicalType": logical} if isinstance(logical, str) else {"type": inner}


def _decimal_of(kind: dict[str, Any], path: str) -> dict[str, Any]:
    if kind.get("logicalType") != DECIMAL:
        return {}
    precision, scale = kind.get("precision"), kind.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
        raise SchemaRefused(path, f"invalid decimal: precision {precision!r}, scale {scale!r}")
    if precision > DECIMAL_PRECISION_MAX:
        raise SchemaRefused(path, f"it is a decimal of {precision} digits, but the maximum is {DECIMAL_PRECISION_MAX}")
    return {"logicalType": DECIMAL, "precision": precision, "scale": scale}
