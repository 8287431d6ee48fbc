"""Reads, without a JVM, the rows of a table at given times, in batches, with values that Python can hold exactly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelake.storage.arrow import int64_array
from tidelake.storage.location import Location
from tidelake.store.files import RunFile, damage_named, meets, open_parquet
from tidelake.store.layout import RUN, TIME

_BATCH_ROWS = 65_536


def rows_at(
    table: Location,
    files: Iterable[RunFile],
    times: Sequence[int],
    columns: Sequence[str],
    where: pc.Expression | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the rows at some times, each with `_run`.

    Timestamps are microseconds since 1970 and dates are days, because Python's own types end with the year 9999.

    Args:
        table: the table's folder.
        files: the live files; those that cannot hold such a row are not opened.
        times: the times, sorted.
        columns: the columns to read, including `_time`.
        where: which of these rows to yield.

    Raises:
        DamagedTable: a file is not the committed one, or cannot be read.

    Cost: the row groups that may hold a row at these times, one batch at a time.
    """
    wanted = int64_array(times)
    for file in files:
        if not meets(file, times):
            continue
        source = open_parquet(table, file)
        with damage_named(table, file):
            for batch in source.iter_batches(_BATCH_ROWS, _groups_at(source, times), list(columns)):
                rows = pa.Table.from_batches([batch])
                rows = rows.filter(pc.is_in(rows[TIME], value_set=wanted))
                for row in with_numbers(rows if where is None else rows.filter(where)).to_pylist():
                    yield row | {RUN: file.run}


def with_numbers(rows: pa.Table) -> pa.Table:
    """Return the same rows with timestamps as microseconds and dates as days since 1970, nested ones included."""
    return rows.cast(pa.schema([pa.field(field.name, _as_number(field.type)) for field in rows.schema]))


def _groups_at(source: pq.ParquetFile, times: Sequence[int]) -> list[int]:
    """Return the row groups that may hold a row at one of these times, which are sorted."""
    metadata = source.metadata
    paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    place = paths.index(TIME)
    groups = []
    for number in range(metadata.num_row_groups):
        bounds = metadata.row_group(number).column(place).statistics
        if bounds is None or not bounds.has_min_max or any(bounds.min <= time <= bounds.max for time in times):
            groups.append(number)
    return groups


def _as_number(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _as_number(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_as_number(kind.value_type))
    return kind
