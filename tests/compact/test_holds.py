"""Merges and holds: a merge takes `since` from the handles, and no race lets compaction pass a live hold."""

from __future__ import annotations

import multiprocessing
import os
import time as clock
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.lakes.held import HeldLake
from tests.lakes.lake import Lake, progress, updates
from tests.sweeps import seeds
from tidelake import open_lake
from tidelake.compact.compaction import merge_runs
from tidelake.errors import SinceError
from tidelake.read.holding import ReadCapability
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.state import SINCE

HOLDERS = 2


@pytest.mark.spark
def test_a_merge_takes_since_from_the_handles_and_not_from_its_caller(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates((1, 0, 1), (1, 1, 1), (1, 2, 1)), progress([0], [4], {0: 1, 1: 1, 2: 1}))
    lake.run()
    stored = lake.collection
    ahead = stored.entry.model_copy(update={"since": (3,)})  # the merge must not rely on this entry
    report = merge_runs(spark, Collection(ahead, stored.paths), full=True, rows_max=10)
    assert (report.since, OpenTable(stored.paths.updates).value(SINCE)) == ((0,), 0)
    rows = open_lake(lake.file).collection("prices").snapshot(spark, as_of=0).contents.collect()
    assert [tuple(row) for row in rows] == [(1, None, 1)]


@pytest.mark.spark
def test_a_duration_forgets_times_by_the_clock_but_no_rows(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, keep="1s")
    lake.send(updates((1, 0, 1), (2, 1, 1)), progress([0], [2], {0: 1, 1: 1}))
    lake.run()
    lake.send(updates((1, 5, -1)), progress([2], [6], {5: 1}))
    lake.run()
    clock.sleep(1.2)
    assert lake.compact().since == (5,) and lake.contents(5) == {(2, None): 1}
    assert not lake.validate(full=True).mismatches


@pytest.mark.spark
def test_the_cost_of_a_hold_counts_the_rows_whose_times_retention_would_forget(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Lake(tmp_path, spark, keep=1)
    lake.send(updates((1, 0, 1), (2, 1, 1)), progress([0], [2], {0: 1, 1: 1}))
    lake.run()
    held = open_lake(lake.file).collection("prices").acquire(at=0, purpose="report")
    lake.send(updates((3, 2, 1), (4, 3, 1), (5, 9, 1)), progress([2], [4], {2: 1, 3: 1}))
    lake.run()
    collection = open_lake(lake.file).collection("prices")
    (before,) = collection.holds()
    assert (before.rows, before.bytes) == (0, 0)  # no compaction has run yet, so the hold has kept no rows
    report = lake.compact()
    assert (report.since, report.held) == ((0,), f"since stays at 0: held by 'report' ({held.id})")
    (after,) = collection.holds()
    assert after.rows == 3  # at 1, 2 and 3; the row at 0 is not after the hold's time, and the one at 9 is not sealed
    assert 0 < after.bytes < sum(file.bytes for file in OpenTable(lake.collection.paths.updates).files())
    held.downgrade(2)
    assert collection.holds()[0].rows == 1


def hold_and_check(folder: str, seed: int, seconds: float) -> None:
    """Acquire, downgrade and drop at random; while a hold lives, `since` must not pass it."""
    lake, rng, held = HeldLake(Path(folder)), Random(seed), list[ReadCapability]()
    end, checks = clock.monotonic() + seconds, 0
    while clock.monotonic() < end:
        if not held or rng.random() < 0.4:
            at = lake.since + rng.randint(-1, 3)
            try:
                held.append(lake.collection.acquire(at=max(0, at), lease=timedelta(hours=1)))
            except SinceError:
                assert at < lake.since
        elif rng.random() < 0.6:
            held[-1].downgrade(held[-1].since + rng.randint(0, 3))
        else:
            held.pop(rng.randrange(len(held))).drop()
        since = lake.since
        assert all(since <= each.since for each in held), (seed, since, held)
        checks += bool(held)
    for each in held:
        each.drop()
    os._exit(0 if checks else 3)


def seal_and_compact(folder: str, seconds: float) -> None:
    """Repeatedly move upper, and then since."""
    lake, end, upper = HeldLake(Path(folder)), clock.monotonic() + seconds, 1
    while clock.monotonic() < end:
        upper += 2
        lake.seal(upper)
        lake.compact()
    os._exit(0)


def race(folder: Path, seed: int, seconds: float) -> None:
    lake = HeldLake.create(folder / "lake", upper=1)
    spawn = multiprocessing.get_context("spawn")
    work = [spawn.Process(target=seal_and_compact, args=(str(lake.root), seconds))]
    work += [
        spawn.Process(target=hold_and_check, args=(str(lake.root), seed * HOLDERS + at, seconds))
        for at in range(HOLDERS)
    ]
    for process in work:
        process.start()
    for process in work:
        process.join()
    assert [process.exitcode for process in work] == [0] * len(work)
    lake.compact()
    entry = lake.stored.entry
    assert (len(entry.capabilities), lake.since > 1) == (1, True)


@pytest.mark.sweep
def test_compaction_never_passes_a_hold_in_a_race_of_processes(tmp_path: Path) -> None:
    race(tmp_path, 0, 3.0)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", seeds())
def test_compaction_never_passes_a_hold_in_long_races(tmp_path: Path, seed: int) -> None:
    race(tmp_path, seed, 30.0)
