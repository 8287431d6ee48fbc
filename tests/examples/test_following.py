"""The example of an asset that follows changes: each run adds what is new since the asset's last materialization."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    DagsterInstance,
    MaterializeResult,
    asset,
    materialize,
)
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from assets.following import changes_between
from examples.downstream.following import totals
from tests.lakes.held import HeldLake
from tests.lakes.lake import NAME, Lake, progress, updates
from tidelake import open_lake

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


@pytest.mark.spark
def test_an_asset_continues_from_its_token_if_the_collection_is_renamed(
    held_lake: HeldLake, spark: SparkSession, instance: DagsterInstance
) -> None:
    found: list[tuple[int | None, int]] = []

    def follow(name: str, notes_id: bool = True) -> None:
        @asset
        def follower(context: AssetExecutionContext) -> MaterializeResult[None]:
            changes = changes_between(context, spark, open_lake(held_lake.file).collection(name))
            found.append((changes.after, changes.through))
            noted = {key: value for key, value in changes.metadata.items() if notes_id or not key.endswith("/id")}
            return MaterializeResult(metadata=noted)

        assert materialize([follower], instance=instance).success

    follow(NAME)
    held_lake.seal(12)
    document = yaml.safe_load(held_lake.file.read_text())
    document["collections"] = dict.fromkeys((NAME, "costs"), document["collections"][NAME])
    held_lake.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    held_lake.catalog.rename(NAME, "costs")
    follow("costs", notes_id=False)
    follow("costs")  # the previous materialization noted no id, like one made by an earlier release
    held_lake.catalog.open_or_create(open_lake(held_lake.file).collection(NAME).settings.spec())
    held_lake.seal(3)
    follow(NAME)
    assert found == [(None, 9), (9, 11), (11, 11), (None, 2)]
