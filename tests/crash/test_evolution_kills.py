"""If a process is killed while it adds columns to a collection, the collection has all of them after the next run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.crash.harness import Nursery, check_steps, said
from tests.lakes.raw_lake import RawLake
from tests.sweeps import seeds
from tidelake.store.failpoints import EVOLUTION_FAILPOINTS

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("any_store")]

_TEXT = ["null", "string"]
_PLACES = (
    *EVOLUTION_FAILPOINTS,
    "commit.before_call.updates",
    "commit.after_call.updates",
    "commit.after_sync.updates",
)


def _schema(*names: str) -> dict[str, Any]:
    more = [{"name": name, "type": _TEXT} for name in names]
    return {"type": "record", "name": "row", "fields": [{"name": "id", "type": "long"}, *more]}


def _kill(
    root: Path, spark: SparkSession, nursery: Nursery, place: str, passing: int = 0, then: tuple[str, ...] = ()
) -> None:
    lake = RawLake(root, spark, envelope="upsert", key="id", schema=_schema("a"), evolution="additive")

    def order(who: str, *steps: str) -> dict[str, Any]:
        return {"config": str(lake.file), "said": str(root / f"{who}.jsonl"), "steps": steps}

    lake.put(*({"key": {"id": row}, "value": {"id": row, "a": "x"}} for row in range(3)))
    lake.ingest()
    before = lake.times[-1].time
    lake.configure(schema=_schema("a", "b"))
    lake.put({"key": {"id": 1}, "value": {"id": 1, "a": "y", "b": "z"}})
    assert nursery.run(order("victim", "ingest", "compact") | {"stop": place, "passing": passing}) == -9
    assert nursery.run(order("next", "ingest", *then)) == 0
    check_steps(said(root / "next.jsonl"))
    assert [(row["id"], row["a"], row["b"]) for row in lake.rows()] == [(0, "x", None), (1, "y", "z"), (2, "x", None)]
    assert [(row["id"], row["a"]) for row in lake.rows(before)] == [(0, "x"), (1, "x"), (2, "x")]
    assert lake.table.schema().names.count("b") == 1


@pytest.mark.parametrize("place", ["columns.after_catalog"])
def test_the_next_run_recovers_from_a_kill_between_the_commits_to_the_catalog_and_to_the_table(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, place: str
) -> None:
    _kill(tmp_path, spark, nursery, place)


@pytest.mark.sweep
@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("seed", seeds())
def test_the_next_run_recovers_from_a_kill_anywhere_while_a_column_is_added(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, seed: int, place: str
) -> None:
    passing = seed % 2 if place.startswith("commit") else 0
    _kill(tmp_path, spark, nursery, place, passing, ("validate", "compact", "current"))
