"""Holding a time: what a call costs in a new collection, and after many calls."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.bench import Bench, Lake
from benchmarks.measure import Measured, Samples
from tidelake.catalog.catalog import Catalog
from tidelake.lake import Lake as OpenLake
from tidelake.store.layout import Store
from tidelake.store.table_log import CROWDED_S

ACQUIRE, DOWNGRADE, DROP, HOLDS = "acquire", "downgrade", "drop", "holds"
CALLS = (ACQUIRE, DOWNGRADE, DROP, HOLDS)
_NAME = "held"
_SETTLING = 64
"""Number of commits after the burst of calls and a pause. They make the log forget the entries of the burst, as it
would between real calls."""


def new(what: str) -> str:
    """Return the name of a contestant in the new collection."""
    return f"{what}, new collection"


def measure_holds(bench: Bench, commits: int) -> Samples:
    """Measure both collections in turn: one without earlier calls, the other after `commits` commits."""
    bench.say(f"holds after {commits:,} commits")
    lakes = {key: Lake(bench.spark, bench.folder(f"holds-{key}"), {_NAME: "plain"}) for key in ("new", "many")}
    for lake in lakes.values():
        Catalog(Store(lake.settings.store)).open_or_create(lake.settings.collections[0].spec())
    collections = {key: OpenLake(lake.settings).collection(_NAME) for key, lake in lakes.items()}
    busy = collections["many"].acquire()
    for _ in range(commits):
        busy.renew()
    time.sleep(CROWDED_S)
    for _ in range(_SETTLING):
        busy.renew()
    tokens = {key: [collection.acquire().token] for key, collection in collections.items()}
    moved = {key: collection.acquire() for key, collection in collections.items()}

    def call(what: str, key: str) -> None:
        match what:
            case "acquire":
                tokens[key].append(collections[key].acquire().token)
            case "downgrade":
                moved[key].downgrade(moved[key].since + 1)
            case "drop":
                collections[key].release(tokens[key].pop())
            case _:
                collections[key].holds()

    def turn(what: str, key: str) -> Callable[[int], Measured]:
        return lambda _: bench.meter.measure(lambda: call(what, key))

    contestants = {new(what): turn(what, "new") for what in CALLS} | {what: turn(what, "many") for what in CALLS}
    samples = bench.interleave(contestants)
    samples.facts = {"commits": float(commits)}
    return samples
