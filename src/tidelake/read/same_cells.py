"""Narrows down the stored rows that may hold certain data, by their first integers and strings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.schema.avro import resolved_schema
from tidelake.schema.types import Family, scalar_of
from tidelake.storage.arrow import int64_array, text_array

_CELLS_MAX = 3


def same_cells(record_schema: dict[str, Any], data: Sequence[Mapping[str, Any]]) -> pc.Expression | None:
    """Return a filter that passes all stored rows with any of these data, and few others; None if every row would pass.

    Only the first few integers and strings are compared. The stored form of other types may differ from the stated one.

    Args:
        record_schema: the collection's record schema.
        data: the data, in the form that `AvroCodec` uses.
    """
    where: pc.Expression | None = None
    for path, kind in list(_cells(resolved_schema(record_schema)))[:_CELLS_MAX]:
        values = {_value_at(record, path) for record in data}
        stated = sorted(value for value in values if value is not None)
        column = pc.field(*path)
        same = column.isin(text_array(stated) if kind is None else int64_array(stated).cast(kind))
        same = same | column.is_null() if None in values else same
        where = same if where is None else where & same
    return where


def _cells(record: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and the Arrow type of each integer and string in a resolved record; the type is None for a string.

    Lists, and unions of several types, are left out.
    """
    for field in record["fields"]:
        branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
        kinds = [branch for branch in branches if branch != "null"]
        path = (*above, field["name"])
        if len(kinds) != 1 or kinds[0]["type"] == "array":
            continue
        if kinds[0]["type"] == "record":
            yield from _cells(kinds[0], path)
            continue
        scalar = scalar_of(kinds[0])
        if scalar.family is Family.INTEGER and not scalar.logical:
            yield path, scalar.arrow(pa, 0, 0)
        elif scalar.family in (Family.TEXT, Family.SYMBOL):
            yield path, None


def _value_at(record: Any, path: Sequence[str]) -> Any:
    for name in path:
        record = None if record is None else record[name]
    return record
