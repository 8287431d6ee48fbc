"""Files of a run: what their footers state, whether they fit the table, and making them durable."""

from __future__ import annotations

import json
import os
import shutil
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelake.delta.layout import RUN, TIME
from tidelake.errors import CommitRefused
from tidelake.order import INT64_MAX


@dataclass(frozen=True)
class RunFile:
    """One immutable Parquet file of a run, `path` relative to its table's folder."""

    path: str
    run: str
    rows: int
    bytes: int
    time_min: int | None
    time_max: int | None

    @property
    def reach(self) -> tuple[int, int]:
        """From which time to which its rows are at most; all of time where the file does not say."""
        low, high = self.time_min, self.time_max
        return 0 if low is None else low, INT64_MAX if high is None else high

    def statistics(self) -> str:
        """Delta's statistics of the file: its rows, and the bounds of `_time` where it has that column."""
        if self.time_min is None or self.time_max is None:
            return json.dumps({"numRecords": self.rows})
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {TIME: self.time_min},
                "maxValues": {TIME: self.time_max},
                "nullCount": {TIME: 0},
            }
        )


def meets(file: RunFile, times: Sequence[int]) -> bool:
    """Whether a file may hold one of these times, which are in order."""
    if file.time_min is None or file.time_max is None:
        return bool(times)
    at = bisect_left(times, file.time_min)
    return at < len(times) and times[at] <= file.time_max


def describe_run(table: Path, run: str) -> list[RunFile]:
    """What the footers of a run's files state; files without rows are deleted and left out.

    Cost: one footer read for each file; no data page is opened.
    """
    folder = table / f"{RUN}={run}"
    described = []
    for path in sorted(folder.glob("**/*.parquet")):
        metadata = pq.read_metadata(path)
        if metadata.num_rows == 0:
            path.unlink()
            continue
        low, high = _time_bounds(metadata)
        relative = path.relative_to(table).as_posix()
        described.append(RunFile(relative, run, metadata.num_rows, path.stat().st_size, low, high))
    return described


def write_run(table: Path, run: str, rows: pa.Table) -> list[RunFile]:
    """Write a small table of the driver's own as one file of a run; nothing for no rows."""
    if rows.num_rows == 0:
        return []
    folder = table / f"{RUN}={run}"
    folder.mkdir(parents=True, exist_ok=False)
    columns = [name for name in rows.column_names if name != RUN]
    pq.write_table(rows.select(columns), folder / "part-0.parquet", compression="zstd")
    return describe_run(table, run)


def discard_run(table: Path, run: str) -> None:
    """Remove the folder of a run that no log names."""
    folder = table / f"{RUN}={run}"
    if folder.exists():
        shutil.rmtree(folder)


def discard_runs(table: Path, files: Iterable[RunFile]) -> None:
    """Remove the folders of the runs that these files are of, none of which a log names."""
    for run in {file.run for file in files}:
        discard_run(table, run)


def read_rows(
    table: Path,
    files: Sequence[RunFile],
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    where: pc.Expression | None = None,
) -> pa.Table:
    """Read small tables of the driver's own, or some of their columns, without a JVM; `_run` comes from the log.

    Args:
        table: the table's folder.
        files: which of its files.
        schema: the table's.
        columns: those that are wanted; all where none are named.
        where: which rows are wanted; row groups whose statistics rule them out are not decoded.
    """
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns])
    stored = [name for name in schema.names if name != RUN]
    parts = []
    for file in files:
        if where is None:
            part = pq.ParquetFile(table / file.path).read(columns=stored)
        else:  # without partitioning, which would read `_run` off the path
            part = pq.read_table(table / file.path, columns=stored, filters=where, partitioning=None)
        parts.append(part.append_column(pa.field(RUN, pa.string()), pa.array([file.run] * part.num_rows, pa.string())))
    if not parts:
        return schema.empty_table()
    return pa.concat_tables([part.select(schema.names).cast(schema) for part in parts])


def check_file(table: Path, file: RunFile, schema: pa.Schema) -> None:
    """Refuse a file that is not there, has another schema than the table, or not the rows that are stated.

    Raises:
        CommitRefused: naming the file and what does not fit. Delta engines accept such files and fail, or lie, later.
    """
    path = table / file.path
    if not path.is_file():
        raise CommitRefused(f"the file {path} is not there", "write a run before committing it")
    metadata = pq.read_metadata(path)
    if metadata.num_rows != file.rows:
        raise CommitRefused(f"{path} has {metadata.num_rows} rows where {file.rows} are stated", "describe it again")
    expected = [field for field in schema if field.name != RUN]
    found = list(metadata.schema.to_arrow_schema())
    if [(f.name, _shape(f.type)) for f in found] != [(f.name, _shape(f.type)) for f in expected]:
        wanted = ", ".join(f"{field.name} {field.type}" for field in expected)
        has = ", ".join(f"{field.name} {field.type}" for field in found)
        raise CommitRefused(
            f"{path} does not have the table's schema: it has ({has}), not ({wanted})", "rewrite the run"
        )


def sync_path(path: Path) -> None:
    """Make a file's contents survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a loss of power."""
    sync_path(path)


def _time_bounds(metadata: pq.FileMetaData) -> tuple[int | None, int | None]:
    names = metadata.schema.to_arrow_schema().names
    if TIME not in names:
        return None, None
    index = next(i for i in range(metadata.num_columns) if metadata.schema.column(i).path == TIME)
    bounds = [metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)]
    if any(one is None or not one.has_min_max for one in bounds):
        return None, None
    return min(one.min for one in bounds), max(one.max for one in bounds)


def _shape(kind: pa.DataType) -> object:
    """A type without what does not matter: nullability, and what the element of a list is called."""
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
