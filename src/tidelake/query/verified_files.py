"""Files that DuckDB reads itself, once every page of the needed columns has been verified.

DuckDB decodes Parquet faster than Arrow hands it rows, but does not compare pages with their checksums.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import cached_property
from hashlib import sha256

import pyarrow as pa

from tidelake.query.names import listed, text
from tidelake.storage.location import Location
from tidelake.storage.page_headers import checked_headers_in, chunks_of, headers_in
from tidelake.store.files import (
    HASHED_BYTES_MAX,
    RunFile,
    damage_named,
    has_headers,
    open_verified,
    other_headers,
    read_footer,
)

ROW_NUMBER = "file_row_number"
"""The column in which DuckDB numbers the rows of a file, from 0; also the option that adds it."""
_BYTES_MIN = 1 << 16
"""If a file is smaller, opening it a second time takes longer than handing its rows to DuckDB."""
_THREADS = min(pa.cpu_count() or 1, 8)
"""Number of chunks that are verified at the same time."""
_PATTERN = frozenset("*?[{")
"""DuckDB takes a path with one of these characters as a pattern for several files."""


class VerifiedFiles:
    """Columns of some files of a table in a folder on this machine; `is_readable` is true of each file.

    Args:
        table: the table's folder.
        files: the files, as the log describes them.
        columns: the columns to read.
        with_row_number: whether the relation also has the column `ROW_NUMBER`.
    """

    def __init__(
        self, table: Location, files: Sequence[RunFile], columns: Sequence[str], with_row_number: bool = False
    ) -> None:
        self.table, self.files, self.columns = table, list(files), frozenset(columns)
        self._with_row_number = with_row_number

    @cached_property
    def relation(self) -> str:
        """The files as a relation in SQL."""
        paths = listed(text(path_of(self.table, file)) for file in self.files)
        # Statistics do not count NaN, which is greater than all other numbers.
        more = f", {ROW_NUMBER} = true" if self._with_row_number else ""
        return f"read_parquet([{paths}], hive_partitioning = false, can_have_nan = true{more})"

    def verify(self) -> None:
        """Compare the files with the log, and each page of the columns with its checksum.

        Raises:
            DamagedTable: a file is not what was committed.

        Cost: reads all of a small file; of a larger file, the compressed bytes of the columns and all page headers.
        Several chunks are read at the same time.
        """
        with ExitStack() as opened, ThreadPoolExecutor(_THREADS) as threads:
            try:
                started = []
                for file in self.files:
                    with damage_named(self.table, file):
                        source = opened.enter_context(open_verified(self.table, file, reads_pages=False))
                        if file.bytes > HASHED_BYTES_MAX:
                            started.append((file, source, self._start(source, threads)))
                        else:  # all of its bytes have been compared
                            source.close()
                for file, source, chunks in started:
                    self._finish(file, source, chunks)
            finally:  # if a page is damaged, the chunks that no thread has begun are not read
                threads.shutdown(cancel_futures=True)

    def _start(self, source: pa.NativeFile, threads: ThreadPoolExecutor) -> list[Future[bytes]]:
        """Begin to check the chunks of a file."""
        return [
            threads.submit(checked_headers_in if chunk.column in self.columns else headers_in, source, chunk)
            for chunk in chunks_of(source)
        ]

    def _finish(self, file: RunFile, source: pa.NativeFile, chunks: Sequence[Future[bytes]]) -> None:
        """Wait for the chunks of a file, and compare the headers of its pages with the log."""
        assert file.headers_digest is not None  # `may_be_read` is true of the file
        with damage_named(self.table, file):
            try:
                digest = sha256(b"".join(chunk.result() for chunk in chunks)).hexdigest()
            except ValueError as error:
                # A damaged header can make its page look damaged.
                if not has_headers(source, file.headers_digest):
                    raise other_headers(self.table, file) from error
                raise
        if digest != file.headers_digest:
            raise other_headers(self.table, file)

    def file_at(self, fact: str) -> RunFile | None:
        """Return the file whose path is in an error's text; None if there is none."""
        return next((file for file in self.files if path_of(self.table, file) in fact), None)


def path_of(table: Location, file: RunFile) -> str:
    """Return the path of a file, as DuckDB compares it with those that it may open."""
    return str((table / file.path).local.resolve())


def may_be_read(table: Location, file: RunFile) -> bool:
    """Return whether DuckDB may be able to read a file itself; see `is_readable`."""
    if not table.is_local or file.bytes < _BYTES_MIN or _PATTERN & set(path_of(table, file)):
        return False
    return file.digest is not None if file.bytes <= HASHED_BYTES_MAX else file.headers_digest is not None


def is_readable(table: Location, file: RunFile, schema: pa.Schema) -> bool:
    """Return whether DuckDB is to read these columns of a file itself; if so, it returns exactly what Arrow would.

    The file has to be on this machine, be large enough to be worth it, and store each column with the type that
    `schema` states, which is neither nested nor a timestamp. The log has to state the file's digest (or that of its
    page headers, if the file is larger than `HASHED_BYTES_MAX`).

    Raises:
        DamagedTable: the file is not what was committed.

    Cost: reads the footer; of a file up to `HASHED_BYTES_MAX`, everything.
    """
    if not may_be_read(table, file) or not all(_is_plain(field.type) for field in schema):
        return False
    stored = {field.name: field.type for field in read_footer(table, file).schema.to_arrow_schema()}
    return all(field.name in stored and field.type.equals(stored[field.name]) for field in schema)


def _is_plain(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_boolean(kind)
        or pa.types.is_signed_integer(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_decimal128(kind)
    )
