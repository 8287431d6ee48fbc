"""Columns for JSON records, inferred from samples."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidelake.protocol.order import INT64_MAX, INT64_MIN

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class Inferred:
    """The columns that samples suggest, and what a person should know about them."""

    def __init__(self) -> None:
        """Start without remarks."""
        self.remarks: list[str] = []

    def record(self, name: str, objects: Sequence[Mapping[str, Any]], required: Iterable[str] = ()) -> dict[str, Any]:
        """Return the Avro record of JSON objects; every column is nullable except the required ones."""
        required, fields, taken = set(required), [], set()
        for column in dict.fromkeys(name for value in objects for name in value):
            if not _NAME.fullmatch(column):
                self._remark(f"the field {column!r} is left out: a column cannot have this name")
                continue
            if column.lower() in taken:
                self._remark(f"the field {column!r} is left out: another column's name differs only in case")
                continue
            kind = self._kind(f"{name}_{column}", column, [value[column] for value in objects if column in value])
            if kind is None:
                continue
            taken.add(column.lower())
            optional = {"name": column, "type": ["null", kind], "default": None}
            fields.append({"name": column, "type": kind} if column in required else optional)
        return {"type": "record", "name": name, "fields": fields}

    def _kind(self, path: str, column: str, values: list[Any]) -> Any:
        """Return the Avro type of most values; None if they are objects without usable fields, or arrays of those."""
        kinds: dict[str, list[Any]] = {}
        for value in values:
            if value is not None:
                kinds.setdefault(_kind_of(value), []).append(value)
        if not kinds:
            array = column.removesuffix("[]")
            if array == column:
                self._remark(f"the column '{column}' is null in all samples; it is read as text")
            elif values:
                self._remark(f"the items of '{array}' are null in all samples; they are read as text")
            else:
                self._remark(f"the arrays in '{array}' are empty in all samples; their items are read as text")
            return "string"
        if set(kinds) == {"long", "double"}:
            return "double"
        kind, chosen = max(kinds.items(), key=lambda item: len(item[1]))
        if len(kinds) > 1:
            self._remark(f"the column '{column}' has values of several types: {', '.join(sorted(kinds))}")
        if kind == "record":
            record = self.record(path, chosen)
            if not record["fields"]:
                self._remark(f"the field '{column}' is left out: its objects have no usable fields")
            return record if record["fields"] else None
        if kind == "array":
            items = self._kind(f"{path}_item", f"{column}[]", [item for value in chosen for item in value])
            return None if items is None else {"type": "array", "items": ["null", items]}
        return kind

    def _remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)


def _kind_of(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int() if INT64_MIN <= value <= INT64_MAX:
            return "long"
        case int() | float():
            return "double"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "record"
