"""The files of a run: writing and reading them, what their footers state, and whether they fit the table.

Every page has a checksum, and every reader verifies it. The log states each file's size and a digest: the SHA-256 of a
small file, or of the footer of a larger one. The digest also reveals damage outside the pages and a different file
under the same name. For a larger file, unless executors put it into an object store, the log also states the SHA-256 of
the whole file, which merges and deep verifications compare. For a larger file on a local disk, it also states the
SHA-256 of the page headers, which every reader of pages compares.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelake.errors import CommitRefused, DamagedTable, WrittenRowsMissing
from tidelake.protocol.order import INT64_MAX
from tidelake.spark.engine_errors import engine_fact
from tidelake.storage import blobs
from tidelake.storage.arrow import repeated
from tidelake.storage.location import Blob, Location
from tidelake.storage.page_headers import digest_of_headers
from tidelake.store.layout import RUN, TIME
from tidelake.store.put_files import Put, bytes_of, note_bytes, note_put, put_of

HASHED_BYTES_MAX = 1 << 20
"""The digest of a file up to this size covers all of it; the digest of a larger file covers its footer."""
DIGEST, ROWS_HASH = "sha256", "rows_hash"
"""The fields of a file's statistics in the log that hold its digest and the hash of all rows of its run."""
WHOLE_DIGEST = "sha256_whole"
"""The field with the SHA-256 of a larger file as a whole. A file that executors put into an object store has none."""
HEADERS_DIGEST = "sha256_headers"
"""The field with the digest of the page headers of a larger file. A file in an object store has none."""
_OTHER_HEADERS = "is not the one that was committed: the headers of its pages differ"
_TAIL_BYTES = 1 << 14
"""Number of bytes at the end of a file that are read first, to find its footer."""
_CHUNK_BYTES = 1 << 20
_LISTINGS_MAX = 2
"""Maximum number of times that a run is listed until all rows are found: writing them again would take longer."""
_THREADS = 2
"""The number of files that are hashed at the same time."""


@dataclass(frozen=True)
class RunFile:
    """One immutable Parquet file of a run; `path` is relative to the table's folder."""

    path: str
    run: str
    rows: int
    bytes: int
    time_min: int | None
    time_max: int | None
    digest: str | None = None
    """The SHA-256 of the file or of its footer; None if the file was committed before logs stated digests."""
    whole_digest: str | None = None
    """The SHA-256 of a larger file as a whole; None if it is not stated."""
    headers_digest: str | None = None
    """The digest of the page headers of a larger file, see `page_headers`; None if it is not stated."""
    rows_hash: str | None = None
    """The sum of the hashes of all rows of the run; see `spark.row_hash`. None if the writer did not state it."""

    @property
    def reach(self) -> tuple[int, int]:
        """The least and the greatest time that the rows can have; 0 and the greatest int64 if no bounds are stated."""
        low, high = self.time_min, self.time_max
        return 0 if low is None else low, INT64_MAX if high is None else high

    def statistics(self) -> str:
        """Return Delta's statistics of the file: its number of rows, and the bounds of `_time` if they are known.

        The digests are among them, because readers skip unknown statistics, and checkpoints keep them.
        """
        stated: dict[str, object] = {"numRecords": self.rows}
        if self.time_min is not None and self.time_max is not None:
            stated["minValues"] = {TIME: self.time_min}
            stated["maxValues"] = {TIME: self.time_max}
            stated["nullCount"] = {TIME: 0}
        if self.digest is not None:
            stated[DIGEST] = self.digest
        if self.rows_hash is not None:
            stated[ROWS_HASH] = self.rows_hash
        if self.whole_digest is not None:
            stated[WHOLE_DIGEST] = self.whole_digest
        if self.headers_digest is not None:
            stated[HEADERS_DIGEST] = self.headers_digest
        return json.dumps(stated)


def meets(file: RunFile, times: Sequence[int]) -> bool:
    """Return whether a file may hold a row at one of these times, which are sorted."""
    if file.time_min is None or file.time_max is None:
        return bool(times)
    at = bisect_left(times, file.time_min)
    return at < len(times) and times[at] <= file.time_max


