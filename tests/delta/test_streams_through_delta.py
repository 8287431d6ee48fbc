"""Mangled streams through the real jobs against the memory reader; stops at every named place; compaction on the way."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.core.streams import mangled_stream, new_reader, to_message
from tests.delta.lake import RECORD, Lake, progress, updates
from tidelake.codec import AvroCodec
from tidelake.delta.stops import STOP_POINTS, on_reach
from tidelake.delta.values import CLOSED, UPPER

pytestmark = pytest.mark.spark

IDS = {"a": 1, "b": 2, "c": 3, "d": 4}
LIMIT = 8


def bytes_of(message: Any) -> bytes:
    """A message of the model as the topic has it."""
    if message[0] == "updates":
        return updates(*((IDS[data], time, diff) for data, time, diff in message[1]))
    return progress(message[1], message[2], message[3])


def expected(stream: list[Any]) -> tuple[set[int], dict[int, dict[Any, int]], set[tuple[str, int]]]:
    """The memory reader's frontier, its contents at each time, and what stays contradictory."""
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
    """The table says what the memory reader says, at every time that can be read."""
    frontier, contents, _ = expected(stream)
    table = lake.table
    assert bool(table.value(CLOSED)) == (not frontier)
    if frontier:
        assert {table.value(UPPER)} == frontier
    for as_of in range(since, LIMIT if not frontier else min(LIMIT, *frontier)):
        assert lake.contents(as_of) == contents[as_of], as_of


@pytest.mark.parametrize("seed", range(12))
def test_a_mangled_stream_ends_equal_to_the_memory_reader(tmp_path: Path, spark: SparkSession, seed: int) -> None:
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
    """The process ends here; nothing catches it."""


def stop_at(place: str, after: int = 0) -> None:
    """End the next run when `place` is reached for the `after + 1`th time."""
    left = [after]

    def hook(name: str) -> None:
        if name == place:
            if left[0] == 0:
                on_reach(None)
                raise _Stopped(place)
            left[0] -= 1

    on_reach(hook)


STREAM: tuple[Any, ...] = (
    ("updates", [("a", 1, 1), ("b", 2, 2), ("b", 2, 2)]),
    ("progress", (0,), (3,), {1: 1, 2: 1}),
    ("updates", [("a", 1, 1), ("c", 4, 1), ("a", 5, -1)]),
    ("updates", [("c", 4, 1)]),
    ("progress", (3,), (7,), {4: 1, 5: 1}),
)


def steps(lake: Lake) -> Iterable[Any]:
    yield from (lake.ingest, lake.seal, lambda: lake.validate(full=True), lake.compact, lake.current)


@pytest.mark.parametrize("place", STOP_POINTS)
def test_a_stop_at_any_named_place_is_healed_by_the_next_run(tmp_path: Path, spark: SparkSession, place: str) -> None:
    lake = Lake(tmp_path, spark, messages_per_tick_max=3)
    reached: list[str] = []
    try:
        for part in (STREAM[:3], STREAM[3:]):
            lake.send(*(bytes_of(message) for message in part), b"\x07")
            if part is STREAM[3:] or place == "table.after_create":
                stop_at(place)
            for step in steps(lake):
                try:
                    step()
                except _Stopped as stopped:
                    reached.append(str(stopped))
                    break
        on_reach(None)
        for step in steps(lake):
            step()
    finally:
        on_reach(None)
    # Checkpoints come every few dozen commits; that place has a test of its own.
    assert reached == [place] or place == "commit.after_checkpoint"
    check(lake, list(STREAM))
    assert [reason for _, reason in lake.quarantined()] == ["undecodable", "undecodable"]
    assert not lake.validate(full=True).damaged
    codec = AvroCodec(RECORD)
    assert codec.decode(bytes_of(STREAM[0])) is not None


def test_retention_moves_since_and_keeps_every_answer_at_or_after_it(tmp_path: Path, spark: SparkSession) -> None:
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
