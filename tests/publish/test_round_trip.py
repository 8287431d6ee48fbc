"""A published topic gives another store the same contents AS OF every time, whatever was done to its messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.publish.histories import HISTORIES, check_round_trip
from tests.sweeps import seeds, swept

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "history", swept(["sum", "debezium with a key", "upserts with new columns"], ["debezium with a key"])
)
def test_another_store_has_the_same_contents_at_every_time(tmp_path: Path, spark: SparkSession, history: str) -> None:
    check_round_trip(tmp_path, spark, history, "every day", (18, 4))


@pytest.mark.sweep
@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("number", range(30))
@pytest.mark.parametrize("seed", seeds())
def test_another_store_has_the_same_contents_at_every_time_of_many_histories(
    tmp_path: Path, interpreted: SparkSession, seed: int, number: int, history: str
) -> None:
    check_round_trip(tmp_path, interpreted, history, f"{seed}/{number}", (24, 6))
