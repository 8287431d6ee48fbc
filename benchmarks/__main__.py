"""Run the measurements: `python -m benchmarks`, or `make bench`, `make bench-quick`, `make bench-large`."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import report
from benchmarks.bench import Bench
from benchmarks.bulk import measure_bulk
from benchmarks.measure import Samples, machine
from benchmarks.small import measure_ledger, measure_seal, measure_start
from benchmarks.ticks import measure_ticks
from tidelake.delta.session import start_session

ROUNDS, ROUNDS_QUICK = 5, 1
_M = 1_000_000


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small and few: under three minutes, for every change")
    size.add_argument("--large", action="store_true", help="only ticks on 100 M rows; an hour or more")
    parser.add_argument("--only", action="append", default=[], help="only these: ticks, bulk, ledger, seal, start")
    parser.add_argument("--rounds", type=int, help="how often each is measured, after one round to warm up")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no further measurement after so long")
    parser.add_argument("--work", type=Path, default=Path("data/benchmarks/work"), help="for the data; is emptied")
    parser.add_argument("--out", type=Path, default=Path("data/benchmarks"), help="for the JSON and the chart")
    given = parser.parse_args()
    rounds = given.rounds or (ROUNDS_QUICK if given.quick else ROUNDS)
    facts = machine() | {"rounds": rounds}
    spark = start_session("tidelake-benchmarks", "local[2]")
    end = time.monotonic() + given.seconds
    bench = Bench(spark, given.work.absolute(), rounds, given.quick, lambda text: print(text, flush=True), end)
    given.out.mkdir(parents=True, exist_ok=True)
    results: report.Results = {}
    for name, sizes in chosen(bench, given.quick, given.large).items():
        if given.only and name.partition(" ")[0] not in given.only:
            continue
        for number, measurement in sizes.items():
            start = time.monotonic()
            if start > end:
                bench.say(f"{name} {number:,}: left out, the time is used up")
                continue
            results.setdefault(name, {})[str(number)] = measurement()
            bench.say(f"{name} {number:,}: {time.monotonic() - start:.0f} s in all")
            report.write_json(given.out / "results.json", results, facts)
    report.show(results, facts)
    report.write_chart(results, given.out)
    spark.stop()
    return 0


def chosen(bench: Bench, quick: bool, large: bool) -> dict[str, dict[int, Callable[[], Samples]]]:
    """What to measure, by name and size."""

    def ticks_at(*sizes: int, skew: str = "uniform") -> dict[int, Callable[[], Samples]]:
        return {rows: lambda rows=rows: measure_ticks(bench, rows, skew) for rows in sizes}

    def ledger_at(*sizes: int) -> dict[int, Callable[[], Samples]]:
        return {times: lambda times=times: measure_ledger(bench.rounds, times, bench.say) for times in sizes}

    def bulk_at(*sizes: int) -> dict[int, Callable[[], Samples]]:
        return {rows: lambda rows=rows: measure_bulk(bench, rows) for rows in sizes}

    if large:
        return {"ticks uniform": ticks_at(100 * _M)}
    if quick:
        return {"ledger": ledger_at(40_000), "bulk": bulk_at(_M), "ticks uniform": ticks_at(_M // 5)}
    return {
        "seal": {1: lambda: measure_seal(bench)},
        "start": {1: lambda: measure_start(bench)},
        "ledger": ledger_at(40_000, 100_000),
        "bulk": bulk_at(10 * _M),
        "ticks uniform": ticks_at(_M, 10 * _M),
        "ticks 80/20": ticks_at(_M, skew="80/20"),
    }


if __name__ == "__main__":
    sys.exit(main())
