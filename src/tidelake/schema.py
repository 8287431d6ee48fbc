"""The Avro schema of CDCv2 around any record schema, and what a record schema may hold.

The protocol's schema is a union of a batch of updates, whose `data` is the record, and a progress statement.
"""

from __future__ import annotations

import re
from typing import Any

from tidelake.errors import SchemaRefused

NAMESPACE = "com.materialize.cdc"
PRIMITIVES = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string"})
DECIMAL_PRECISION_MAX = 38

_LEGAL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset(f"{NAMESPACE}.{name}" for name in ("update", "progress", "counts"))
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
    """Give the protocol's schema around a record schema; a whole CDCv2 schema is taken apart first.

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
    """Give the record schema of `data`, checked, out of itself or out of a whole CDCv2 schema.

    Raises:
        SchemaRefused: it is neither, or a collection cannot hold the record.
    """
    record = _data_of_union(schema) if isinstance(schema, list) else schema
    if not isinstance(record, dict) or record.get("type") != "record":
        raise SchemaRefused("", "it is neither a record schema nor a union of an array of updates and progress")
    resolved_schema(record)
    return record


def resolved_schema(record_schema: dict[str, Any]) -> dict[str, Any]:
    """Give a checked record schema in which each type stands where it is used, with its full name.

    A name without a namespace gets the protocol's, as it does inside the protocol's schema.

    Raises:
        SchemaRefused: maps, timestamps without a zone, null alone, recursion, decimals of more than 38 digits, names
            that are not legal, that differ only in case, or that are a system column's, records without a field.
    """
    try:
        return _Resolver().resolve_named(record_schema, "", NAMESPACE)
    except RecursionError:
        raise SchemaRefused("", "it is nested too deep") from None


def _data_of_union(schema: list[Any]) -> Any:
    """Find the record in a CDCv2 schema; None where it is not one."""
    if len(schema) != 2 or not all(isinstance(branch, dict) for branch in schema):
        return None
    batch, progress = schema
    update = batch.get("items") if batch.get("type") == "array" else None
    if not isinstance(update, dict) or not (_is_named(update, "update") and _is_named(progress, "progress")):
        return None
    fields = dict(_field_types(update))
    if list(fields) != ["data", "time", "diff"] or (fields["time"], fields["diff"]) != ("long", "long"):
        raise SchemaRefused("", "the fields of an update have to be data, time (long) and diff (long), in this order")
    if _field_types(progress) != _field_types(PROGRESS):
        raise SchemaRefused("", "the fields of progress have to be lower, upper and counts, as the protocol has them")
    return fields["data"]


def _is_named(schema: dict[str, Any], name: str) -> bool:
    full = schema.get("name")
    if isinstance(full, str) and "." not in full:
        full = f"{schema.get('namespace', '')}.{full}"
    return schema.get("type") == "record" and full == f"{NAMESPACE}.{name}"


def _field_types(record: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Give the names and types of a record's fields, without documentation and the like."""
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
    """Walks a schema once; keeps the named types that are done and those that are still open."""

    def __init__(self) -> None:
        self._done: dict[str, dict[str, Any]] = {}
        self._open: set[str] = set()

    def resolve(self, kind: Any, path: str, namespace: str) -> Any:
        """Give the resolved form of any type at a column's path."""
        if isinstance(kind, list):
            return self._resolve_union(kind, path, namespace)
        if isinstance(kind, str):
            return self._resolve_name(kind, path, namespace)
        if not isinstance(kind, dict):
            raise SchemaRefused(path, "its type is neither a name, nor a union, nor an object")
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
            raise SchemaRefused(path, "null alone (void) is not a column's type")
        if name == "map":
            raise SchemaRefused(path, "maps cannot be compared, grouped or told apart; write it as JSON text")
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full in self._open:
            raise SchemaRefused(path, f"type {name!r} contains itself")
        if full not in self._done:
            raise SchemaRefused(path, f"type {name!r} is not known here")
        return self._done[full]

    def _resolve_union(self, branches: list[Any], path: str, namespace: str) -> list[Any]:
        if any(isinstance(branch, list) for branch in branches):
            raise SchemaRefused(path, "a union directly inside a union")
        if not [branch for branch in branches if not _is_null(branch)]:
            raise SchemaRefused(path, "null alone (void) is not a column's type")
        if sum(map(_is_null, branches)) > 1:
            raise SchemaRefused(path, "a union with null twice")
        resolved: list[Any] = []
        seen: dict[str, str] = {}
        for branch in branches:
            if _is_null(branch):
                resolved.append("null")
                continue
            checked = self.resolve(branch, path, namespace)
            name = branch_name(checked)
            if name.lower() in seen:
                raise SchemaRefused(path, f"two branches of a union have one name: {seen[name.lower()]!r}, {name!r}")
            seen[name.lower()] = name
            resolved.append(checked)
        return resolved

    def resolve_named(self, kind: dict[str, Any], path: str, namespace: str) -> dict[str, Any]:
        """Give the resolved form of a record, enum or fixed."""
        full = _full_name(kind, path, namespace)
        if full in self._open or full in self._done or full in _RESERVED:
            raise SchemaRefused(path, f"the name {full!r} is taken by another type")
        self._open.add(full)
        resolved: dict[str, Any] = {"type": kind["type"], "name": full}
        if kind["type"] == "record":
            resolved["fields"] = self._resolve_fields(kind.get("fields"), path, full.rpartition(".")[0])
        elif kind["type"] == "enum":
            symbols = kind.get("symbols")
            if not isinstance(symbols, list) or not symbols or not all(isinstance(symbol, str) for symbol in symbols):
                raise SchemaRefused(path, "an enum without symbols")
            twice = next((symbol for symbol in symbols if symbols.count(symbol) > 1), None)
            if twice is not None:
                raise SchemaRefused(path, f"an enum with the symbol {twice!r} twice")
            resolved["symbols"] = symbols
        else:
            # An item without bytes would let a few bytes claim billions of items.
            if type(kind.get("size")) is not int or kind["size"] < 1:
                raise SchemaRefused(path, "a fixed type without a size of at least one byte")
            resolved |= {"size": kind["size"], **_decimal_of(kind, path)}
        self._open.discard(full)
        self._done[full] = resolved
        return resolved

    def _resolve_fields(self, fields: Any, path: str, namespace: str) -> list[dict[str, Any]]:
        if not isinstance(fields, list) or not fields:
            raise SchemaRefused(path, "a record without a field")
        seen: dict[str, str] = {}
        resolved = []
        for field in fields:
            name = field.get("name") if isinstance(field, dict) else None
            if not isinstance(name, str) or not _LEGAL_NAME.fullmatch(name):
                raise SchemaRefused(path, f"{name!r} is not a legal name: letters, digits and _, no digit first")
            column = f"{path}.{name}" if path else name
            if name.startswith("_") and not path:
                raise SchemaRefused(column, "names that start with _ are kept for the system's columns")
            if name.lower() in seen:
                raise SchemaRefused(column, f"it clashes with {seen[name.lower()]!r}: case does not tell columns apart")
            seen[name.lower()] = name
            resolved.append({"name": name, "type": self.resolve(field.get("type"), column, namespace)})
        return resolved


