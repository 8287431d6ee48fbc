"""Seal and compaction finish even though an ingest never stops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import pytest
from pyspark.sql import SparkSession

from tests.crash.victim import store_copies
from tests.lakes.lake import Lake, progress, updates
from tidelake.errors import Conflict
from tidelake.store.failpoints import on_reach
from tidelake.store.state import UPPER

pytestmark = pytest.mark.spark

TIMES = range(1, 9)
COMPLETE = [*(updates((time, time, 1)) for time in TIMES), progress([0], [10], dict.fromkeys(TIMES, 1))]


@pytest.fixture(autouse=True)
def _no_hook_stays() -> Iterator[None]:
    yield
    on_reach(None)


def overtake_each_time(lake: Lake, place: str, index: int) -> list[str]:
    """Whenever a seal reaches `place`, an ingest stores a copy of what the seal has just counted.

    The returned list gets an item each time.
    """
    path, visits = lake.collection.paths.updates, []

    def hook(name: str) -> None:
        if name == place:
            visits.append(name)
            on_reach(None)
            store_copies(path, index)
            on_reach(hook)

    on_reach(hook)
    return visits


def test_a_seal_that_is_always_overtaken_seals_the_times_before_the_copy(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(*COMPLETE, updates((1, 1, 1)))
    lake.ingest()
    store_copies(lake.collection.paths.updates, 0)  # so that there is something to cancel
    lake.decide(time=8, count=1)
    visits = overtake_each_time(lake, "seal.after_proofs", 4)
    sealed = lake.seal()
    assert len(visits) == 1
    assert (sealed.committed, sealed.upper, sealed.times_sealed, sealed.copies_cancelled) == (True, 5, 4, 2)
    assert sealed.decided_times == []
    assert lake.contents(4) == {(row, None): 1 for row in range(1, 5)}
    on_reach(None)
    sealed = lake.seal()
    assert (sealed.upper, sealed.decided_times) == (10, [(8, "tested")])
    assert lake.contents(9) == {(row, None): 1 for row in TIMES}
    assert not lake.validate(full=True).damaged


def test_a_closing_seal_that_is_overtaken_does_not_close_the_stream(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(*COMPLETE, progress([10], []))
    lake.ingest()
    overtake_each_time(lake, "seal.after_proofs", 7)
    sealed = lake.seal()
    assert (sealed.upper, sealed.closed) == (8, False)
    on_reach(None)
    assert lake.seal().closed
    assert lake.contents(9) == {(row, None): 1 for row in TIMES}


def test_a_seal_that_is_overtaken_at_its_first_time_claims_a_shorter_range(tmp_path: Path, spark: SparkSession) -> None:
    times = range(1, 5)
    lake = Lake(tmp_path, spark, messages_per_tick_max=1)
    lake.send(progress([0], [1]))
    assert lake.run().upper == 1
    lake.send(*(updates((time, time, 1)) for time in times), progress([0], [10], dict.fromkeys(times, 1)))
    lake.ingest()
    path, visits = lake.collection.paths.updates, []

    def hook(name: str) -> None:
        if name == "seal.after_proofs":
            visits.append(name)
            if len(visits) <= 2:
                on_reach(None)
                store_copies(path, 0)
                on_reach(hook)

    on_reach(hook)
    sealed = lake.seal()
    # The seal first tries to claim a range of four times, then a range of two, and then a single time. The update at
    # that time was copied twice, so it has three rows, in three files.
    assert (len(visits), sealed.upper, sealed.files_opened, sealed.copies_cancelled) == (3, 2, 3, 2)
    on_reach(None)
    assert lake.seal().upper == 10
    assert lake.contents(9) == {(row, None): 1 for row in times}


@pytest.mark.sweep
def test_seal_and_compaction_finish_despite_constant_commits(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, keep=1)
    lake.send(*COMPLETE)
    lake.ingest()
    lake.ingest()
    path, done, commits = lake.collection.paths.updates, Event(), [0]

    def ingest() -> None:
        while not done.is_set():
            with suppress(Conflict):
                if (lake.table.value(UPPER) or 0) < 8:
                    store_copies(path, -1)  # at the last open time: every seal tries to move past that time
                else:
                    lake.table.commit({})
                commits[0] += 1

    busy = Thread(target=ingest)
    busy.start()
    try:
        while (lake.table.value(UPPER) or 0) < 8:
            lake.seal()
        merged = lake.compact()
    finally:
        done.set()
        busy.join()
    assert commits[0] > 10
    assert merged.merges == 1
    assert lake.seal().upper == 10
    assert lake.contents(9) == {(row, None): 1 for row in TIMES}
