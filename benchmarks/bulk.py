"""Bulk ingest, sealed and proven, compared with unchecked decoding of the same bytes, a plain copy, and fastavro."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import functions as F

from benchmarks.bench import Bench, afresh
from benchmarks.data import UPDATES_PER_TIME, Stream, state_rows, write_bulk
from benchmarks.measure import Measured, Samples
from benchmarks.peers import Apart, decode, fastavro_decode

TIDELAKE, UNCHECKED, COPY = "tidelake", "from_avro to Parquet, unchecked", "Parquet to Parquet copy"
FASTAVRO, MINIMAL = "fastavro, one core", "minimal Parquet"
_FASTAVRO_MESSAGES = 2_000


def measure_bulk(bench: Bench, rows: int) -> Samples:
    """Measure the ingest of `rows` updates in one tick; every round of Tidelake begins with an empty store."""
    bench.say(f"bulk ingest of {rows:,} updates")
    root = bench.folder(f"bulk-{rows}")
    spark, stream = bench.spark, Stream(rows, "plain", state_updates_per_time=UPDATES_PER_TIME)
    topic = root / "made" / "orders"
    write_bulk(spark, topic, rows, stream.state(), UPDATES_PER_TIME, "bulk")
    files = sorted(topic.glob("bulk-updates-*"))
    rows_as_parquet = root / "rows"
    state_rows(spark, stream).withColumn("_diff", F.lit(1).cast("bigint")).write.parquet(str(rows_as_parquet))
    apart = Apart()

    tidelake = afresh(
        bench, root / "lake", "orders", sorted(topic.iterdir()), "plain", lambda lake: lake.tick("orders")
    )

    def unchecked(number: int) -> Measured:
        target = _fresh(root / "unchecked")
        return bench.meter.measure(lambda: decode(spark, *files).write.parquet(str(target)), [target])

    def copy(number: int) -> Measured:
        target = _fresh(root / "copy")
        return bench.meter.measure(
            lambda: spark.read.parquet(str(rows_as_parquet)).write.parquet(str(target)), [target]
        )

    def fastavro(number: int) -> Measured:
        return apart.measure(fastavro_decode, str(files[0]), _FASTAVRO_MESSAGES)

    turns = {TIDELAKE: tidelake, UNCHECKED: unchecked, COPY: copy, FASTAVRO: fastavro}
    try:
        return bench.interleave(turns)
    finally:
        apart.close()


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder
