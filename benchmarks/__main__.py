"""Run the measurements: `python -m benchmarks`, or `make bench`, `make bench-quick`, `make bench-large`."""

from __future__ import annotations

import argparse
import math
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import report
from benchmarks.announced import measure_announced
from benchmarks.bench import Bench
from benchmarks.bulk import measure_bulk
from benchmarks.catalogs import measure_catalogs
from benchmarks.elsewhere import measure_cluster, measure_pathway
from benchmarks.following import measure_changes
from benchmarks.held import measure_holds
from benchmarks.lines import Results
from benchmarks.lingering import measure_linger
from benchmarks.many import measure_many
from benchmarks.measure import Samples, machine
from benchmarks.publications import measure_publications
from benchmarks.publishing import measure_publishing
from benchmarks.raw import GROWTH, measure_raw, measure_raw_ticks
from benchmarks.reads import measure_reads
from benchmarks.requests import measure_requests
from benchmarks.small import measure_ledger, measure_seal, measure_start
from benchmarks.tables import measure_tables
from benchmarks.targets import ROWS
from benchmarks.ticks import measure_ticks
from benchmarks.verified import measure_verify
from benchmarks.written import measure_written
from tidelake.spark.session import start_session

ROUNDS, ROUNDS_QUICK = 5, 1
_M = 1_000_000
NAMES = sorted({row.measurement for row in ROWS if row.measurement})


@dataclass(frozen=True)
class Task:
    """One measurement at one size."""

    name: str
    size: int
    seconds_max: float
    """After this many seconds, no further round begins. Earlier rounds count; the results say how many there were."""
    measure: Callable[[Bench, int], Samples]


def main() -> int:
    """Measure, print and write the results."""
    options = arguments()
    rounds = options.rounds or (ROUNDS_QUICK if options.quick else ROUNDS)
    facts = machine() | {"rounds": rounds}
    # Spark drops stages beyond this number, and a measurement must find its own stages.
    spark = start_session("tidelake-benchmarks", "local[2]", {"spark.ui.retainedStages": "10000"})
    end = time.monotonic() + options.seconds
    bench = Bench(spark, options.work.absolute(), rounds, options.quick, lambda text: print(text, flush=True))
    options.out.mkdir(parents=True, exist_ok=True)
    results: Results = {}
    left_out = dict.fromkeys(NAMES, "not asked for")
    failed = False
    for task in tasks(options.quick, options.large):
        kind = task.name.partition(" ")[0]
        if options.only and kind not in options.only:
            continue
        start = time.monotonic()
        if start > end:
            left_out[kind] = f"the {options.seconds:.0f} s were used up"
            bench.say(f"{task.name} {task.size:,}: left out, {left_out[kind]}")
            continue
        bench.end = min(end, start + task.seconds_max * options.patience)
        try:
            results.setdefault(task.name, {})[str(task.size)] = task.measure(bench, task.size)
        except Exception as error:  # the other tasks still run, and the exit status reports the failure
            left_out[kind] = f"failed: {type(error).__name__}"
            traceback.print_exc()
            failed = True
        bench.say(f"{task.name} {task.size:,}: {time.monotonic() - start:.0f} s in total")
        report.write_json(options.out / "results.json", results, facts)
    report.show(results, facts, left_out)
    report.write_charts(results, options.out)
    spark.stop()
    return 1 if failed else 0


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a few small measurements, in under three minutes")
    size.add_argument(
        "--large",
        action="store_true",
        help="only what uses 100 M rows or updates, and a long lingering run; two hours or more",
    )
    parser.add_argument(
        "--only", action="append", default=[], choices=NAMES, help="only this measurement; may be repeated"
    )
    parser.add_argument("--rounds", type=int, help="number of rounds of each measurement, after a warm-up round")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no measurement after this many seconds")
    parser.add_argument("--patience", type=float, default=1.0, help="factor for the time limit of each measurement")
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("data/benchmarks/work"),
        help="folder for data; each measurement first empties its own folder in it",
    )
    parser.add_argument("--out", type=Path, default=Path("data/benchmarks"), help="folder for the JSON and the charts")
    return parser.parse_args()


def tasks(quick: bool, large: bool) -> list[Task]:
    """Return the measurements, in order."""
    skewed = partial(measure_ticks, skew="80/20")
    if large:
        return [
            Task("ticks uniform", 100 * _M, 3600, measure_ticks),
            Task("many", 1_000, 7200, partial(measure_many, updates=100_000)),
            Task("linger", 1_800, 1_900, measure_linger),
        ]
    if quick:
        return [
            Task("ledger", 40_000, 10, measure_ledger),
            Task("bulk", _M, 30, measure_bulk),
            Task("ticks uniform", _M // 5, 40, measure_ticks),
            Task("raw", _M // 10, 20, measure_raw),
            Task("many", 50, 30, partial(measure_many, updates=1_000)),
        ]
    return [
        Task("seal", 100_000, 60, measure_seal),
        Task("start", 100_000, 100, measure_start),
        Task("ledger", 40_000, 60, measure_ledger),
        Task("ledger", 100_000, 60, measure_ledger),
        Task("ticks uniform", _M, 200, measure_ticks),
        Task("ticks uniform", 10 * _M, 360, measure_ticks),
        Task("ticks 80/20", _M, 120, skewed),
        Task("bulk", 10 * _M, 200, measure_bulk),
        Task("raw", _M, 120, measure_raw),
        Task(GROWTH, _M, 60, measure_raw_ticks),
        Task(GROWTH, 4 * _M, 150, measure_raw_ticks),
        Task("announced", 100_000, 60, measure_announced),
        Task("bytes", 100_000, 60, measure_written),
        Task("reads", _M, 60, measure_reads),
        Task("reads", 10 * _M, 150, measure_reads),
        Task("changes", _M, 60, measure_changes),
        Task("changes", 10 * _M, 120, measure_changes),
        Task("publications", _M, 90, measure_publications),
        Task("publications", 10 * _M, 300, measure_publications),
        Task("publish", _M, 60, measure_publishing),
        Task("publish", 10 * _M, 200, measure_publishing),
        Task("verify", 10 * _M, 60, measure_verify),
        Task("catalog", 1_000, 120, measure_catalogs),
        Task("holds", 10_000, 400, measure_holds),
        Task("requests", 40, 120, measure_requests),
        Task("pathway", _M, 60, measure_pathway),
        Task("cluster", _M, 60, measure_cluster),
        Task("many", 1_000, 360, partial(measure_many, updates=1_000)),
        Task("tables", 200, 300, measure_tables),
        Task("linger", 120, 160, measure_linger),
    ]


if __name__ == "__main__":
    sys.exit(main())
