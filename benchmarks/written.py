"""Bytes that a tick writes for each distinct update: without copies, standard, and with two redundant writers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.bench import Bench, Lake
from benchmarks.data import TICK_UPDATES, Stream, Ticks, Writers, write_rows_of
from benchmarks.measure import Measured, Samples
from benchmarks.states import seed_state

CLEAN, STANDARD = "without copies", "standard tick"
IN_STEP, IN_TURN, APART = "two writers in step", "two writers in turn", "two writers, a tick apart"
MINIMAL = "minimal Parquet"
_KINDS: dict[str, tuple[bool, Writers]] = {
    CLEAN: (False, "one"),
    STANDARD: (True, "one"),
    IN_STEP: (False, "two in step"),
    IN_TURN: (False, "two in turn"),
    APART: (False, "two a tick apart"),
}
_STATE_ROWS = 100_000


def measure_written(bench: Bench, updates: int) -> Samples:
    """Measure the bytes written by ingest and seal for ticks of a standard number of distinct updates."""
    assert updates == TICK_UPDATES
    bench.say(f"bytes written for {updates:,} updates")
    root = bench.folder("written")
    names = {kind: f"c{number}" for number, kind in enumerate(_KINDS)}
    lake = Lake(bench.spark, root, dict.fromkeys(names.values(), "plain"))
    stream = Stream(_STATE_ROWS, "plain")
    turns: dict[str, Callable[[int], Measured]] = {}
    for kind, (disturbed, writers) in _KINDS.items():
        name = names[kind]
        seed_state(lake, name, stream)
        made = root / f"made-{name}"
        made.mkdir()
        ticks = Ticks(bench.spark, stream, made, name, 0, disturbed=disturbed, writers=writers)
        ticks.make(bench.rounds + 1)
        turns[kind] = _turn(bench, lake, name, ticks)
    minimal = root / "minimal"
    turns[MINIMAL] = lambda number: bench.meter.measure(lambda: _minimal(bench, stream, minimal), [minimal])
    return bench.interleave(turns)


def _turn(bench: Bench, lake: Lake, name: str, ticks: Ticks) -> Callable[[int], Measured]:
    store = lake.collection(name).paths.root.local

    def tick(number: int) -> Measured:
        lake.add_file(name, ticks.file(number))
        return bench.meter.measure(lambda: lake.tick(name), [store])

    return tick


def _minimal(bench: Bench, stream: Stream, folder: Path) -> None:
    write_rows_of(bench.spark, stream, TICK_UPDATES, folder)
