"""A reclocked tick that is killed or meets another tick leaves times that match the offsets of their bindings."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.crash.harness import Nursery, check_steps, collection_of, contents, said, wait_until_stopped
from tests.lakes.lake import NAME
from tests.lakes.raw_lake import RawLake
from tests.sweeps import seeds
from tidelake.protocol.binding import Binding
from tidelake.store.bindings import append_binding, read_bindings
from tidelake.store.commit import OpenTable
from tidelake.store.failpoints import RAW_FAILPOINTS
from tidelake.store.files import read_rows
from tidelake.store.layout import DIFF, POSITION, TIME

pytestmark = pytest.mark.spark

_ROW = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "id", "type": "long"}, {"name": "price", "type": ["null", "int"]}],
}
_MEETS = {
    "raw.after_conflict": ("raw.after_binding", "bump:updates"),
    "raw.after_lost_time": ("raw.after_quarantine", "ingest"),
    "raw.after_lost_offsets": ("raw.after_binding", "ingest"),
}
"""For each place that a tick reaches only if another process is at work: where that process acts, and what it does."""

_FAMILIES = ("append_only", "upsert")
_PIECES = 3


class _Life:
    """A lake, the records that were put into its topic, and the contents that every time must show."""

    def __init__(self, root: Path, spark: SparkSession, nursery: Nursery, seed: int, envelope: str) -> None:
        self.rng, self.nursery, self.envelope = Random(f"{seed} {envelope}"), nursery, envelope
        key = {"key": "id"} if envelope == "upsert" else {}
        self.lake = RawLake(root, spark, envelope=envelope, schema=_ROW, messages_per_tick_max=9, **key)
        self.records: dict[int, list[tuple[int, int | None] | None]] = {0: [], 1: []}

    def put(self) -> None:
        """Put a few records into two partitions; None stands for a record that cannot be used."""
        for partition, records in self.records.items():
            for _ in range(self.rng.randrange(5, 12)):
                row = (self.rng.randrange(6), self.rng.choice([None, 1, 2, 3]))
                record = None if self.rng.random() < 0.1 else row
                records.append(record)
                self.lake.put(self._written(record), partition=partition)

    def _written(self, record: tuple[int, int | None] | None) -> dict[str, Any]:
        if record is None:
            return {"key": None, "value": "no record"}
        row, price = record
        value = None if price is None and self.envelope == "upsert" else {"id": row, "price": price}
        return {"key": {"id": row}, "value": value}

    def order(self, steps: tuple[str, ...], who: str = "victim") -> dict[str, Any]:
        return {"config": str(self.lake.file), "said": str(self.lake.root / f"{who}.jsonl"), "steps": steps}

    def check(self) -> None:
        """Check that the contents at each binding are those of the records before its offsets.

        The last binding must be at the end of the topic.
        """
        collection = collection_of(self.lake)
        table = OpenTable(collection.paths.updates)
        rows = read_rows(collection.paths.updates, table.files(), table.schema()).to_pylist()
        chain = read_bindings(collection, table)
        assert chain[-1].ends == {(NAME, partition): len(records) for partition, records in self.records.items()}
        shown: dict[Any, int] = {}
        for binding in chain:
            shown = self._after(shown, binding)
            assert self._contents(rows, binding.time) == shown, binding

    def _after(self, shown: dict[Any, int], binding: Binding) -> dict[Any, int]:
        after = dict(shown)
        for (_, partition), end in sorted(binding.ends.items()):
            for record in self.records[partition][binding.starts.get((NAME, partition), 0) : end]:
                if record is None:
                    continue
                if self.envelope == "upsert":
                    after = {row: diff for row, diff in after.items() if row[0] != record[0]}
                    if record[1] is not None:
                        after[record] = 1
                else:
                    after[record] = after.get(record, 0) + 1
        return after

    def _contents(self, rows: list[dict[str, Any]], as_of: int) -> dict[Any, int]:
        if self.envelope == "append_only":
            return contents(rows, as_of)
        newest = {row["id"]: row for row in sorted(rows, key=lambda row: row[POSITION]) if row[TIME] <= as_of}
        return {(row["id"], row["price"]): 1 for row in newest.values() if row[DIFF] > 0}


def _kill(
    root: Path, spark: SparkSession, nursery: Nursery, place: str, seed: int, envelope: str, pieces: int = _PIECES
) -> None:
    life = _Life(root, spark, nursery, seed, envelope)
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
@pytest.mark.parametrize("envelope", _FAMILIES)
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
    life = _Life(tmp_path, spark, nursery, 1, "append_only")
    life.put()
    late = nursery.start(life.order(("ingest",)) | {"stop": place, "signal": "SIGSTOP"})
    wait_until_stopped(late)
    assert nursery.run(life.order(("ingest", "validate"), "other")) == 0
    life.put()
    os.kill(late, signal.SIGCONT)
    assert nursery.wait(late) == 0
    assert nursery.run(life.order(("ingest",), "last")) == 0  # the late run does not read what was put after its start
    check_steps([message for who in ("victim", "other", "last") for message in said(tmp_path / f"{who}.jsonl")])
    life.check()


@pytest.mark.sweep
@pytest.mark.parametrize("envelope", _FAMILIES)
@pytest.mark.parametrize("seed", seeds())
def test_racing_ticks_lose_and_duplicate_nothing(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, seed: int, envelope: str
) -> None:
    life = _Life(tmp_path, spark, nursery, seed, envelope)
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
