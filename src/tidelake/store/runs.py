"""Writes runs with Spark, reads the files of runs, and appends runs to small tables.

The log lists the live files, and Spark reads only those. So a read stays at the version for which it was planned,
opens no other file, and needs no Spark job over the Delta log.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tidelake.errors import DamagedTable
from tidelake.spark.column_cache import cached
from tidelake.spark.observation import Observed
from tidelake.spark.row_hash import hash_sums, row_hash, sum_of_hashes, weighted_sum, weighted_sums
from tidelake.spark.session import EXACT_PATHS, VERIFIED_READS
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable, maintain
from tidelake.store.failpoints import reach
from tidelake.store.files import RunFile, check_whole, describe_run, describe_whole_run, open_verified, upload_run
from tidelake.store.layout import DIFF, POSITION, RUN, new_run, run_of
from tidelake.store.retry import ATTEMPTS_MAX, retry_commit, retry_work

_NO_DICTIONARIES = {f"parquet.enable.dictionary#{POSITION}.list.element": "false"}
"""Each offset in a position occurs once, and the other numbers compress better without a dictionary."""
_ROWS = "_rows"


@dataclass(frozen=True)
class WrittenUpdates:
    """The files of a run of `updates/`; each states the sum of the hashes of the run's rows."""

    files: list[RunFile]
    weighted: tuple[int, int] = (0, 0)
    """The weighted sum of hashes; see `spark.row_hash.weighted_sum`."""


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
        """The first and the last offset with an update at a sealed time; None if there is no such update."""
        offsets = [
            offset
            for counts in self.observed
            for offset in (counts.get("late_first"), counts.get("late_last"))
            if offset is not None
        ]
        return (min(offsets), max(offsets)) if offsets else None


def write_updates(
    frame: DataFrame,
    table: Location,
    run: str,
    schema: pa.Schema,
    split_by: Sequence[str] = (),
    weighted: Sequence[str] = (),
) -> WrittenUpdates:
    """Write a DataFrame as one run of `updates/`, with the sum of its rows' hashes, computed in the same pass.

    Args:
        frame: see `write_frame`.
        table: see `write_frame`.
        run: see `write_frame`.
        schema: see `write_frame`.
        split_by: see `write_frame`.
        weighted: columns whose hashes are added up as well, weighted by `_diff`; empty if they are not needed.

    Raises:
        WrittenRowsMissing: the store does not show all files that executors wrote.
    """
    counted = [] if runs_here(frame.sparkSession) else [_number_of_rows()]
    rows = Observed(_stored(frame, schema, split_by), *counted, *_sums(schema, weighted))
    files = _write(rows.frame, table, run, split_by, rows)
    if not files:  # if Spark sees while planning that there are no rows, it computes no sums
        return WrittenUpdates([])
    sums = rows.values()
    total = weighted_sum(sums) if weighted else (0, 0)
    return WrittenUpdates([replace(file, rows_hash=sum_of_hashes(sums)) for file in files], total)


@dataclass(frozen=True)
class RunSums:
    """The sums over the stored rows of a run."""

    rows_hash: str
    weighted: tuple[int, int]
    """See `WrittenUpdates.weighted`."""


def sum_runs(
    spark: SparkSession, table: Location, files: Sequence[RunFile], schema: pa.Schema, weighted: Sequence[str] = ()
) -> dict[str, RunSums]:
    """Hash the stored rows of whole runs; return the sums of each run.

    Args:
        spark: the session.
        table: the table's folder.
        files: all files of the runs.
        schema: the table's schema.
        weighted: see `write_updates`.

    Cost: one scan, with an exchange of one row for each file and task.
    """
    if not files:
        return {}
    rows = read_files(spark, table, files, schema).withColumn("_path", F.col("_metadata.file_path"))
    by_run: dict[str, Counter[str]] = {}
    for sums in rows.groupBy("_path").agg(*_sums(schema, weighted)).toArrow().to_pylist():
        by_run.setdefault(run_of(sums.pop("_path")), Counter()).update(sums)
    return {
        run: RunSums(sum_of_hashes(sums), weighted_sum(sums) if weighted else (0, 0)) for run, sums in by_run.items()
    }


def mismatched_runs(files: Sequence[RunFile], sums: Mapping[str, RunSums]) -> list[str]:
    """Return the runs whose rows do not have the hash that their writers stated.

    A run whose writer stated no hash is never returned.
    """
    stated = {file.run: file.rows_hash for file in files if file.rows_hash is not None}
    return sorted(run for run, total in stated.items() if run not in sums or sums[run].rows_hash != total)


def verify_runs(
    spark: SparkSession, table: Location, files: Sequence[RunFile], schema: pa.Schema, weighted: Sequence[str] = ()
) -> dict[str, RunSums]:
    """Verify whole runs before a rewrite, which would make damage permanent. For the arguments, see `sum_runs`.

    Returns:
        The sums of each run.

    Raises:
        DamagedTable: the bytes of a file, or the rows of a run, are not those that were written.

    Cost: that of `sum_runs`; before it, large files are read once to hash their bytes.
    """
    check_whole(table, files)
    sums = sum_runs(spark, table, files, schema, weighted)
    mismatched = mismatched_runs(files, sums)
    if mismatched:
        raise DamagedTable(str(table), f"the rows of {', '.join(mismatched)} are not those that were written")
    return sums


