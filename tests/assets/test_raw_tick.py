"""A scheduled tick of reclocked collections: ingest also seals, and a check reports keys in error."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance
from pyspark.sql import SparkSession

from expectations.suite import rules_of
from orchestration.run_once import run_current_job, run_nightly_job, run_tick_job
from tests.lakes.dagster_lakes import RawLakes, compacted, failed_checks, metadata
from tests.lakes.published import table_of
from tests.sweeps import swept
from tidelake.settings.lake import load_settings
from tidelake.store.commit import OpenTable

pytestmark = pytest.mark.spark


def item(row: int, price: Any) -> dict[str, Any]:
    return {"key": {"id": row}, "value": {"id": row, "price": price}}


def change(op: str, row: int, price: Any, lsn: int) -> dict[str, Any]:
    """An event as Debezium writes it."""
    source = {"connector": "postgresql", "lsn": lsn, "sequence": f'["{lsn}","{lsn}"]', "snapshot": "false"}
    value = {"before": None, "after": {"id": row, "price": price}, "source": source, "op": op, "ts_ms": lsn}
    return {"key": {"id": row}, "value": value}


@pytest.mark.parametrize("until", swept(["the first tick", "the key is healed"], ["the first tick"]))
def test_reclocked_collections_go_through_the_scheduled_job(
    instance: DagsterInstance, tmp_path: Path, until: str
) -> None:
    lakes = RawLakes(tmp_path, {"visits": "append_only", "prices": "upsert"})
    for name in ("visits", "prices"):
        lakes.put(name, item(1, 10), item(1, 10), item(2, "dear"), {"key": {"id": 3}, "value": None})
    result = run_tick_job(lakes.config, instance)
    assert result.success
    assert failed_checks(result) == {
        "prices/no_key_is_in_error": "ERROR",
        "visits/quarantine_is_explained": "WARN",
    }
    read = {name: metadata(result, name) for name in ("visits", "prices")}
    assert [read[name]["statements_stored"] for name in read] == [2, 3]
    assert read["visits"]["quarantine_reasons"] == {"null_value": 1, "wrong_type": 1}
    assert read["prices"]["values_in_error"] == 1
    assert read["prices"]["upper"] == lakes.upper("prices")
    sealed = metadata(result, "prices")
    assert "binding to offsets is the proof" in sealed["sealed_by"]
    assert sealed["upper"] == lakes.upper("prices")
    (error_check,) = [
        evaluation
        for evaluation in result.get_asset_check_evaluations()
        if evaluation.check_name == "no_key_is_in_error"
    ]
    assert '{"id":2}: the value cannot be used: wrong_type (prices:0:2)' in (error_check.description or "")
    if until == "the first tick":
        return

    lakes.put("prices", item(2, 20))
    healed = run_nightly_job(lakes.config, instance)
    assert set(failed_checks(healed)) == {"prices/no_key_is_in_error", "visits/quarantine_is_explained"}
    assert failed_checks(run_tick_job(lakes.config, instance)) == {"visits/quarantine_is_explained": "WARN"}
    assert (tmp_path / "docs" / "index.html").is_file()


def current(lakes: RawLakes, instance: DagsterInstance, spark: SparkSession) -> tuple[bool, dict[int, int]]:
    """Whether `current` of `people` was brought up to date, and its contents."""
    done = run_current_job(lakes.config, instance).success
    rows = spark.read.format("delta").load(str(table_of(lakes.collection("people")))).collect()
    return done, {row["id"]: row["price"] for row in rows}


def make_people(instance: DagsterInstance, spark: SparkSession, root: Path) -> RawLakes:
    """A collection of change events after a tick, and its `current`."""
    lakes = RawLakes(root, {"people": "debezium"})
    lakes.put("people", change("c", 1, 10, lsn=100), change("c", 2, 20, lsn=200))
    result = run_tick_job(lakes.config, instance)
    assert result.success and not failed_checks(result)
    assert metadata(result, "people")["upper"] == lakes.upper("people")
    assert current(lakes, instance, spark) == (True, {1: 10, 2: 20})
    return lakes


def test_change_events_go_through_the_scheduled_job_and_become_rows(
    instance: DagsterInstance, spark: SparkSession, tmp_path: Path
) -> None:
    make_people(instance, spark, tmp_path)


@pytest.mark.sweep
def test_checks_and_pages_show_a_key_in_error_and_current_is_not_updated(
    instance: DagsterInstance, spark: SparkSession, tmp_path: Path
) -> None:
    lakes = make_people(instance, spark, tmp_path)
    lakes.put("people", change("u", 1, 11, lsn=300), change("u", 2, "dear", lsn=400))
    for run in (run_tick_job, run_nightly_job):
        result = run(lakes.config, instance)
        assert failed_checks(result) == {"people/no_key_is_in_error": "ERROR"}
        (error_check,) = [
            evaluation
            for evaluation in result.get_asset_check_evaluations()
            if evaluation.check_name == "no_key_is_in_error"
        ]
        assert '{"id":2}' in (error_check.description or "")
    pages = [page.read_text(encoding="utf-8") for page in (tmp_path / "docs" / "validations").glob("**/*.html")]
    assert any(html.escape('{"id":2}') in page for page in pages)
    assert current(lakes, instance, spark) == (False, {1: 10, 2: 20})

    lakes.put("people", change("u", 2, 22, lsn=500))
    assert not failed_checks(run_tick_job(lakes.config, instance))
    assert current(lakes, instance, spark) == (True, {1: 11, 2: 22})


@pytest.mark.sweep
def test_a_lost_binding_fails_every_check_and_blocks_downstream_assets(
    instance: DagsterInstance, tmp_path: Path
) -> None:
    lakes = RawLakes(tmp_path, {"visits": "append_only"})
    for row in range(2):
        lakes.put("visits", item(row, 10))
        assert run_tick_job(lakes.config, instance).success
    path = lakes.collection("visits").paths.bindings
    table = OpenTable(path)
    table.commit({}, [], [min(table.files(), key=lambda file: file.time_min or 0).run])
    result = run_nightly_job(lakes.config, instance)
    checks = {rule.name for rule in rules_of(load_settings(lakes.config).collection("visits"))}
    assert {name.partition("/")[2] for name in failed_checks(result)} >= checks
    assert compacted(result) == set()


@pytest.mark.sweep
def test_the_collections_of_a_timeline_get_the_start_time_of_the_run(instance: DagsterInstance, tmp_path: Path) -> None:
    lakes = RawLakes(tmp_path, {"visits": "append_only", "prices": "upsert"})
    for block in lakes.document["collections"].values():
        block["timeline"] = "web"
    lakes.write(lakes.document)
    lakes.put("prices", item(1, 10))
    result = run_tick_job(lakes.config, instance)
    assert result.success
    record = instance.get_run_record_by_id(result.run_id)
    assert record is not None and record.start_time is not None
    begun = int(record.start_time * 1000)
    assert [lakes.upper(name) for name in ("visits", "prices")] == [begun + 1, begun + 1]
