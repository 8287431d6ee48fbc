"""A code location of its own, next to the lake's: `orders_by_customer` follows the demo's table `orders/current`.

It knows the lake only by the key of an asset: the asset's newest materialization says where the table is. The SQL
runs in deltalake's own engine; a dbt model on DuckDB accepts the same automation condition in its `meta.dagster`.
"""

from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
from dagster import AssetExecutionContext, AssetKey, Definitions, Failure, MaterializeResult, asset
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from assets.automation import follows_seal

ORDERS = AssetKey(["demo", "orders", "current"])
SQL = """
SELECT customer, SUM(_diff) AS orders, SUM(price * _diff) AS total
FROM orders GROUP BY customer ORDER BY customer
"""
"""`_diff` says how many times a row occurs, so sums and counts are over `_diff`."""


@asset(deps=[ORDERS], automation_condition=follows_seal(), kinds={"deltalake", "sql"}, group_name="reports")
def orders_by_customer(context: AssetExecutionContext) -> MaterializeResult[None]:
    """The number and the value of the orders of each customer."""
    published = published_table(context, ORDERS)
    result = QueryBuilder().register("orders", DeltaTable(published)).execute(SQL)
    rows = pa.table(result)
    path = published.parents[2] / "reports" / "orders_by_customer"  # next to the store, to which only Tidelake writes
    path.parent.mkdir(exist_ok=True)
    write_deltalake(path, rows, mode="overwrite")
    return MaterializeResult(metadata={"dagster/row_count": rows.num_rows, "dagster/uri": path.as_uri()})


def published_table(context: AssetExecutionContext, key: AssetKey) -> Path:
    """Return the folder of a published table, according to the asset's newest materialization."""
    event = context.instance.get_latest_materialization_event(key)
    materialization = event.asset_materialization if event is not None else None
    if materialization is None:
        raise Failure(f"{key.to_user_string()} has never been published: run the lake's job rebuild_current")
    return Path(unquote(urlparse(str(materialization.metadata["dagster/uri"].value)).path))


defs = Definitions(assets=[orders_by_customer])
