"""The benchmarks leave a store in the same state as the jobs would."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.bench import Lake
from benchmarks.data import Stream, write_ticks
from benchmarks.states import seed_state
from tidelake.read.snapshot import snapshot

pytestmark = pytest.mark.spark


def test_ticks_are_sealed_on_a_seeded_state(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path, {"few": "upsert"})
    few = Stream(10_000, "upsert")
    seed_state(lake, "few", few, versions=2)
    few_after_two = Stream(10_000, "upsert", state_updates_per_time=few.state_updates_per_time // 2)
    for file in write_ticks(spark, few_after_two, tmp_path / "made", "few", ticks=2, updates=1_000):
        lake.add_file("few", file)
        lake.tick("few")
    result = snapshot(spark, lake.collection("few"))
    assert result.contents.agg(F.count("*"), F.countDistinct("id")).collect()[0][:] == (10_000, 10_000)
    assert result.upper == 22
