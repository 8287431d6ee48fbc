"""The example of an asset downstream of a lake: it follows each seal that changes its table, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetSelection,
    DagsterInstance,
    evaluate_automation_conditions,
    materialize,
)
from deltalake import DeltaTable, write_deltalake

from examples.downstream.definitions import ORDERS, defs, orders_by_customer

REPORT = AssetKey("orders_by_customer")


def publish(instance: DagsterInstance, path: Path, as_of: int) -> None:
    """Record about the table what a run of `rebuild_current` would record."""
    instance.report_runless_asset_event(
        AssetMaterialization(ORDERS, metadata={"dagster/uri": path.as_uri()}, tags={"dagster/data_version": str(as_of)})
    )


def test_the_asset_follows_the_versions_of_the_table(instance: DagsterInstance, tmp_path: Path) -> None:
    path = tmp_path / "a lake" / "store" / "tables" / "orders"
    rows = {"customer": ["ada", "ada", "bob"], "price": [10, 20, 5], "_diff": [1, 2, 1]}
    path.mkdir(parents=True)
    write_deltalake(path, pa.table(rows))

    def requested(cursor: object = None) -> tuple[int, object]:
        result = evaluate_automation_conditions(
            defs,
            instance,
            AssetSelection.assets(REPORT),
            cursor=cursor,  # type: ignore[arg-type]
        )
        return result.total_requested, result.cursor

    publish(instance, path, 5)
    count, cursor = requested()
    assert materialize([orders_by_customer], instance=instance).success
    contents = (
        DeltaTable(tmp_path / "a lake" / "reports" / "orders_by_customer").to_pyarrow_dataset().to_table().to_pylist()
    )
    assert contents == [{"customer": "ada", "orders": 3, "total": 50}, {"customer": "bob", "orders": 1, "total": 5}]
    _, cursor = requested(cursor)

    publish(instance, path, 5)  # a tick that sealed nothing new
    count, cursor = requested(cursor)
    assert count == 0
    publish(instance, path, 8)
    count, cursor = requested(cursor)
    assert count == 1
