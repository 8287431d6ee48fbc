"""The rows of a query: they are read only when requested, and again for each request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from tidelake.errors import PredicateRefused, ReadFailed, RowsClosed
from tidelake.query.engine import ENGINE_ERRORS, Engine
from tidelake.query.names import order_of, quoted

_OF_VALUES = (
    duckdb.DataError,
    duckdb.InvalidInputException,
    duckdb.NotSupportedError,  # such as a time zone that does not exist
    duckdb.SyntaxException,  # such as an escape character for LIKE that is used wrongly
)
"""What DuckDB raises if an expression that it has accepted fails for a value."""


class Answer:
    """The rows of a query, with the types of a schema; they cannot be read after `close`.

    Args:
        engine: the database that reads the stored rows.
        query: the query.
        schema: the columns and their types.
        name: the collection, for errors.
        where: the predicate in the query, which may fail on the data.
        order: the column by which `reader` and `table` sort the rows, unless `table` is asked to sort by all columns.
    """

    def __init__(
        self, engine: Engine, query: str, schema: pa.Schema, name: str, where: str | None = None, order: str = ""
    ) -> None:
        self.engine, self.query, self.schema, self.name, self.where = engine, query, schema, name, where
        self._order = f" ORDER BY {quoted(order)}" if order else ""

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self.schema.names)

    def table(self, limit: int | None = None, in_order: bool = False) -> pa.Table:
        """Read the rows into memory.

        Args:
            limit: the maximum number of rows.
            in_order: whether to sort by all columns, as Spark does: nulls first, then by the order of each type.

        Raises:
            DamagedTable: a file is not what was committed, or cannot be read.
            PredicateRefused: the predicate fails on the data.
            RowsClosed: the answer was closed, or is an earlier batch of a subscription.
            ReadFailed: the read failed.
        """
        order = self._by(self.schema.names) if in_order else self._order
        most = "" if limit is None else f" LIMIT {limit}"
        with self._failures():
            return self.engine.table(f"SELECT * FROM ({self.query}){order}{most}").cast(self.schema)

    def reader(self) -> pa.RecordBatchReader:
        """Read the rows as a stream of batches; their order means nothing unless the answer has an `order`.

        The call raises the same errors as `table`; a failure while the stream is read raises an Arrow error.
        """
        with self._failures():
            return self.engine.reader(f"SELECT * FROM ({self.query}){self._order}").cast(self.schema)

    def batches(self, order: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read the rows in the order of these columns, a batch at a time. Any batch may raise the errors of `table`.

        Cost: DuckDB sorts the rows, and writes those that do not fit in memory to a temporary folder.
        """
        with self._failures():
            for batch in self.engine.batches(f"SELECT * FROM ({self.query}){self._by(order)}"):
                yield from pa.Table.from_batches([batch]).cast(self.schema).to_batches()

    def _by(self, columns: Sequence[str]) -> str:
        kinds = {field.name: field.type for field in self.schema}
        keys = (key for name in columns for key in order_of(quoted(name), kinds[name]))
        return f" ORDER BY {', '.join(keys)}"

    def count(self) -> int:
        """Count the rows. Raises the same errors as `table`."""
        with self._failures():
            found = self.engine.scalar(f"SELECT count(*) FROM ({self.query})")
        assert isinstance(found, int)
        return found

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            with failures(self.name, self.where):
                yield
        except ReadFailed as error:
            if not self.engine.is_closed:
                raise
            raise RowsClosed(self.name) from error

    def close(self) -> None:
        """Free the memory of the database."""
        self.engine.close()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as an Arrow stream, for `pa.table(answer)` and other consumers of Arrow data."""
        return self.reader().__arrow_c_stream__(requested_schema)


@contextmanager
def failures(name: str, where: str | None) -> Iterator[None]:
    """Translate DuckDB's errors: to `PredicateRefused` if the predicate can be the cause, otherwise to `ReadFailed`.

    Args:
        name: the collection.
        where: the predicate.
    """
    try:
        yield
    except (*ENGINE_ERRORS, pa.ArrowException) as error:
        # A stream raises Arrow's own errors, which do not say what kind of error DuckDB had. For the errors of some
        # functions on lists, DuckDB's Python package has no class but the common base class.
        has_no_kind = not isinstance(error, duckdb.Error) or type(error) is duckdb.Error
        if where is not None and (has_no_kind or isinstance(error, _OF_VALUES)):
            fix = "write a predicate that is true or false for every row"
            raise PredicateRefused(where, f"fails: {first_line(error)}", fix) from error
        raise ReadFailed("read", name, type(error).__name__, first_line(error)) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an engine's error."""
    said = error.object.decode(errors="backslashreplace") if isinstance(error, UnicodeDecodeError) else str(error)
    lines: Sequence[str] = said.strip().splitlines()
    return lines[0] if lines else type(error).__name__
