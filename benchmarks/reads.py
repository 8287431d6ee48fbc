"""Reads of the contents AS OF a time, reads of 1 % of the times, and the cost that forgotten history adds to a read."""

from __future__ import annotations

from collections.abc import Callable

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
AT_SINCE, AT_MIDDLE, AT_LAST = " AS OF since", " AS OF the middle", " AS OF the last time"
YOUNG, OLD = "read of rows with one version", "read of rows with eight versions"
SCAN_FRESH, PART_FRESH = "all times, fresh runs", "1 % of the times, fresh runs"
SCAN_MERGED, PART_MERGED = "all times, compacted runs", "1 % of the times, compacted runs"
_TICKS, _VERSIONS = 7, 8  # seven is the maximum number of fresh runs: a merge takes eight
_ROWS_OF_OLD_MAX = 1_000_000


def measure_reads(bench: Bench, rows: int) -> Samples:
    """Measure reads of a state of `rows` rows after seven standard ticks.

    `steady` has the ticks as fresh runs next to its base. `compacted` and `merged` are compacted after the ticks:
    `merged` keeps all history, in time order, and `compacted` keeps none. `young` and `old` have no ticks; they are
    compacted from one version and from eight versions of each row.
    """
    bench.say(f"reads of {rows:,} rows")
    root, spark = bench.folder(f"reads-{rows}"), bench.spark
    names = ("steady", "compacted", "merged", "young", "old")
    lake = Lake(spark, root, dict.fromkeys(names, "upsert"), keep={"steady": 1, "compacted": 1, "young": 1, "old": 1})
    stream = Stream(
        rows, "upsert", state_updates_per_time=UPDATES_PER_TIME
    )  # as many updates at each time as in a tick
    made = root / "made"
    made.mkdir()
    ticks = Ticks(spark, stream, made, "steady", 0)
    ticks.make(_TICKS)
    for name in ("steady", "compacted", "merged"):
        seed_state(lake, name, stream)
        for number in range(_TICKS):
            lake.add_file(name, ticks.file(number))
            if name == "steady" or number == _TICKS - 1:  # compaction merges the ticks of the others anyway
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
    """Read every row and column of the data in this process; the files of both sides are the same as for Spark."""
    hashed = f"bit_xor(hash({', '.join(COLUMNS)}))"
    files = DeltaTable(optimised).file_uris()

    def plain() -> None:
        with duckdb.connect() as connection:
            connection.sql(f"SELECT {hashed} FROM read_parquet({files})").fetchall()

    def steady(at: int) -> None:
        found = duckdb_contents(lake.collection("steady"), at, COLUMNS)
        found.rows.engine.table(f"SELECT {hashed} FROM ({found.rows.query})")
        found.rows.close()

    last = _upper(lake, "steady") - 1
    first = stream.state_times - 1
    turns: dict[str, Callable[[int], Measured]] = {DUCKDB_PLAIN: lambda number: bench.meter.measure(plain)}
    for name, at in ((AT_MIDDLE, (first + last) // 2), (AT_LAST, last)):
        turns[DUCKDB_STEADY + name] = lambda number, at=at: bench.meter.measure(lambda: steady(at))  # type: ignore[misc]
    return turns


def _time_turns(bench: Bench, lake: Lake, stream: Stream) -> dict[str, Callable[[int], Measured]]:
    """Read rows by time as any Delta reader does: the log selects files, and footers select row groups and pages."""

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
