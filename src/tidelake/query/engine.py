"""A DuckDB database in this process for one read: it sees the rows and files that it is given, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from shutil import rmtree
from tempfile import mkdtemp
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, TypeVar
from weakref import finalize

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from tidelake.errors import DamagedTable
from tidelake.query.names import listed, text
from tidelake.query.stored_rows import StoredRows
from tidelake.query.verified_files import VerifiedFiles

if TYPE_CHECKING:
    from types import TracebackType

T = TypeVar("T")
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    # A name in SQL is never a variable of this process.
    "python_enable_replacements": False,
}

_BATCH_ROWS = 10_000
ENGINE_ERRORS = (duckdb.Error, UnicodeDecodeError)
"""What DuckDB's Python package raises; the latter if the message quotes half a character."""


class Engine:
    """An empty in-memory database. `close`, Ctrl-C, or the end of this object frees its memory and its spilled rows.

    Args:
        paths: the files that it may open; all others are refused.
    """

    def __init__(self, paths: Sequence[str] = ()) -> None:
        spilled = mkdtemp(prefix="tidelake-")
        self._end = finalize(self, rmtree, spilled, ignore_errors=True)
        self.connection = duckdb.connect(":memory:", config={**_SETTINGS, "temp_directory": spilled})
        # An optimizer chooses which side of a join is hashed. It does not know the size of a stream, so it would choose
        # the base instead of the few rows that are joined with it. Without the optimizer, the right side is hashed.
        keeps_sides = "disabled_optimizers = 'build_side_probe_side'"
        allowed = f"allowed_paths = [{listed(map(text, paths))}]"
        closed = ("enable_external_access = false", "lock_configuration = true")
        for setting in ("TimeZone = 'UTC'", keeps_sides, allowed, *closed):
            self.connection.execute(f"SET {setting}")
        self._rows: list[StoredRows] = []
        self._files: dict[str, VerifiedFiles] = {}

    def add_rows(self, rows: StoredRows) -> str:
        """Make stored rows readable, and return the name of the relation."""
        name = f"_stored_{len(self._rows)}"
        self._rows.append(rows)
        self.connection.register(name, rows)
        return name

    def add_files(self, files: VerifiedFiles) -> str:
        """Make files readable, and return them as a relation; each query that reads them verifies them first."""
        self._files[files.relation] = files
        return files.relation

    def add_table(self, name: str, rows: pa.Table) -> None:
        """Make an in-memory table readable under a name."""
        self.connection.register(name, rows)

    def run(self, statement: str) -> None:
        """Run SQL of Tidelake's own."""
        with self._failures(statement):
            self._interruptible(lambda: self.connection.execute(statement))

    def table(self, query: str) -> pa.Table:
        """Run a query, and return its rows.

        Raises:
            DamagedTable: a file is not what was committed, or cannot be read.
            duckdb.Error: the query failed.
        """
        with self._failures(query):
            return self._interruptible(lambda: self.connection.sql(query).to_arrow_table())

    def columns(self, query: str) -> list[tuple[str, DuckDBPyType]]:
        """Return the name and the type of each column of a query, without running it."""
        with self._failures(query):
            found = self.connection.sql(query)
        return list(zip(found.columns, found.types, strict=True))

    def reader(self, query: str) -> pa.RecordBatchReader:
        """Run a query, and return its rows as a stream; a failure while it is being read raises an Arrow error."""
        with self._failures(query):
            return self.connection.sql(query).to_arrow_reader()

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """Run a query, and return its rows a batch at a time; raises the same errors as `table`, or an Arrow error."""
        with self._failures(query):
            reader = self._interruptible(lambda: self.connection.sql(query).to_arrow_reader(_BATCH_ROWS))
            while (batch := self._interruptible(lambda: next(reader, None))) is not None:
                yield batch

    def scalar(self, query: str) -> object:
        """Run a query that returns a single value."""
        return self.table(query).column(0)[0].as_py()

    @property
    def is_closed(self) -> bool:
        """Whether the database was closed."""
        return not self._end.alive

    def close(self) -> None:
        """Close the database."""
        self.connection.close()
        self._end()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _interruptible(self, work: Callable[[], T]) -> T:
        """Do work that Ctrl-C or SIGTERM can end: DuckDB itself would finish the query first."""
        if current_thread() is not main_thread():
            return work()
        with ThreadPoolExecutor(1) as pool:
            task = pool.submit(work)
            try:
                return task.result()
            except (KeyboardInterrupt, SystemExit):
                while not task.done():
                    self.connection.interrupt()
                    wait([task], timeout=0.05)  # the query might not have begun when it was interrupted
                self.close()
                raise

    @contextmanager
    def _failures(self, query: str) -> Iterator[None]:
        """Verify the files of a query, and raise the stored rows' own error instead of DuckDB's."""
        read = [files for relation, files in self._files.items() if relation in query]
        for files in read:
            files.verify()
        for rows in self._rows:
            rows.failure = None
        try:
            yield
        except (*ENGINE_ERRORS, pa.ArrowException) as error:
            for rows in self._rows:
                if rows.failure is not None:
                    raise rows.failure from error
            for files in self._files.values():
                file = files.file_at(str(error))
                if file is not None:
                    raise DamagedTable(str(files.table), f"the file {file.path} cannot be read: {error}") from error
            raise
