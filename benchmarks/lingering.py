"""A lingering run: the time from a message's arrival until its rows are sealed, and whether memory grows."""

from __future__ import annotations

import statistics
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.bench import Bench, Lake
from benchmarks.data import UPDATES_PER_TIME, Stream, write_ticks
from benchmarks.measure import Measured, Samples
from jobs.linger import linger
from tidelake.spark.session import start_session

ARRIVAL = "from arrival to sealed"
PROCESS, LIVE = "memory of the Python process", "live objects in the JVM"
_COLLECTIONS, _UPDATES, _STATE_ROWS = 4, 1_000, 10_000
_EVERY_S = 2.0
_WARM_UP_S = 30.0
_WEIGHED, _AT_ONCE = 20, 5
"""How often memory is measured. Each time, the live objects are measured five times, and the smallest number counts,
because running tasks only add to it."""


def measure_linger(bench: Bench, seconds: int) -> Samples:
    """Send messages to four topics in turn, and measure the time from each arrival until its last row is sealed.

    A separate process does it, with a session like that of users: the session of the other measurements keeps its
    finished stages, so its memory would grow.
    The arrivals of the first half minute create the collections and serve as the warm-up; they do not count.
    """
    bench.say(f"a run that lingers for {seconds:,} s")
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        samples = pool.submit(_linger, bench.root, seconds).result()
    bench.say(f"  {len(samples.of[ARRIVAL])} arrivals, {samples.median(ARRIVAL):.2f} s at the median")
    return samples


def _linger(work: Path, seconds: int) -> Samples:
    bench = Bench(start_session("tidelake-linger", "local[2]"), work, rounds=1)
    root = bench.folder("linger")
    names = [f"table_{number}" for number in range(_COLLECTIONS)]
    lake = Lake(bench.spark, root, dict.fromkeys(names, "upsert"))
    stream = Stream(_STATE_ROWS, "upsert")
    each = int((seconds + _WARM_UP_S) / _EVERY_S) // _COLLECTIONS
    files = write_ticks(bench.spark, stream, root / "made", "table", each, _UPDATES)
    arrivals = _Arrivals(lake, names, files, stream.state_times)
    memory = _Memory(bench)
    stops = threading.Event()
    threads = [
        threading.Thread(target=arrivals.send, args=(stops,)),
        threading.Thread(target=memory.weigh, args=(stops, seconds / _WEIGHED)),
    ]
    for thread in threads:
        thread.start()
    try:
        report = linger(bench.spark, lake.settings, seconds + _WARM_UP_S + 2 * _EVERY_S, arrivals)
    finally:
        stops.set()
        for thread in threads:
            thread.join()
    assert report.ok, report.errors
    bench.spark.stop()
    return Samples({ARRIVAL: arrivals.latencies(_WARM_UP_S)}, series=memory.series)


def slowest(samples: Samples, share: float) -> float:
    """Return the seconds within which all but this share of the arrivals were sealed."""
    seconds = sorted(sample.seconds for sample in samples.of[ARRIVAL])
    return seconds[max(0, int(len(seconds) * (1 - share)) - 1)]


def growth(samples: Samples, what: str) -> float:
    """Return the memory in the last quarter divided by that in the second, because the first still warms up."""
    weighed = samples.series[what]
    quarter = len(weighed) // 4
    return statistics.median(weighed[-quarter:]) / statistics.median(weighed[quarter : 2 * quarter])


class _Arrivals:
    """Adds files to topics, and is notified of the seals."""

    def __init__(self, lake: Lake, names: list[str], files: list[Path], first_time: int) -> None:
        self.lake, self.names, self.files = lake, names, files
        self.first_time, self.times = first_time, _UPDATES // UPDATES_PER_TIME
        self.start_s = time.monotonic()
        self.sent: dict[tuple[str, int], float] = {}
        self.sealed: dict[tuple[str, int], float] = {}

    def send(self, stops: threading.Event) -> None:
        """Add a file every two seconds."""
        for number in range(len(self.files) * len(self.names)):
            if stops.wait(max(0.0, self.start_s + number * _EVERY_S - time.monotonic())):
                return
            file, name = number // len(self.names), self.names[number % len(self.names)]
            self.lake.add_file(name, self.files[file])
            self.sent[name, file] = time.monotonic()

    def begins(self, step: str, name: str) -> None:
        """Only the end of a step matters."""

    def ended(self, step: str, name: str, result: Any) -> None:
        """Note which arrivals are sealed now: those whose last time is before upper."""
        now_s = time.monotonic()
        if step == "seal":
            for file in range((result.upper - self.first_time) // self.times):
                self.sealed.setdefault((name, file), now_s)

    def latencies(self, warm_up_s: float) -> list[Measured]:
        """Return the seconds from each arrival to its seal; every arrival must be sealed."""
        assert self.sealed.keys() == self.sent.keys(), self.sent.keys() ^ self.sealed.keys()
        counted = [each for each, at_s in self.sent.items() if at_s >= self.start_s + warm_up_s]
        return [Measured(self.sealed[each] - self.sent[each], 0.0) for each in counted]


class _Memory:
    """Measures the memory of this process and its JVM at regular intervals."""

    def __init__(self, bench: Bench) -> None:
        self.spark: SparkSession = bench.spark
        self.series: dict[str, list[float]] = {PROCESS: [], LIVE: []}

    def weigh(self, stops: threading.Event, every_s: float) -> None:
        """Measure in MB until the run ends."""
        start_s, number = time.monotonic(), 1
        while not stops.wait(max(0.0, start_s + number * every_s - time.monotonic())):
            live = [self._live_mb() for _ in range(_AT_ONCE) if not stops.wait(min(1.0, every_s / 10))]
            if live:
                self.series[LIVE].append(min(live))
                self.series[PROCESS].append(_resident_mb())
            number += 1

    def _live_mb(self) -> float:
        """Return what a full garbage collection leaves: what stays, and what the running tasks hold just now."""
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        jvm.java.lang.System.gc()
        runtime = jvm.java.lang.Runtime.getRuntime()
        return float(runtime.totalMemory() - runtime.freeMemory()) / 2**20


def _resident_mb() -> float:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024
