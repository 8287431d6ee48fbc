"""Real kills of a raw collection's jobs: each record is there once, and AS OF an earlier time nothing has changed."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.crash.harness import Nursery, check_steps, path_of, said
from tests.crash.scenes import CYCLE, RAW_PLACES
from tests.delta.raw_lake import RawLake
from tests.sweeps import seeds
from tidelake.delta.quarantine import quarantine_rows
from tidelake.delta.table_log import check_log

pytestmark = pytest.mark.spark

EVERYDAY = ("raw.after_binding",)
MEETINGS = {
    "raw.after_conflict": ("raw.after_binding", "bump:updates"),
    "raw.after_lost_offsets": ("raw.after_quarantine", "ingest"),
}
"""Whom the victim meets at which place, where it has to be overtaken to come by another."""


class Harbour:
    """A raw lake whose topic has three pieces, in two partitions; the first of them may be in its tables already."""

    def __init__(self, root: Path, spark: SparkSession, nursery: Nursery, seed: int) -> None:
        self.root, self.spark, self.nursery, self.rng = root, spark, nursery, Random(f"raw {seed}")
        self.pieces = [self._piece(index) for index in range(3)]
        self.base = self._lake("base")
        self.put(self.base, 0)
        self.cycle(self.base)

    def _lake(self, name: str) -> RawLake:
        return RawLake(self.root / name, self.spark)

    def _piece(self, index: int) -> list[list[Any]]:
        """For each partition some visits, two of them equal, and one record that is none."""
        ids = [100 * index + self.rng.randrange(50) for _ in range(6)]
        visits: list[Any] = [{"id": one, "page": f"p{one % 3}"} for one in [*ids, ids[0]]]
        visits.insert(self.rng.randrange(len(visits)), {"id": "none"})
        return [visits[0::2], visits[1::2]]

    def put(self, lake: RawLake, piece: int) -> None:
        for partition, records in enumerate(self.pieces[piece]):
            lake.put(*records, partition=partition)

    def cycle(self, lake: RawLake, **order: Any) -> int:
        """What a schedule does, by a process of its own; its exit code."""
        words = self.words(lake)
        before = len(said(words))
        code = self.nursery.run({"config": str(lake.file), "said": str(words), "steps": CYCLE, **order})
        if "stop" not in order:
            assert code == 0, words.with_suffix(".log").read_text()[-3000:]
            check_steps(said(words)[before:])
        return code

    def words(self, lake: RawLake) -> Path:
        return self.root / f"{lake.root.name}.said.jsonl"

    def kill_at(self, place: str) -> None:
        """Kill the jobs there; the next schedule ends with each record once, and nothing read before has changed."""
        first = place == "table.after_create.bindings"
        lake = self._lake(f"{place}-0") if first else self._copy(place)
        piece = 0 if first else 1
        before = [] if first else [(one.time, lake.rows(one.time)) for one in lake.times]
        self.put(lake, piece)
        assert self.cycle(lake, stop=place, meet=MEETINGS.get(place)) == -9, place
        assert {"stopped": place} in said(self.words(lake))
        self.cycle(lake)
        self.check(lake, piece)
        for time, rows in before:
            assert lake.rows(time) == rows
        self.put(lake, piece + 1)
        self.cycle(lake)
        self.check(lake, piece + 1)
        shutil.rmtree(lake.root)

    def check(self, lake: RawLake, last: int) -> None:
        """Every record up to a piece is in the contents or in the quarantine, once, and the chain says which."""
        stated = [one for piece in self.pieces[: last + 1] for records in piece for one in records]
        good = [one for one in stated if one["id"] != "none"]
        found = [row for row in lake.rows() for _ in range(row["_diff"])]
        assert sorted((row["id"], row["page"]) for row in found) == sorted((one["id"], one["page"]) for one in good)
        bad = {(row["partition"], row["offset"]) for row in quarantine_rows(lake.collection)}
        assert len(bad) == len(stated) - len(good)
        times = lake.times
        assert [one.lower for one in times[1:]] == [one.time + 1 for one in times[:-1]]
        assert times[-1].ends == lake.ends
        assert sum(one.records for one in times) == len(stated)
        for name in ("catalog", "bindings", "proofs", "quarantine", "updates"):
            check_log(path_of(lake, name))

    def _copy(self, place: str) -> RawLake:
        shutil.copytree(self.base.root, self.root / place)
        lake = self._lake(place)
        lake.ends = dict(self.base.ends)
        return lake


@pytest.fixture(scope="module")
def harbours(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, nursery: Nursery) -> dict[int, Harbour]:
    class BySeed(dict[int, Harbour]):
        def __missing__(self, seed: int) -> Harbour:
            self[seed] = Harbour(tmp_path_factory.mktemp(f"raw-{seed}"), spark, nursery, seed)
            return self[seed]

    return BySeed()


@pytest.mark.parametrize("place", EVERYDAY)
def test_a_kill_of_a_raw_tick_changes_nothing(harbours: dict[int, Harbour], place: str) -> None:
    harbours[1].kill_at(place)


@pytest.mark.sweep
@pytest.mark.parametrize("place", RAW_PLACES)
@pytest.mark.parametrize("seed", seeds())
def test_a_kill_of_raw_jobs_at_any_place_changes_nothing(harbours: dict[int, Harbour], seed: int, place: str) -> None:
    harbours[seed].kill_at(place)
