"""The schemas of `updates/` and `late/`: system columns, then the columns of the data."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidelake.schema.columns import Array, Branches, ColumnType, Struct, column_types
from tidelake.schema.types import ScalarType, scalar_type
from tidelake.store.layout import DIFF, ERROR, POSITION, RUN, TIME, UNAVAILABLE

_SYSTEM = (pa.field(TIME, pa.int64()), pa.field(DIFF, pa.int64()))
"""These come first in every table: only the first column, `_time`, has statistics; see docs/decisions/statistics.md."""


_POSITIONED = (
    pa.field(POSITION, pa.list_(pa.int64())),
    pa.field(UNAVAILABLE, pa.list_(pa.string())),
    pa.field(ERROR, pa.string()),
)
"""The additional system columns of the positioned form; see `tidelake.forms.positioned`."""


def data_fields(record_schema: dict[str, Any]) -> list[pa.Field]:
    """Return the data's columns as a table stores them; `decode.landing` produces them.

    Raises:
        SchemaRefused: the error names the column and the reason.
    """
    return [pa.field(column.name, _arrow_type(column.type)) for column in column_types(record_schema)]


def _arrow_type(kind: ColumnType) -> pa.DataType:
    match kind:
        case Struct(columns) | Branches(columns):
            return pa.struct([pa.field(column.name, _arrow_type(column.type)) for column in columns])
        case Array(item):
            return pa.list_(_arrow_type(item.type))
    return scalar_arrow_type(scalar_type(kind.name, kind.logical), kind.precision, kind.scale)


def scalar_arrow_type(scalar: ScalarType, precision: int | None = None, scale: int | None = None) -> pa.DataType:
    """Return the Arrow type of a column; a decimal needs its precision."""
    return scalar.arrow(pa, precision or 0, scale or 0)


def updates_schema(record_schema: dict[str, Any], positioned: bool = False) -> pa.Schema:
    """Return the schema of `updates/`: `_time`, `_diff`, the form's columns, the data's columns, and `_run`."""
    positional = _POSITIONED if positioned else ()
    return pa.schema([*_SYSTEM, *positional, *data_fields(record_schema), pa.field(RUN, pa.string())])


def late_schema(record_schema: dict[str, Any]) -> pa.Schema:
    """Return the schema of `late/`: each row is a statement about a sealed time, and the place where it was read."""
    source = [pa.field("_topic", pa.string()), pa.field("_partition", pa.int32()), pa.field("_offset", pa.int64())]
    return pa.schema([*_SYSTEM, *data_fields(record_schema), *source, pa.field(RUN, pa.string())])