def _sums(schema: pa.Schema, weighted: Sequence[str]) -> list[Column]:
    """Return the aggregates over the stored rows of a run; see `write_updates`."""
    sums = hash_sums(spark_schema(schema).json())
    if not weighted:
        return sums
    few = pa.schema([schema.field(name) for name in weighted])
    return [*sums, *weighted_sums(row_hash(spark_schema(few).json()), F.col(DIFF))]


def write_frame(
    frame: DataFrame, table: Location, run: str, schema: pa.Schema, split_by: Sequence[str] = ()
) -> list[RunFile]:
    """Write a DataFrame as one run and describe its files. Files without rows are deleted.

    Args:
        frame: has the table's columns, and those in `split_by`.
        table: the table's folder.
        run: a fresh name.
        schema: the table's schema.
        split_by: columns whose values get separate files; the columns themselves are not stored.

    Raises:
        WrittenRowsMissing: the store does not show all files that executors wrote.
    """
    stored = _stored(frame, schema, split_by)
    if runs_here(stored.sparkSession):
        return _write(stored, table, run, split_by)
    rows = Observed(stored, _number_of_rows())
    return _write(rows.frame, table, run, split_by, rows)


def _stored(frame: DataFrame, schema: pa.Schema, split_by: Sequence[str]) -> DataFrame:
    return frame.select(*_stored_columns(spark_schema(schema).json()), *split_by)


def _write(
    stored: DataFrame, table: Location, run: str, split_by: Sequence[str], rows: Observed | None = None
) -> list[RunFile]:
    """Write a run and describe its files.

    Args:
        stored: the columns to store, and those in `split_by`.
        table: the table's folder.
        run: a fresh name.
        split_by: see `write_frame`.
        rows: observes `_ROWS` over `stored`. It is needed unless all of Spark runs on this machine, where a listing
            shows every file.
    """
    blobs.prepare_spark(stored.sparkSession, table)
    is_here = runs_here(stored.sparkSession)
    if not table.is_local and is_here:
        # S3A would send thirty requests to find out what this process already knows.
        with blobs.scratch_folder() as scratch:
            _writer(stored, split_by).parquet(str(scratch / "run"))
            return upload_run(scratch / "run", table, run)
    folder = table / f"{RUN}={run}"
    _writer(stored, split_by).options(**blobs.spark_write_options(table)).parquet(str(folder))
    if table.is_local:  # Hadoop writes checksums to disks only
        blobs.delete_all(blob.location for blob in blobs.list_blobs(folder) if blob.location.suffix == ".crc")
    if is_here:
        return describe_run(table, run)
    assert rows is not None
    return describe_whole_run(table, run, rows.values()[_ROWS])


def _writer(stored: DataFrame, split_by: Sequence[str]) -> DataFrameWriter:
    writer = stored.write.mode("errorifexists").options(**_NO_DICTIONARIES)
    return writer.partitionBy(*split_by) if split_by else writer


def runs_here(spark: SparkSession) -> bool:
    """Return whether all of Spark runs on this machine, so that its tasks write to the same disk as this process."""
    master = spark.sparkContext.master or ""
    return master == "local" or master.startswith("local[")


@cached
def _number_of_rows() -> Column:
    return F.count(F.lit(1)).alias(_ROWS)


@cached
def _stored_columns(schema: str) -> list[Column]:
    """Return the columns of a table's files, cast to the types of a schema in JSON."""
    fields = StructType.fromJson(json.loads(schema))
    return [F.col(f"`{field.name}`").cast(field.dataType).alias(field.name) for field in fields]


def read_files(spark: SparkSession, table: Location, files: Iterable[RunFile], schema: pa.Schema) -> DataFrame:
    """Read the rows of these files, with the table's columns except `_run`. Spark verifies the pages.

    Raises:
        DamagedTable: a file does not have the size or the digest that was committed.

    Cost: the driver reads small files whole; of larger files, it reads what `open_verified` reads.
    """
    blobs.prepare_spark(spark, table)
    paths = []
    for file in files:
        open_verified(table, file).close()
        paths.append(str(table / file.path))
    wanted = spark_schema(schema)
    if not paths:
        return spark.createDataFrame([], schema=wanted)
    return spark.read.options(**VERIFIED_READS, **EXACT_PATHS).schema(wanted).parquet(*paths)


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
        write: writes a run under the given name. It is called again, with a new name, if a sweep may have deleted the
            run before it was committed.
        epoch: the writer's epoch.
        values: the values that the commit sets.

    Raises:
        Conflict: every attempt failed; the files stay, but no log names them.
        Fenced: the epoch was raised in the meantime.
    """
    failure = f"{ATTEMPTS_MAX} attempts to append a run failed"

    def work() -> list[RunFile]:
        initial = OpenTable(table, may_be_stale=True)
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
    """Return the Spark schema of a table, without `_run`."""
    return from_arrow_schema(pa.schema([field for field in schema if field.name != RUN]))
