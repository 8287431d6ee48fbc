"""Counting what is not sealed: one job, and no exchange of rows for a time whose rows one task reads.

Equal statements have one time. So a task that reads every row of a time can say alone whether any is a copy. Files of
ticks mostly hold times of their own: they are grouped, a group is read by one task, and only the times that turn up in
two groups are counted again, with an exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.delta.files import RunFile
from tidelake.delta.forms import Form
from tidelake.delta.layout import TIME
from tidelake.delta.proof import count_fingerprints

TIMES_LISTED_MAX = 500
"""More times than this are joined instead of written into a plan."""
_ROWS_OF_A_TASK_MIN = 500_000
_OVERLAP_MAX = 0.25
_COUNTS = ("rows", "distinct", "conflicts")

Read = Callable[[Sequence[RunFile]], DataFrame]
"""The unsealed rows of some files."""


@dataclass
class OpenTimes:
    """What is stored at times that are not sealed."""

    rows: int = 0
    distinct: dict[int, int] = field(default_factory=dict)
    """By time, the number of distinct fingerprints of data."""
    suspects: set[int] = field(default_factory=set)
    """The times at which the statements themselves have to be compared by Spark."""
    copies: dict[int, int] = field(default_factory=dict)
    """By time, the number of surplus rows; known where statements were compared whole."""
    surplus: list[pa.Table] = field(default_factory=list)
    """The statements that have copies, where diffs add up: the data's columns, _time, _diff, and how many copies."""

    def add(self, other: OpenTimes) -> None:
        """Add what is stored at other times."""
        self.rows += other.rows
        self.distinct |= other.distinct
        self.suspects |= other.suspects
        self.copies |= other.copies
        self.surplus += other.surplus


def count_open_times(
    spark: SparkSession, form: Form, data: Sequence[str], files: list[RunFile], read: Read
) -> OpenTimes:
    """Count rows and distinct fingerprints by time, and find the times that may break the envelope.

    Args:
        spark: the session.
        form: the collection's.
        data: the data's columns.
        files: those that may hold an unsealed row; at least one.
        read: gives their unsealed rows.

    Cost: one pass over the rows, in one job, where the files' times hardly overlap; else an exchange of three longs a
        row, and what the form needs.
    """
    groups = group_by_time(files, spark.sparkContext.defaultParallelism)
    if groups is None:
        return _taken(_counts(form, data, read(files)).toArrow())
    counts = [_counts(form, data, read(group).coalesce(1)) for group in groups]
    found = reduce(DataFrame.unionAll, counts).toArrow()
    shared = _times_of_several(found) if len(groups) > 1 else []
    if not shared:
        return _taken(found)
    again = _counts(form, data, of_times(spark, read(files), shared)).toArrow()
    alone = found.filter(pa.compute.invert(pa.compute.is_in(found[TIME], pa.array(shared, pa.int64()))))
    return _taken(pa.concat_tables([alone, again]))


def of_times(spark: SparkSession, rows: DataFrame, times: Sequence[int]) -> DataFrame:
    """The rows of some times."""
    if len(times) <= TIMES_LISTED_MAX:
        return rows.where(F.col(TIME).isin(list(times)))
    listed = spark.createDataFrame(pa.table({TIME: pa.array(times, pa.int64())}))
    return rows.join(F.broadcast(listed), TIME, "left_semi")


def group_by_time(files: Sequence[RunFile], groups_max: int) -> list[list[RunFile]] | None:
    """Cut files, in the order of their times, into groups of about as many rows; None where most times would be shared.

    >>> def file(low, high): return RunFile("", "", 600_000, 0, low, high)
    >>> [len(group) for group in group_by_time([file(0, 9), file(30, 39), file(10, 20), file(21, 30)], 2)]
    [2, 2]
    >>> group_by_time([file(0, 9), file(0, 9)], 2) is None
    True
    """
    rows = sum(file.rows for file in files)
    groups_wanted = min(groups_max, max(1, rows // _ROWS_OF_A_TASK_MIN))
    ranges = [(file.time_min, file.time_max) for file in files if file.time_min is not None]
    if groups_wanted == 1 or len(ranges) < len(files):
        return [list(files)] if groups_wanted == 1 else None
    groups: list[list[RunFile]] = [[]]
    for file in sorted(files, key=lambda one: (one.time_min or 0, one.time_max or 0)):
        if sum(one.rows for one in groups[-1]) >= rows / groups_wanted:
            groups.append([])
        groups[-1].append(file)
    bounds = [(min(one.time_min or 0 for one in group), max(one.time_max or 0 for one in group)) for group in groups]
    shared = sum(max(0, before[1] - after[0] + 1) for before, after in pairwise(bounds))
    span = max(high for _, high in bounds) - bounds[0][0] + 1
    return groups if len(groups) > 1 and shared <= _OVERLAP_MAX * span else None


def _counts(form: Form, data: Sequence[str], unsealed: DataFrame) -> DataFrame:
    """Out: _time, rows, distinct, conflicts bigint; a time that may break the envelope is there again, with nulls."""
    counted = count_fingerprints(unsealed, data).select(TIME, *_COUNTS)
    breaking = form.suspect_times(unsealed)
    if breaking is None:
        return counted
    nulls = [F.lit(None).cast("bigint").alias(name) for name in _COUNTS]
    return counted.unionAll(breaking.select(TIME, *nulls))


def _times_of_several(found: pa.Table) -> list[int]:
    """The times that more than one group has counted."""
    counted = found.filter(pa.compute.is_valid(found["rows"]))[TIME].value_counts()
    return [one["values"] for one in counted.to_pylist() if one["counts"] > 1]


def _taken(found: pa.Table) -> OpenTimes:
    times = OpenTimes()
    for time, rows, distinct, conflicts in zip(*(found[name].to_pylist() for name in (TIME, *_COUNTS)), strict=True):
        if rows is None:
            times.suspects.add(time)
            continue
        times.rows += rows
        times.distinct[time] = distinct
        if rows != distinct or conflicts:
            times.suspects.add(time)
    return times
