"""Mangled streams give the same contents through the real jobs as in memory, despite compactions and stops."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.crash.scenes import OF_PLACES
from tests.lakes.lake import Lake, progress, updates
from tests.protocol.streams import mangled_stream, new_reader, to_message
from tidelake.store.failpoints import FAILPOINTS, TABLES, on_reach
from tidelake.store.state import CLOSED, UPPER

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("any_store")]

IDS = {"a": 1, "b": 2, "c": 3, "d": 4}
LIMIT = 8


def bytes_of(message: Any) -> bytes:
    """Return the bytes that one of the model's messages has in the topic."""
    if message[0] == "updates":
        return updates(*((IDS[data], time, diff) for data, time, diff in message[1]))
    return progress(message[1], message[2], message[3])


def expected(stream: list[Any]) -> tuple[set[int], dict[int, dict[Any, int]], set[tuple[str, int]]]:
    """The in-memory reader's frontier, its contents at each time, and the contradictions that remain."""
    reader = new_reader()
    published: list[Any] = []
    for message in stream:
        published += reader.receive(to_message(message)).updates
    contents = {}
    for as_of in range(LIMIT):
        rows: dict[Any, int] = {}
        for data, time, diff in published:
            if time <= as_of:
                rows[IDS[data], None] = rows.get((IDS[data], None), 0) + diff
        contents[as_of] = {row: diff for row, diff in rows.items() if diff}
    contradictions = {
        (error.kind, int(str(time))) for time, errors in reader.ledger.contradictions().items() for error in errors
    }
    return {int(str(time)) for time in reader.frontier}, contents, contradictions


def check(lake: Lake, stream: list[Any], since: int = 0) -> None:
    """Check that the table agrees with the in-memory reader, at every time that can be read."""
    frontier, contents, _ = expected(stream)
    table = lake.table
    assert bool(table.value(CLOSED)) == (not frontier)
    if frontier:
        assert {table.value(UPPER)} == frontier
    for as_of in range(since, LIMIT if not frontier else min(LIMIT, *frontier)):
        assert lake.contents(as_of) == contents[as_of], as_of


@pytest.mark.sweep  # test_replay_through_delta.py and test_generated_streams.py have a stream outside the sweeps
@pytest.mark.parametrize("seed", range(12))
def test_a_mangled_stream_ends_up_equal_to_the_in_memory_reader(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    stream = mangled_stream(rng, LIMIT, pairs=False, contradictory=seed % 3 == 2)
    lake = Lake(tmp_path, spark)
    sealed = None
    left = list(stream)
    while left:
        size = rng.randint(1, max(1, len(stream) // 2))
        lake.send(*(bytes_of(message) for message in left[:size]))
        left = left[size:]
        sealed = lake.run()
        if rng.random() < 0.4:
            lake.compact(full=rng.random() < 0.5)
    check(lake, stream)
    if sealed is not None and seed % 3 == 2:
        assert {(error.kind, error.time) for error in sealed.contradictions} == expected(stream)[2]
    assert not lake.validate(full=True).damaged


class _Stopped(BaseException):
    """Stands for the end of the process: no job catches it."""


def stop_at(place: str) -> None:
    """End the next run when `place` is reached."""

    def hook(name: str) -> None:
        if name == place:
            on_reach(None)
            raise _Stopped(place)

    on_reach(hook)


def steps(lake: Lake) -> Iterable[Any]:
    yield from (lake.ingest, lake.seal, lambda: lake.validate(full=True), lake.compact, lake.current)


@pytest.mark.sweep  # tests/crash has real kills at some of these failpoints
def test_a_stop_at_any_failpoint_is_healed_by_the_next_run(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, messages_per_tick_max=4, keep=10)
    # The failpoints left out have scenes of their own in tests/crash, with real kills.
    left = [place for place in FAILPOINTS if place not in OF_PLACES]
    expected_rows: dict[Any, int] = {}
    number = 0
    try:
        while left:
            start = 10 * number
            late = [updates((number - 1, start - 9, 1))] if number else []
            lake.send(updates((number, start + 1, 1), (number, start + 2, 2), (number, start + 2, 2)), b"\x07", *late)
            lake.send(updates((number, start + 1, 1)), progress([start], [start + 10], {start + 1: 1, start + 2: 1}))
            expected_rows[number, None] = 3
            stopped = stop_at_one_after_another(lake, left)
            assert stopped, f"no run reaches {left[0]}"
            left = [place for place in left if place not in stopped]
            assert lake.table.value(UPPER) == start + 10, stopped
            assert lake.contents(start + 9) == expected_rows, stopped
            number += 1
            assert len(lake.quarantined()) == number, stopped
    finally:
        on_reach(None)
    assert not lake.validate(full=True).damaged


def stop_at_one_after_another(lake: Lake, places: list[str]) -> list[str]:
    """Run the steps again after each stop, until a run completes; return the places that stopped a run."""
    stopped = []
    for place in places:
        stop_at(place)
        try:
            for step in steps(lake):
                step()
        except _Stopped as reached:
            stopped.append(str(reached))
        else:
            return stopped
        finally:
            on_reach(None)
    for step in steps(lake):
        step()
    return stopped


def test_a_stop_between_the_catalog_and_the_tables_is_healed(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates((1, 1, 1)), progress([0], [2], {1: 1}))
    for table in TABLES:
        stop_at(f"table.after_create.{table}")
        with pytest.raises(_Stopped):
            lake.ingest()
    assert lake.run().upper == 2
    assert len(lake.catalog.entries()) == 1


def test_retention_moves_since_without_changing_answers_at_or_after_it(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, keep=3)
    stream = mangled_stream(random.Random(7), LIMIT, pairs=False, contradictory=False)
    stream.append(("progress", (0,), (LIMIT,), _counts_of(stream)))
    lake.send(*(bytes_of(message) for message in stream))
    lake.run()
    upper = lake.table.value(UPPER) or 0
    lake.compact()
    since = lake.collection.entry.since
    if not lake.table.value(CLOSED):
        assert since == (max(0, upper - 3),)
    check(lake, stream, since=since[0])
    assert not lake.validate(full=True).damaged


def _counts_of(stream: list[Any]) -> dict[int, int]:
    seen = {(data, time) for message in stream if message[0] == "updates" for data, time, _ in message[1]}
    counts: dict[int, int] = {}
    for _, time in seen:
        counts[time] = counts.get(time, 0) + 1
    return counts
