"""Measures the cost of an action: time, processor time, Spark's own counters, commits and bytes written."""

from __future__ import annotations

import math
import os
import platform
import resource
import statistics
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Measured:
    """One measurement of an action. Spark's counters are 0 if Spark took no part."""

    seconds: float
    cpu_s: float
    """Processor time, user and system, of this process, its JVM and its finished child processes, or of the separate
    process that did the work."""
    jobs: int = 0
    stages: int = 0
    tasks: int = 0
    rows_read: int = 0
    bytes_read: int = 0
    bytes_shuffled: int = 0
    commits: int = 0
    bytes_written: int = 0
    files_written: int = 0
    peak_mb: int = 0
    """Peak usage of the JVM's heap, or of the whole process if a separate process did the work."""

    def as_json(self) -> dict[str, Any]:
        """Return the measurement as JSON values."""
        return asdict(self)


@dataclass
class Samples:
    """The measurements of all contestants, round by round."""

    of: dict[str, list[Measured]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    """Contestants that were not measured, and why."""
    facts: dict[str, float] = field(default_factory=dict)
    """Numbers that belong to no contestant."""
    series: dict[str, list[float]] = field(default_factory=dict)
    """Counts that were taken repeatedly, in order."""
    cut: str = ""
    """What a time limit cut short, for example `3 of 5 rounds, then time ran out`; empty if nothing was cut short."""

    def median(self, name: str, what: str = "seconds") -> float:
        """Return the median over the rounds; NaN for a contestant that was not measured."""
        if name in self.absent:
            return math.nan
        return float(statistics.median(getattr(sample, what) for sample in self.of[name]))

    def total(self, name: str, what: str) -> float:
        """Return the sum over the rounds."""
        return float(sum(getattr(sample, what) for sample in self.of[name]))

    def ratio(self, name: str, against: str, what: str = "seconds") -> float:
        """Return the cost of `against` divided by that of `name`: the median of the ratios of all rounds.

        NaN if one of them was not measured.
        """
        if name in self.absent or against in self.absent:
            return math.nan
        pairs = zip(self.of[name], self.of[against], strict=True)
        return float(statistics.median(getattr(b, what) / max(getattr(a, what), 1e-9) for a, b in pairs))

    def as_json(self) -> dict[str, Any]:
        """Return the samples as JSON values."""
        of = {name: [sample.as_json() for sample in all_of] for name, all_of in self.of.items()}
        return {"of": of, "absent": self.absent, "facts": self.facts, "series": self.series, "cut": self.cut}


class Meter:
    """Measures actions in one session."""

    def __init__(self, spark: SparkSession) -> None:
        """Look up the JVM's process and Spark's own counters."""
        self._context = spark.sparkContext._jsc.sc()
        self._jvm: Any = spark.sparkContext._jvm
        assert self._jvm is not None
        self.jvm_pid = int(self._jvm.java.lang.ProcessHandle.current().pid())

    def measure(self, action: Callable[[], object], folders: Sequence[Path] = ()) -> Measured:
        """Measure an action, and count what it writes to `folders`."""
        before_files = _files_in(folders)
        first_job, first_stage = self._next_ids()
        self._reset_peak()
        cpu, start = self._cpu_s(), time.perf_counter()
        action()
        seconds, cpu = time.perf_counter() - start, self._cpu_s() - cpu
        written = {path: size for path, size in _files_in(folders).items() if path not in before_files}
        return Measured(
            seconds,
            cpu,
            **self._spark(first_job, first_stage),
            commits=sum(_is_entry(path) for path in written),
            bytes_written=sum(written.values()),
            files_written=sum(path.endswith(".parquet") and "/_delta_log/" not in path for path in written),
            peak_mb=self._peak_mb(),
        )

    @property
    def heap_max_mb(self) -> float:
        """Maximum size of the JVM's heap."""
        return float(self._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20)

    def _cpu_s(self) -> float:
        return cpu_s(self.jvm_pid) + time.process_time() + children_cpu_s()

    def _next_ids(self) -> tuple[int, int]:
        self._wait_for_events()
        scheduler = self._context.dagScheduler()
        return int(scheduler.nextJobId()), int(scheduler.nextStageId())

    def _wait_for_events(self) -> None:
        self._context.listenerBus().waitUntilEmpty()

    def _spark(self, first_job: int, first_stage: int) -> dict[str, int]:
        end_job, end_stage = self._next_ids()
        store = self._context.statusStore()
        counters = {"jobs": end_job - first_job, "stages": 0, "tasks": 0}
        counters |= {"rows_read": 0, "bytes_read": 0, "bytes_shuffled": 0}
        for number in range(first_stage, end_stage):
            stage = store.lastStageAttempt(number)
            if stage.status().toString() == "SKIPPED":
                continue
            counters["stages"] += 1
            counters["tasks"] += stage.numCompleteTasks()
            counters["rows_read"] += stage.inputRecords()
            counters["bytes_read"] += stage.inputBytes()
            counters["bytes_shuffled"] += stage.shuffleWriteBytes()
        return counters

    def _heap_pools(self) -> list[Any]:
        pools = self._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
        return [pool for pool in pools if pool.getType().name() == "HEAP"]

    def _reset_peak(self) -> None:
        for pool in self._heap_pools():
            pool.resetPeakUsage()

    def _peak_mb(self) -> int:
        # The pools do not peak at the same time: the sum of their peaks may exceed the size of the heap.
        total = sum(int(pool.getPeakUsage().getUsed()) for pool in self._heap_pools()) >> 20
        return min(total, int(self.heap_max_mb))


def interleave(
    contestants: Mapping[str, Callable[[int], Measured]],
    rounds: int,
    say: Callable[[str], None] = lambda text: None,
    end: float = math.inf,
) -> Samples:
    """Run the rounds of all contestants in turn, A B A B; round 0 warms up and is dropped.

    A contestant that fails takes no further part, and its rounds do not count.

    Args:
        contestants: functions that run a round, by name; each receives the number of the round.
        rounds: the number of rounds that count.
        say: receives a line about each round.
        end: a time on the monotonic clock after which no further round begins; at least one round always counts.
    """
    samples = Samples({name: [] for name in contestants})
    for number in range(1 + rounds):
        if number > 1 and time.monotonic() > end:
            samples.cut = f"{number - 1} of {rounds} rounds, then time ran out"
            say(f"  {samples.cut}")
            break
        for name, turn in contestants.items():
            if name in samples.absent:
                continue
            try:
                measured = turn(number)
            except Exception as error:  # the others continue, and the results list this contestant as failed
                say(f"  round {number} {name}: {traceback.format_exc()}")
                samples.absent[name] = f"failed: {type(error).__name__}"
                del samples.of[name]
                continue
            say(f"  round {number} {name}: {measured.seconds:.2f} s, {measured.cpu_s:.2f} s of processor time")
            if number > 0:
                samples.of[name].append(measured)
    return samples


def cpu_s(process_id: int) -> float:
    """Return the processor time of a process, user and system."""
    fields = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def children_cpu_s() -> float:
    """Return the processor time of all child processes that this process has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def machine() -> dict[str, Any]:
    """Describe this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _processor_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _files_in(folders: Sequence[Path]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for folder in folders:
        for root, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(root, name)
                sizes[path] = os.path.getsize(path)
    return sizes


def _is_entry(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return folder.endswith("/_delta_log") and name.endswith(".json") and len(name) == 25
