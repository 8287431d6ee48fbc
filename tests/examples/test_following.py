"""The example of an asset that follows changes: each run adds what is new since the asset's last materialization."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey, AssetsDefinition, DagsterInstance, materialize
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from examples.downstream.following import totals
from tests.lakes.lake import NAME, Lake, progress, updates

KEY = AssetKey(f"{NAME}_totals")


class Followed:
    """The asset, and what its runs record."""

    def __init__(self, lake: Lake, instance: DagsterInstance) -> None:
        self.instance, self.table = instance, lake.root / "totals"
        self.asset: AssetsDefinition = totals(lake.file, NAME, "id", "price", self.table)
        self.lake = lake

    def run(self, raise_on_error: bool = True) -> bool:
        return materialize([self.asset], instance=self.instance, raise_on_error=raise_on_error).success

    @property
    def token(self) -> Any:
        event = self.instance.get_latest_materialization_event(KEY)
        assert event is not None and event.asset_materialization is not None
        metadata = event.asset_materialization.metadata
        return next(value.value for key, value in metadata.items() if key.endswith(f"/{NAME}/through"))

    @property
    def rows(self) -> dict[int, int]:
        rows = DeltaTable(self.table).to_pyarrow_dataset().to_table().to_pylist()
        return {row["id"]: row["total"] for row in rows if row["total"]}


@pytest.mark.spark
def test_an_asset_adds_what_has_changed_since_its_last_materialization(
    tmp_path: Path, spark: SparkSession, instance: DagsterInstance
) -> None:
    lake = Lake(tmp_path, spark, keep=0)
    lake.send(updates(((1, 10), 1, 1), ((2, 5), 2, 3)), progress([0], [3], {1: 1, 2: 1}))
    lake.run()
    followed = Followed(lake, instance)
    followed.run()
    assert (followed.token, followed.rows) == (2, {1: 10, 2: 15})
    followed.run()  # nothing is new
    assert (followed.token, followed.rows) == (2, {1: 10, 2: 15})

    lake.send(updates(((2, 5), 3, -2), ((3, 7), 4, 1)), progress([3], [5], {3: 1, 4: 1}))
    lake.run()
    followed.run()
    assert (followed.token, followed.rows) == (4, {1: 10, 2: 5, 3: 7})

    lake.send(updates(((1, 10), 5, -1)), progress([5], [7], {5: 1}))
    lake.run()
    lake.compact()
    assert not followed.run(raise_on_error=False)  # compaction has forgotten time 4
    assert (followed.token, followed.rows) == (4, {1: 10, 2: 5, 3: 7})


@pytest.mark.spark
def test_changes_that_were_written_but_not_recorded_count_once(
    tmp_path: Path, spark: SparkSession, instance: DagsterInstance
) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates(((1, 10), 1, 1)), progress([0], [2], {1: 1}))
    lake.run()
    followed = Followed(lake, instance)
    followed.run()
    lake.send(updates(((1, 4), 2, 1)), progress([2], [3], {2: 1}))
    lake.run()
    with DagsterInstance.ephemeral() as other:  # as if the run had died after it committed the rows
        assert materialize([followed.asset], instance=other).success
    assert (followed.token, followed.rows) == (1, {1: 14})
    lake.send(updates(((1, 1), 3, 1)), progress([3], [4], {3: 1}))
    lake.run()
    followed.run()
    assert (followed.token, followed.rows) == (3, {1: 15})


@pytest.mark.spark
@pytest.mark.sweep
def test_an_asset_begins_again_if_another_collection_has_the_name(
    tmp_path: Path, spark: SparkSession, instance: DagsterInstance
) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates(((1, 10), 1, 1)), progress([0], [2], {1: 1}))
    lake.run()
    followed = Followed(lake, instance)
    followed.run()
    lake.catalog.drop(NAME)
    (lake.topic / "0.jsonl").unlink()
    lake.send(updates(((7, 70), 1, 1), ((8, 80), 2, 1)), progress([0], [3], {1: 1, 2: 1}), at=0)
    lake.run()
    followed.run()
    assert (followed.token, followed.rows) == (2, {7: 70, 8: 80})
    lake.send(updates(((7, 5), 3, 1)), progress([3], [4], {3: 1}))
    lake.run()
    followed.run()
    assert (followed.token, followed.rows) == (3, {7: 75, 8: 80})
