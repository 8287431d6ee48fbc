"""Reads of the contents AS OF a time, reads of 1% of the times, and the cost that forgotten history adds to a read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.bench import Bench, Lake
from benchmarks.data import COLUMNS, UPDATES_PER_TIME, Stream, Ticks
from benchmarks.measure import Measured, Samples
from benchmarks.peers import read_all
from benchmarks.states import seed_state
from jobs import compact
from tidelake.query.contents import contents as duckdb_contents
from tidelake.read.snapshot import snapshot
from tidelake.store.commit import OpenTable
from tidelake.store.state import UPPER

PLAIN_TABLE = "plain read of an optimised table"
STEADY, COMPACTED = "steady state", "just after compaction"
DUCKDB_PLAIN, DUCKDB_STEADY = "DuckDB's own scan of an optimised table", "steady state, read by DuckDB"
DUCKDB_SUMS = "steady state without a key, read by DuckDB"
AT_SINCE, AT_MIDDLE, AT_LAST = " AS OF since", " AS OF the middle", " AS OF the last time"
YOUNG, OLD = "read of rows with one version", "read of rows with eight versions"
SCAN_FRESH, PART_FRESH = "all times, fresh runs", "1 % of the times, fresh runs"
SCAN_MERGED, PART_MERGED = "all times, compacted runs", "1 % of the times, compacted runs"
_TICKS, _VERSIONS = 7, 8  # seven is the maximum number of fresh runs: a merge takes eight
_ROWS_OF_OLD_MAX = 1_000_000


def measure_reads(bench: Bench, rows: int) -> Samples:
    """Measure reads of a state of `rows` rows after seven standard ticks.

    `steady` has the ticks as fresh runs next to its base; so does `sums`, whose rows have no key. `compacted` and
    `merged` are compacted after the ticks: `merged` keeps all history, in time order, and `compacted` keeps none.
    `young` and `old` have no ticks; they are compacted from one and from eight versions of each row, respectively.
    """
    bench.say(f"reads of {rows:,} rows")
    root, spark = bench.folder(f"reads-{rows}"), bench.spark
    names = ("steady", "compacted", "merged", "young", "old")
    keep = {"steady": 1, "compacted": 1, "young": 1, "old": 1, "sums": 1}
    lake = Lake(spark, root, dict.fromkeys(names, "upsert") | {"sums": "plain"}, keep=keep)
    stream = Stream(
        rows, "upsert", state_updates_per_time=UPDATES_PER_TIME
    )  # the state has as many updates at each time as the ticks have
    changes = _ticks(bench, stream, root / "made")
    plain = Stream(rows, "plain", state_updates_per_time=UPDATES_PER_TIME)
    plain_changes = _ticks(bench, plain, root / "made-plain")
    for name in ("steady", "compacted", "merged", "sums"):
        seed_state(lake, name, plain if name == "sums" else stream)
        ticks = plain_changes if name == "sums" else changes
        for number in range(_TICKS):
            lake.add_file(name, ticks.file(number))
            # In the other collections, compaction merges the ticks anyway, so one tick may read several files.
            if name in ("steady", "sums") or number == _TICKS - 1:
                lake.tick(name)
    few = Stream(min(rows, _ROWS_OF_OLD_MAX), "upsert")
    seed_state(lake, "young", few)
    seed_state(lake, "old", few, versions=_VERSIONS)
    for name in ("compacted", "merged", "young", "old"):
        lake.run(name, compact.run)
    optimised = root / "optimised"
    contents = snapshot(spark, lake.collection("steady")).contents.select(*COLUMNS, F.lit(0).alias("_time"))
    contents.repartition(2).write.format("delta").save(str(optimised))
    turns: dict[str, Callable[[int], Measured]] = {
        PLAIN_TABLE: lambda number: bench.meter.measure(
            lambda: read_all(spark.read.format("delta").load(str(optimised)))
        )
    }
    turns |= _as_of_turns(bench, lake, stream)
    turns |= _duckdb_turns(bench, lake, stream, str(optimised))
    turns |= _time_turns(bench, lake, stream)
    return bench.interleave(turns)


def _ticks(bench: Bench, stream: Stream, folder: Path) -> Ticks:
    folder.mkdir()
    ticks = Ticks(bench.spark, stream, folder, "steady", 0)
    ticks.make(_TICKS)
    return ticks


def _as_of_turns(bench: Bench, lake: Lake, stream: Stream) -> dict[str, Callable[[int], Measured]]:
    def read(name: str, at: int | None) -> Callable[[int], Measured]:
        return lambda number: bench.meter.measure(
            lambda: read_all(snapshot(bench.spark, lake.collection(name), at).contents)
        )

    last = _upper(lake, "steady") - 1
    first = stream.state_times - 1
    return {
        STEADY + AT_SINCE: read("steady", first),
        STEADY + AT_MIDDLE: read("steady", (first + last) // 2),
        STEADY + AT_LAST: read("steady", last),
        COMPACTED: read("compacted", None),
        YOUNG: read("young", None),
        OLD: read("old", None),
    }


def _duckdb_turns(bench: Bench, lake: Lake, stream: Stream, optimised: str) -> dict[str, Callable[[int], Measured]]:
    """Return measurements that read every row and column of the data in this process.

    The optimised table has as many rows as the contents, in files that were also written by Spark.
    """
    hashed = f"bit_xor(hash({', '.join(COLUMNS)}))"
    files = DeltaTable(optimised).file_uris()

    def plain() -> None:
        with duckdb.connect() as connection:
            connection.sql(f"SELECT {hashed} FROM read_parquet({files})").fetchall()

    def steady(name: str, at: int) -> None:
        found = duckdb_contents(lake.collection(name), at, COLUMNS)
        found.rows.engine.table(f"SELECT {hashed} FROM ({found.rows.query})")
        found.rows.close()

    def turn(name: str, at: int) -> Callable[[int], Measured]:
        return lambda number: bench.meter.measure(lambda: steady(name, at))

    first = stream.state_times - 1
    turns: dict[str, Callable[[int], Measured]] = {DUCKDB_PLAIN: lambda number: bench.meter.measure(plain)}
    for kind, name in ((DUCKDB_STEADY, "steady"), (DUCKDB_SUMS, "sums")):
        last = _upper(lake, name) - 1
        for when, at in ((AT_SINCE, first), (AT_MIDDLE, (first + last) // 2), (AT_LAST, last)):
            turns[kind + when] = turn(name, at)
    return turns


def _time_turns(bench: Bench, lake: Lake, stream: Stream) -> dict[str, Callable[[int], Measured]]:
    """Return measurements that read rows by time.

    They read as any Delta reader does: the log selects files, and footers select row groups and pages.
    """

    def scan(name: str, start: int, end: int) -> Callable[[int], Measured]:
        def rows() -> DataFrame:
            table = bench.spark.read.format("delta").load(str(lake.collection(name).paths.updates))
            return table.where(F.col("_time").between(start, end - 1))

        return lambda number: bench.meter.measure(lambda: read_all(rows()))

    fresh, end = stream.state_times, _upper(lake, "merged")
    fresh_start, merged_start = fresh + (end - fresh) * 3 // 8, end * 3 // 8
    return {
        SCAN_FRESH: scan("steady", fresh, end),
        PART_FRESH: scan("steady", fresh_start, fresh_start + (end - fresh) // 100),
        SCAN_MERGED: scan("merged", 0, end),
        PART_MERGED: scan("merged", merged_start, merged_start + end // 100),
    }


def _upper(lake: Lake, name: str) -> int:
    upper = OpenTable(lake.collection(name).paths.updates).value(UPPER)
    assert upper is not None
    return upper