def describe_run(table: Location, run: str, rows_hash: str | None = None) -> list[RunFile]:
    """Describe a run's files from their footers; delete files without rows.

    Cost: files on a local disk are read once to hash them, two at a time. Only the footer of a larger file in an object
    store is read.
    """
    described = []
    listed = [blob for blob in blobs.list_blobs(table / f"{RUN}={run}") if blob.location.suffix == ".parquet"]
    large = [blob.location for blob in listed if blob.size > HASHED_BYTES_MAX and blob.location.is_local]
    whole_digests = _hash_files(large)
    for blob in listed:
        source, digest = _open_with_digest(blob.location, blob.size)
        whole = whole_digests.get(blob.location)
        with source:
            metadata = pq.read_metadata(source)
            headers = None if whole is None else digest_of_headers(source)
        if metadata.num_rows == 0:
            blobs.delete(blob.location)
            continue
        file = _described(blob.location.below(table), run, blob.size, metadata, digest, rows_hash)
        described.append(replace(file, whole_digest=whole, headers_digest=headers))
    return described


def describe_whole_run(table: Location, run: str, rows: int) -> list[RunFile]:
    """Describe a run that other machines wrote, whose files only a listing shows; see `describe_run`.

    Args:
        table: the table's folder.
        run: the run.
        rows: the number of rows that were written.

    Raises:
        WrittenRowsMissing: neither of two listings had files with this number of rows.
    """
    for _ in range(_LISTINGS_MAX):
        files = describe_run(table, run)
        found = sum(file.rows for file in files)
        if found == rows:
            return files
    fact = f"Spark wrote {rows:,} row{'s' * (rows != 1)}, but the listed files have {found:,}"
    raise WrittenRowsMissing(fact, str(table / f"{RUN}={run}"))


def _described(
    path: str, run: str, size: int, metadata: pq.FileMetaData, digest: str, rows_hash: str | None = None
) -> RunFile:
    low, high = _time_bounds(metadata)
    return RunFile(path, run, metadata.num_rows, size, low, high, digest, rows_hash=rows_hash)


def upload_run(folder: Location, table: Location, run: str) -> list[RunFile]:
    """Upload the files of a run from this machine to an object store, except those without rows.

    Args:
        folder: the folder that holds the files, laid out as in the run's folder.
        table: the table's folder.
        run: the run.

    Returns:
        The files, as their bytes on this machine describe them.

    Cost: the files are read once, or twice if they are large; a put for each small file.
    """

    def upload(blob: Blob) -> RunFile | None:
        source, digest = _open_with_digest(blob.location)
        with source:
            metadata = pq.read_metadata(source)
            data = _all_of(source) if blob.size <= HASHED_BYTES_MAX else None
        if metadata.num_rows == 0:
            return None
        location = table / f"{RUN}={run}" / blob.location.below(folder)
        if data is None:
            whole = _hash_file(blob.location)
            blobs.upload(blob.location, location)
        else:
            whole = None
            blobs.write(location, data)
        return replace(_note_put(table, location, run, blob.size, metadata, digest, data), whole_digest=whole)

    listed = [blob for blob in blobs.list_blobs(folder) if blob.location.suffix == ".parquet"]
    with ThreadPoolExecutor(_THREADS) as threads:
        return [file for file in threads.map(upload, listed) if file is not None]


def _note_put(
    table: Location,
    location: Location,
    run: str,
    size: int,
    metadata: pq.FileMetaData,
    digest: str,
    data: bytes | None,
    rows_hash: str | None = None,
) -> RunFile:
    """Describe a file that was put into an object store, and remember it."""
    note_put(location, Put(size, digest, metadata.num_rows, metadata.schema.to_arrow_schema()))
    if data is not None:
        note_bytes(location, digest, data)
    return _described(location.below(table), run, size, metadata, digest, rows_hash)


