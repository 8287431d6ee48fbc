"""Counts the rows at open times in one Spark job, without an exchange for times whose rows are all read by one task.

Equal statements have the same time, so a task that reads every row of a time can find all of its copies. Files of
different ticks mostly hold different times. So files are grouped, one task reads each group, and only the times that
appear in several groups are counted again, with an exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.forms.form import Form
from tidelake.seal.counts import OpenCounts, TimeCount
from tidelake.seal.fingerprints import count_fingerprints
from tidelake.spark.equality import fingerprint, same_in
from tidelake.store.files import RunFile
from tidelake.store.layout import DIFF, EVENT_POSITION_SIZES, POSITION, TIME

TIMES_LISTED_MAX = 500
"""Maximum length of a list of times that is written into a plan; a longer list is joined."""
ROWS_OF_A_TASK_MIN = 500_000
_OVERLAP_MAX = 0.25
_COUNTS = ("rows", "distinct", "conflicts")

Read = Callable[[Sequence[RunFile]], DataFrame]
"""Reads the unsealed rows of some files."""


def count_open_times(
    spark: SparkSession, form: Form, data: Sequence[str], files: list[RunFile], read: Read
) -> OpenCounts:
    """Count rows and distinct fingerprints by time, and find the times that may break the envelope.

    Args:
        spark: the session.
        form: the form of the table.
        data: the data's columns.
        files: the files that may hold an unsealed row; at least one.
        read: reads their unsealed rows.

    Cost: one pass over the rows, in one job, if the files' times hardly overlap; else an exchange of three longs per
        row, and whatever the form needs.
    """
    groups = group_by_time(files, spark.sparkContext.defaultParallelism)
    if groups is None:
        return _open_counts(_counts(form, data, read(files)).toArrow())
    counts = [_counts(form, data, read(group).coalesce(1)) for group in groups]
    counted = reduce(DataFrame.unionAll, counts).toArrow()
    shared = _shared_times(counted) if len(groups) > 1 else []
    if not shared:
        return _open_counts(counted)
    again = _counts(form, data, rows_at(spark, read(files), shared)).toArrow()
    unshared = counted.filter(pa.compute.invert(pa.compute.is_in(counted[TIME], pa.array(shared, pa.int64()))))
    return _open_counts(pa.concat_tables([unshared, again]))


def count_positions_in_spark(rows: DataFrame) -> OpenCounts:
    """Count the distinct positions of events by time.

    In:  _time bigint, _position array<bigint>.
    Cost: one exchange of the positions.
    """
    counted = rows.where(F.size(POSITION).isin(*EVENT_POSITION_SIZES)).groupBy(TIME)
    found = counted.agg(F.count(F.lit(1)).alias("rows"), F.count_distinct(POSITION).alias("distinct")).toArrow()
    counts = OpenCounts(rows.count())
    for row in found.to_pylist():
        counts.by_time[row[TIME]] = TimeCount(row["distinct"], row["rows"] - row["distinct"])
    return counts


def count_differing_events(
    rows: DataFrame, data: Sequence[str], discards: DataFrame | None = None
) -> dict[int, tuple[int, int]]:
    """Count, by time, the events that were repeated with different contents; times without any are left out.

    In:  the data's columns, _time, _diff, _position; `discards` has the data's columns, _time and _diff.
    Out: how many of these events still have different contents once the discards are applied, and how many have no
         contents left.
    Cost: one exchange of four longs and the position of each row.
    """
    contents, is_left = F.struct(*fingerprint(rows, data), DIFF), F.lit(True)
    if discards is not None:
        ruled = F.broadcast(discards.distinct().withColumn("_ruled", F.lit(True))).alias("ruled")
        same = same_in("stated", "ruled", [*data, TIME, DIFF])
        rows = rows.alias("stated").join(ruled, same, "left").select("stated.*", "ruled._ruled")
        contents, is_left = F.struct(*fingerprint(rows, data), DIFF), F.col("_ruled").isNull()
    by_event = rows.select(TIME, POSITION, contents.alias("_contents"), is_left.alias("_left")).groupBy(TIME, POSITION)
    left = F.when(F.col("_left"), F.col("_contents"))
    differing = by_event.agg(
        (F.min("_contents") != F.max("_contents")).alias("_differed"),
        (F.min(left) != F.max(left)).alias("_differs"),
        (F.count_if("_left") == 0).alias("_gone"),
    ).where("_differed")
    is_counted = F.size(POSITION).isin(*EVENT_POSITION_SIZES)
    by_time = differing.groupBy(TIME).agg(
        F.count_if(F.col("_differs")).alias("differing"), F.count_if(F.col("_gone") & is_counted).alias("gone")
    )
    return {row[TIME]: (row["differing"], row["gone"]) for row in by_time.toArrow().to_pylist()}


def differing_events(rows: DataFrame, data: Sequence[str]) -> dict[int, list[int]]:
    """Return, by time, the numbers of the few events that were repeated with different contents.

    An event's number is its place in its transaction.

    In:  the data's columns, _time, _diff, _position.
    """
    contents = F.struct(*fingerprint(rows, data), DIFF)
    by_event = rows.select(TIME, POSITION, contents.alias("_contents")).groupBy(TIME, POSITION)
    differing = by_event.agg((F.min("_contents") != F.max("_contents")).alias("_differs")).where("_differs")
    number = F.element_at(POSITION, 2)
    by_time = differing.groupBy(TIME).agg(F.collect_set(number).alias("numbers"))
    return {row[TIME]: row["numbers"] for row in by_time.toArrow().to_pylist()}


def find_differing_contents(rows: DataFrame, data: Sequence[str]) -> dict[int, str]:
    """Return, by time, the contents of one event that was repeated with different contents, as JSON statements.

    In:  the data's columns, _time, _diff, _position; only rows at the times of such events.
    """
    statement = F.struct(F.struct(*(F.col(f"`{name}`") for name in data)).alias("data"), F.col(DIFF).alias("diff"))
    written = rows.select(TIME, POSITION, F.to_json(statement, {"ignoreNullFields": "false"}).alias("_written"))
    by_event = written.groupBy(TIME, POSITION).agg(F.array_sort(F.collect_set("_written")).alias("_contents"))
    differing = (
        by_event.where(F.size("_contents") > 1).groupBy(TIME).agg(F.min_by("_contents", POSITION).alias("contents"))
    )
    return {row[TIME]: f"[{', '.join(row['contents'])}]" for row in differing.toArrow().to_pylist()}


def rows_at(spark: SparkSession, rows: DataFrame, times: Sequence[int]) -> DataFrame:
    """Keep the rows at these times."""
    if len(times) <= TIMES_LISTED_MAX:
        return rows.where(F.col(TIME).isin(list(times)))
    listed = spark.createDataFrame(pa.table({TIME: pa.array(times, pa.int64())}))
    return rows.join(F.broadcast(listed), TIME, "left_semi")


def group_by_time(files: Sequence[RunFile], groups_max: int) -> list[list[RunFile]] | None:
    """Split files, in the order of their times, into groups of similar size.

    Returns:
        None if the files cannot be divided, or if the groups would have many times in common.

    >>> def file(low, high): return RunFile("", "", 600_000, 0, low, high)
    >>> [len(group) for group in group_by_time([file(0, 9), file(30, 39), file(10, 20), file(21, 30)], 2)]
    [2, 2]
    >>> group_by_time([file(0, 9), file(0, 9)], 2) is None
    True
    """
    rows = sum(file.rows for file in files)
    groups_wanted = min(groups_max, max(1, rows // ROWS_OF_A_TASK_MIN))
    ranges = [(file.time_min, file.time_max) for file in files if file.time_min is not None]
    if groups_wanted == 1 or len(ranges) < len(files):
        return [list(files)] if groups_wanted == 1 else None
    groups: list[list[RunFile]] = [[]]
    for file in sorted(files, key=lambda file: (file.time_min or 0, file.time_max or 0)):
        if sum(file.rows for file in groups[-1]) >= rows / groups_wanted:
            groups.append([])
        groups[-1].append(file)
    bounds = [
        (min(file.time_min or 0 for file in group), max(file.time_max or 0 for file in group)) for group in groups
    ]
    shared = sum(max(0, before[1] - after[0] + 1) for before, after in pairwise(bounds))
    span = max(high for _, high in bounds) - bounds[0][0] + 1
    return groups if len(groups) > 1 and shared <= _OVERLAP_MAX * span else None


def _counts(form: Form, data: Sequence[str], unsealed: DataFrame) -> DataFrame:
    """Return _time, rows, distinct, conflicts bigint; a time that may break the envelope appears again, with nulls."""
    counted = count_fingerprints(unsealed, data).select(TIME, *_COUNTS)
    breaking = form.suspect_times(unsealed)
    if breaking is None:
        return counted
    nulls = [F.lit(None).cast("bigint").alias(name) for name in _COUNTS]
    return counted.unionAll(breaking.select(TIME, *nulls))


def _shared_times(counted: pa.Table) -> list[int]:
    """Return the times that more than one group has counted."""
    groups = counted.filter(pa.compute.is_valid(counted["rows"]))[TIME].value_counts()
    return [group["values"] for group in groups.to_pylist() if group["counts"] > 1]


def _open_counts(counted: pa.Table) -> OpenCounts:
    """Return `_counts` by time; suspects are times with copies or conflicts, and those that may break the envelope."""
    counts = OpenCounts()
    for time, rows, distinct, conflicts in zip(*(counted[name].to_pylist() for name in (TIME, *_COUNTS)), strict=True):
        if rows is None:
            counts.suspects.add(time)
            continue
        counts.rows += rows
        counts.by_time[time] = TimeCount(distinct)
        if rows != distinct or conflicts:
            counts.suspects.add(time)
    return counts
