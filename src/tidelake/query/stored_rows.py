"""The stored rows of a table as a stream for DuckDB: Arrow reads the files, and verifies every page.

DuckDB does not open files itself: it would not compare them with what the log states, and its extension for object
stores may have to be downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from tidelake.errors import TidelakeError
from tidelake.storage.location import Location
from tidelake.store.files import RunFile, damage_named, open_parquet
from tidelake.store.layout import TIME

_BATCH_ROWS = 65_536


class StoredRows:
    """Columns of some files, as a stream that can be read several times. Row order means nothing.

    Args:
        table: the table's folder.
        files: the files, as the log describes them.
        schema: the columns to read; a column that a file does not have is null in its rows.
        within: a range of times. Row groups whose statistics show that they have no row in this range are left out. All
            other groups are read whole, including their rows at other times.
    """

    def __init__(self, table: Location, files: Sequence[RunFile], schema: pa.Schema, within: range) -> None:
        self.table, self.files, self.schema, self.within = table, list(files), schema, within
        self.failure: TidelakeError | None = None
        """The error that ended the last stream; DuckDB keeps only its text."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a new stream; nothing is read before the first batch is asked for."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def read_all(self) -> pa.Table:
        """Read all rows into memory.

        Raises:
            DamagedTable: a file is not what was committed, or cannot be read.
        """
        return pa.Table.from_batches(self._batches(), self.schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for file in self.files:
                source = open_parquet(self.table, file, may_be_remembered=True)
                with damage_named(self.table, file):
                    stored = set(source.schema_arrow.names)
                    names = [name for name in self.schema.names if name in stored]
                    groups = self._groups(source)
                    # For a small file, handing the work to other threads takes longer than doing it.
                    batches = source.iter_batches(_BATCH_ROWS, groups, names, use_threads=file.rows > _BATCH_ROWS)
                    for batch in batches:
                        yield conformed(batch, self.schema)
        except TidelakeError as error:
            self.failure = error
            raise

    def _groups(self, source: pq.ParquetFile) -> list[int]:
        """Return the row groups that may hold a row at one of the times."""
        metadata = source.metadata
        places = (at for at in range(metadata.num_columns) if metadata.schema.column(at).path == TIME)
        place = next(places, None)
        if place is None:
            raise ValueError(f"it has no column {TIME}")
        groups = []
        for number in range(metadata.num_row_groups):
            bounds = metadata.row_group(number).column(place).statistics
            known = bounds is not None and bounds.has_min_max
            if not known or (bounds.min < self.within.stop and bounds.max >= self.within.start):
                groups.append(number)
        return groups


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with exactly the columns and types of a schema; a column that it lacks is null.

    >>> old = pa.RecordBatch.from_pylist([{"id": 1}], pa.schema([("id", pa.int64())]))
    >>> conformed(old, pa.schema([("note", pa.string()), ("id", pa.int64())])).to_pylist()
    [{'note': None, 'id': 1}]
    """
    stored = {field.name: batch.column(at) for at, field in enumerate(batch.schema)}
    columns = [
        _typed(stored[field.name], field.type) if field.name in stored else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _typed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type.equals(kind) else column.cast(kind)
