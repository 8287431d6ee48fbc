"""Counts the rows at open times without a Spark job: Arrow compares whole rows, column by column.

Arrow groups a hundred thousand rows in less time than Spark takes to plan a job. Rows pass through buckets of times;
each bucket is counted and dropped once its last row is read, so memory is bounded if files are roughly in time order.
If too many rows would have to wait, or if a column has lists or structs, seal lets Spark count. All cores count while
the next rows are read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelake.seal.counts import OpenCounts, TimeCount
from tidelake.storage.location import Location
from tidelake.store.files import RunFile, damage_named, open_parquet
from tidelake.store.layout import DIFF, TIME

BUCKET_ROWS = 100_000
BATCH_ROWS = 16_384
_BATCH_BYTES = 16 * 1024 * 1024
_ROWS_TO_WEIGH = 1_024
_ROWS_MAX = 20_000_000
"""Maximum number of rows; if there are more, executors count them."""
_ROW_BYTES_MAX = 16_384
"""Maximum average size of a file's rows on the driver."""
HELD_BYTES_MAX = 256 * 1024 * 1024
"""Maximum size of the buckets that wait for their last row, and of those that wait to be counted."""
_FACTOR_MAX = 2**31
"""If a diff and a number of copies are both below this, their product fits in an int64."""
SURPLUS = "_surplus"


def count_in_arrow(
    table: Location,
    files: Sequence[RunFile],
    schema: pa.Schema,
    data: Sequence[str],
    key: Sequence[str],
    within: range,
    nested_rows_max: int = 0,
) -> OpenCounts | None:
    """Count rows and distinct statements by time, and find the times that may be contradictory or break the envelope.

    Args:
        table: the table's folder.
        files: the files that may hold a row to count.
        schema: the table's schema.
        data: the data's columns.
        key: the key's columns, if a key may have only one value at each time; empty if diffs are summed.
        within: the times at which rows are counted.
        nested_rows_max: maximum number of rows if a column has lists or structs. Python compares such values, which
            takes a few seconds for 100,000 rows; in `surplus`, they are text.

    Returns:
        Exact counts, copies included; None if counting would take too much memory, or if Arrow cannot compare a column.

    Cost: one pass over the rows' times, and one over the rows.
    """
    fields = [schema.field(name) for name in (*data, TIME, DIFF)]
    rows_max = _ROWS_MAX if all(_is_flat(field.type) for field in fields) else nested_rows_max
    if sum(file.rows for file in files) > rows_max:
        return None
    times = []
    for file in files:
        with damage_named(table, file):
            stored = open_parquet(table, file, may_be_remembered=True)
            if _has_large_rows(stored, file):
                return None
            times.append(stored.read(columns=[TIME])[TIME].to_numpy())
    counts, waiting, held = OpenCounts(), deque[tuple[int, Future[OpenCounts]]](), 0
    with ThreadPoolExecutor(pa.cpu_count()) as pool:
        for rows in _Buckets(table, files, times, within).read(pa.schema(fields)):
            if rows is None:
                pool.shutdown(cancel_futures=True)
                return None
            waiting.append((rows.nbytes, pool.submit(_count, rows, data, key)))
            held += rows.nbytes
            while held > HELD_BYTES_MAX:
                size, oldest = waiting.popleft()
                held -= size
                counts.add(oldest.result())
    for _, bucket in waiting:
        counts.add(bucket.result())
    return counts


def compensating_table(surplus: pa.Table) -> pa.Table:
    """Return rows that cancel surplus copies: the data's columns, _time, and the copies' negated diffs as _diff."""
    diffs = pc.negate(pc.multiply(surplus[DIFF], surplus[SURPLUS]))
    return surplus.drop_columns([SURPLUS]).set_column(surplus.column_names.index(DIFF), DIFF, diffs)


class _Buckets:
    """Rows in buckets of times; all rows of a time are in the same bucket."""

    def __init__(self, table: Location, files: Sequence[RunFile], times: Sequence[np.ndarray], within: range) -> None:
        self.table, self.files, self.times, self.within = table, files, times, within

    def read(self, schema: pa.Schema) -> Iterator[pa.Table | None]:
        """Yield each bucket's rows once they are complete; if too many rows wait, yield None and stop."""
        firsts, missing = self._plan()
        parts: dict[int, list[pa.Table]] = {}
        held = 0
        for rows in self._batches(schema):
            for bucket, part in _split(rows, firsts):
                parts.setdefault(bucket, []).append(part)
                held += part.nbytes
                missing[bucket] -= part.num_rows
                if missing[bucket] == 0:
                    whole = pa.concat_tables(parts.pop(bucket))
                    held -= whole.nbytes
                    yield whole
            if held > HELD_BYTES_MAX:
                yield None
                return

    def _plan(self) -> tuple[np.ndarray, list[int]]:
        """Return the first time of each bucket, and the number of rows in it."""
        times = np.concatenate([rows[self._inside(rows)] for rows in self.times])
        if not len(times):
            return times, []
        if (times[1:] < times[:-1]).any():
            times.sort(kind="stable")  # a stable sort merges sorted parts, and each file is in order of time
        begins = np.flatnonzero(np.diff(times, prepend=times[0] - 1))
        distinct, rows = times[begins], np.diff(begins, append=len(times))
        number = begins // BUCKET_ROWS
        starts = np.flatnonzero(np.diff(number, prepend=-1))
        return distinct[starts], np.add.reduceat(rows, starts).tolist()

    def _inside(self, times: np.ndarray) -> np.ndarray:
        return np.asarray((times >= self.within.start) & (times <= self.within.stop - 1))

    def _batches(self, schema: pa.Schema) -> Iterator[pa.Table]:
        for file in self.files:
            stored = open_parquet(self.table, file, may_be_remembered=True)
            with damage_named(self.table, file):
                for batch in stored.iter_batches(_batch_rows(stored, schema.names), columns=schema.names):
                    rows = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
                    inside = self._inside(rows[TIME].to_numpy())
                    yield rows if inside.all() else rows.filter(pa.array(inside))


