"""Requests to an object store: how many of them a tick, a seal and a status take, and whether the numbers grow."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.measure import Samples
from tests.services.counted_lake import CountedLake, Requests
from tests.services.faulty_proxy import faulty_proxy
from tests.services.object_store import object_store_server
from tidelake.spark.session import start_session

TICK, SEAL, STATUS, FIRST = "tick", "seal", "status", "first status of a process"
STEPS = (TICK, SEAL, STATUS, FIRST)
REQUESTS, BYTES = "requests", "bytes"
VERBS = ("get", "head", "put", "list", "delete")


def measure_requests(bench: Bench, ticks: int) -> Samples:
    """Run `ticks` ticks of a collection, and count the requests of each step. The tick that creates it is not counted.

    The session with the jars for S3 is in a process of its own.
    """
    bench.say(f"requests of {ticks:,} ticks")
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        series = pool.submit(_count, str(bench.folder("requests")), ticks).result()
    return Samples(series=series, facts={"ticks": float(ticks)})


def series_of(step: str, what: str) -> str:
    """Return the name of a step's series: of all its requests, of those with one verb, or of the bytes transferred."""
    return f"{step}: {what}"


def _count(folder: str, ticks: int) -> dict[str, list[float]]:
    root = Path(folder)
    (root / "server").mkdir()
    series: dict[str, list[float]] = {}

    def note(step: str, *counted: Requests) -> None:
        verbs = {verb: sum(each.verbs.get(verb, 0) for each in counted) for verb in VERBS}
        numbers = {REQUESTS: sum(map(len, counted)), BYTES: sum(each.bytes for each in counted)} | verbs
        for what, number in numbers.items():
            series.setdefault(series_of(step, what), []).append(float(number))

    with object_store_server(root / "server") as server, faulty_proxy(server.endpoint) as proxy:
        spark = start_session("tidelake-requests", "local[2]", jar_sets=["s3"])
        lake = CountedLake(root / "lake", spark, proxy, server.settings(endpoint=proxy.endpoint))
        lake.tick()
        for _ in range(ticks):
            ingested, sealed = lake.tick()
            note(TICK, ingested, sealed)
            note(SEAL, sealed)
            note(STATUS, lake.count(lake.status))
        note(FIRST, lake.count_afresh(partial(lake.status)))
        spark.stop()
    return series
