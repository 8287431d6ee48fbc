"""Whole ticks as the table grows: Tidelake, Delta MERGE and delta-rs merge, with and without a read of the contents."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.bench import Bench, Lake
from benchmarks.data import Skew, Stream, Ticks, state_rows
from benchmarks.measure import Measured, Samples
from benchmarks.peers import Apart, MergeTable, delta_rs_merge, read_all, write_decoded
from benchmarks.states import seed_state
from jobs import current
from tidelake.read.snapshot import snapshot

UPSERT, PLAIN = "tidelake upsert", "tidelake plain"
MERGE_VECTORS, MERGE = "MERGE tuned, with deletion vectors", "MERGE tuned, without deletion vectors"
MERGE_DEFAULTS = "MERGE with defaults"
MERGE_PLAIN, DELTA_RS = "MERGE of plain tick", "delta-rs merge"
READS = " read"
CURRENT = " current"

Turn = Callable[[int], Measured]

_ROUNDS_TO_WARM_UP, _ROWS_TO_WARM_UP = 8, 100_000
_ROWS_OF_CURRENT_MAX = 10_000_000
"""Writing larger tables takes minutes in each round."""


def measure_ticks(bench: Bench, rows: int, skew: Skew = "uniform") -> Samples:
    """Measure standard ticks against a state of `rows` rows.

    Before the first measurement, unless it is to be quick, all contestants warm up.
    """
    if not (bench.warm or bench.quick):
        _warm_up(bench)
    bench.say(f"ticks on {rows:,} rows, keys {skew}")
    root = bench.folder(f"ticks-{rows}-{skew.replace('/', '-')}")
    lake = Lake(bench.spark, root, {"upsert": "upsert", "plain": "plain"}, keep={"upsert": 1, "plain": 1})
    ticks = {kind: _prepare(bench, lake, Stream(rows, kind, skew), root) for kind in ("upsert", "plain")}
    turns: dict[str, Turn] = {}
    for name, kind in ((UPSERT, "upsert"), (PLAIN, "plain")):
        turns |= _tidelake_turns(bench, lake, name, kind, ticks[kind])
        if bench.quick or rows > _ROWS_OF_CURRENT_MAX:
            del turns[name + CURRENT]
    apart = Apart()
    try:
        turns |= _peer_turns(bench, root, ticks, apart, rows)
        samples = bench.interleave(turns)
        samples.facts["heap_mb"] = bench.meter.heap_max_mb
        return samples
    finally:
        apart.close()


def _warm_up(bench: Bench) -> None:
    """Run some ticks of all contestants on a small state; they do not count, and do not use up the time limit.

    A session gets faster for about twenty ticks, because later ticks reuse compiled code.
    """
    start = time.monotonic()
    bench.warm = True
    measure_ticks(replace(bench, rounds=_ROUNDS_TO_WARM_UP, end=math.inf), _ROWS_TO_WARM_UP)
    bench.end += time.monotonic() - start


def _prepare(bench: Bench, lake: Lake, stream: Stream, root: Path) -> Ticks:
    """Seed the state, and write the ticks."""
    kind = stream.kind
    seed_state(lake, kind, stream)
    made = root / f"made-{kind}"
    made.mkdir()
    ticks = Ticks(bench.spark, stream, made, kind, 0)
    ticks.make(bench.rounds + 1)
    return ticks


def _tidelake_turns(bench: Bench, lake: Lake, name: str, kind: str, ticks: Ticks) -> dict[str, Turn]:
    def tick(number: int) -> Measured:
        lake.add_file(kind, ticks.file(number))
        return bench.meter.measure(lambda: lake.tick(kind), [lake.store])

    def read(number: int) -> Measured:
        return bench.meter.measure(lambda: read_all(snapshot(bench.spark, lake.collection(kind)).contents))

    def rebuild_current(number: int) -> Measured:
        return bench.meter.measure(lambda: lake.run(kind, current.run), [lake.store])

    return {name: tick, name + READS: read, name + CURRENT: rebuild_current}


def _peer_turns(bench: Bench, root: Path, ticks: dict[str, Ticks], apart: Apart, rows: int) -> dict[str, Turn]:
    spark = bench.spark
    turns: dict[str, Turn] = {}
    settings = {
        MERGE_VECTORS: (True, True, "upsert"),
        MERGE: (False, True, "upsert"),
        MERGE_DEFAULTS: (False, False, "upsert"),
        MERGE_PLAIN: (True, True, "plain"),
    }
    if bench.quick or rows > 10_000_000:
        del settings[MERGE_DEFAULTS], settings[MERGE]
    for number, (name, (vectors, tuned, kind)) in enumerate(settings.items()):
        table = MergeTable(spark, root / f"merge-{number}", vectors, tuned)
        table.create(state_rows(spark, ticks[kind].stream))
        turns |= _merge_turns(bench, name, table, ticks[kind])
    delta_rs_table = MergeTable(spark, root / "delta-rs", False)
    delta_rs_table.create(state_rows(spark, ticks["upsert"].stream))
    decoded = [ticks["upsert"].file(tick).with_suffix(".decoded") for tick in range(bench.rounds + 1)]
    for tick, target in enumerate(decoded):
        write_decoded(spark, ticks["upsert"].file(tick), target)
    turns[DELTA_RS] = lambda number: apart.measure(delta_rs_merge, str(delta_rs_table.folder), str(decoded[number]))
    return turns


def _merge_turns(bench: Bench, name: str, table: MergeTable, ticks: Ticks) -> dict[str, Turn]:
    def tick(number: int) -> Measured:
        return bench.meter.measure(lambda: table.tick(ticks.file(number)), [table.folder])

    def read(number: int) -> Measured:
        return bench.meter.measure(table.read)

    return {name: tick, name + READS: read}
