"""If a process that removes old rows is killed or meets another, each row is removed exactly once, as recorded."""

from __future__ import annotations

import os
import signal
import time as clock
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.crash.harness import Nursery, check_steps, said, wait_until_stopped
from tests.lakes.kept_rows import EVENT, events
from tests.lakes.lake import Lake, progress
from tests.lakes.raw_lake import RawLake
from tests.sweeps import seeds
from tidelake.store.failpoints import RETENTION_FAILPOINTS
from tidelake.store.files import read_rows
from tidelake.store.layout import DIFF, TIME
from tidelake.store.retention import read_departures

pytestmark = [pytest.mark.spark, pytest.mark.sweep, pytest.mark.usefixtures("any_store")]

KEPT = {"column": "at", "unit": "ms", "for": "1s"}
_MEETS = {"retention.after_conflict": ("retention.after_note", "bump:updates")}
"""For each place that is reached only if another process acts: where that process acts, and what it does."""
_RECLOCKED = ("retention.after_binding", "retention.after_conflict", "retention.after_commit")
"""Places that are reached only for reclocked collections."""


class KeptLife:
    """A lake that keeps rows for a second, and the rows that were put into it. The clocks are real."""

    def __init__(self, root: Path, spark: SparkSession, seed: int, framing: str) -> None:
        self.rng, self.spark, self.root, self.end = Random(seed), spark, root, 0
        self.lake: Lake
        if framing == "reclock":
            self.lake = RawLake(root, spark, schema=EVENT, keep_rows=KEPT)
        else:
            self.lake = Lake(root, spark, "append_only", schema=EVENT, keep_rows=KEPT)
        self.put_rows: Counter[tuple[int, int | None]] = Counter()

    def put(self) -> None:
        """Put rows that are old, are soon to be removed, or stay. With `cdcv2`, also state the progress of 2 times."""
        now_ms = int(clock.time() * 1000)
        rows = [(self.rng.randrange(4), self.rng.choice([None, 1_000, now_ms - 500, now_ms + 10**9])) for _ in range(6)]
        if isinstance(self.lake, RawLake):
            self.lake.put(*({"id": row, "at": at} for row, at in rows))
            self.put_rows.update(rows)
            return
        distinct = sorted(set(rows), key=str)
        self.put_rows.update(distinct)
        batch = [(row, at, self.end, 1) for row, at in distinct]
        self.lake.send(events(*batch), events(batch[0]), progress([self.end], [self.end + 2], {self.end: len(batch)}))
        self.end += 2

    def order(self, steps: tuple[str, ...], who: str = "victim") -> dict[str, object]:
        return {"config": str(self.lake.file), "said": str(self.root / f"{who}.jsonl"), "steps": steps}

    def check(self) -> None:
        """Check that each row is there or was removed, as recorded, and that none was removed early or twice."""
        table = self.lake.table
        rows = read_rows(table.path, table.files(), table.schema()).to_pylist()
        gone: dict[int, int] = {}
        for row in rows:
            if row[DIFF] < 0 and row["_run"].startswith("retention"):
                gone[row[TIME]] = gone.get(row[TIME], 0) - row[DIFF]
        departures = read_departures(self.lake.collection, table)
        recorded = {each.time: each.rows for each in departures}
        assert all(recorded[time] == number for time, number in gone.items())
        sums: Counter[tuple[int, int | None]] = Counter()
        for row in rows:
            sums[row["id"], row["at"]] += row[DIFF]
        assert all(number >= 0 for number in sums.values()), sums
        cutoff_ms = max((each.cutoff_ms for each in departures), default=0)
        for row, number in self.put_rows.items():
            assert sums[row] == number or (sums[row] < number and row[1] is not None and row[1] < cutoff_ms), row
        assert sum(self.put_rows.values()) - sum(sums.values()) == sum(recorded.values())


@pytest.mark.parametrize("framing", ["reclock", "cdcv2"])
@pytest.mark.parametrize("place", [*RETENTION_FAILPOINTS, "commit.after_call.updates", "commit.after_marker.updates"])
@pytest.mark.parametrize("seed", seeds())
def test_no_row_is_removed_twice_after_a_kill(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, seed: int, place: str, framing: str
) -> None:
    if framing == "cdcv2" and place in _RECLOCKED:
        pytest.skip("only reclocked collections reach this place")
    life = KeptLife(tmp_path, spark, seed, framing)
    life.put()
    assert nursery.run(life.order(("ingest", "seal"), "first")) == 0
    for piece in range(3):
        clock.sleep(0.3)
        life.put()
        order = life.order(("ingest", "seal", "compact")) | {"meet": _MEETS.get(place), "stop": place}
        assert nursery.run(order | {"passing": life.rng.randrange(2) if piece else 0}) in (-9, 0)
        life.put()
        assert nursery.run(life.order(("ingest", "seal", "validate"), "next")) == 0
        check_steps(said(tmp_path / "next.jsonl"))
        life.check()
    assert {"stopped": place} in said(tmp_path / "victim.jsonl")


@pytest.mark.parametrize("framing", ["reclock", "cdcv2"])
@pytest.mark.parametrize("seed", seeds())
def test_no_row_is_removed_twice_after_a_process_has_slept(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, seed: int, framing: str
) -> None:
    life = KeptLife(tmp_path, spark, seed, framing)
    life.put()
    assert nursery.run(life.order(("ingest", "seal"), "first")) == 0
    clock.sleep(0.3)
    life.put()
    order = life.order(("ingest", "seal")) | {"stop": "retention.after_note", "signal": "SIGSTOP"}
    late = nursery.start(order)
    wait_until_stopped(late)
    assert nursery.run(life.order(("ingest", "seal", "compact", "validate"), "other")) == 0
    os.kill(late, signal.SIGCONT)
    assert nursery.wait(late) == 0
    assert nursery.run(life.order(("ingest", "seal", "validate"), "last")) == 0
    check_steps([message for who in ("victim", "other", "last") for message in said(tmp_path / f"{who}.jsonl")])
    life.check()
