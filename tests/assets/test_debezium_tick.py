"""A scheduled tick of change events from tables with and without a primary key, and the metadata of the tick."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance
from pyspark.sql import SparkSession

from orchestration.run_once import run_current_job, run_nightly_job, run_tick_job
from tests.lakes.change_events import EVENT, events, progress
from tests.lakes.dagster_lakes import Lakes, failed_checks, materialized, metadata
from tests.lakes.published import table_of

pytestmark = pytest.mark.spark


@pytest.mark.sweep
@pytest.mark.parametrize("more", [{"key": "id"}, {}, {"bag": True}], ids=["with a key", "without a key", "as a bag"])
def test_change_events_go_through_the_scheduled_jobs_and_become_rows(
    spark: SparkSession, instance: DagsterInstance, tmp_path: Path, more: dict[str, Any]
) -> None:
    lakes = Lakes(tmp_path, {"prices": "debezium"}, schema=EVENT, **more)
    lakes.send("prices", events((None, (1, 10), 1), (None, (2, 20), 1)), events(((1, 10), (1, 30), 2)))
    lakes.send("prices", events(((1, 10), (1, 30), 2)), progress([0], [6], {1: 2, 2: 1}))
    lakes.send("prices", events((None, None, 7), op="t"), progress([6], [9], {7: 1}))
    result = run_tick_job(lakes.config, instance)
    assert result.success
    assert failed_checks(result) == {
        "prices/nothing_is_contradicted": "ERROR",
        "prices/quarantine_is_explained": "WARN",
    }
    checks = {evaluation.check_name for evaluation in result.get_asset_check_evaluations()}
    assert ("one_value_a_key" in checks, "sum_of_diffs_is_as_recorded" in checks) == ("key" in more, "key" not in more)
    assert metadata(result, "prices")["upper"] == 7
    published = run_current_job(lakes.config, instance)
    assert materialized(published) == {"prices/current"}
    columns = metadata(published, "prices", "current")["dagster/column_schema"].columns
    assert [column.name for column in columns] == (["id", "price"] if more else ["id", "price", "_diff"])
    shown = metadata(published, "prices", "current")
    assert (shown["dagster/table_name"], shown["dagster/row_count"], shown["contents_rows"]) == ("tables.prices", 2, 2)
    assert shown["dagster/uri"] == table_of(lakes.collection("prices")).uri
    rows = spark.read.format("delta").load(str(table_of(lakes.collection("prices")))).collect()
    assert sorted((row["id"], row["price"]) for row in rows) == [(1, 30), (2, 20)]
    assert failed_checks(run_nightly_job(lakes.config, instance)).keys() == failed_checks(result).keys()
