"""Ingest of Debezium's JSON from a reclocked topic into a sealed table, compared with Spark merely parsing the JSON."""

from __future__ import annotations

import json
import math
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.bench import Bench, Lake, afresh
from benchmarks.measure import Measured, Samples
from jobs import ingest

TIDELAKE, PARSED = "tidelake, raw Debezium JSON", "from_json of the same records, not stored"
GROWTH = "growth of raw ticks"
TICK = "tick of 100,000 change events"
TICK_RECORDS = 100_000
_RECORDS_PER_FILE = 250_000
_NAME = "boats"
_ROUNDS_TO_WARM_UP = 9

ROW: dict[str, Any] = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "quantity", "type": ["null", "long"]},
        {"name": "seen", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]},
        {"name": "place", "type": ["null", "string"]},
    ],
}
"""The schema of the rows in the events."""

_EVENT = """struct<before: struct<id: bigint>, after: struct<id: bigint, customer: string, price: double,
quantity: bigint, seen: bigint, place: string>, source: struct<connector: string, snapshot: string, sequence: string,
lsn: bigint>, op: string, ts_ms: bigint>"""
"""The type with which the peer, plain Spark, parses an event: the fields that Tidelake reads, with their types."""

BLOCK: dict[str, Any] = {
    "topic": _NAME,
    "framing": "reclock",
    "format": "json",
    "envelope": "debezium",
    "key": ["id"],
    "schema": ROW,
    "messages_per_tick_max": 1_000_000,
}


def measure_raw(bench: Bench, records: int) -> Samples:
    """Measure one tick of `records` records; every round begins with an empty store.

    Before a large measurement, unless it is to be quick, both contestants warm up on fewer records, because a session
    gets faster for about twenty ticks.
    """
    if not bench.quick and records > TICK_RECORDS:
        start = time.monotonic()
        measure_raw(replace(bench, rounds=_ROUNDS_TO_WARM_UP, end=math.inf), TICK_RECORDS)
        bench.end += time.monotonic() - start
    bench.say(f"reclocked topic of {records:,} change events")
    root = bench.folder(f"raw-{records}")
    spark, made = bench.spark, root / "made" / _NAME
    write_events(spark, made, 0, records, records)
    files = sorted(made.iterdir())

    tidelake = afresh(bench, root / "lake", _NAME, files, BLOCK, lambda lake: lake.run(_NAME, ingest.run))

    def parsed(number: int) -> Measured:
        return bench.meter.measure(lambda: _discard(parse_events(spark, files)))

    return bench.interleave({TIDELAKE: tidelake, PARSED: parsed})


def measure_raw_ticks(bench: Bench, rows: int) -> Samples:
    """Measure ticks on a table of `rows` rows; each tick changes 100,000 of them."""
    bench.say(f"ticks of change events on {rows:,} rows")
    root = bench.folder(f"raw-ticks-{rows}")
    lake = Lake(bench.spark, root / "lake", {}, raw={_NAME: BLOCK})
    write_events(bench.spark, lake.topic(_NAME), 0, rows, rows)
    lake.run(_NAME, ingest.run)
    for file in lake.topic(_NAME).iterdir():  # offsets are recorded, so the files are no longer needed
        file.unlink()
    made = root / "made"
    for number in range(bench.rounds + 1):
        write_events(bench.spark, made / str(number), rows + number * TICK_RECORDS, TICK_RECORDS, rows)

    def tick(number: int) -> Measured:
        for file in (made / str(number)).iterdir():
            lake.add_file(_NAME, file)
        return bench.meter.measure(lambda: lake.run(_NAME, ingest.run), [lake.store])

    return bench.interleave({TICK: tick})


