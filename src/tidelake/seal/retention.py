"""Retention of rows: finds the rows of the contents that are too old, and writes the run that removes them.

For each such row, the run contains one update: the row's data, at a time that is not sealed yet, with the negative of
the row's multiplicity as its diff. The run is committed together with the frontier that seals this time, so no reader
ever sees the time without the run, and no seal ever counts the run's rows as statements. See
docs/decisions/retention.md.
"""

from __future__ import annotations

import datetime
import time as clock
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.forms.sums import add_up
from tidelake.settings.row_retention import TIME_COLUMN, RowRetention
from tidelake.spark.equality import same_in
from tidelake.spark.runtime_constant import parameter
from tidelake.storage import blobs
from tidelake.storage.arrow import integers
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.failpoints import reach
from tidelake.store.files import RunFile, discard_run, read_file, read_footer, write_run
from tidelake.store.layout import DIFF, PROOFS_SCHEMA, RETENTION_RUN, TIME, new_run
from tidelake.store.retention import Departure
from tidelake.store.runs import append_run, read_files, write_updates
from tidelake.store.state import LEFT_AT, ROWS_LEFT, kept_from_value
from tidelake.store.table_schema import data_fields

_ROWS_PER_FILE = 1_000_000


@dataclass(frozen=True)
class Written:
    """A run that has been written but not committed, and the removal that it makes.

    If no row is too old, there are no files, and `departure` is None.
    """

    files: list[RunFile]
    departure: Departure | None
    values: dict[str, int]
    """The values that the commit sets, even if no row is too old."""


def due_cutoff(collection: Collection, table: OpenTable, rule: RowRetention) -> int | None:
    """Return the point in time before which rows are removed, in milliseconds since 1970; None if nothing is due.

    It is the earlier of two clocks, this machine's and the store's, minus the duration of the rule, so a clock that is
    ahead removes nothing early. As long as the rule names the same column, this point never moves back, and old rows
    are searched for again only once it has moved by a step.

    Cost: nothing if this machine's clock shows that nothing is due; otherwise the store's clock is read.
    """
    last = table.value(kept_from_value(rule.column))

    def is_due(now_ms: int) -> bool:
        cutoff_ms = now_ms - rule.duration_ms
        return cutoff_ms > 0 and (last is None or cutoff_ms >= last + rule.step_ms)

    now_ms = int(clock.time() * 1000)
    if not is_due(now_ms):
        return None
    now_ms = min(now_ms, int(blobs.now_s(collection.paths.root) * 1000))
    return now_ms - rule.duration_ms if is_due(now_ms) else None


def write_departures(
    spark: SparkSession,
    collection: Collection,
    table: OpenTable,
    rule: RowRetention,
    cutoff_ms: int,
    upper: int,
    time: int,
) -> Written:
    """Write the run that removes, at `time`, those rows of the contents just before `upper` that are too old.

    A row that is also stated at `time` stays until the next pass. So at each time, the diffs of a row add up to a
    positive number if it was stated, and to a negative number if it was removed; a recount can tell the two apart even
    after merges.

    Args:
        spark: the session.
        collection: the collection, whose diffs are summed.
        table: its updates table.
        rule: the rule.
        cutoff_ms: see `due_cutoff`.
        upper: the first time that is not sealed.
        time: a time at or after `upper`, which the commit of this run has to seal.

    Cost: the footers of the table's files; a scan of the files that may hold a row that is too old, and an
        exchange of these rows.
    """
    values = {kept_from_value(rule.column): cutoff_ms}
    first_kept = rule.first_kept(cutoff_ms)
    files = [file for file in table.files() if may_hold_old(table, file, rule, first_kept)]
    sealed = [file for file in files if file.reach[0] < upper]
    if not sealed:
        return Written([], None, values)
    schema = collection.updates_schema()
    data = [field.name for field in data_fields(collection.entry.record_schema)]

    def old(chosen: Sequence[RunFile]) -> DataFrame:
        return read_files(spark, table.path, chosen, schema).where(_is_old(rule, first_kept))

    # `add_up` may return a large sum as several rows; they have the same sign.
    leaving = add_up(old(sealed).where(F.col(TIME) < parameter(upper, F.col(TIME))), data).where(F.col(DIFF) > 0)
    meeting = [file for file in files if file.reach[0] <= time <= file.reach[1]]
    if meeting:
        stated = old(meeting).where(F.col(TIME) == parameter(time, F.col(TIME))).select(*(f"`{name}`" for name in data))
        same = same_in("leaving", "stated", data)
        leaving = leaving.alias("leaving").join(stated.distinct().alias("stated"), same, "left_anti")
    rows = leaving.withColumn(DIFF, -F.col(DIFF)).withColumn(TIME, F.lit(time).cast("bigint"))
    partitions = max(1, min(spark.sparkContext.defaultParallelism, sum(file.rows for file in sealed) // _ROWS_PER_FILE))
    run = new_run(RETENTION_RUN.rstrip("-"), table.seq)
    written = write_updates(rows.coalesce(partitions), table.path, run, schema).files
    reach("retention.after_write")
    if not written:
        discard_run(table.path, run)
        return Written([], None, values)
    number = -sum(int(part) for file in written for part in integers(read_file(table.path, file, [DIFF])[DIFF]))
    departure = Departure(
        time,
        table.value(LEFT_AT),
        number,
        (table.value(ROWS_LEFT) or 0) + number,
        rule.column,
        cutoff_ms,
        int(clock.time() * 1000),
    )
    return Written(written, departure, values | departure.values)


def note_departure(collection: Collection, departure: Departure) -> None:
    """Append a note of the rows that are about to be removed; it becomes valid with the commit that follows.

    Raises:
        Fenced: the epoch was raised in the meantime.
    """
    rows, path = pa.Table.from_pylist([departure.note], schema=PROOFS_SCHEMA), collection.paths.proofs
    append_run(path, RETENTION_RUN.rstrip("-"), lambda run: write_run(path, run, rows), collection.entry.epoch)
    reach("retention.after_note")


def _is_old(rule: RowRetention, first_kept: int) -> Column:
    column = F.col(f"`{rule.column}`")
    if rule.kind == "timestamp":
        return column < F.timestamp_micros(F.lit(first_kept).cast("bigint"))
    if rule.kind == "date":
        return column < F.lit(datetime.date.fromordinal(datetime.date(1970, 1, 1).toordinal() + first_kept))
    return column < F.lit(first_kept).cast("bigint")


def may_hold_old(table: OpenTable, file: RunFile, rule: RowRetention, first_kept: int) -> bool:
    """Return whether a file may hold a row that is too old, according to its bounds in the log or in its footer."""
    if rule.column == TIME_COLUMN:
        return file.reach[0] < first_kept
    footer = read_footer(table.path, file)
    index = next((i for i in range(footer.num_columns) if footer.schema.column(i).path == rule.column), None)
    if index is None:  # the column was added later, so it is null here
        return False
    is_comparable = footer.schema.column(index).physical_type in ("INT32", "INT64")
    for group in range(footer.num_row_groups):
        statistics = footer.row_group(group).column(index).statistics
        if statistics is None or not is_comparable:
            return True
        if statistics.has_min_max and statistics.min_raw < first_kept:
            return True
        if not statistics.has_min_max and statistics.num_values:
            return True
    return False
