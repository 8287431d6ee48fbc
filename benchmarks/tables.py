"""Many small tables: a tick over all of them, one collection at a time and several at a time, compared with MERGE."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.bench import Bench, Lake
from benchmarks.data import Stream, state_rows, write_ticks
from benchmarks.measure import Measured, Samples
from benchmarks.peers import MergeTable
from jobs import tick

ONE, SEVERAL, MERGE = "one collection at a time", "several collections at a time", "MERGE, one table at a time"
PARALLEL, MERGED_MAX = 4, 20
_UPDATES, _STATE_ROWS = 1_000, 10_000
_STEPS = ("ingest", "seal")


def measure_tables(bench: Bench, tables: int) -> Samples:
    """Measure ticks over many collections with 1,000 new updates each.

    MERGE runs on only some of the tables, and is compared by the time per table; `facts` has both numbers of tables.
    Creating the collections and the first round serve as the warm-up.
    """
    bench.say(f"ticks over {tables:,} collections of {_UPDATES:,} updates")
    root, spark = bench.folder("tables"), bench.spark
    names = [f"table_{number:04d}" for number in range(tables)]
    stream = Stream(_STATE_ROWS, "upsert")
    files = write_ticks(spark, stream, root / "made", "table", bench.rounds + 1, _UPDATES)
    turns = {
        ONE: _turn(bench, _lake(bench, root / "one", names), names, files, 1),
        SEVERAL: _turn(bench, _lake(bench, root / "several", names), names, files, PARALLEL),
    }
    merged = names[:MERGED_MAX]
    if not bench.quick:
        turns[MERGE] = _merge_turn(bench, root, stream, merged, files)
    samples = bench.interleave(turns)
    samples.facts |= {"tables": float(tables), "merged": float(len(merged)), "parallel": float(PARALLEL)}
    samples.facts["heap_mb"] = bench.meter.heap_max_mb
    return samples


def _lake(bench: Bench, root: Path, names: list[str]) -> Lake:
    root.mkdir()
    return Lake(bench.spark, root, dict.fromkeys(names, "upsert"))


def _turn(bench: Bench, lake: Lake, names: list[str], files: list[Path], parallel: int) -> Callable[[int], Measured]:
    settings = lake.settings.model_copy(update={"parallel": parallel})

    def run() -> None:
        report = tick.run_steps(bench.spark, settings, _STEPS)
        assert report.ok, report.errors

    def turn(number: int) -> Measured:
        for name in names:
            lake.add_file(name, files[number])
        return bench.meter.measure(run, [lake.store])

    return turn


def _merge_turn(
    bench: Bench, root: Path, stream: Stream, names: list[str], files: list[Path]
) -> Callable[[int], Measured]:
    tables = [MergeTable(bench.spark, root / "merge" / name, vectors=True) for name in names]
    for table in tables:
        table.create(state_rows(bench.spark, stream).coalesce(1))

    def merge(file: Path) -> None:
        for table in tables:
            table.tick(file)

    return lambda number: bench.meter.measure(lambda: merge(files[number]), [root / "merge"])