def write_run(table: Location, run: str, rows: pa.Table, rows_hash: str | None = None) -> list[RunFile]:
    """Write an in-memory Arrow table as one file of a run; write nothing if it has no rows."""
    if rows.num_rows == 0:
        return []
    columns = [name for name in rows.column_names if name != RUN]
    location = table / f"{RUN}={run}" / "part-0.parquet"
    if table.is_local:
        with blobs.writing(location) as sink:
            _write_table(rows.select(columns), sink)
        return describe_run(table, run, rows_hash)
    buffer = pa.BufferOutputStream()
    _write_table(rows.select(columns), buffer)
    data: bytes = buffer.getvalue().to_pybytes()
    blobs.write(location, data)
    source = pa.BufferReader(data)
    metadata = pq.read_metadata(source)
    small = data if len(data) <= HASHED_BYTES_MAX else None
    digest = sha256(_footer_of(source) if small is None else small).hexdigest()
    file = _note_put(table, location, run, len(data), metadata, digest, small, rows_hash)
    return [replace(file, whole_digest=sha256(data).hexdigest() if small is None else None)]


def _write_table(rows: pa.Table, sink: pa.NativeFile) -> None:
    pq.write_table(rows, sink, compression="zstd", write_page_checksum=True)


def discard_run(table: Location, run: str) -> None:
    """Delete the folder of a run that no log names."""
    blobs.delete_folder(table / f"{RUN}={run}")


def discard_runs(table: Location, files: Iterable[RunFile]) -> None:
    """Delete the folders of the runs that these files belong to. No log may name them."""
    for run in {file.run for file in files}:
        discard_run(table, run)


def read_rows(
    table: Location,
    files: Sequence[RunFile],
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    where: pc.Expression | None = None,
) -> pa.Table:
    """Read files into Arrow, without a JVM; `_run` comes from the log.

    Args:
        table: the table's folder.
        files: the files to read; a column that a file lacks is null in the file's rows.
        schema: the table's schema.
        columns: the columns to read; None means all.
        where: which rows to read; a row group is not decoded if its statistics show that it has none of them.

    Raises:
        DamagedTable: a file is not the committed one, or cannot be read.
    """
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns])
    stored = [name for name in schema.names if name != RUN]
    parts = []
    for file in files:
        part = read_file(table, file, stored, where)
        for name in schema.names:
            if name == RUN:
                part = part.append_column(pa.field(RUN, pa.string()), repeated(file.run, part.num_rows))
            elif name not in part.column_names:
                part = part.append_column(schema.field(name), pa.nulls(part.num_rows, schema.field(name).type))
        parts.append(part.select(schema.names).cast(schema))
    return pa.concat_tables(parts) if parts else pa.Table.from_batches([], schema=schema)


def read_file(table: Location, file: RunFile, columns: list[str], where: pc.Expression | None = None) -> pa.Table:
    """Read columns of one file as it stores them; columns that it lacks are left out.

    Raises:
        DamagedTable: the file is not the committed one, or cannot be read.
    """
    with damage_named(table, file), open_verified(table, file, may_be_remembered=True) as source:
        if where is None:
            # For a small file, handing the work to other threads takes longer than the work.
            return _pages_verified(source).read(columns=columns, use_threads=file.bytes > HASHED_BYTES_MAX)
        # Partitioning would read `_run` from the path.
        read = partial(pq.read_table, source, filters=where, partitioning=None, page_checksum_verification=True)
        try:
            return read(columns=columns)
        except pa.ArrowInvalid:  # unlike above, a column that the file lacks is an error
            held = set(pq.read_schema(source).names)
            if held.issuperset(columns):
                raise
            return read(columns=[name for name in columns if name in held])


def open_parquet(table: Location, file: RunFile, may_be_remembered: bool = False) -> pq.ParquetFile:
    """Open a file for Arrow, which verifies each page that it reads; use `damage_named` around reads.

    Args:
        table: the table's folder.
        file: the file, as the log describes it.
        may_be_remembered: see `open_verified`.

    Raises:
        DamagedTable: the file is not the committed one, or cannot be read.
    """
    with damage_named(table, file):
        return _pages_verified(open_verified(table, file, may_be_remembered=may_be_remembered))


def read_footer(table: Location, file: RunFile) -> pq.FileMetaData:
    """Read the footer of a file; nothing else of a larger file is read.

    Raises:
        DamagedTable: the file is not the committed one, or cannot be read.
    """
    with damage_named(table, file), open_verified(table, file, reads_pages=False) as source:
        return pq.read_metadata(source)


