"""The table of targets: every row is printed, with a reason if it was not measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A row of the table: what is measured, what it is compared with, and the target."""

    what: str
    against: str
    target: str
    measurement: str
    """The name of the measurement that fills the row, as `--only` accepts it; empty if there is none."""
    why_not: str = ""
    """Why there is no measurement, if there is none."""


TICK = Row("whole tick, upsert and plain", "best tuned MERGE", "5× at 1 M, 15× at 10 M, 75× at 100 M", "ticks")
TICK_READ = Row(
    "whole tick plus the first full read; whole tick plus `current`",
    "MERGE + read",
    "1× at 1 M, 2× at 10 M and 100 M",
    "ticks",
)
TICK_DELTA_RS = Row(
    "tick", "delta-rs merge of decoded rows", "0.5× at 1 M, 3× at 10 M, 30× at 100 M; half the memory", "ticks"
)
GROWTH = Row("tick of a fixed size as the table grows", "itself, 1 M → 10 M → 100 M", "at most 1.1× per step", "ticks")
SEAL = Row("seal without copies", "Spark-Delta append", "no rows, at most one job, commit under 20 ms", "seal")
BULK = Row("bulk ingest, sealed and proven", "from_avro to Parquet, unchecked", "0.6×", "bulk")
BULK_COPY = Row("bulk ingest, sealed and proven", "Parquet to Parquet copy", "reported", "bulk")
BULK_FASTAVRO = Row("bulk ingest, sealed and proven", "fastavro on one core", "1×", "bulk")
RAW = Row("reclocked topic of Debezium's JSON, sealed", "plain Spark, which only reads and parses it", "0.5×", "raw")
RAW_GROWTH = Row("tick of change events", "itself, 1 M → 4 M rows", "at most 1.1×", "growth")
ANNOUNCED = Row("tick with transactions", "reclocked tick of the same events", "at most 1.3×", "announced")
LEDGER = Row(
    "ledger, progress in reverse order",
    "differential dataflow's reader",
    "5× at 40 k, 30× at 100 k; at most 1.25× the time of progress in order",
    "ledger",
)
PATHWAY = Row("ingest until durable", "Pathway with persistence", "1.5×", "pathway")
WRITTEN = Row(
    "bytes written per distinct update",
    "minimal Parquet",
    "1.1× without copies, 1.3× in a standard tick, 2.5× with two writers, 5× over a long history",
    "bytes",
)
AS_OF = Row(
    "snapshot AS OF any t",
    "plain read of an optimised table",
    "at most 1.5×, 1.1× after compaction, independent of the history",
    "reads",
)
PUBLICATIONS = Row(
    "tick and `current`, 100,000 uniform keys",
    "MERGE without deletion vectors",
    "at most 1.5× at 10 M rows",
    "publications",
)
DUCKDB = Row(
    "read AS OF any t by DuckDB, in this process",
    "DuckDB's own scan of an optimised table",
    "at most 1.5×; `tidelake read` from the command line in at most 1.5 s",
    "reads",
)
CHANGES = Row("changes of a tick of 100,000 updates", "reading both snapshots", "at most 1.5 s at 10 M", "changes")
PUBLISH = Row(
    "publishing a collection as CDCv2", "Spark writing these rows to Avro files", "at most 2× at 10 M", "publish"
)
OF_TIME = Row("reading 1 % of the times", "bytes of a full scan", "at most 3 % on compacted runs", "reads")
MANY = Row("1,000 ticks, with compaction between them", "median tick", "none over 2×; few runs, a short log", "many")
TABLES = Row("tick over 200 collections, several at a time", "one at a time; MERGE on each table", "1.6×; 4×", "tables")
LINGER = Row(
    "a lingering run", "a message's arrival in its topic", "sealed in at most 3 s at the median; flat memory", "linger"
)
CATALOG = Row(
    "finding and changing a collection in a store with many collections",
    "a store with 10 collections",
    "at most 1.5×; `status` of 10,000 in at most 30 s",
    "catalog",
)
HOLDS = Row(
    "holding a time: acquire, downgrade, drop and list, after many commits",
    "a new collection",
    "at most 20 ms at the median; at most 1.5×",
    "holds",
)
REQUESTS = Row(
    "requests to an object store",
    "the budget",
    "at most 40 per tick, 20 per seal without copies, 6 per `status`",
    "requests",
)
VERIFY = Row("`verify --deep`", "Arrow reading all columns of the same files", "0.5×", "verify")
MEMORY = Row("memory", "2 GiB of heap", "enough for every state", "ticks")
START = Row(
    "cold start to the first commit", "bare session and first job", "at most 1.3×; import 150 ms; status 1 s", "start"
)
CLUSTER = Row("standard tick on two workers", "standard tick in one process", "reported", "cluster")
NO_JARS = "no jars for Spark 4.0 and Scala 2.13 could be resolved (tried in November 2026: Hudi 1.2.0, Paimon 1.4.2)"
HUDI = Row("tick", "Hudi's and Paimon's writers", "reported", "", NO_JARS)

ROWS = (
    *(TICK, TICK_READ, TICK_DELTA_RS, GROWTH, SEAL, BULK, BULK_COPY, BULK_FASTAVRO, RAW, RAW_GROWTH, LEDGER, PATHWAY),
    ANNOUNCED,
    *(WRITTEN, AS_OF, DUCKDB, CHANGES, PUBLICATIONS, PUBLISH, OF_TIME, MANY, TABLES, LINGER, CATALOG, REQUESTS, HOLDS),
    *(VERIFY, MEMORY, START, CLUSTER, HUDI),
)
