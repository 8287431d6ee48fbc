"""Large files that DuckDB reads itself, once every page of the needed columns has been verified.

DuckDB decodes Parquet faster than Arrow hands it rows, but does not compare pages with their checksums.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidelake.query.names import listed, text
from tidelake.storage.location import Location
from tidelake.storage.page_headers import check_pages
from tidelake.store.files import HASHED_BYTES_MAX, RunFile, damage_named, open_verified, read_footer

_PATTERN = frozenset("*?[{")
"""A path with one of these means several files in DuckDB."""


class VerifiedFiles:
    """Columns of some files of a table in a folder on this machine; each file `is_readable`.

    Args:
        table: the table's folder.
        files: the files, as the log describes them.
        columns: the columns to read.
    """

    def __init__(self, table: Location, files: Sequence[RunFile], columns: Sequence[str]) -> None:
        self.table, self.files, self.columns = table, list(files), frozenset(columns)

    @property
    def relation(self) -> str:
        """The files as a relation in SQL."""
        paths = listed(text(path_of(self.table, file)) for file in self.files)
        # Statistics do not count NaN, which is greater than all other numbers.
        return f"read_parquet([{paths}], hive_partitioning = false, can_have_nan = true)"

    def verify(self) -> None:
        """Compare the files with the log, and each page of the columns with its checksum.

        Raises:
            DamagedTable: a file is not what was committed.

        Cost: the compressed bytes of the columns, and the page headers of all; 35 ms for 27 MB in the page cache.
        """
        for file in self.files:
            with damage_named(self.table, file), open_verified(self.table, file) as source:
                check_pages(source, self.columns)

    def file_at(self, fact: str) -> RunFile | None:
        """Return the file whose path is in an error's text."""
        return next((file for file in self.files if path_of(self.table, file) in fact), None)


def path_of(table: Location, file: RunFile) -> str:
    """Return the path of a file, as DuckDB compares it with those that it may open."""
    return str((table / file.path).local.resolve())


def may_be_read(table: Location, file: RunFile) -> bool:
    """Return whether DuckDB may be able to read a file itself; see `is_readable`."""
    is_large = table.is_local and file.bytes > HASHED_BYTES_MAX and file.headers_digest is not None
    return is_large and not _PATTERN & set(path_of(table, file))


def is_readable(table: Location, file: RunFile, schema: pa.Schema) -> bool:
    """Return whether DuckDB reads these columns of a file exactly as Arrow does.

    It does if the file is large enough to be worth it, the log states the digest of its page headers, and each column
    is stored with its own type, which is neither nested nor a timestamp.

    Raises:
        DamagedTable: the file is not what was committed.

    Cost: the footer.
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
