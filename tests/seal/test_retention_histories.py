"""Random histories of collections with `keep_rows`: at every readable time, the contents equal those of a model."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs import seal
from tests.lakes.kept_rows import DAY_MS, EVENT, KEPT_A_DAY, NOW_MS, clocks_at, events
from tests.lakes.lake import Lake, progress
from tests.lakes.raw_lake import RawLake
from tests.stops import Killed
from tests.sweeps import seeds
from tidelake.read.changes import changes
from tidelake.read.snapshot import snapshot
from tidelake.store.failpoints import RETENTION_FAILPOINTS, on_reach
from tidelake.store.layout import DIFF, TIME
from tidelake.store.retention import Departure, read_departures

pytestmark = [pytest.mark.spark]

Row = tuple[int, int | None]
STEPS = 12
PLACES = (*RETENTION_FAILPOINTS, "seal.after_proofs", "seal.after_commit", "commit.after_call.updates")


class History:
    """A collection, its model, and clocks that only go forward."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = NOW_MS
        self.stated: dict[int, Counter[Row]] = {}
        """The statements of each time."""
        self.left: dict[int, Counter[Row]] = {}
        """The rows that were removed at each time."""

    def row(self) -> Row:
        """A row that is old, recent, or right at the cut-off, or that states no moment."""
        edge = self.now_ms - DAY_MS
        ats = [None, self.now_ms, edge - 1, edge, edge + 1, edge - self.rng.randrange(DAY_MS)]
        return self.rng.randrange(4), self.rng.choice(ats)

    def contents(self, through: int) -> Counter[Row]:
        """The contents of the model AS OF a time."""
        found: Counter[Row] = Counter()
        for time, rows in self.stated.items():
            if time <= through:
                found.update(rows)
        for time, rows in self.left.items():
            if time <= through:
                found.subtract(rows)
        return +found

    def enter(self, departure: Departure, upper: int) -> None:
        """Remove from the model the rows that are too old in the contents just before upper.

        The store must have recorded as many. Rows that are stated again at the time of the removal stay.
        """
        assert departure.time >= upper
        kept = self.stated.get(departure.time, Counter())
        leaving = {
            row: number
            for row, number in self.contents(upper - 1).items()
            if row[1] is not None and row[1] < departure.cutoff_ms and row not in kept
        }
        assert departure.rows == sum(leaving.values()) > 0
        self.left[departure.time] = Counter(leaving)

    def follow(self, lake: Lake, upper: int) -> None:
        """If the store has recorded a removal since the last call, remove the rows from the model as well."""
        departures = read_departures(lake.collection, lake.table)
        assert [each.time for each in departures][: len(self.left)] == list(self.left)
        new = departures[len(self.left) :]
        assert len(new) <= 1
        for departure in new:
            self.enter(departure, upper)

    def seal(self, lake: Lake, upper: int) -> None:
        """Seal; half of the seals stop at a random failpoint, if they reach it."""
        place = self.rng.choice(PLACES) if self.rng.random() < 0.5 else None

        def kill(name: str) -> None:
            if name == place:
                raise Killed

        with clocks_at(self.now_ms):
            on_reach(kill)
            try:
                seal.run(lake.spark, lake.settings)
            except Killed:
                pass
            finally:
                on_reach(None)

    def check(self, lake: Lake) -> None:
        """Compare the contents at some readable times, and the changes between two times, with the model."""
        since, upper, _ = lake.collection.readable_range(lake.table)
        if not upper or not since:
            return
        times = {*self.stated, *self.left, upper - 1}
        readable = sorted(time for time in {*times, *(time - 1 for time in times)} if since[0] <= time < upper)
        for time in self.rng.sample(readable, min(4, len(readable))):
            rows = snapshot(lake.spark, lake.collection, time).contents.collect()
            assert {(row["id"], row["at"]): row[DIFF] for row in rows} == dict(self.contents(time)), time
        if readable and readable[0] < upper - 1:
            first = readable[0]
            found: Counter[Row] = Counter()
            for row in changes(lake.spark, lake.collection, first, upper - 1).updates.collect():
                assert first < row[TIME] < upper
                found[row["id"], row["at"]] += row[DIFF]
            expected = self.contents(upper - 1)
            expected.subtract(self.contents(first))
            assert {row: diff for row, diff in found.items() if diff} == {
                row: diff for row, diff in expected.items() if diff
            }
        report = lake.validate(full=self.rng.random() < 0.5)
        assert not report.damaged, report.mismatches


def stream_history(root: Path, spark: SparkSession, seed: int, steps: int) -> None:
    history = History(seed)
    rng = history.rng
    lake = Lake(root, spark, "append_only", schema=EVENT, keep_rows=KEPT_A_DAY)
    end = 0
    for _ in range(steps):
        history.now_ms += rng.choice((0, DAY_MS // 400, DAY_MS // 50, DAY_MS // 2))
        lower, end = end, end + rng.randrange(1, 4)
        batch: list[Any] = []
        for time in range(lower, end):
            rows = {history.row(): rng.randrange(1, 3) for _ in range(rng.randrange(3))}
            history.stated[time] = Counter(rows)
            batch += [(row, at, time, diff) for (row, at), diff in rows.items()]
        copies = [event for event in batch if rng.random() < 0.3]
        counts = {time: len(history.stated[time]) for time in range(lower, end) if history.stated[time]}
        lake.send(*([events(*batch, *copies)] if batch else []), progress([lower], [end], counts))
        lake.ingest()
        upper = lake.table.value("upper") or 0
        history.seal(lake, upper)
        history.follow(lake, upper)
        if rng.random() < 0.3:
            lake.document["collections"]["prices"]["keep"] = rng.choice(["all", 1, 3])
            lake.settings = lake.written()
            lake.compact(full=rng.random() < 0.7)
        if rng.random() < 0.5:
            history.check(lake)
    history.check(lake)


def reclocked_history(root: Path, spark: SparkSession, seed: int, steps: int) -> None:
    history = History(seed)
    rng = history.rng
    lake = RawLake(root, spark, schema=EVENT, keep_rows=KEPT_A_DAY, idle_upper_s=60, clock_ahead_max_s=10**8)
    for _ in range(steps):
        history.now_ms += rng.choice((1, DAY_MS // 400, DAY_MS // 50, DAY_MS // 2))
        rows = [history.row() for _ in range(rng.randrange(4))]
        lake.put(*({"id": row, "at": at} for row, at in rows))
        with clocks_at(history.now_ms):
            lake.ingest()
        upper = lake.table.value("upper") or 0
        if rows:
            history.stated[upper - 1] = Counter(rows)
        history.seal(lake, upper)
        history.follow(lake, upper)
        if rng.random() < 0.3:
            lake.configure(keep=rng.choice(["all", 1, DAY_MS]))
            with clocks_at(history.now_ms):
                lake.compact(full=rng.random() < 0.7)
        if rng.random() < 0.5:
            history.check(lake)
    history.check(lake)


@pytest.mark.sweep
@pytest.mark.parametrize("framing", [stream_history, reclocked_history])
def test_every_time_of_a_short_history_equals_the_model(tmp_path: Path, spark: SparkSession, framing: Any) -> None:
    framing(tmp_path, spark, seed=7, steps=4)


@pytest.mark.sweep
@pytest.mark.parametrize("framing", [stream_history, reclocked_history])
@pytest.mark.parametrize("seed", seeds())
def test_every_time_of_a_random_history_equals_the_model(
    tmp_path: Path, spark: SparkSession, seed: int, framing: Any
) -> None:
    framing(tmp_path, spark, seed, STEPS)
