"""A host with a wrong clock sweeps while a job runs: no committed row is lost, and no row is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.lakes.early_sweeps import sweep_early
from tests.lakes.lake import Lake, progress, updates
from tests.lakes.raw_lake import RawLake
from tidelake.store.commit import is_table
from tidelake.store.failpoints import on_reach

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("any_store")]


@contextmanager
def swept_at(place: str, lake: Lake) -> Iterator[None]:
    """When a failpoint is first reached, sweep the collection as a host whose clock is ahead would."""
    removed, tables = 0, [path for path in lake.collection.tables if is_table(path)]

    def sweep_there(reached: str) -> None:
        nonlocal removed
        if reached == place:
            on_reach(None)
            removed += sum(map(sweep_early, tables))

    on_reach(sweep_there)
    try:
        yield
    finally:
        on_reach(None)
    assert removed, f"nothing was swept at {place}"


@pytest.mark.sweep
def test_a_sweep_by_a_host_whose_clock_is_ahead_does_not_damage_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates((1, 10, 1)), progress([0], [11], {10: 1}))
    lake.run()
    lake.send(updates((2, 20, 1), (2, 20, 1)), updates((2, 20, 1)), b"bad", progress([11], [21], {20: 1}))
    with swept_at("commit.before_call.updates", lake):
        assert lake.ingest().updates_stored
    lake.send(updates((2, 20, 1)))
    lake.ingest()
    with swept_at("commit.before_call.updates", lake):
        assert lake.seal().copies_cancelled
    with swept_at("compact.after_write", lake):
        lake.compact()
    assert lake.contents(20) == {(1, None): 1, (2, None): 1}
    assert lake.quarantined() == [(4, "undecodable")]
    assert not lake.validate(full=True).mismatches


def test_a_sweep_by_a_host_whose_clock_is_ahead_does_not_damage_a_reclocked_topic(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = RawLake(tmp_path, spark)
    lake.put({"id": 1, "page": "a"})
    lake.ingest()
    lake.put({"id": 2, "page": "b"}, "nonsense")
    with swept_at("raw.after_binding", lake):
        lake.ingest()
    lake.put({"id": 3, "page": "c"})
    with swept_at("commit.before_call.bindings", lake):
        lake.ingest()
    assert [row["id"] for row in lake.rows()] == [1, 2, 3]
    assert [binding.rows for binding in lake.times] == [1, 1, 1]
    assert not lake.validate(full=True).mismatches