def _pages_verified(source: pa.NativeFile) -> pq.ParquetFile:
    return pq.ParquetFile(source, page_checksum_verification=True)


def open_verified(
    table: Location, file: RunFile, reads_pages: bool = True, may_be_remembered: bool = False
) -> pa.NativeFile:
    """Open a file for Arrow after comparing its size and its digests with those in the log.

    Args:
        table: the table's folder.
        file: the file, as the log describes it.
        reads_pages: whether pages will be read; if not, their headers are not verified.
        may_be_remembered: whether the bytes may be those that this process has put or read before, if they have the
            committed digest. False for a caller that reports whether the file exists, or that lets Spark read it.

    Raises:
        DamagedTable: the file is missing, or its size or digest differs.

    Cost: the whole of a small file; of a larger one, its footer and, if the log states a digest of them, the headers of
    its pages.
    """
    remembers = may_be_remembered and not table.is_local and file.bytes <= HASHED_BYTES_MAX
    remembered = bytes_of(table / file.path, file.digest) if remembers else None
    if remembered is not None:
        return pa.BufferReader(remembered)
    try:
        source, digest = _open_with_digest(table / file.path, file.bytes)
    except FileNotFoundError as error:
        fact = f"the file {file.path} is missing; a version that is more than a day old may no longer be readable"
        raise DamagedTable(str(table), fact) from error
    problem = None
    if source.size() != file.bytes:
        problem = f"has {source.size()} byte{'s' * (source.size() != 1)}, but {file.bytes} were committed"
    elif digest != (file.digest or digest):
        part = "its SHA-256" if file.bytes <= HASHED_BYTES_MAX else "the SHA-256 of its footer"
        problem = f"is not the one that was committed: {part} differs"
    elif reads_pages and file.headers_digest is not None and not has_headers(source, file.headers_digest):
        problem = _OTHER_HEADERS
    if problem is not None:
        source.close()
        raise DamagedTable(str(table), f"the file {file.path} {problem}")
    source.seek(0)
    if remembers and file.digest is not None:
        note_bytes(table / file.path, digest, _all_of(source))
    return source


def other_headers(table: Location, file: RunFile) -> DamagedTable:
    """Return the error for a file whose page headers differ from the digest that the log states."""
    return DamagedTable(str(table), f"the file {file.path} {_OTHER_HEADERS}")


def _all_of(source: pa.NativeFile) -> bytes:
    source.seek(0)
    data: bytes = source.read()
    source.seek(0)
    return data


def has_headers(source: pa.NativeFile, digest: str) -> bool:
    """Return whether the headers of a file's pages have this digest."""
    try:
        return digest_of_headers(source) == digest
    except (ValueError, pa.ArrowException):  # the bytes there are not a header
        return False


def check_whole(table: Location, files: Sequence[RunFile]) -> None:
    """Compare all bytes of larger files with the SHA-256 in the log. `open_verified` does so for smaller ones.

    Raises:
        DamagedTable: the SHA-256 of a file differs; the error names the first such file.

    Cost: each larger file whose SHA-256 the log states is read once, two files at a time.
    """
    stated = {table / file.path: file for file in files if file.whole_digest is not None}
    for location, digest in _hash_files(list(stated)).items():
        file = stated[location]
        if digest != file.whole_digest:
            raise DamagedTable(
                str(table), f"the file {file.path} is not the one that was committed: its SHA-256 differs"
            )


def are_same_bytes(table: Location, committed: RunFile, made: RunFile) -> bool:
    """Return whether the log proves that a file has exactly the bytes of a committed file.

    For a larger file, this requires the SHA-256 of the whole file: if the log does not state it, the answer is False.
    """
    if committed.digest is None or (committed.bytes > HASHED_BYTES_MAX and committed.whole_digest is None):
        return False
    stated = [(file.rows, file.bytes, file.time_min, file.time_max, file.digest) for file in (committed, made)]
    if stated[0] != stated[1]:
        return False
    return committed.whole_digest in (None, made.whole_digest or _hash_file(table / made.path))


def _hash_files(locations: Sequence[Location]) -> dict[Location, str]:
    """Compute the SHA-256 of files."""
    if len(locations) < 2:
        return {location: _hash_file(location) for location in locations}
    with ThreadPoolExecutor(_THREADS) as threads:
        return dict(zip(locations, threads.map(_hash_file, locations), strict=True))


