"""Wherever a tick of a table with transactions stops, the next tick takes over, and nothing is lost or duplicated."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.lakes.transaction_lake import TransactionLake, end, event, snapshot_row
from tests.stops import stop_at
from tests.sweeps import swept
from tidelake.read.snapshot import snapshot
from tidelake.store.failpoints import TRANSACTION_FAILPOINTS
from tidelake.store.transactions import read_transactions

pytestmark = pytest.mark.spark

_STEPS = ("before_write", "after_write", "after_quarantine", "after_progress", "after_late", "after_commit")
_STOPS = (
    *TRANSACTION_FAILPOINTS,
    *(f"ingest.{step}" for step in _STEPS),
    "commit.after_call.progress",
    "commit.after_call.updates",
    "seal.after_proofs",
)
_EVERYDAY = (*TRANSACTION_FAILPOINTS[:1], "commit.after_call.updates")


@pytest.mark.parametrize("place", swept(_STOPS, _EVERYDAY))
def test_the_next_tick_takes_over_from_one_that_stopped(tmp_path: Path, spark: SparkSession, place: str) -> None:
    lake = TransactionLake(tmp_path, spark)
    lake.events(snapshot_row((1, 10), 30, "last"), event("7", 1, (1, 10), (1, 11), 40))
    lake.events(event("7", 2, None, (2, 20), 40), event("8", 1, (2, 20), (3, 20), 50), partition=1)
    lake.marks(end("7", 50, 2))
    stop_at(place, lake.run)
    lake.marks(end("8", 60, 1))
    assert lake.run().upper == 61
    assert [lake.pairs(time) for time in (30, 50, 60)] == [[(1, 10)], [(1, 11), (2, 20)], [(1, 11), (3, 20)]]
    assert [found.time for found in read_transactions(lake.collection)] == [30, 50, 60]
    assert lake.validate(full=True).mismatches == []
    assert snapshot(spark, lake.collection).upper == 61
