"""Random damage to any file of a store: a reader gets the true answer or an error."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.lakes.change_events import EVENT, events
from tests.lakes.change_events import progress as event_progress
from tests.lakes.damage import damage
from tests.lakes.lake import NAME, Lake, progress, updates
from tests.lakes.raw_lake import RawLake
from tests.lakes.upserts import ITEM, gone, item
from tests.sweeps import seeds
from tidelake import open_lake
from tidelake.errors import TidelakeError
from tidelake.lake import LakeCollection

pytestmark = pytest.mark.spark

EVERYDAY_CASES, SWEEP_CASES = 15, 100
CLOCKS = {"lag_s", "lag_messages"}


def plain(root: Path, spark: SparkSession) -> Lake:
    lake = Lake(root, spark, keep=2)
    lake.send(progress([0], [1]))
    for time in range(1, 6):
        lake.send(updates(*(((10 * time + row, time), time, 1) for row in range(8)), ((10 * time, time), time, 1)))
        lake.send(progress([time], [time + 1], {time: 8}), b"\x07 garbage")
        lake.run()
    lake.send(updates(((99, 9), 2, 1)))
    lake.run()
    lake.decide(time=6, count=3)
    return lake


def upsert(root: Path, spark: SparkSession) -> Lake:
    lake = Lake(root, spark, "upsert", key="id")
    lake.send(progress([0], [1]))
    for time in range(1, 6):
        lake.send(updates(*(((row, 10 * time), time, 1) for row in range(time, time + 4))))
        lake.send(progress([time], [time + 1], {time: 4}), b"\x07 garbage")
        lake.run()
    return lake


def debezium(root: Path, spark: SparkSession) -> Lake:
    lake = Lake(root, spark, "debezium", key="id", schema=EVENT)
    lake.send(events(*((None, (key, 0), 1) for key in range(6))))
    for time in range(2, 6):
        lake.send(events(((time, 0), (time, 7), time)))
        lake.run()
    lake.send(event_progress([0], [6], {1: 6, **dict.fromkeys(range(2, 6), 1)}), b"\x07")
    lake.run()
    return lake


def reclocked(root: Path, spark: SparkSession) -> Lake:
    lake = RawLake(root, spark, envelope="upsert", key="id", schema=ITEM)
    for tick in range(4):
        lake.put(
            *(item(key, 10 * tick) for key in range(tick, tick + 4)),
            gone(tick),
            {"value_b64": "AAA=", "key": {"id": 1}},
        )
        lake.ingest()
    return lake


LAKES: dict[str, Callable[[Path, SparkSession], Lake]] = {
    "plain": plain,
    "upsert": upsert,
    "debezium": debezium,
    "reclocked": reclocked,
}


@pytest.fixture(scope="module", params=LAKES)
def healthy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    """A lake with merged rows and a checkpoint; some kinds also have quarantined messages, late rows or a decision."""
    lake = LAKES[request.param](tmp_path_factory.mktemp(request.param), spark)
    lake.validate(full=True)
    lake.compact()
    for _ in range(33):
        lake.table.commit({})
    return lake


def shown(lake: Lake) -> dict[str, Callable[[], Any]]:
    """Everything that a reader can ask, except what depends on a clock."""
    collection = open_lake(lake.file).collection(NAME)
    return {
        "status": lambda: {name: value for name, value in _status(collection).items() if name not in CLOCKS},
        "since": lambda: collection.since,
        "upper": lambda: collection.upper,
        "decisions": lambda: [repr(decision) for decision in collection.decisions],
        "quarantine": lambda: [repr(row) for row in collection.quarantine()],
        "late": lambda: asdict(collection.late()),
        "times": lambda: [repr(binding) for binding in collection.times()] if lake.collection.entry.mints_times else [],
        "offsets": lambda: [lake.table.value(f"offset/{NAME}/{partition}") for partition in range(2)],
        "first contents": lambda: _contents(collection, lake.spark, collection.since),
        "last contents": lambda: _contents(collection, lake.spark, None),
    }


def _status(collection: LakeCollection) -> dict[str, Any]:
    status = collection.status()
    assert status is not None, "an ingested collection has a status"
    if status.late_problem is not None:
        raise TidelakeError
    return asdict(status)


def _contents(collection: LakeCollection, spark: SparkSession, as_of: int | None) -> Counter[str]:
    rows = collection.snapshot(spark, as_of, skip_errors=True).contents.collect()
    return Counter(repr(row) for row in rows)


def answers(lake: Lake) -> dict[str, Any]:
    """The answer to each question; None if it is refused."""
    found: dict[str, Any] = {}
    for name, ask in shown(lake).items():
        try:
            found[name] = ask()
        except (TidelakeError, Py4JError, PySparkException, OSError):  # an error is not a wrong answer
            found[name] = None
    return found


def try_cases(healthy: Lake, folder: Path, random: Random, cases: int) -> Counter[tuple[str, str, str]]:
    """Damage a copy of a lake in each case, and compare all answers with those of the undamaged lake."""
    expected = answers(healthy)
    assert None not in expected.values(), "the undamaged lake answers everything"
    outcomes: Counter[tuple[str, str, str]] = Counter()
    for case in range(cases):
        lake = healthy.copy(folder / f"case-{case}")
        kind, change = damage(lake.root / "store", random)
        found = answers(lake)
        wrong = [name for name, answer in found.items() if answer is not None and answer != expected[name]]
        assert not wrong, (case, kind, change, {name: (expected[name], found[name]) for name in wrong})
        refused = [name for name, answer in found.items() if answer is None]
        outcomes[kind, change, "refused" if refused else "equal"] += 1
    return outcomes


def test_whatever_is_damaged_no_wrong_answer_is_given(healthy: Lake, tmp_path: Path) -> None:
    outcomes = try_cases(healthy, tmp_path, Random(1), EVERYDAY_CASES)
    assert sum(outcomes.values()) == EVERYDAY_CASES
    assert any(outcome == "refused" for _, _, outcome in outcomes)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", seeds())
def test_whatever_is_damaged_no_wrong_answer_is_given_for_any_seed(healthy: Lake, tmp_path: Path, seed: int) -> None:
    outcomes = try_cases(healthy, tmp_path, Random(1000 + seed), SWEEP_CASES)
    if table := os.environ.get("TIDELAKE_DAMAGE_TABLE"):
        with Path(table).open("a", encoding="utf-8") as lines:
            for (kind, change, outcome), count in sorted(outcomes.items()):
                lines.write(f"{kind}\t{change}\t{outcome}\t{count}\n")
    assert sum(outcomes.values()) == SWEEP_CASES