def branch_name(resolved: dict[str, Any]) -> str:
    """Give the name that a branch of a union goes by: the short name of a named type, else the type.

    >>> branch_name({"type": "long"}), branch_name({"type": "enum", "name": "shop.colour", "symbols": ["red"]})
    ('long', 'colour')
    """
    return str(resolved.get("name", resolved["type"])).rpartition(".")[2]


def _is_null(branch: Any) -> bool:
    return branch in ("null", {"type": "null"})


def _full_name(kind: dict[str, Any], path: str, namespace: str) -> str:
    name, given = kind.get("name"), kind.get("namespace", namespace)
    if not isinstance(name, str) or not isinstance(given, str):
        raise SchemaRefused(path, "a named type without a name")
    full = name if "." in name or not given else f"{given}.{name}"
    if not all(_LEGAL_NAME.fullmatch(part) for part in full.split(".")):
        raise SchemaRefused(path, f"{full!r} is not a legal name: letters, digits and _, no digit first")
    return full


def _checked_logical(kind: dict[str, Any], inner: str, path: str) -> dict[str, Any]:
    """Give a primitive type with its logical type, where it is one that is kept."""
    logical = kind.get("logicalType")
    if isinstance(logical, str) and logical.startswith("local-timestamp"):
        raise SchemaRefused(path, "a timestamp without a zone: write it as long, or as a timestamp in UTC")
    if logical == "decimal":
        return {"type": inner, **(_decimal_of(kind, path) if inner == "bytes" else {})}
    return {"type": inner, "logicalType": logical} if isinstance(logical, str) else {"type": inner}


def _decimal_of(kind: dict[str, Any], path: str) -> dict[str, Any]:
    if kind.get("logicalType") != "decimal":
        return {}
    precision, scale = kind.get("precision"), kind.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
        raise SchemaRefused(path, f"a decimal of precision {precision!r} and scale {scale!r}")
    if precision > DECIMAL_PRECISION_MAX:
        raise SchemaRefused(path, f"a decimal of {precision} digits; {DECIMAL_PRECISION_MAX} is the most")
    return {"logicalType": "decimal", "precision": precision, "scale": scale}
