"""Many ticks in sequence, with compaction between them: do ticks and commits stay fast, and does the log stay short?"""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.bench import Bench, Lake
from benchmarks.data import Stream, write_rows_of, write_ticks
from benchmarks.measure import Measured, Samples
from jobs import compact
from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable

TICK, COMPACTION, COMMIT, MINIMAL = "tick", "bounded compaction", "commit", "minimal Parquet of all updates"
RUNS, ENTRIES = "live runs", "log entries"
_WARM_UP = 5
_COMPACT_EVERY, _COMMIT_EVERY = 8, 5


def measure_many(bench: Bench, ticks: int, updates: int) -> Samples:
    """Run `ticks` ticks of `updates` updates on an initially empty table, with a bounded compaction after every eighth.

    The topic holds one tick at a time. A commit without files is timed after every fifth tick. The first ticks warm up:
    their durations are dropped, but the bytes that they write are counted.
    """
    bench.say(f"{ticks:,} ticks of {updates:,} updates")
    root, spark = bench.folder("many"), bench.spark
    lake = Lake(spark, root, {"upsert": "upsert"})
    stream = Stream(ticks * updates // 4, "upsert")
    files = write_ticks(spark, stream, root / "made", "upsert", ticks, updates)
    samples = Samples({TICK: [], COMPACTION: [], COMMIT: []}, series={RUNS: [], ENTRIES: []})
    written, done = 0, 0
    for number, file in enumerate(files):
        if number > _WARM_UP and time.monotonic() > bench.end:
            samples.cut = f"{number:,} of {ticks:,} ticks, then time ran out"
            bench.say(f"  {samples.cut}")
            break
        measured = _tick(bench, lake, file)
        written, done = written + measured.bytes_written, number + 1
        if number >= _WARM_UP:
            samples.of[TICK].append(measured)
        if done % _COMPACT_EVERY == 0:
            merged = _compact(bench, lake)
            samples.of[COMPACTION].append(merged)
            written += merged.bytes_written
        table = OpenTable(lake.collection("upsert").paths.updates)
        samples.series[RUNS].append(float(len({file.run for file in table.files()})))
        samples.series[ENTRIES].append(float(len(list((table.path.local / "_delta_log").glob("*.json")))))
        if done % _COMMIT_EVERY == 0:
            samples.of[COMMIT].append(_commit(bench, table.path))
        if done % 100 == 0:
            bench.say(f"  {done:,} ticks: median {samples.median(TICK):.2f} s")
    write_rows_of(spark, stream, done * updates, root / "minimal")
    minimal = sum(file.stat().st_size for file in (root / "minimal").glob("*.parquet"))
    samples.facts = {"ticks": float(done), "updates": float(updates), "written": float(written), "minimal": minimal}
    return samples


def _tick(bench: Bench, lake: Lake, file: Path) -> Measured:
    lake.add_file("upsert", file)
    measured = bench.meter.measure(lambda: lake.tick("upsert"), [lake.store])
    (lake.topic("upsert") / file.name).unlink()
    return measured


def _compact(bench: Bench, lake: Lake) -> Measured:
    bounded = lambda spark, settings: compact.run(spark, settings, full=False)  # noqa: E731
    return bench.meter.measure(lambda: lake.run("upsert", bounded), [lake.store])


def _commit(bench: Bench, path: Location) -> Measured:
    return bench.meter.measure(lambda: OpenTable(path).commit({}), [path.local])
