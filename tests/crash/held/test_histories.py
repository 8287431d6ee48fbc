"""Histories of eight processes that hold, read, follow and compact one collection are those of a correct collection."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.crash.harness import Nursery
from tests.crash.held.histories import Run
from tests.crash.held.records import read_calls
from tests.crash.held.validator import History
from tests.lakes.held import HeldLake
from tests.sweeps import seeds


def check_history(
    root: Path,
    nursery: Nursery,
    seed: str,
    operations: int,
    seconds_max: float,
    sessions: int = 0,
    sweeps: bool = False,
) -> Run:
    run = Run(HeldLake.create(root / "lake"), nursery, seed, sessions, sweeps)
    made = run.until(operations, seconds_max)
    calls = read_calls(run.folder)
    history = History(seed, calls)
    history.check()
    answered = Counter(call.name for call in calls if call.answer is not None)
    refused = Counter(call.error["kind"] for call in calls if call.error is not None)
    print(f"{made} calls, {run.killed} kills, {run.stopped} stops: {dict(answered)}, refused {dict(refused)}")
    assert history.sums > made // 100
    wanted = {"append", "acquire", "downgrade", "compact", "read", "changes"}
    if made > 1_000:  # a short history might lack any of these
        wanted |= {"clone", "renew", "take", "drop", "batch"} | ({"merge", "sweep"} if sweeps else set())
    assert wanted <= answered.keys()
    return run


def test_a_short_history_of_eight_processes_is_that_of_a_correct_collection(tmp_path: Path) -> None:
    with Nursery(None) as nursery:
        check_history(tmp_path, nursery, "every day", operations=250, seconds_max=120)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", seeds())
def test_ten_thousand_calls_of_eight_processes_are_those_of_a_correct_collection(tmp_path: Path, seed: int) -> None:
    with Nursery(None) as nursery:
        check_history(tmp_path, nursery, str(seed), operations=10_000, seconds_max=1_200)


@pytest.mark.spark
@pytest.mark.sweep
@pytest.mark.parametrize("sweeps", [False, True], ids=["without sweeps", "with sweeps"])
@pytest.mark.parametrize("seed", seeds())
def test_ten_thousand_calls_with_merges_are_those_of_a_correct_collection(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, seed: int, sweeps: bool
) -> None:
    check_history(tmp_path, nursery, str(seed), operations=10_000, seconds_max=1_200, sessions=2, sweeps=sweeps)