def write_events(
    spark: SparkSession, folder: Path, first: int, records: int, keys: int, in_transaction: int = 0
) -> None:
    """Write change events, numbered from `first`, as topic files with two partitions; an event has about 600 bytes.

    Event `n` changes one of `keys` keys, and has offset `n div 2`. With `in_transaction`, that many consecutive events
    belong to one transaction, whose END `write_ends` writes.
    """
    transaction, after = "'null'", "id * 64 - 64"
    if in_transaction:
        after = f"greatest(0, id div {in_transaction} * {in_transaction} * 64 - 1)"
        transaction = (
            'format_string(\'{"id":"%d:%d","total_order":%d,"data_collection_order":%d}\', '
            f"id div {in_transaction}, id * 64, id % {in_transaction} + 1, id % {in_transaction} + 1)"
        )
    files = max(2, records // _RECORDS_PER_FILE)
    event = F.format_string(
        '{"before":null,"after":{"id":%d,"customer":"customer-%07d","price":%d.25,"quantity":%d,'
        '"seen":17%014d,"place":"aisle-%03d/shelf-%02d"},"source":{"version":"3.3.1.Final","connector":"postgresql",'
        '"name":"harbour","ts_ms":1795285966913,"snapshot":"false","db":"harbour","sequence":"[\\"%d\\",\\"%d\\"]",'
        '"ts_us":1795285966913388,"ts_ns":1795285966913388000,"schema":"public","table":"boats","txId":756,'
        '"lsn":%d,"xmin":null},"transaction":%s,"op":"%s","ts_ms":1795285967378,"ts_us":1795285967378844,'
        '"ts_ns":1795285967378844158}',
        *(F.expr(sql) for sql in ("key", "key % 1000003", "id % 1000", "id % 77", "id", "key % 997", "key % 89")),
        *(F.expr(sql) for sql in (after, "id * 64", "id * 64", transaction, f"if(id < {keys}, 'c', 'u')")),
    )
    numbered = spark.range(first, first + records, 1, files).withColumn("key", F.expr(f"id * 618033989L % {keys}"))
    numbered.select(
        F.format_string('{"id":%d}', "key").cast("binary").alias("key"),
        event.cast("binary").alias("value"),
        F.lit(_NAME).alias("topic"),
        F.expr("cast(id % 2 as int)").alias("partition"),
        F.expr("id div 2").alias("offset"),
        F.timestamp_millis(F.lit(1_795_285_968_000) + F.col("id")).alias("timestamp"),
    ).write.parquet(str(folder.with_name(f"_{folder.name}")))
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder.with_name(f"_{folder.name}")
    for number, path in enumerate(sorted(scratch.glob("*.parquet"))):
        path.replace(folder / f"{first:012d}-{number:05d}.parquet")
    shutil.rmtree(scratch)


def write_ends(file: Path, table: str, first: int, records: int, in_transaction: int) -> None:
    """Write the ENDs of the transactions of some events as a topic file; `write_events` explains the arguments."""
    numbers = range(first // in_transaction, (first + records) // in_transaction)
    counts = [{"data_collection": table, "event_count": in_transaction}]
    ends = [
        {"status": "END", "id": f"{number}:{(number + 1) * in_transaction * 64 - 1}", "ts_ms": 1_795_285_967_378}
        | {"event_count": in_transaction, "data_collections": counts}
        for number in numbers
    ]
    columns = {
        "key": pa.nulls(len(ends), pa.binary()),
        "value": pa.array([json.dumps(end).encode() for end in ends], pa.binary()),
        "partition": pa.array([0] * len(ends), pa.int32()),
        "offset": pa.array(numbers, pa.int64()),
        "timestamp": pa.array([1_795_285_968_000_000] * len(ends), pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(columns), file)


def parse_events(spark: SparkSession, files: list[Path]) -> DataFrame:
    """Parse the records with plain Spark: unchecked, with null for each value that its type cannot hold."""
    read = spark.read.parquet(*(str(file) for file in files))
    event = F.from_json(F.col("value").cast("string"), _EVENT).alias("event")
    return read.select("partition", "offset", event).select("partition", "offset", "event.*")


def _discard(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()
