"""Chooses where a batch of changes ends, so that it has a bounded number of stored rows and only whole times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidelake.storage.arrow import integers
from tidelake.storage.location import Location
from tidelake.store.files import RunFile, damage_named, open_parquet
from tidelake.store.layout import TIME

_BATCH_ROWS = 65_536

Times = np.ndarray[Any, np.dtype[np.int64]]


def last_time_within(table: Location, files: Sequence[RunFile], after: int, last: int, rows_max: int) -> int:
    """Return the last time, at most `last`, through which a batch has at most `rows_max` rows.

    If the first time with rows has more rows than that, the batch ends with this time: a time is never split.

    Args:
        table: the table's folder.
        files: the live files; their first and last times are known.
        after: the batch begins after this time.
        last: the last sealed time.
        rows_max: the maximum number of rows whose times are in the batch.

    Raises:
        DamagedTable: a file is not the committed one, or cannot be read.

    Cost: none if the files in the range have at most `rows_max` rows. Otherwise, the time column is read from the row
        groups that may have a row of the batch, and up to 2 * `rows_max` of its values are in memory.
    """
    live = sorted(
        (file for file in files if file.reach[0] <= last and file.reach[1] > after), key=lambda file: file.reach
    )
    if sum(file.rows for file in live) <= rows_max:
        return last
    earliest = _EarliestTimes(after, last, rows_max)
    for file in live:
        if file.reach[0] >= earliest.bound:
            break
        _add_times(earliest, table, file)
    return earliest.last


class _EarliestTimes:
    """The times of the first `rows_max + 1` rows in a range; they determine where the batch ends."""

    def __init__(self, after: int, last: int, rows_max: int) -> None:
        self._after, self._last, self.rows_max = after, last, rows_max
        self._times: Times = np.zeros(0, np.int64)
        self._added: list[Times] = []
        self.bound = last + 1
        """Times at or after this one make no difference."""

    def may_need(self, first: int, last: int) -> bool:
        """Return whether rows whose times are in these bounds may affect where the batch ends."""
        return first < self.bound and last > self._after

    def add(self, times: Times) -> None:
        """Add the times of some rows."""
        self._added.append(times[(times > self._after) & (times < self.bound)])
        if sum(map(len, self._added)) > self.rows_max:
            self._merge()

    def _merge(self) -> None:
        times = np.concatenate([self._times, *self._added])
        self._added = []
        if len(times) > self.rows_max:
            times = np.partition(times, self.rows_max)[: self.rows_max + 1]
            self.bound = int(times[self.rows_max])
        self._times = times

    @property
    def last(self) -> int:
        """The last time of the batch."""
        self._merge()
        if len(self._times) <= self.rows_max:
            return self._last
        return max(int(self._times.min()), self.bound - 1)


def _add_times(earliest: _EarliestTimes, table: Location, file: RunFile) -> None:
    """Add the times of a file's rows; row groups that make no difference are not read."""
    if file.time_min is not None and file.time_min == file.time_max:
        earliest.add(np.full(min(file.rows, earliest.rows_max + 1), file.time_min, np.int64))
        return
    source = open_parquet(table, file, may_be_remembered=True)
    with damage_named(table, file):
        metadata = source.metadata
        place = [metadata.schema.column(index).path for index in range(metadata.num_columns)].index(TIME)
        for group in range(metadata.num_row_groups):
            stated = metadata.row_group(group).column(place).statistics
            if stated is not None and stated.has_min_max and not earliest.may_need(stated.min, stated.max):
                continue
            for batch in source.iter_batches(_BATCH_ROWS, [group], [TIME]):
                earliest.add(integers(pa.chunked_array([batch[TIME]])))


def whole_times(files: Sequence[RunFile], after: int, last: int, rows_max: int) -> int:
    """Return the last time of a batch: `last`, or an earlier time at which a file ends. No file is opened.

    The time is the greatest one up to which the files have at most `rows_max` rows. A batch is cut only where a file
    ends. So if the files up to the earliest such end already have more rows, so does the batch.

    Args:
        files: the live files; their first and last times are known.
        after: the batch begins after this time.
        last: the last sealed time.
        rows_max: the maximum number of rows that the files with times in the batch should have.
    """
    ranges = [(*file.reach, file.rows) for file in files if file.reach[0] <= last and file.reach[1] > after]
    if sum(rows for _, _, rows in ranges) <= rows_max:
        return last
    chosen = None
    for end in sorted({high for _, high, _ in ranges if high < last}):
        if chosen is not None and sum(rows for low, _, rows in ranges if low <= end) > rows_max:
            break
        chosen = end
    return last if chosen is None else chosen
