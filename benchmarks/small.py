"""Measurements that need no large data set: a seal without copies, the ledger in reverse order, start-up times."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

from benchmarks.bench import Bench, Lake
from benchmarks.data import TICK_UPDATES, Stream, Ticks, write_bulk
from benchmarks.measure import Measured, Samples, children_cpu_s, interleave
from benchmarks.peers import differential
from jobs import ingest, seal
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.ledger.ledger import Ledger
from tidelake.protocol.message import Progress
from tidelake.store.commit import OpenTable

SEAL, APPEND, COMMIT = "seal without copies", "Spark-Delta append of 1,000 rows", "commit"
IN_ORDER, REVERSED = "in order", "reversed"
BARE, COLD, IMPORT, STATUS = "bare session and first job", "ingest to the first commit", "import", "status"
READ = "read of four rows"
_TABLE_ROWS = 10_000
DIFFERENTIAL_S_MAX = 240.0
_BARE = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(100_000).selectExpr("sum(id)").collect()
"""


def measure_seal(bench: Bench, updates: int) -> Samples:
    """Measure the seal of a tick without copies, an append by Spark, and a commit without files."""
    assert updates == TICK_UPDATES
    bench.say("seal without copies")
    root, spark = bench.folder("seal"), bench.spark
    lake = Lake(spark, root, {"plain": "plain"})
    ticks = small_ticks(bench, lake, root, bench.rounds + 1)
    appended = root / "appended"
    rows = spark.range(1000).selectExpr("id", "id * 2 AS other", "concat('row-', id) AS text")
    rows.write.format("delta").save(str(appended))

    def seal_tick(number: int) -> Measured:
        lake.add_file("plain", ticks.file(number))
        lake.run("plain", ingest.run)
        return bench.meter.measure(lambda: lake.run("plain", seal.run), [lake.store])

    def append(number: int) -> Measured:
        action = rows.write.format("delta").mode("append").save
        return bench.meter.measure(lambda: action(str(appended)), [appended])

    def commit(number: int) -> Measured:
        table = OpenTable(lake.collection("plain").paths.updates)
        return bench.meter.measure(lambda: table.commit({}), [table.path.local])

    return bench.interleave({SEAL: seal_tick, APPEND: append, COMMIT: commit})


def small_ticks(bench: Bench, lake: Lake, root: Path, number: int) -> Ticks:
    """Prepare ticks without copies on a small sealed state."""
    stream = Stream(TICK_UPDATES, "plain")
    end = write_bulk(
        bench.spark, lake.topic("plain"), stream.rows, stream.state(), stream.state_updates_per_time, "state"
    )
    lake.tick("plain")
    made = root / "made"
    made.mkdir()
    ticks = Ticks(bench.spark, stream, made, "plain", end, disturbed=False)
    ticks.make(number)
    return ticks


def measure_ledger(bench: Bench, times: int) -> Samples:
    """Measure a ledger that has counted one update at each time and then receives a progress statement for each time.

    The statements arrive in order, or in reverse order. Differential dataflow's reader gets only the reverse
    order, and only once, because it takes minutes.
    """
    bench.say(f"ledger over {times:,} times")
    statements = [Progress([time], [time + 1], [(time, 1)]) for time in range(times)]

    def run(order: list[Progress]) -> Measured:
        cpu, start = time.process_time(), time.perf_counter()
        ledger = Ledger(Antichain.of(0))
        ledger.count_all((at, 1) for at in range(times))
        for statement in order:
            ledger.announce(statement)
            ledger.advance()
        assert ledger.frontier == Antichain.of(times)
        return Measured(time.perf_counter() - start, time.process_time() - cpu)

    backwards = statements[::-1]
    turns = {IN_ORDER: lambda _: run(statements), REVERSED: lambda _: run(backwards)}
    samples = interleave(turns, bench.rounds, bench.say, bench.end)
    samples.facts = _held_bytes(times)
    if bench.quick:
        samples.absent[differential.READER] = "left out of --quick"
    else:
        differential.measure(samples, times, DIFFERENTIAL_S_MAX, bench.say)
    return samples


def _held_bytes(times: int) -> dict[str, float]:
    """Return the memory of a ledger while only the first time is not announced, and once all times are settled."""
    statements = [Progress([time], [time + 1], [(time, 1)]) for time in range(times - 1, -1, -1)]
    tracemalloc.start()
    try:
        ledger = Ledger(Antichain.of(0))
        ledger.count_all((at, 1) for at in range(times))
        ledger.announce_all(statements[:-1])
        ledger.advance()
        open_bytes = tracemalloc.get_traced_memory()[0]
        ledger.announce(statements[-1])
        ledger.advance()
        ledger.advance()  # a call keeps the times that it settles; the next call forgets them
        return {"open_bytes": open_bytes, "settled_bytes": tracemalloc.get_traced_memory()[0]}
    finally:
        tracemalloc.stop()


def measure_start(bench: Bench, updates: int) -> Samples:
    """Measure new processes: a session with one job, an ingest to its first commit, an import, `status`, and `read`."""
    assert updates == TICK_UPDATES
    bench.say("start-up times")
    root = bench.folder("start")
    lake = Lake(bench.spark, root, {"plain": "plain"})
    small_ticks(bench, lake, root, 0)
    config = str(root / "collections.yaml")

    other, stream = bench.folder("start-read"), Stream(_TABLE_ROWS, "plain")
    sealed = Lake(bench.spark, other, {"plain": "plain"})
    write_bulk(bench.spark, sealed.topic("plain"), stream.rows, stream.state(), stream.state_updates_per_time, "state")
    sealed.tick("plain")
    four_rows = ["read", "plain", "--where", "id < 4", "--config", str(other / "collections.yaml")]

    def ingest_from_nothing(number: int) -> Measured:
        shutil.rmtree(lake.store)
        return _started(["-m", "jobs.ingest", "--config", config], root)

    def status(number: int) -> Measured:
        return _started(["-m", "tidelake.cli", "status", "--config", config], root)

    turns = {
        BARE: lambda number: _started(["-c", _BARE], root),
        COLD: ingest_from_nothing,
        IMPORT: lambda number: _started(["-c", "import tidelake, tidelake.cli"], root),
        STATUS: status,
        READ: lambda number: _started(["-m", "tidelake.cli", *four_rows], other),
    }
    return bench.interleave(turns)


def _started(arguments: list[str], folder: Path) -> Measured:
    """Measure a Python process that runs from the checkout."""
    checkout = Path(__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}:{checkout}"}
    cpu, start = children_cpu_s(), time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, check=False)
    seconds = time.perf_counter() - start
    assert done.returncode == 0, done.stderr.decode()
    return Measured(seconds, children_cpu_s() - cpu)
