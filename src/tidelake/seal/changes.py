"""The changes that a seal makes to the rows that it proves, in the commit that moves upper. Usually there are none.

In collections whose contents are sums of diffs, rows with the opposite diff cancel surplus copies and discarded
statements. Two kinds of discarded statements are removed instead, by rewriting the runs that hold them: events with
positions, and statements about a key, which have no opposite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidelake.decode.entered_statements import statement_frame
from tidelake.seal.count_arrow import compensating_table
from tidelake.seal.count_spark import differing_events, rows_at
from tidelake.seal.counts import OpenCounts
from tidelake.seal.fingerprints import compensating_rows
from tidelake.spark.conditions import any_of
from tidelake.spark.equality import same_in
from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable
from tidelake.store.decision import Discard
from tidelake.store.entry import Collection
from tidelake.store.files import RunFile, discard_runs, meets, write_run
from tidelake.store.layout import DIFF, POSITION, RUN, TIME, new_run, run_of
from tidelake.store.row_hash import sum_of_rows
from tidelake.store.runs import read_files, verify_runs, write_updates
from tidelake.store.table_schema import data_fields


@dataclass(frozen=True)
class Changes:
    """Files that are written but not committed, and the runs that they replace."""

    added: list[RunFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    def joined(self, other: Changes) -> Changes:
        """Combine these changes with others."""
        return Changes(self.added + other.added, self.removed + other.removed)

    def discard(self, table: Location) -> None:
        """Delete the written files."""
        discard_runs(table, self.added)


def cancel(table: OpenTable, schema: pa.Schema, counts: OpenCounts, end: int) -> Changes:
    """Write the rows that cancel surplus copies and discarded statements at times before `end`.

    Args:
        table: the collection's updates, in the state that was counted.
        schema: the table's schema.
        counts: the counts.
        end: the first time that is not sealed; 2^63 if every time is sealed.
    """
    names = [name for name in schema.names if name != RUN]
    added = []
    if counts.statements is not None:
        sealed = counts.statements.where(F.col(TIME) <= F.lit(end - 1).cast("bigint"))
        data = [name for name in names if name not in (TIME, DIFF)]
        run = new_run("seal", table.seq)
        added += write_updates(compensating_rows(sealed, data).coalesce(1), table.path, run, schema).files
    if counts.surplus:
        surplus = pa.concat_tables(counts.surplus)
        rows = compensating_table(surplus.filter(pc.less_equal(surplus[TIME], end - 1))).select(names)
        added += write_run(table.path, new_run("seal", table.seq), rows, sum_of_rows(rows))
    return Changes(added)


def cancel_repeated(
    spark: SparkSession, collection: Collection, table: OpenTable, times: Sequence[int], discards: Sequence[Discard]
) -> Changes:
    """Write the rows that cancel the copies of events at these times. A copy has the same position and contents.

    Args:
        spark: the session.
        collection: a collection whose diffs are summed, and whose events have positions.
        table: its updates table, in the state that was counted.
        times: the times that have copies and that this seal proves.
        discards: the statements that `leave_out` removes.

    Cost: nothing without copies; else one exchange of the rows at these times.
    """
    if not times:
        return Changes()
    entry, schema = collection.entry, collection.updates_schema()
    files = [file for file in table.files() if meets(file, sorted(times))]
    rows = rows_at(spark, read_files(spark, table.path, files, schema), times)
    data = [field.name for field in data_fields(entry.record_schema)]
    ruled = statement_frame(spark, entry.statement_schema, [(each.time, each.statement) for each in discards])
    if ruled is not None:
        same = same_in("stated", "ruled", [*data, TIME, DIFF])
        rows = rows.alias("stated").join(F.broadcast(ruled.distinct()).alias("ruled"), same, "left_anti")
    columns = [f"`{field.name}`" for field in schema if field.name != RUN]
    copied = rows.groupBy(*columns).agg(F.count(F.lit(1)).alias("_copies")).where(F.col("_copies") > 1)
    cancelling = copied.withColumn(DIFF, F.col(DIFF) * (1 - F.col("_copies"))).select(*columns).coalesce(1)
    return Changes(write_updates(cancelling, table.path, new_run("seal", table.seq), schema).files)


def leave_out(spark: SparkSession, collection: Collection, table: OpenTable, discards: Sequence[Discard]) -> Changes:
    """Rewrite the runs that hold discarded statements, without any copy of these statements.

    Args:
        spark: the session.
        collection: the collection.
        table: its updates table, in the state that was counted.
        discards: the decisions to discard statements at times that this seal proves.

    Raises:
        DamagedTable: the rows of an affected run are not those that were written.

    With transactions, a row is left out only if its event was repeated with different contents.

    Cost: nothing if there are no discards; else one scan of the files that may hold their times, and of the runs to
        rewrite.
    """
    entry = collection.entry
    discarded_rows = statement_frame(
        spark, entry.statement_schema, [(discard.time, discard.statement) for discard in discards]
    )
    if discarded_rows is None:
        return Changes()
    names = [*(field.name for field in data_fields(entry.record_schema)), TIME, DIFF]
    discarded = F.broadcast(discarded_rows.distinct()).alias("ruled")
    same = same_in("stated", "ruled", names)
    schema = collection.updates_schema()
    times = sorted({discard.time for discard in discards})
    files = [file for file in table.files() if meets(file, times)]
    if not files:
        return Changes()
    stored = read_files(spark, table.path, files, schema).select("*", F.col("_metadata.file_path").alias("_path"))
    if entry.counts_positions:
        numbers = differing_events(stored.where(F.col(TIME).isin(*times)), names[:-2])
        is_differing = any_of(
            (F.col(f"stated.{TIME}") == time) & F.element_at(F.col(f"stated.{POSITION}"), 2).isin(orders)
            for time, orders in numbers.items()
        )
        same = same & is_differing
    affected = stored.alias("stated").join(discarded, same, "left_semi").select("_path").distinct().toArrow()
    runs = {run_of(path) for path in affected["_path"].to_pylist()}
    if not runs:
        return Changes()
    rewritten = [file for file in table.files() if file.run in runs]
    verify_runs(spark, table.path, rewritten, schema)
    rows = read_files(spark, table.path, rewritten, schema)
    remaining = rows.alias("stated").join(discarded, same, "left_anti")
    return Changes(write_updates(remaining, table.path, new_run("seal", table.seq), schema).files, sorted(runs))
