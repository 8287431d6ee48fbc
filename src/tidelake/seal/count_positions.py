"""Counts the distinct positions of events, and of rows of snapshots, at open times. Needs no JVM."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.seal.counts import OpenCounts, TimeCount
from tidelake.storage.location import Location
from tidelake.store.files import RunFile, damage_named, open_parquet, read_file
from tidelake.store.layout import EVENT_POSITION_SIZES, POSITION, TIME

ROWS_MAX = 10_000_000
"""Maximum number of rows on the driver; if there are more, executors count them."""


def count_positions(
    table: Location, files: Sequence[RunFile], within: range, rows_max: int = ROWS_MAX
) -> OpenCounts | None:
    """Count the distinct positions of events by time, without a JVM.

    Args:
        table: the table's folder.
        files: the files that may hold a row to count.
        within: the times at which rows are counted.
        rows_max: maximum number of rows.

    Returns:
        The counts; None if there are more rows.

    Cost: one pass over two columns.
    """
    if sum(file.rows for file in files) > rows_max:
        return None
    parts: dict[int, list[np.ndarray]] = {size: [] for size in EVENT_POSITION_SIZES}
    counts = OpenCounts()
    for file in files:
        with damage_named(table, file):
            rows = open_parquet(table, file, may_be_remembered=True).read(columns=[TIME, POSITION])
            times = rows[TIME].to_numpy()
            inside = pa.array((times >= within.start) & (times <= within.stop - 1))
            rows = rows.filter(inside)
            counts.rows += rows.num_rows
            for size in EVENT_POSITION_SIZES:
                sized = rows.filter(pc.equal(pc.list_value_length(rows[POSITION]), size))
                numbers = pc.list_flatten(sized[POSITION]).to_numpy().reshape(-1, size)
                parts[size].append(np.column_stack([sized[TIME].to_numpy(), numbers]))
    totals: dict[int, list[int]] = {}
    for some in parts.values():
        _add(totals, np.concatenate(some) if some else np.empty((0, 1), dtype=np.int64))
    counts.by_time = {time: TimeCount(distinct, rows - distinct) for time, (rows, distinct) in sorted(totals.items())}
    return counts


def numbers_at(table: Location, files: Sequence[RunFile], time: int) -> set[int]:
    """Return the numbers, within their transaction, of the events that are stored at a time.

    Cost: two columns of the files that may hold the time.
    """
    numbers: set[int] = set()
    for file in files:
        if file.reach[0] <= time <= file.reach[1]:
            rows = read_file(table, file, [TIME, POSITION], pc.field(TIME) == time)
            sized = rows.filter(pc.equal(pc.list_value_length(rows[POSITION]), EVENT_POSITION_SIZES[0]))
            numbers.update(position[1] for position in sized[POSITION].to_pylist())
    return numbers


def _add(totals: dict[int, list[int]], positions: np.ndarray) -> None:
    """Add the number of rows, and of distinct rows, to the totals of their time, which is the first column."""
    if not len(positions):
        return
    distinct = _distinct(positions)
    for place, numbers in ((0, positions[:, 0]), (1, distinct[:, 0])):
        times, rows = np.unique(numbers, return_counts=True)
        for time, number in zip(times.tolist(), rows.tolist(), strict=True):
            totals.setdefault(time, [0, 0])[place] += number


def _distinct(positions: np.ndarray) -> np.ndarray:
    """Return the distinct rows. numpy's own `unique` compares rows as bytes, which takes four times as long."""
    ordered = positions[np.lexsort(positions.T[::-1])]
    is_first = np.ones(len(ordered), dtype=bool)
    is_first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return ordered[is_first]
