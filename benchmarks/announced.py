"""A tick of a table whose source announces its transactions, compared with a tick that reclocks the same events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.bench import Bench, Lake
from benchmarks.measure import Measured, Samples
from benchmarks.raw import BLOCK, write_ends, write_events
from jobs import ingest, seal

RECLOCKED, ANNOUNCED, SEAL = "reclocked tick", "tick with transactions", "seal of a tick with transactions"
_NAME, _TABLE, _MARKS = "boats", "public.boats", "harbour.transaction"
_IN_TRANSACTION = 100
_ROUNDS_TO_WARM_UP = 6


def measure_announced(bench: Bench, records: int) -> Samples:
    """Measure ticks of `records` change events each, in transactions of 100; both tables read the same files."""
    bench.say(f"ticks of {records:,} events in transactions")
    root = bench.folder("announced")
    more: dict[str, Any] = {"framing": "transactions", "table": _TABLE, "transaction_topic": _MARKS}
    reclocked = Lake(bench.spark, root / "reclocked", {}, raw={_NAME: BLOCK})
    announced = Lake(bench.spark, root / "announced", {}, raw={_NAME: BLOCK | more})
    announced.topic(_MARKS).mkdir(parents=True)
    made = root / "made"

    def files_of(number: int) -> list[Path]:
        folder = made / str(number)
        if not folder.exists():
            write_events(bench.spark, folder, number * records, records, 1_000_000, _IN_TRANSACTION)
            marks = announced.topic(_MARKS) / f"{number:05d}.parquet"
            write_ends(marks, _TABLE, number * records, records, _IN_TRANSACTION)
        return sorted(folder.iterdir())

    def tick(lake: Lake, number: int) -> Measured:
        for file in files_of(number):
            lake.add_file(_NAME, file)
        return bench.meter.measure(lambda: lake.run(_NAME, ingest.run), [lake.store])

    def seal_announced(number: int) -> Measured:
        return bench.meter.measure(lambda: announced.run(_NAME, seal.run), [announced.store])

    warm_up = 0 if bench.quick else _ROUNDS_TO_WARM_UP
    for number in range(warm_up):
        tick(reclocked, number)
        tick(announced, number)
        seal_announced(number)
    contestants = {
        RECLOCKED: lambda number: tick(reclocked, warm_up + number),
        ANNOUNCED: lambda number: tick(announced, warm_up + number),
        SEAL: seal_announced,
    }
    return bench.interleave(contestants)
