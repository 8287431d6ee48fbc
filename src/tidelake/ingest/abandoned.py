"""Takes the rows of abandoned snapshots out of a table again, in the commit of the tick that finds out about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import RunFile, meets
from tidelake.store.layout import TIME, new_run
from tidelake.store.runs import read_files, verify_runs, write_updates


@dataclass(frozen=True)
class Rewritten:
    """Files that are written but not committed, and the runs that they replace."""

    added: Sequence[RunFile] = field(default_factory=list)
    removed: Sequence[str] = ()


def rewrite_without(spark: SparkSession, collection: Collection, table: OpenTable, times: Sequence[int]) -> Rewritten:
    """Rewrite the runs with rows at these times, which are not sealed, without these rows.

    Args:
        spark: the session.
        collection: the collection.
        table: its updates table.
        times: the places of abandoned snapshots, in order.

    Raises:
        DamagedTable: the rows of an affected run are not those that were written.

    Cost: nothing if no file may hold such a time; else one pass over the runs that may.
    """
    runs = {file.run for file in table.files() if meets(file, times)} if times else set()
    if not runs:
        return Rewritten()
    files, schema = [file for file in table.files() if file.run in runs], collection.updates_schema()
    verify_runs(spark, table.path, files, schema)
    remaining = read_files(spark, table.path, files, schema).where(~F.col(TIME).isin(*times))
    # The run is named as one of seal: it is not what a tick makes of a range of offsets.
    written = write_updates(remaining, table.path, new_run("seal", table.seq), schema).files
    return Rewritten(written, sorted(runs))