def _hash_file(location: Location) -> str:
    digest = sha256()
    with blobs.open_stream(location) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _open_with_digest(location: Location, size: int | None = None) -> tuple[pa.NativeFile, str]:
    """Open a file for Arrow, and compute its digest; a small file takes one request to an object store."""
    if size is not None and size <= HASHED_BYTES_MAX and not location.is_local:
        data = blobs.read(location)
        return pa.BufferReader(data), sha256(data).hexdigest()
    source = blobs.open_file(location)
    if source.size() <= HASHED_BYTES_MAX:
        with source:
            data = source.read()
        return pa.BufferReader(data), sha256(data).hexdigest()
    digest = sha256(_footer_of(source)).hexdigest()
    source.seek(0)
    return source, digest


def _footer_of(source: pa.NativeFile) -> bytes:
    """Return a Parquet file's footer, its length and the magic bytes; the whole file if the length is impossible."""
    size = source.size()
    source.seek(max(size - _TAIL_BYTES, 0))
    tail: bytes = source.read()
    length = min(int.from_bytes(tail[-8:-4], "little") + 8, size)
    if length > len(tail):
        source.seek(size - length)
        tail = source.read()
    return tail[len(tail) - length :]


@contextmanager
def damage_named(table: Location, file: RunFile) -> Iterator[None]:
    """Raise read errors as damage to a file. Operating-system errors are raised unchanged: they do not mean damage."""
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DamagedTable(str(table), f"the file {file.path} cannot be read: {engine_fact(error)}") from error


def check_file(table: Location, file: RunFile, schema: pa.Schema) -> None:
    """Refuse a file that is missing, or that does not have the table's schema or the stated number of rows.

    Raises:
        CommitRefused: the error names the file and the mismatch. Delta engines would accept the file, and fail when
            they read it.
        DamagedTable: the file does not have the size or the digest that is stated.
    """
    path = table / file.path
    put = None if table.is_local else put_of(path)
    if put is not None and (put.size, put.digest) == (file.bytes, file.digest):
        rows, stored = put.rows, list(put.schema)
    else:
        if not blobs.exists(path):
            raise CommitRefused(f"the file {path} does not exist", "write a run before committing it")
        with open_verified(table, file) as source:
            metadata = pq.read_metadata(source)
        rows, stored = metadata.num_rows, list(metadata.schema.to_arrow_schema())
    if rows != file.rows:
        fact = f"{path} has {rows} row{'s' * (rows != 1)}, but its description says {file.rows}"
        raise CommitRefused(fact, "describe it again")
    expected = [field for field in schema if field.name != RUN]
    if [(f.name, _shape(f.type)) for f in stored] != [(f.name, _shape(f.type)) for f in expected]:
        wanted = ", ".join(f"{field.name} {field.type}" for field in expected)
        has = ", ".join(f"{field.name} {field.type}" for field in stored)
        raise CommitRefused(
            f"{path} does not have the table's schema: it has ({has}), not ({wanted})", "rewrite the run"
        )


def _time_bounds(metadata: pq.FileMetaData) -> tuple[int | None, int | None]:
    names = metadata.schema.to_arrow_schema().names
    if TIME not in names:
        return None, None
    index = next(i for i in range(metadata.num_columns) if metadata.schema.column(i).path == TIME)
    bounds = [metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)]
    if any(group is None or not group.has_min_max for group in bounds):
        return None, None
    return min(group.min for group in bounds), max(group.max for group in bounds)


def _shape(kind: pa.DataType) -> object:
    """Return what is compared of a type: not nullability, the names of list elements, or the units of timestamps."""
    if pa.types.is_struct(kind):
        return ("struct", tuple((field.name, _shape(field.type)) for field in kind))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return ("list", _shape(kind.value_type))
    if pa.types.is_timestamp(kind):
        return ("timestamp", kind.tz is not None)
    if pa.types.is_large_string(kind) or pa.types.is_string(kind):
        return "string"
    if pa.types.is_large_binary(kind) or pa.types.is_binary(kind):
        return "binary"
    return str(kind)
