"""Deep verification of a table's files, compared with Arrow reading all their columns without verification."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.bench import Bench, Lake
from benchmarks.data import Stream
from benchmarks.measure import Measured, Samples
from benchmarks.states import seed_state
from tidelake.integrity.verification import Verification, verify_table
from tidelake.store.commit import OpenTable

VERIFIED, READ = "verify --deep", "Arrow reading all columns"


def measure_verify(bench: Bench, rows: int) -> Samples:
    """Measure both on a table of `rows` rows."""
    bench.say(f"deep verification of {rows:,} rows")
    lake = Lake(bench.spark, bench.folder(f"verify-{rows}"), {"plain": "plain"})
    seed_state(lake, "plain", Stream(rows, "plain"))
    table = lake.collection("plain").paths.updates
    files = OpenTable(table).files()

    def verify() -> None:
        found = Verification()
        verify_table(table, True, found)
        assert not found.damages, found.damages

    def read() -> None:
        for file in files:
            pq.ParquetFile(Path(str(table), file.path)).read()

    def turn(act: Callable[[], None]) -> Callable[[int], Measured]:
        return lambda number: bench.meter.measure(act)

    samples = bench.interleave({VERIFIED: turn(verify), READ: turn(read)})
    samples.facts["megabytes"] = sum(file.bytes for file in files) / 1e6
    return samples
