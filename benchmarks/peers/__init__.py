"""The alternatives: Delta MERGE, delta-rs merge, and decoding with Spark or fastavro. None of them checks anything."""

from __future__ import annotations

import json
import resource
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from delta.tables import DeltaTable as SparkDeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from benchmarks.data import COLUMNS, KEY, wrapped_schema
from benchmarks.measure import Measured

SNAPSHOT_PARTITIONS = "spark.databricks.delta.snapshotPartitions"


def decode(spark: SparkSession, *files: Path) -> DataFrame:
    """Decode a topic's updates without any check. Out: the data's columns, _time, _diff."""
    raw = spark.read.parquet(*(str(file) for file in files))
    decoded = raw.select(from_avro("value", json.dumps(wrapped_schema()), {"mode": "PERMISSIVE"}).alias("_m"))
    return decoded.select(F.explode("_m.m.member0").alias("_u")).select(
        "_u.data.*", F.col("_u.time").alias("_time"), F.col("_u.diff").alias("_diff")
    )


def newest_by_key(updates: DataFrame) -> DataFrame:
    """Return, for each key, the last update that sets a value: MERGE requires a source with one row per key."""
    whole = F.struct(*COLUMNS, "_time")
    newest = updates.where(F.col("_diff") > 0).groupBy(KEY).agg(F.max_by(whole, "_time").alias("_newest"))
    return newest.select("_newest.*")


@dataclass
class MergeTable:
    """A Delta table into which each tick is merged, in the style of `foreachBatch`.

    Args:
        spark: the session.
        folder: the table.
        vectors: whether deletion vectors are on.
        tuned: whether there are statistics on the key only, and one partition for the log's state; if not, Delta's
            defaults apply.
    """

    spark: SparkSession
    folder: Path
    vectors: bool
    tuned: bool = True

    def create(self, state: DataFrame) -> None:
        """Create the table from a state."""
        properties = {"delta.enableDeletionVectors": str(self.vectors).lower()}
        if self.tuned:
            properties["delta.dataSkippingStatsColumns"] = KEY
        writer = state.write.format("delta")
        for name, value in properties.items():
            writer = writer.option(name, value)
        writer.save(str(self.folder))

    def tick(self, file: Path) -> None:
        """Decode a tick, select the last row of each key, and merge."""
        before = self.spark.conf.get(SNAPSHOT_PARTITIONS)
        assert before is not None
        self.spark.conf.set(SNAPSHOT_PARTITIONS, "1" if self.tuned else "50")
        try:
            source = newest_by_key(decode(self.spark, file))
            (
                SparkDeltaTable.forPath(self.spark, str(self.folder))
                .alias("t")
                .merge(source.alias("s"), f"t.{KEY} = s.{KEY}")
                .whenMatchedUpdateAll("s._time >= t._time")
                .whenNotMatchedInsertAll()
                .execute()
            )
        finally:
            self.spark.conf.set(SNAPSHOT_PARTITIONS, before)

    def read(self) -> None:
        """Read the whole contents."""
        read_all(self.spark.read.format("delta").load(str(self.folder)))


def read_all(frame: DataFrame) -> None:
    """Read every row and every column of the data; only a sum leaves the executors."""
    frame.agg(F.bit_xor(F.xxhash64(*COLUMNS))).collect()


class Apart:
    """A separate process, so that its memory can be measured."""

    def __init__(self) -> None:
        """Create the pool; the process starts with the first measurement."""
        self._pool = ProcessPoolExecutor(1, get_context("spawn"))

    def measure(self, action: Callable[..., dict[str, float]], *arguments: Any) -> Measured:
        """Run an action in that process; the action may return counters, and times that it has measured itself."""
        counters = self._pool.submit(_measured, action, *arguments).result()
        return Measured(**counters)

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown()


def _measured(action: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    cpu, start = time.process_time(), time.perf_counter()
    counters = action(*arguments)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return {"seconds": seconds, "cpu_s": cpu, "peak_mb": peak_mb} | counters


def delta_rs_merge(folder: str, decoded: str) -> dict[str, Any]:
    """Merge rows that are already decoded and in memory; only the merge is timed."""
    from deltalake import DeltaTable

    source = pq.read_table(decoded)
    cpu, start = time.process_time(), time.perf_counter()
    metrics = (
        DeltaTable(folder)
        .merge(source, f"t.{KEY} = s.{KEY}", source_alias="s", target_alias="t")
        .when_matched_update_all("s._time >= t._time")
        .when_not_matched_insert_all()
        .execute()
    )
    return {
        "seconds": time.perf_counter() - start,
        "cpu_s": time.process_time() - cpu,
        "rows_read": metrics["num_output_rows"],
        "commits": 1,
    }


def fastavro_decode(file: str, messages: int) -> dict[str, Any]:
    """Decode `messages` messages with fastavro on one core, into Python values only."""
    import io

    import fastavro

    schema = fastavro.parse_schema(wrapped_schema())
    values = pq.read_table(file, columns=["value"])["value"].slice(0, messages).to_pylist()
    cpu, start = time.process_time(), time.perf_counter()
    rows = 0
    for value in values:
        message: Any = fastavro.schemaless_reader(io.BytesIO(value), schema, None)
        rows += len(message["m"])
    return {"seconds": time.perf_counter() - start, "cpu_s": time.process_time() - cpu, "rows_read": rows}


def write_decoded(spark: SparkSession, file: Path, target: Path) -> None:
    """Write the last row of each key of a tick as one Parquet file."""
    scratch = target.with_suffix(".scratch")
    newest_by_key(decode(spark, file)).coalesce(1).write.parquet(str(scratch))
    (written,) = scratch.glob("*.parquet")
    written.replace(target)
    shutil.rmtree(scratch)
