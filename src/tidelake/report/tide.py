"""The tide picture's numbers: what was announced and what was counted, below upper and at or after it. Needs no JVM."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.storage.arrow import integers
from tidelake.store.bindings import read_bindings
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import read_file, read_rows
from tidelake.store.layout import PROGRESS_SCHEMA, PROOF_RUN, PROOFS_SCHEMA, TIME

SEALED_BINS, OPEN_BINS, MARKS = 48, 24, 120
"""Maximum number of bars below upper, of bars at or after upper, and of points of the curve of upper."""
OPEN_LISTED_MAX = 12

Integers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Bin:
    """One bar: consecutive times, with their sums."""

    first: int
    last: int
    times: int
    announced: int
    counted: int
    """Counted updates; in a bar at or after upper, rows that have arrived, copies included."""
    part: str
    """`past` (before since), `sealed`, or `open` (at or after upper)."""


@dataclass(frozen=True)
class OpenTime:
    """A time that is not sealed yet."""

    time: int
    announced: int | None
    """None if no progress statement names the time."""
    here: int
    """Updates that have arrived; if these were not compared, the number of rows, including copies."""


@dataclass
class Tide:
    """Where a collection stands: the sums below upper, and what is outstanding at or after it."""

    times: int = 0
    """Number of sealed times that have updates."""
    announced: int = 0
    """Updates announced at sealed times; for reclocked collections, rows that were bound to them."""
    counted: int = 0
    copies: int = 0
    records: int | None = None
    """Reclocked: number of records that were read."""
    open_times: int = 0
    open_announced: int = 0
    open_here: int = 0
    outstanding: int = 0
    """Announced updates of open times that have certainly not arrived: fewer rows are stored than were announced."""
    open_first: list[OpenTime] = field(default_factory=list)
    """The first open times."""
    bins: list[Bin] = field(default_factory=list)
    marks: list[tuple[int, int]] = field(default_factory=list)
    """Points of the curve of upper: when a seal ended, in milliseconds since 1970, and upper after it."""


def read_tide(collection: Collection) -> Tide:
    """Read the numbers of the tide picture.

    Cost: five columns of `proofs/` or the bindings, the pending progress statements, and one column of the files with
    rows at or after upper.

    Raises:
        DamagedTable: a table cannot be read.
    """
    table = OpenTable(collection.paths.updates)
    since, upper, closed = collection.readable_range(table)
    tide = Tide()
    if collection.entry.mints_times:
        sealed = _bound_times(collection, table, tide)
    else:
        sealed = _proven_times(collection, upper, closed)
    times, announced, counted, copies, at_ms = sealed
    tide.times, tide.copies = len(times), int(copies.sum())
    tide.announced, tide.counted = int(announced.sum()), int(counted.sum())
    tide.marks = _marks(times, at_ms)
    first_readable = since[0] if since else upper
    at = int(np.searchsorted(times, first_readable))
    # Up to a quarter of the bars are for times before `since`, so that retention can be seen.
    past = min(at, SEALED_BINS // 4)
    tide.bins = [
        *_bins(times[:at], announced[:at], counted[:at], past, "past"),
        *_bins(times[at:], announced[at:], counted[at:], SEALED_BINS - past, "sealed"),
    ]
    if not closed:
        _add_open(collection, table, upper, tide)
    return tide


_Sealed = tuple[Integers, Integers, Integers, Integers, Integers]
"""By time, in order: the times, announced, counted, copies, and when each was sealed."""


def _proven_times(collection: Collection, upper: int, closed: bool) -> _Sealed:
    files = [file for file in OpenTable(collection.paths.proofs).files() if file.run.startswith(PROOF_RUN)]
    names = [TIME, "announced", "counted", "copies", "at_ms"]
    rows = read_rows(collection.paths.proofs, files, PROOFS_SCHEMA, names)
    columns = [integers(pc.fill_null(rows[name], pa.scalar(0, pa.int64()))) for name in names]
    order = np.lexsort((columns[4], columns[0]))
    columns = [column[order] for column in columns]
    # A time may have two proofs, after an interruption: the newest applies.
    newest = np.ones(len(columns[0]), bool)
    newest[:-1] = columns[0][1:] != columns[0][:-1]
    if not closed:
        newest &= columns[0] < upper
    times, announced, counted, copies, at_ms = (column[newest] for column in columns)
    return times, announced, counted, copies, at_ms


def _bound_times(collection: Collection, table: OpenTable, tide: Tide) -> _Sealed:
    bindings = [binding for binding in read_bindings(collection, table) if binding.records or binding.rows]
    tide.records = sum(binding.records for binding in bindings)

    def column(values: list[int]) -> Integers:
        return np.array(values, np.int64)

    rows = column([binding.rows for binding in bindings])
    return (
        column([binding.time for binding in bindings]),
        rows,
        rows,
        np.zeros(len(rows), np.int64),
        column([binding.at_ms for binding in bindings]),
    )


def _add_open(collection: Collection, table: OpenTable, upper: int, tide: Tide) -> None:
    """Add the numbers for times at or after upper."""
    announced = _pending_counts(collection, upper)
    here = _arrived(collection, table, upper)
    times = sorted(announced.keys() | here.keys())
    tide.open_times = len(times)
    tide.open_announced, tide.open_here = sum(announced.values()), sum(here.values())
    tide.outstanding = sum(max(0, count - here.get(time, 0)) for time, count in announced.items())
    tide.open_first = [OpenTime(time, announced.get(time), here.get(time, 0)) for time in times[:OPEN_LISTED_MAX]]
    tide.bins += _bins(
        np.array(times, np.int64),
        np.array([announced.get(time, 0) for time in times], np.int64),
        np.array([here.get(time, 0) for time in times], np.int64),
        OPEN_BINS,
        "open",
    )


def _pending_counts(collection: Collection, upper: int) -> dict[int, int]:
    """Return the announced count of each open time."""
    rows = read_rows(collection.paths.progress, OpenTable(collection.paths.progress).files(), PROGRESS_SCHEMA)
    announced: dict[int, int] = {}
    for times, counts in zip(*(rows[name].to_pylist() for name in ("count_times", "count_values")), strict=True):
        announced.update((time, count) for time, count in zip(times, counts, strict=True) if time >= upper and count)
    return announced


def _arrived(collection: Collection, table: OpenTable, upper: int) -> dict[int, int]:
    """Count the stored rows of each time at or after upper, copies included."""
    parts = [np.zeros(0, np.int64)]
    for file in table.files():
        if file.time_max is None or file.time_max >= upper:
            times = integers(read_file(collection.paths.updates, file, [TIME])[TIME])
            parts.append(times[times >= upper])
    times, counts = np.unique(np.concatenate(parts), return_counts=True)
    return dict(zip(times.tolist(), counts.tolist(), strict=True))


def _bins(times: Integers, announced: Integers, counted: Integers, most: int, part: str) -> list[Bin]:
    """Sum consecutive times, so that at most `most` bars remain."""
    if not len(times) or most < 1:
        return []
    edges = np.linspace(0, len(times), min(most, len(times)) + 1).astype(int)
    return [
        Bin(
            int(times[start]),
            int(times[end - 1]),
            int(end - start),
            sum(announced[start:end].tolist()),  # exact: a source may announce numbers whose sum exceeds int64
            sum(counted[start:end].tolist()),
            part,
        )
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    ]


def _marks(times: Integers, at_ms: Integers) -> list[tuple[int, int]]:
    """Return points `(moment, upper)` of the curve of upper: at most `MARKS`, the newest last."""
    if not len(times):
        return []
    order = np.argsort(at_ms, kind="stable")
    moments, reached = at_ms[order], np.maximum.accumulate(times[order])
    last = np.ones(len(moments), bool)
    last[:-1] = moments[1:] != moments[:-1]
    moments, reached = moments[last], reached[last]
    chosen = np.unique(np.linspace(0, len(moments) - 1, min(MARKS, len(moments))).astype(int))
    return [(int(moments[index]), int(reached[index]) + 1) for index in chosen.tolist()]
