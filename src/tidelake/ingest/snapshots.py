"""Writes what a connector's snapshots change: barriers, and runs without the rows of abandoned snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import RunFile, meets, write_run
from tidelake.store.layout import DIFF, POSITION, RUN, TIME, new_run
from tidelake.store.row_hash import sum_of_rows
from tidelake.store.runs import read_files, verify_runs, write_updates


@dataclass(frozen=True)
class Rewritten:
    """Files that are written but not committed, and the runs that they replace."""

    added: Sequence[RunFile] = field(default_factory=list)
    removed: Sequence[str] = ()


def rewrite_without(spark: SparkSession, collection: Collection, table: OpenTable, times: Sequence[int]) -> Rewritten:
    """Rewrite each run that has rows at these unsealed times, and leave out those rows.

    Args:
        spark: the session.
        collection: the collection.
        table: its updates table.
        times: the log positions of abandoned snapshots, in order.

    Raises:
        DamagedTable: the rows of an affected run are not those that were written.

    Cost: nothing if no file can hold such a time; otherwise one pass over the runs that can.
    """
    runs = {file.run for file in table.files() if meets(file, times)} if times else set()
    if not runs:
        return Rewritten()
    files, schema = [file for file in table.files() if file.run in runs], collection.updates_schema()
    verify_runs(spark, table.path, files, schema)
    remaining = read_files(spark, table.path, files, schema).where(~F.col(TIME).isin(*times))
    # The run is named like a run of seal, because no tick could make it again from a range of offsets.
    written = write_updates(remaining, table.path, new_run("seal", table.seq), schema).files
    return Rewritten(written, sorted(runs))


def write_barriers(collection: Collection, table: OpenTable, places: Sequence[int]) -> list[RunFile]:
    """Write rows that erase what repeated snapshots no longer contain, given the log positions of these snapshots."""
    if not places:
        return []
    # Seal counts only rows whose position has two numbers (events) or four (rows of snapshots). Here, it has one.
    schema = pa.schema([column for column in collection.updates_schema() if column.name != RUN])
    rows = pa.Table.from_pylist([{TIME: lsn, DIFF: 0, POSITION: [lsn]} for lsn in places], schema=schema)
    return write_run(table.path, new_run("ingest", table.seq), rows, sum_of_rows(rows))
