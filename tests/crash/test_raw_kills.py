"""A reclocked tick that is killed or meets another tick leaves times that match the offsets of their bindings."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.crash.harness import Nursery, check_steps, said, wait_until_stopped
from tests.crash.raw_life import ENVELOPES, RawLife
from tests.lakes.raw_lake import RawLake
from tests.sweeps import seeds
from tidelake.protocol.binding import Binding
from tidelake.store.bindings import append_binding
from tidelake.store.failpoints import RAW_FAILPOINTS

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("any_store")]

_MEETS = {
    "raw.after_conflict": ("raw.after_binding", "bump:updates"),
    "raw.after_lost_time": ("raw.after_quarantine", "ingest"),
    "raw.after_lost_offsets": ("raw.after_binding", "ingest"),
}
"""For each place that a tick reaches only if another process is at work: where that process acts, and what it does."""

_PIECES = 3


def _kill(
    root: Path, spark: SparkSession, nursery: Nursery, place: str, seed: int, envelope: str, pieces: int = _PIECES
) -> None:
    life = RawLife(root, spark, nursery, seed, envelope)
    for piece in range(pieces):
        life.put()
        order = life.order(("ingest", "compact")) | {"meet": _MEETS.get(place)}
        passing = life.rng.randrange(2) if piece else 0
        assert nursery.run(order | {"stop": place, "passing": passing}) in (-9, 0)
        assert nursery.run(life.order(("ingest", "validate", "compact"), "next")) == 0
        check_steps(said(root / "next.jsonl"))
        life.check()
    assert {"stopped": place} in said(root / "victim.jsonl")


@pytest.mark.parametrize("place", ["raw.after_binding"])
def test_a_killed_tick_leaves_times_that_match_their_offsets(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, place: str
) -> None:
    _kill(tmp_path, spark, nursery, place, 1, "upsert", pieces=1)


@pytest.mark.sweep
@pytest.mark.parametrize("envelope", ENVELOPES)
@pytest.mark.parametrize("place", RAW_FAILPOINTS)
@pytest.mark.parametrize("seed", seeds())
def test_a_tick_that_is_killed_anywhere_leaves_times_that_match_their_offsets(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, seed: int, place: str, envelope: str
) -> None:
    _kill(tmp_path, spark, nursery, place, seed, envelope)


@pytest.mark.parametrize("place", ["raw.after_quarantine"])
def test_only_one_of_two_ticks_on_the_same_offsets_takes_effect(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, place: str
) -> None:
    life = RawLife(tmp_path, spark, nursery, 1, "append_only")
    life.put()
    late = nursery.start(life.order(("ingest",)) | {"stop": place, "signal": "SIGSTOP"})
    wait_until_stopped(late)
    assert nursery.run(life.order(("ingest", "validate"), "other")) == 0
    life.put()
    os.kill(late, signal.SIGCONT)
    assert nursery.wait(late) == 0
    assert nursery.run(life.order(("ingest",), "last")) == 0  # reads what was put after the paused tick had begun
    check_steps([message for who in ("victim", "other", "last") for message in said(tmp_path / f"{who}.jsonl")])
    life.check()


@pytest.mark.sweep
@pytest.mark.parametrize("envelope", ENVELOPES)
@pytest.mark.parametrize("seed", seeds())
def test_racing_ticks_lose_and_duplicate_nothing(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, seed: int, envelope: str
) -> None:
    life = RawLife(tmp_path, spark, nursery, seed, envelope)
    for _ in range(_PIECES):
        life.put()
        racers = [nursery.start(life.order(("ingest", "compact"), f"racer-{number}")) for number in range(2)]
        assert [nursery.wait(racer) for racer in racers] == [0, 0]
        life.check()
    for number in range(2):
        check_steps(said(tmp_path / f"racer-{number}.jsonl"))


def test_no_two_bindings_have_the_same_time(tmp_path: Path, spark: SparkSession) -> None:
    lake = RawLake(tmp_path, spark)
    lake.put({"id": 1})
    lake.ingest()
    (bound,) = lake.times
    path = lake.collection.paths.bindings
    assert not append_binding(path, bound, 0)
    assert not append_binding(path, Binding(bound.time - 1, 0), 0)
    # The binding of a tick that died before its commit is not in the chain, and its time is never minted again.
    assert append_binding(path, Binding(bound.time + 10**9, bound.time + 1, bound.ends, bound.ends), 0)
    assert lake.times == [bound]
    lake.put({"id": 2})
    lake.ingest()
    assert [binding.time for binding in lake.times] == [bound.time, bound.time + 10**9 + 1]
