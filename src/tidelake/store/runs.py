"""Writes runs with Spark, reads their files, and appends them to small tables.

delta-rs lists the live files, and Spark reads only those. So a read stays at the version that it was planned on, opens
no other file, and needs no Spark job over the Delta log.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tidelake.spark.column_cache import cached
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable, maintain
from tidelake.store.failpoints import reach
from tidelake.store.files import RunFile, describe_run, open_verified
from tidelake.store.layout import POSITION, RUN, new_run
from tidelake.store.retry import ATTEMPTS_MAX, retry_commit, retry_work

_NO_DICTIONARIES = {f"parquet.enable.dictionary#{POSITION}.list.element": "false"}
"""Each offset of a position occurs once, and its other numbers compress better without a dictionary."""


@dataclass(frozen=True)
class WrittenRun:
    """A run that is written but not committed, with the counts that Spark observed in the same pass."""

    run: str
    files: list[RunFile]
    observed: list[dict[str, int | None]]

    @property
    def counts(self) -> Counter[str]:
        """The sum of all counts, by name."""
        return Counter({name: self._sum(name) for counts in self.observed for name in counts})

    def _sum(self, name: str) -> int:
        return sum(counts.get(name) or 0 for counts in self.observed)

    @property
    def late_offsets(self) -> tuple[int, int] | None:
        """The first and the last offset with an update of a sealed time, or None."""
        offsets = [
            offset
            for counts in self.observed
            for offset in (counts.get("late_first"), counts.get("late_last"))
            if offset is not None
        ]
        return (min(offsets), max(offsets)) if offsets else None


def write_frame(
    frame: DataFrame, table: Location, run: str, schema: pa.Schema, split_by: Sequence[str] = ()
) -> list[RunFile]:
    """Write a frame as one run and describe its files. Files without rows are deleted.

    Args:
        frame: has the table's columns, and those in `split_by`.
        table: the table's folder.
        run: a fresh name.
        schema: the table's schema.
        split_by: columns whose values get separate files; they are not stored.
    """
    folder = table / f"{RUN}={run}"
    writer = (
        frame.select(*_stored_columns(spark_schema(schema).json()), *split_by)
        .write.mode("errorifexists")
        .options(**_NO_DICTIONARIES)
    )
    if split_by:
        writer = writer.partitionBy(*split_by)
    writer.parquet(str(folder))
    for blob in blobs.list_blobs(folder):
        if blob.location.suffix == ".crc":  # Hadoop writes checksums to local disks only
            blobs.delete(blob.location)
    return describe_run(table, run)


@cached
def _stored_columns(schema: str) -> list[Column]:
    """Return the columns of a table's files, cast to the types of a schema in JSON."""
    fields = StructType.fromJson(json.loads(schema))
    return [F.col(f"`{field.name}`").cast(field.dataType).alias(field.name) for field in fields]


def read_files(spark: SparkSession, table: Location, files: Iterable[RunFile], schema: pa.Schema) -> DataFrame:
    """Read the rows of these files, with the table's columns except `_run`. Spark verifies the pages.

    Raises:
        DamagedTable: a file does not have the size or the digest that was committed.

    Cost: the driver reads small files whole; of larger ones, only the end is read.
    """
    paths = []
    for file in files:
        open_verified(table, file).close()
        paths.append(str(table / file.path))
    wanted = spark_schema(schema)
    if not paths:
        return spark.createDataFrame([], schema=wanted)
    return spark.read.schema(wanted).parquet(*paths)


def append_run(
    table: Location,
    kind: str,
    write: Callable[[str], list[RunFile]],
    epoch: int,
    values: Mapping[str, int] | None = None,
) -> list[RunFile]:
    """Write a run and commit it to one of a collection's small tables; return its files.

    Args:
        table: the table's folder.
        kind: the kind of the run.
        write: writes the run of this name; called again if a sweep came first.
        epoch: the writer's epoch.
        values: what the commit sets.

    Raises:
        Conflict: every attempt lost; the files stay, but no log names them.
        Fenced: the writer's epoch has moved.
    """
    failure = f"{ATTEMPTS_MAX} attempts to append a run failed"

    def work() -> list[RunFile]:
        initial = OpenTable(table)
        files = write(new_run(kind, initial.seq))
        retry_commit(
            initial,
            lambda opened: opened.commit(values or {}, files, epoch=epoch),
            failure,
            after_conflict=lambda _: reach("append.after_conflict"),
        )
        return files

    files = retry_work(work, table, failure)
    maintain(table)
    return files


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema of a table without `_run`."""
    return from_arrow_schema(pa.schema([field for field in schema if field.name != RUN]))
