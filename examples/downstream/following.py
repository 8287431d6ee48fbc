"""An asset that follows the changes of a collection instead of reading its contents again: totals of the demo's orders.

Each run adds to the totals what has changed since the asset's last materialization. The commit of the totals also
records the greatest time that is included in them, so if a run dies between this commit and its materialization, the
next run counts nothing twice.
"""

from pathlib import Path

import pyarrow as pa
from dagster import AssetExecutionContext, AssetKey, AssetsDefinition, Definitions, MaterializeResult, asset
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from assets.automation import follows_seal
from assets.following import changes_between
from orchestration.settings import PROJECT
from tidelake import open_lake
from tidelake.spark.session import start_session

SEEN = "through"


def totals(config: Path, name: str, by: str, value: str, table: Path) -> AssetsDefinition:
    """Build an asset: the sum of one column for each value of another.

    Args:
        config: the lake's `collections.yaml`.
        name: the collection.
        by: the column that the totals are grouped by.
        value: the column that is added up.
        table: the folder of the Delta table with the totals.
    """
    lake = open_lake(config)

    @asset(
        name=f"{name}_totals",
        deps=[AssetKey([lake.settings.lake, name])],
        automation_condition=follows_seal(),
        kinds={"deltalake"},
        group_name="reports",
    )
    def followed(context: AssetExecutionContext) -> MaterializeResult[None]:
        before = DeltaTable(table) if DeltaTable.is_deltatable(str(table)) else None
        seen = None if before is None else before.transaction_version(SEEN)
        spark = start_session(jar_sets=lake.settings.jar_sets)
        found = changes_between(context, spark, lake.collection(name), [by, value], from_scratch=seen is None)
        new = found.updates if found.is_first else found.updates.where(f"_time > {seen}")
        rows = new.selectExpr(f"`{by}`", f"cast(`{value}` * _diff as bigint) as total").toArrow()
        if before is not None and not found.is_first:
            rows = pa.concat_tables([before.to_pyarrow_dataset().to_table(), rows], promote_options="default")
        rows = rows.group_by(by).aggregate([("total", "sum")]).rename_columns([by, "total"])
        seen_now = CommitProperties(app_transactions=[Transaction(SEEN, found.through)])
        write_deltalake(table, rows, mode="overwrite", commit_properties=seen_now)
        return MaterializeResult(metadata={"dagster/row_count": rows.num_rows, **found.metadata})

    return followed


DEMO = PROJECT / "data" / "demo"

defs = Definitions(
    assets=[totals(DEMO / "collections.yaml", "orders", "customer", "price", DEMO / "reports" / "orders_totals")]
    if (DEMO / "collections.yaml").exists()
    else []
)
