"""What a seal changes of the rows that it proves, in the same commit that moves upper: nothing, almost always.

Where diffs add up, surplus copies and discarded statements are cancelled by rows with the opposite diff. A statement
about a key has no opposite, so discarded ones are left out: the runs that hold them are written again without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.delta.catalog import Collection, Decision
from tidelake.delta.commit import OpenTable
from tidelake.delta.counting_in_arrow import compensating_table
from tidelake.delta.files import RunFile, discard_runs, meets, write_run
from tidelake.delta.layout import DIFF, RUN, TIME, new_run
from tidelake.delta.proof import compensating_rows, same_in
from tidelake.delta.runs import read_files, write_frame
from tidelake.delta.statements import statement_frame
from tidelake.delta.types import data_fields, updates_schema


@dataclass(frozen=True)
class Changes:
    """Files that are written and not committed, and the runs in whose place they come."""

    added: list[RunFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    def discard(self, table: Path) -> None:
        """Remove what was written."""
        discard_runs(table, self.added)


@dataclass(frozen=True)
class Surplus:
    """What copies and discarded statements there are: what Spark has grouped, and what was counted in Arrow."""

    grouped: DataFrame | None = None
    """What `proof.group_statements` gives."""
    counted: Sequence[pa.Table] = ()
    """Copies alone, of other times; see `OpenTimes.surplus`."""


def cancel(table: Path, schema: pa.Schema, surplus: Surplus, before: int) -> Changes:
    """Write the rows that cancel what is surplus at times before `before`.

    Args:
        table: the table's folder.
        schema: the table's.
        surplus: what was found.
        before: the first time that is not sealed; 2^63 where all are.
    """
    names = [one for one in schema.names if one != RUN]
    added = []
    if surplus.grouped is not None:
        sealed = surplus.grouped.where(F.col(TIME) <= F.lit(before - 1).cast("bigint"))
        data = [one for one in names if one not in (TIME, DIFF)]
        added += write_frame(compensating_rows(sealed, data).coalesce(1), table, new_run("seal"), schema)
    if surplus.counted:
        counted = pa.concat_tables(surplus.counted)
        rows = compensating_table(counted.filter(pc.less_equal(counted[TIME], before - 1)))
        added += write_run(table, new_run("seal"), rows.select(names))
    return Changes(added)


def leave_out(spark: SparkSession, collection: Collection, table: OpenTable, decisions: Sequence[Decision]) -> Changes:
    """Write the runs again that hold discarded statements, without them; every copy of each goes.

    Args:
        spark: the session.
        collection: the collection.
        table: its updates, in the state that was counted.
        decisions: discards, all about times that this seal proves.

    Cost: nothing without decisions; else a look into the files that reach their times, and the runs that hold any.
    """
    entry = collection.entry
    ruled = statement_frame(spark, entry.record_schema, [(one.time, one.discard) for one in decisions])
    if ruled is None:
        return Changes()
    names = [*(one.name for one in data_fields(entry.record_schema)), TIME, DIFF]
    discarded = F.broadcast(ruled.distinct()).alias("ruled")
    same = same_in("stated", "ruled", names)
    schema = updates_schema(entry.record_schema, entry.positioned)
    times = sorted({one.time for one in decisions if one.time is not None})
    files = [file for file in table.files() if meets(file, times)]
    if not files:
        return Changes()
    stated = read_files(spark, table.path, files, schema).select("*", F.col("_metadata.file_path").alias("_path"))
    holding = stated.alias("stated").join(discarded, same, "left_semi").select("_path").distinct().toArrow()
    runs = {path.rpartition(f"/{RUN}=")[2].partition("/")[0] for path in holding["_path"].to_pylist()}
    if not runs:
        return Changes()
    rows = read_files(spark, table.path, [file for file in table.files() if file.run in runs], schema)
    kept = rows.alias("stated").join(discarded, same, "left_anti")
    return Changes(write_frame(kept, table.path, new_run("seal"), schema), sorted(runs))
