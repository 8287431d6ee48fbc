"""Measurements outside the shared session: Pathway in its own environment, and a cluster of two workers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.bench import Bench, Lake, afresh
from benchmarks.data import UPDATES_PER_TIME, Stream, Ticks, state_rows, write_bulk
from benchmarks.measure import Measured, Meter, Samples
from benchmarks.peers import Apart, pathway
from benchmarks.states import seed_state
from tests.cluster.standalone import standalone
from tidelake.spark.session import start_session

TIDELAKE, PATHWAY = "tidelake", "Pathway with persistence"
LOCAL, CLUSTER = "one process", "two workers"
_WORKER_MEMORY = "1g"


def measure_pathway(bench: Bench, rows: int) -> Samples:
    """Measure the ingest of `rows` updates until they are durable; Tidelake also seals and proves them.

    Pathway reads decoded rows as JSON lines and writes CSV: its writer for Delta tables requires a licence.
    """
    bench.say(f"ingest of {rows:,} updates by Pathway")
    if not pathway.PYTHON.exists():
        return Samples(absent={PATHWAY: pathway.WHY_ABSENT})
    root, spark = bench.folder("pathway"), bench.spark
    stream = Stream(rows, "plain", state_updates_per_time=UPDATES_PER_TIME)
    topic = root / "made" / "orders"
    write_bulk(spark, topic, rows, stream.state(), UPDATES_PER_TIME, "bulk")
    pathway.write_input(state_rows(spark, stream).withColumn("_diff", F.lit(1)), root / "json")

    tidelake = afresh(
        bench, root / "lake", "orders", sorted(topic.iterdir()), "plain", lambda lake: lake.tick("orders")
    )

    turns: dict[str, Callable[[int], Measured]] = {TIDELAKE: tidelake}
    turns[PATHWAY] = lambda number: pathway.ingest(root / "json", root / "by-pathway")
    return bench.interleave(turns)


def measure_cluster(bench: Bench, rows: int) -> Samples:
    """Measure standard ticks on a state of `rows` rows, in this session and on two workers with one core each.

    The driver of the cluster is a separate process. Its processor time does not include the workers'.
    """
    bench.say(f"ticks on {rows:,} rows, on a cluster of two workers")
    root = bench.folder("cluster")
    stream = Stream(rows, "upsert")
    lake = Lake(bench.spark, root, {"local": "upsert", "cluster": "upsert"})
    ticks = {}
    for name in ("local", "cluster"):
        seed_state(lake, name, stream)
        made = root / f"made-{name}"
        made.mkdir()
        ticks[name] = Ticks(bench.spark, stream, made, name, 0)
        ticks[name].make(bench.rounds + 1)
    apart = Apart()

    def local(number: int) -> Measured:
        lake.add_file("local", ticks["local"].file(number))
        return bench.meter.measure(lambda: lake.tick("local"), [lake.store])

    def cluster(url: str, number: int) -> Measured:
        lake.add_file("cluster", ticks["cluster"].file(number))
        return apart.measure(_tick_on, url, str(root / "collections.yaml"), "cluster")

    try:
        with standalone(root, workers=2, memory=_WORKER_MEMORY) as running:
            try:
                return bench.interleave({LOCAL: local, CLUSTER: partial(cluster, running.url)})
            finally:
                apart.measure(_stop)
    finally:
        apart.close()


_sessions: list[SparkSession] = []
"""The only session of a separate process, once the session is started."""


def _tick_on(url: str, config: str, name: str) -> dict[str, Any]:
    """Run a tick on a cluster, in a process that keeps its session for the next tick."""
    if not _sessions:
        _sessions.append(start_session(master=url, settings={"spark.executor.memory": "768m"}))
    (spark,) = _sessions
    lake = Lake.opened(spark, Path(config))
    return Meter(spark).measure(lambda: lake.tick(name), [lake.store]).as_json()


def _stop() -> dict[str, Any]:
    while _sessions:
        _sessions.pop().stop()
    return {}
