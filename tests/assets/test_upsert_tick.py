"""A scheduled tick of an upsert collection, and damage that the check of the upsert family detects."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from dagster import DagsterInstance
from pyspark.sql import SparkSession

from orchestration.run_once import run_current_job, run_nightly_job, run_tick_job
from tests.lakes.dagster_lakes import Lakes, failed_checks, materialized, metadata
from tests.lakes.lake import RECORD, progress, updates
from tidelake.store.commit import OpenTable
from tidelake.store.files import write_run
from tidelake.store.layout import new_run
from tidelake.store.table_schema import updates_schema

pytestmark = pytest.mark.spark


def test_an_upsert_collection_goes_through_the_scheduled_job(
    spark: SparkSession, instance: DagsterInstance, tmp_path: Path
) -> None:
    lakes = Lakes(tmp_path, {"prices": "upsert"}, key="id")
    lakes.send("prices", updates(((1, 10), 1, 1), ((2, 20), 1, 1)), updates(((1, 30), 2, 1), ((1, 10), 2, -1)))
    lakes.send("prices", updates(((2, 20), 3, -1)), progress([0], [6], {1: 2, 2: 2, 3: 1}))
    result = run_tick_job(lakes.config, instance)
    assert result.success
    assert failed_checks(result) == {}
    assert "one_value_a_key" in {evaluation.check_name for evaluation in result.get_asset_check_evaluations()}
    assert metadata(result, "prices")["upper"] == 6
    assert lakes.contents(spark, "prices", 2) == {(1, 30): 1, (2, 20): 1}
    assert lakes.contents(spark, "prices", 5) == {(1, 30): 1}
    assert materialized(run_current_job(lakes.config, instance)) == {"prices/current"}

    # A second value of one key at a sealed time.
    path = lakes.collection("prices").paths.updates
    schema = pa.schema([field for field in updates_schema(RECORD) if field.name != "_run"])
    row = pa.Table.from_pylist([{"id": 1, "price": 77, "_time": 2, "_diff": 1}], schema=schema)
    table = OpenTable(path)
    table.commit({}, write_run(path, new_run("ingest", table.seq), row))
    damaged = run_nightly_job(lakes.config, instance)
    checks = ("announced_is_recounted", "one_value_a_key", "rows_are_as_recorded")
    assert failed_checks(damaged) == {f"prices/{check}": "ERROR" for check in checks}
