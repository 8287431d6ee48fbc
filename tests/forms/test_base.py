"""A read with a base equals the sum of all rows, and does not shuffle the base."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.lakes.lake import Lake, encode, progress, updates
from tests.sweeps import swept
from tidelake.read.snapshot import snapshot
from tidelake.store import base
from tidelake.store.state import SINCE, UPPER

pytestmark = pytest.mark.spark

TIMES_PER_PHASE = 6
ASKED: list[dict[str, Any]] = [{}, {"columns": ["price"]}, {"where": "price = 1"}, {"where": "price is null"}]


def send_phase(lake: Lake, rng: Random, family: str, live: dict[tuple[int, int | None], int], first: int) -> None:
    """Send random updates.

    A plain collection retracts only rows that it holds; in an upsert collection, each time has at most one
    statement of a key.
    """
    for time in range(first, first + TIMES_PER_PHASE):
        diffs: dict[tuple[int, int | None], int] = {}
        for key in rng.sample(range(8), 3):
            data = (key, rng.choice((None, 1, 2)))
            if family == "upsert":
                diffs[data] = rng.choice((1, 1, -1))
            else:
                diffs[data] = -live[data] if live.get(data) and rng.random() < 0.5 else rng.randint(1, 2)
                live[data] = live.get(data, 0) + diffs[data]
        lake.send(updates(*((data, time, diff) for data, diff in diffs.items())))
        lake.send(progress([time], [time + 1], {time: len(diffs)}))
    lake.run()


def answers(lake: Lake, **more: Any) -> dict[int, list[tuple[Any, ...]]]:
    """Sorted rows of the contents AS OF every time that can be read."""
    since, upper = lake.table.value(SINCE) or 0, lake.table.value(UPPER) or 0
    read = {at: snapshot(lake.spark, lake.collection, at, **more).contents for at in range(since, upper)}
    return {at: sorted((tuple(row) for row in rows.collect()), key=repr) for at, rows in read.items()}


@pytest.mark.parametrize(
    ("family", "asked"),
    swept([("plain", ASKED[:1]), ("plain", ASKED), ("upsert", ASKED)], [("plain", ASKED[:1])], unpack=True),
    ids=["plain, all columns", "plain", "upsert"],
)
def test_reads_with_a_base_equal_reads_of_all_rows(
    tmp_path: Path, spark: SparkSession, family: str, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    key: dict[str, Any] = {"key": ["id"]} if family == "upsert" else {}
    lake, rng = Lake(tmp_path, spark, family, keep=3, **key), Random(f"base {family}")
    live: dict[tuple[int, int | None], int] = {}
    for phase in range(3):
        send_phase(lake, rng, family, live, phase * TIMES_PER_PHASE)
        if phase < 2:
            lake.compact()
    in_base, later = base.split_base(lake.table.files())
    assert in_base and later
    with_base = [answers(lake, **more) for more in asked]
    assert len(with_base[0]) > TIMES_PER_PHASE
    monkeypatch.setattr("tidelake.read.snapshot.split_base", lambda files: ([], list(files)))
    assert with_base == [answers(lake, **more) for more in asked]


def test_the_base_is_not_shuffled(tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    lake = Lake(tmp_path, spark, "upsert", keep=1, key=["id"])
    send_phase(lake, Random(0), "upsert", {}, 0)
    lake.compact()
    send_phase(lake, Random(1), "upsert", {}, TIMES_PER_PHASE)
    capsys.readouterr()
    snapshot(spark, lake.collection).contents.explain()
    plan = capsys.readouterr().out
    above_base = plan[: plan.index("FileScan")]  # the first scan reads the base
    assert "BroadcastHashJoin" in above_base and "LeftAnti" in above_base
    assert "Exchange" not in above_base


@pytest.mark.parametrize("family", swept(["plain", "upsert"], ["upsert"]))
def test_a_base_without_later_rows_is_read_directly(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str], family: str
) -> None:
    key: dict[str, Any] = {"key": ["id"]} if family == "upsert" else {}
    lake = Lake(tmp_path, spark, family, keep=1, **key)
    send_phase(lake, Random(0), family, {}, 0)
    before = lake.contents(TIMES_PER_PHASE - 1)
    lake.compact()
    assert lake.contents(TIMES_PER_PHASE - 1) == before
    capsys.readouterr()
    snapshot(spark, lake.collection).contents.explain()
    plan = capsys.readouterr().out
    assert "FileScan" in plan
    assert not any(step in plan for step in ("Join", "Exchange", "Aggregate", "Union"))


def test_a_base_is_not_used_if_other_rows_are_not_later_or_are_too_many(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path, spark, "upsert", keep=1, key=["id"])
    send_phase(lake, Random(0), "upsert", {}, 0)
    assert base.split_base(lake.table.files()) == ([], lake.table.files()), "nothing was merged yet"
    lake.compact()
    send_phase(lake, Random(1), "upsert", {}, TIMES_PER_PHASE)
    files = lake.table.files()
    in_base, later = base.split_base(files)
    assert {file.path for file in in_base + later} == {file.path for file in files} and in_base
    monkeypatch.setattr(base, "LATER_ROWS_MAX", sum(file.rows for file in later) - 1)
    assert base.split_base(files) == ([], files)


def test_a_collection_that_keeps_every_time_has_no_base(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, "upsert", keep="all", key=["id"])
    send_phase(lake, Random(0), "upsert", {}, 0)
    lake.compact()
    assert base.split_base(lake.table.files())[0] == []


@pytest.mark.sweep
def test_a_predicate_refers_to_the_same_columns_with_and_without_a_base(tmp_path: Path, spark: SparkSession) -> None:
    inner = {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "long"}]}
    fields = [{"name": "id", "type": "long"}, {"name": "x", "type": "long"}, {"name": "base", "type": inner}]
    record = {"type": "record", "name": "data", "fields": fields}
    lake = Lake(tmp_path, spark, "upsert", keep=1, key=["id"], schema=record)
    for time in (1, 2):
        row = {"data": {"id": time, "x": 7, "base": {"x": 1}}, "time": time, "diff": 1}
        statement = {"lower": [time - 1], "upper": [time + 1], "counts": [{"time": time, "count": 1}]}
        lake.send(encode([row], record), encode(statement, record))
        lake.run()
        if time == 1:
            lake.compact()
    assert base.split_base(lake.table.files())[0]
    for where, ids in (("base.x = 1", [1, 2]), ("x = 1", []), ("base.x = 7", [])):
        read = snapshot(spark, lake.collection, 2, ["id", "id"], where).contents.collect()
        assert sorted(row["id"] for row in read) == ids, where
