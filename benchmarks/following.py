"""The changes of one tick and of its last time on a large keyed collection, compared with two reads of the contents.

Both engines read the changes: Spark, and DuckDB in this process.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.bench import Bench, Lake
from benchmarks.data import UPDATES_PER_TIME, Stream, Ticks
from benchmarks.measure import Measured, Samples
from benchmarks.peers import read_all
from benchmarks.states import seed_state
from tidelake.query.contents import updates as duckdb_updates
from tidelake.read.changes import changes
from tidelake.read.diff import difference
from tidelake.store.commit import OpenTable
from tidelake.store.state import UPPER

TICK, TIME, TWO_READS = "changes of a tick", "changes of its last time", "difference between two reads"
DUCKDB_TICK, DUCKDB_TIME = f"{TICK}, read by DuckDB", f"{TIME}, read by DuckDB"
_NAME = "orders"


def measure_changes(bench: Bench, rows: int) -> Samples:
    """Measure the changes of a standard tick on a compacted state of `rows` rows; nothing is cached between reads."""
    bench.say(f"changes of a tick on {rows:,} rows")
    root, spark = bench.folder(f"changes-{rows}"), bench.spark
    lake = Lake(spark, root, {_NAME: "upsert"}, keep={_NAME: 1})
    stream = Stream(rows, "upsert", state_updates_per_time=UPDATES_PER_TIME)
    made = root / "made"
    made.mkdir()
    ticks = Ticks(spark, stream, made, _NAME, 0)
    ticks.make(1)
    seed_state(lake, _NAME, stream)
    lake.add_file(_NAME, ticks.file(0))
    lake.tick(_NAME)
    last = (OpenTable(lake.collection(_NAME).paths.updates).value(UPPER) or 0) - 1
    first = stream.state_times - 1

    def follow(after: int) -> Callable[[int], Measured]:
        return lambda number: bench.meter.measure(
            lambda: read_all(changes(spark, lake.collection(_NAME), after, last).updates)
        )

    def follow_in_process(after: int) -> Callable[[int], Measured]:
        def read() -> None:
            rows = duckdb_updates(lake.collection(_NAME), after, last).rows
            rows.table()
            rows.close()

        return lambda number: bench.meter.measure(read)

    def compare(number: int) -> Measured:
        return bench.meter.measure(lambda: read_all(difference(spark, lake.collection(_NAME), (first, last)).rows))

    return bench.interleave(
        {
            TICK: follow(first),
            TIME: follow(last - 1),
            DUCKDB_TICK: follow_in_process(first),
            DUCKDB_TIME: follow_in_process(last - 1),
            TWO_READS: compare,
        }
    )
