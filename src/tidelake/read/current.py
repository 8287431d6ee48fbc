"""`current`: the contents at upper as a plain Delta table for every engine; the only table that Spark commits to."""

from __future__ import annotations

import json
from dataclasses import dataclass

from delta.tables import DeltaTable as SparkDeltaTable
from pyspark.sql import SparkSession

from tidelake.errors import DamagedTable
from tidelake.plugins.envelope import form_of
from tidelake.read.snapshot import last_time, snapshot
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.failpoints import reach
from tidelake.store.proof_log import read_proof_log
from tidelake.store.state import CLOSED, UPPER, idle_lower


@dataclass
class CurrentReport:
    """What `current` shows now."""

    as_of: int | None
    """The last sealed time when `current` was built; None while nothing is sealed."""
    rows: int
    rebuilt: bool


def rebuild_current(spark: SparkSession, collection: Collection) -> CurrentReport:
    """Overwrite `current` with the contents before upper; leave it unchanged if upper has not moved.

    A table that was built before damage was found may contain the damage, so it is rebuilt after a repair.
    The table has the data's columns and `_diff`, which says how often a row occurs.

    Raises:
        DamagedTable: the last validation found that something below upper is not what was proven.
    """
    proofs = read_proof_log(collection)
    if proofs.damaged is not None:
        raise DamagedTable(str(collection.paths.updates), proofs.damaged)
    table = OpenTable(collection.paths.updates)
    upper, closed = table.value(UPPER) or 0, bool(table.value(CLOSED))
    if upper == 0 and not closed:
        return CurrentReport(None, 0, False)
    path = str(collection.paths.current)
    shown = _shown(spark, path)
    at = max(last_time(upper, closed), 0)
    names = {field.name for field in form_of(collection.entry).fields}
    unchanged = idle_lower(table)  # the contents of idle ticks are those of the time before them
    if (
        shown is not None
        and (at if unchanged is None else unchanged - 1) <= shown.as_of <= at
        and shown.proofs_at_ms >= proofs.damaged_at_ms
        and names <= set(spark.read.format("delta").load(path).columns)
    ):
        return CurrentReport(at, shown.rows, False)
    latest = snapshot(spark, collection, at)
    reach("current.before_write")
    note = json.dumps({"as_of": latest.as_of, "proofs_at_ms": proofs.newest_at_ms, "collection": collection.name})
    writer = latest.contents.write.format("delta").mode("overwrite").option("userMetadata", note)
    writer.option("mergeSchema", "true").save(path)
    reach("current.after_write")
    written = _shown(spark, path)
    assert written is not None, path
    return CurrentReport(latest.as_of, written.rows, True)


@dataclass(frozen=True)
class _Shown:
    """What the table `current` says about itself."""

    as_of: int
    rows: int
    """From its log: counting rows before they are written would take another pass."""
    proofs_at_ms: int
    """The time of the newest note in `proofs/` when `current` was built."""


def _shown(spark: SparkSession, path: str) -> _Shown | None:
    """Return what the table `current` says about itself; None if it does not exist."""
    if not SparkDeltaTable.isDeltaTable(spark, path):
        return None
    newest = SparkDeltaTable.forPath(spark, path).history(1).select("userMetadata", "operationMetrics").first()
    if newest is None or newest["userMetadata"] is None:
        return None
    note = json.loads(newest["userMetadata"])
    return _Shown(
        int(note["as_of"]), int(newest["operationMetrics"]["numOutputRows"]), int(note.get("proofs_at_ms", 0))
    )
