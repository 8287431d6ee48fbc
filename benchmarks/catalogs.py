"""Finding and changing collections in a store of ten and in a store of many, and what `status` costs in the latter."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

from benchmarks.bench import Bench, Lake
from benchmarks.measure import Measured, Samples
from tidelake.catalog.catalog import Catalog
from tidelake.catalog.handles import create_handles
from tidelake.catalog.name_log import Binding, NameLog
from tidelake.lake import Lake as OpenLake
from tidelake.settings.lake import Settings
from tidelake.store.layout import Store

FEW = 10
FIND, CHANGE, STATUS = "find", "change", "status of all"
_AT_ONCE, _THREADS = 50, 8


def few(what: str) -> str:
    """Return the name of a contestant in the store of ten collections."""
    return f"{what}, {FEW} collections"


def measure_catalogs(bench: Bench, number: int) -> Samples:
    """Measure both stores in turn: one with ten collections, one with `number`."""
    bench.say(f"{number:,} collections")
    lakes = {name: _lake(bench, name, count) for name, count in (("few", FEW), ("many", number))}
    names = {key: cycle([each.name for each in lake.settings.collections]) for key, lake in lakes.items()}
    catalogs = {key: Catalog(Store(lake.settings.store)) for key, lake in lakes.items()}

    def find(key: str) -> None:
        for _ in range(_AT_ONCE):
            catalogs[key].find(next(names[key]))

    def change(key: str) -> None:
        for _ in range(_AT_ONCE):
            catalogs[key].update(
                next(names[key]), lambda entry: entry.model_copy(update={"created_at_ms": entry.created_at_ms + 1})
            )

    def turn(act: Callable[[str], None], key: str) -> Callable[[int], Measured]:
        return lambda _: bench.meter.measure(lambda: act(key))

    contestants = {few(FIND): turn(find, "few"), FIND: turn(find, "many")}
    contestants |= {few(CHANGE): turn(change, "few"), CHANGE: turn(change, "many")}
    samples = bench.interleave(contestants)
    samples.of[STATUS] = [bench.meter.measure(lambda: _status(lakes["many"].settings))]
    samples.facts = {"collections": float(number), "calls": float(_AT_ONCE)}
    return samples


def _status(settings: Settings) -> None:
    found = OpenLake(settings).status()
    assert len(found) == len(settings.collections) and not any(isinstance(each, Exception) for each in found.values())


def _lake(bench: Bench, name: str, number: int) -> Lake:
    names = [f"table_{at}" for at in range(number)]
    lake = Lake(bench.spark, bench.folder(f"collections-{name}"), dict.fromkeys(names, "plain"))
    fill_store(Store(lake.settings.store), lake.settings)
    return lake


def fill_store(store: Store, settings: Settings) -> None:
    """Create every collection; all link to the tables of the first, because creating thousands of tables is slow."""
    catalog = Catalog(store)
    first, *others = settings.collections
    model = catalog.open_or_create(first.spec())

    def add(name: str) -> None:
        entry = model.entry.model_copy(update={"id": secrets.token_hex(16), "name": name})
        paths = store.collection(entry.id)
        create_handles(paths, entry)
        for table in model.tables:
            shutil.copytree(table.local, Path(str(paths.root)) / table.name, copy_function=os.link)
        NameLog.of(store, name).commit(Binding(name=name, id=entry.id))

    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(add, [each.name for each in others]))