def _batch_rows(file: pq.ParquetFile, names: list[str]) -> int:
    """Choose the number of rows per batch by the first rows' size in memory, because files compress repeated values."""
    first = next(file.iter_batches(_ROWS_TO_WEIGH, columns=names), None)
    if first is None:
        return BATCH_ROWS
    return int(min(BATCH_ROWS, max(1, _BATCH_BYTES * first.num_rows // max(1, first.nbytes))))


def _split(rows: pa.Table, firsts: np.ndarray) -> Iterator[tuple[int, pa.Table]]:
    """Split rows by their buckets."""
    if not rows.num_rows:
        return
    numbers = np.searchsorted(firsts, rows[TIME].to_numpy(), side="right") - 1
    if numbers.min() == numbers.max():
        yield int(numbers[0]), rows
        return
    for bucket in np.unique(numbers).tolist():
        yield bucket, rows.filter(pa.array(numbers == bucket))


def _count(rows: pa.Table, data: Sequence[str], key: Sequence[str]) -> OpenCounts:
    """Count the rows of a bucket, which holds all rows of its times."""
    counts = OpenCounts()
    groups = _comparable(rows).group_by([TIME, *data]).aggregate([(DIFF, "min"), (DIFF, "max"), ([], "count_all")])
    least, greatest, copies = (groups[name] for name in (f"{DIFF}_min", f"{DIFF}_max", "count_all"))
    has_copies, suspect = pc.greater(copies, 1), pc.not_equal(least, greatest)
    if key:
        suspect = pc.or_(suspect, pc.or_(pc.greater(greatest, 1), pc.less(least, -1)))
        values = groups.filter(pc.greater(greatest, 0)).group_by([TIME, *key]).aggregate([([], "count_all")])
        counts.suspects.update(_times_where(values, pc.greater(values["count_all"], 1)))
    else:
        large = pc.or_(pc.greater_equal(greatest, _FACTOR_MAX), pc.less_equal(least, -_FACTOR_MAX))
        suspect = pc.or_(suspect, pc.and_(has_copies, pc.or_(large, pc.greater_equal(copies, _FACTOR_MAX))))
    counts.suspects.update(_times_where(groups, suspect))
    by_time = groups.group_by(TIME).aggregate([("count_all", "sum"), ([], "count_all")])
    columns = (by_time[name].to_pylist() for name in (TIME, "count_all_sum", "count_all"))
    for time, number, distinct in zip(*columns, strict=True):
        counts.rows += number
        counts.by_time[time] = TimeCount(distinct, number - distinct)
    if not key:
        copied = groups.filter(has_copies)
        surplus = pc.subtract(copied["count_all"], 1)
        names = [*data, TIME, f"{DIFF}_min"]
        counts.surplus.append(copied.select(names).rename_columns([*data, TIME, DIFF]).append_column(SURPLUS, surplus))
    return counts


def _times_where(rows: pa.Table, which: pa.ChunkedArray) -> list[int]:
    times: list[int] = pc.unique(rows[TIME].filter(which)).to_pylist()
    return times


def _comparable(rows: pa.Table) -> pa.Table:
    """Replace all zeros with one zero, all NaNs with one NaN, and nested values with text, to compare as Spark does."""
    for number, field in enumerate(rows.schema):
        if not _is_flat(field.type):
            texts = [None if value is None else repr(_canonical(value)) for value in rows[field.name].to_pylist()]
            rows = rows.set_column(number, field.name, pa.chunked_array([pa.array(texts, pa.large_string())]))
        if pa.types.is_floating(field.type):
            one_zero = pc.add(rows[field.name], pa.scalar(0.0, field.type))
            nan = pa.scalar(float("nan"), field.type)
            rows = rows.set_column(number, field, pc.if_else(pc.is_nan(one_zero), nan, one_zero))
    return rows


def _is_flat(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind)


def _has_large_rows(stored: pq.ParquetFile, file: RunFile) -> bool:
    """Return whether rows are large on average, before compression."""
    metadata = stored.metadata
    size: int = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    return size > _ROW_BYTES_MAX * file.rows


def _canonical(value: Any) -> Any:
    """Return a nested value whose text is the same as that of every equal value.

    >>> _canonical({"list": [-0.0, None], "map": [("b", 1), ("a", 2)]})
    {'list': [0.0, None], 'map': [('a', 2), ('b', 1)]}
    """
    if isinstance(value, dict):
        return {name: _canonical(inner) for name, inner in value.items()}
    if isinstance(value, list):
        inner = [_canonical(item) for item in value]
        return sorted(inner, key=repr) if value and all(isinstance(item, tuple) for item in value) else inner
    if isinstance(value, tuple):  # the entry of a map
        return tuple(map(_canonical, value))
    return value + 0.0 if isinstance(value, float) else value
