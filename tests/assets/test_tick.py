"""A scheduled tick on a real Dagster instance: the tables, the event log, and what stops the tick."""

from __future__ import annotations

import time as clock
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dagster import DagsterInstance, build_schedule_context
from pyspark.sql import SparkSession

from orchestration.jobs import TICK
from orchestration.location import build_location
from orchestration.run_once import run_current_job, run_nightly_job, run_tick_job
from orchestration.settings import Environment
from tests.lakes.dagster_lakes import HISTORY, Lakes, compacted, failed_checks, materialized, metadata
from tests.lakes.lake import RECORD, progress, updates
from tidelake import open_lake
from tidelake.store.commit import OpenTable
from tidelake.store.failpoints import on_reach
from tidelake.store.files import write_run
from tidelake.store.layout import new_run
from tidelake.store.table_schema import updates_schema

pytestmark = pytest.mark.spark

CONTENTS = {(1, 10): 1, (2, 20): 1, (3, 30): 1, (4, 40): 2}
BOTH = {"prices", "visits"}


def commit_row_at_sealed_time(lakes: Lakes, name: str, time: int) -> None:
    """Commit what no job would commit: a row at a sealed time, in a commit that is otherwise correct."""
    path = lakes.collection(name).paths.updates
    schema = updates_schema(RECORD).remove(len(updates_schema(RECORD)) - 1)
    rows = pa.Table.from_pylist([{"id": 9, "price": 9, "_time": time, "_diff": 1}], schema=schema)
    table = OpenTable(path)
    table.commit({}, write_run(path, new_run("ingest", table.seq), rows))


def test_a_scheduled_tick_ends_in_sealed_tables_metadata_and_passing_checks(
    spark: SparkSession, instance: DagsterInstance, lakes: Lakes
) -> None:
    for name in ("prices", "visits"):
        lakes.send(name, *HISTORY)
    location = build_location(Environment(config_file=lakes.config))
    schedule = location.get_repository_def().get_schedule_def(f"{TICK}_schedule")
    with build_schedule_context(instance=instance) as context:
        (request,) = schedule.evaluate_tick(context).run_requests or []
    job = location.resolve_job_def(schedule.job_name)
    result = job.execute_in_process(instance=instance, run_config=request.run_config, tags=request.tags)

    assert result.success
    assert materialized(result) == compacted(result) == BOTH
    assert failed_checks(result) == {}
    assert len(result.get_asset_check_evaluations()) == 14 + 14
    sealed = metadata(result, "prices")
    assert sealed["messages"] == 6
    assert (sealed["statements_read"], sealed["statements_stored"], sealed["copies_dropped"]) == (6, 4, 2)
    assert (sealed["late_statements"], sealed["quarantined"], sealed["lag_messages"]) == (0, 0, 0)
    assert sealed["offsets"] == {"0": 6}
    assert (sealed["upper"], sealed["times_sealed"], sealed["lag_source_time"]) == (6, 3, 0)
    assert (sealed["pending_statements"], sealed["stored_statements"]) == (0, 4)
    assert sealed["ingest_s"] > 0 and sealed["seal_s"] > 0 and sealed["statements_per_s"] > 0
    # Statements are not rows of the contents, and values that never change are not plotted.
    assert not {"dagster/row_count", "since", "lower"} & sealed.keys()
    assert [column.name for column in sealed["dagster/column_schema"].columns] == updates_schema(RECORD).names
    assert sealed["dagster/table_name"] == "prices.updates"
    assert sealed["dagster/uri"] == lakes.collection("prices").paths.updates.local.as_uri()
    (event,) = [
        candidate
        for candidate in result.get_asset_materialization_events()
        if candidate.asset_key.path[1:] == ["prices"]  # type: ignore[union-attr]
    ]
    assert (event.materialization.tags or {})["dagster/data_version"] == "6"
    recounted = next(
        evaluation
        for evaluation in result.get_asset_check_evaluations()
        if evaluation.check_name == "announced_is_recounted"
    )
    numbers = {name: value.value for name, value in recounted.metadata.items()}
    assert (numbers["times"], numbers["announced"], numbers["counted"], numbers["recounted"]) == (3, 4, 4, 4)
    assert lakes.contents(spark, "prices", 5) == lakes.contents(spark, "visits", 5) == CONTENTS

    shown = run_current_job(lakes.config, instance)
    assert shown.success
    assert materialized(shown) == {"prices/current", "visits/current"}
    assert metadata(shown, "visits", "current")["dagster/row_count"] == 4
    assert metadata(shown, "visits", "current")["as_of"] == 5


def test_a_gap_stops_only_the_reading_of_its_topic(
    spark: SparkSession, instance: DagsterInstance, lakes: Lakes
) -> None:
    lakes.send("prices", *HISTORY)
    lakes.send("prices", updates(((5, 50), 7, 1)), progress([6], [9], {7: 1}), skip=3)
    lakes.send("visits", *HISTORY)
    result = run_tick_job(lakes.config, instance)
    assert result.success
    assert materialized(result) == compacted(result) == BOTH
    assert failed_checks(result) == {"prices/topic_complete": "ERROR"}
    (gap,) = [evaluation for evaluation in result.get_asset_check_evaluations() if not evaluation.passed]
    assert "'prices', partition 0: offsets 6 to 8 are missing" in str(gap.description)
    assert gap.metadata["offsets_missing"].value == 3
    assert metadata(result, "prices")["messages"] == 6
    assert (lakes.upper("prices"), lakes.upper("visits")) == (6, 6)
    assert lakes.contents(spark, "prices", 5) == CONTENTS


def test_a_lost_update_fails_a_check_that_says_how_many_are_missing(
    spark: SparkSession, instance: DagsterInstance, lakes: Lakes
) -> None:
    lakes.send("prices", *HISTORY)
    lakes.send("prices", updates(((5, 50), 7, 1)), progress([6], [9], {7: 3}))
    lakes.send("visits", *HISTORY)
    result = run_tick_job(lakes.config, instance)
    assert result.success
    assert compacted(result) == BOTH
    assert failed_checks(result) == {"prices/announced_updates_arrive": "ERROR"}
    (missing,) = [evaluation for evaluation in result.get_asset_check_evaluations() if not evaluation.passed]
    assert str(missing.description).startswith("waiting at time 7: 3 announced, 1 stored; upper has not moved for ")
    assert (missing.metadata["updates_missing"].value, missing.metadata["first_time"].value) == (2, "7")


@pytest.mark.sweep
def test_a_hold_that_is_too_old_gives_a_warning_that_names_it(
    spark: SparkSession, instance: DagsterInstance, tmp_path: Path
) -> None:
    lakes = Lakes(tmp_path, {"prices": "plain"}, hold_age_max_s=1)
    lakes.send("prices", *HISTORY)
    assert failed_checks(run_tick_job(lakes.config, instance)) == {}
    held = open_lake(lakes.config).collection("prices").acquire(at=2, purpose="report")
    clock.sleep(1.1)
    result = run_tick_job(lakes.config, instance)
    assert result.success
    assert failed_checks(result) == {"prices/holds_end": "WARN"}
    (old,) = [evaluation for evaluation in result.get_asset_check_evaluations() if not evaluation.passed]
    assert str(old.description).startswith(f"'report' ({held.id}) has held time 2 for ")
    assert (old.metadata["holds"].value, old.metadata["holds_too_old"].value) == (1, 1)


def test_an_invalid_setting_stops_only_its_own_collection(
    spark: SparkSession, instance: DagsterInstance, lakes: Lakes
) -> None:
    lakes.send("prices", *HISTORY)
    (lakes.root / "topics" / "visits").rmdir()
    result = run_tick_job(lakes.config, instance)
    assert not result.success
    assert materialized(result) == compacted(result) == {"prices"}
    text = "".join(str(event.event_specific_data) for event in result.all_events if event.is_failure)
    assert "collections.visits.topic: the topic 'visits' has no folder" in text
    assert lakes.upper("prices") == 6
    assert not any(event.is_step_up_for_retry for event in result.all_events)  # a retry would fail again


@pytest.mark.sweep
def test_source_errors_fail_only_checks_that_do_not_block(
    spark: SparkSession, instance: DagsterInstance, lakes: Lakes
) -> None:
    lakes.send("prices", *HISTORY, b"\xff\xff", updates(((5, 50), 7, 1), ((6, 60), 7, 1)), progress([6], [9], {7: 1}))
    lakes.send("visits", *HISTORY, updates(((1, 10), 7, -1)), progress([6], [9], {7: 1}))
    result = run_tick_job(lakes.config, instance)
    assert result.success
    assert failed_checks(result) == {
        "prices/nothing_is_contradicted": "ERROR",
        "prices/quarantine_is_explained": "WARN",
        "visits/nothing_is_contradicted": "ERROR",
        "visits/quarantine_is_explained": "WARN",
    }
    assert metadata(result, "prices")["contradictions"] == 1
    assert "over_count" in metadata(result, "prices")["contradicted_by"]
    shown = run_current_job(lakes.config, instance)
    assert shown.success
    assert metadata(shown, "prices", "current")["as_of"] == 6


@pytest.mark.sweep
def test_damage_below_upper_blocks_downstream_assets_until_it_is_repaired(
    spark: SparkSession, instance: DagsterInstance, lakes: Lakes
) -> None:
    for name in ("prices", "visits"):
        lakes.send(name, *HISTORY)
    assert run_tick_job(lakes.config, instance).success
    assert run_current_job(lakes.config, instance).success
    commit_row_at_sealed_time(lakes, "prices", time=2)
    nightly = run_nightly_job(lakes.config, instance)
    assert not nightly.success
    assert failed_checks(nightly) == {
        "prices/announced_is_recounted": "ERROR",
        "prices/sum_of_diffs_is_as_recorded": "ERROR",
        "prices/rows_are_as_recorded": "ERROR",
    }
    assert compacted(nightly) == {"visits"}
    recounted = next(
        evaluation
        for evaluation in nightly.get_asset_check_evaluations()
        if evaluation.check_name == "announced_is_recounted"
    )
    assert recounted.metadata["failed_at_times"].value == [2]
    assert (lakes.root / "docs" / "index.html").is_file()

    # New times that are correct do not hide the damage.
    lakes.send("prices", updates(((5, 50), 7, 1)), progress([6], [9], {7: 1}))
    lakes.send("visits", updates(((5, 50), 7, 1)), progress([6], [9], {7: 1}))
    tick = run_tick_job(lakes.config, instance)
    assert not tick.success
    assert (materialized(tick), compacted(tick)) == (BOTH, {"visits"})
    shown = run_current_job(lakes.config, instance)
    assert materialized(shown) == {"visits/current"}
    assert metadata(shown, "visits", "current")["as_of"] == 8
    assert "prices/announced_is_recounted" in failed_checks(shown)

    # Without the extra run of files, the collection is as it was before the damage.
    path = lakes.collection("prices").paths.updates
    extra = {file.run for file in OpenTable(path).files() if file.rows == 1 and file.time_max == 2}
    OpenTable(path).commit({}, [], sorted(extra))
    mended = run_current_job(lakes.config, instance)
    assert mended.success
    assert failed_checks(mended) == {}
    assert metadata(mended, "prices", "current")["as_of"] == 8


@pytest.mark.sweep
def test_a_refused_commit_fails_its_step_and_does_not_blame_the_topic(instance: DagsterInstance, lakes: Lakes) -> None:
    lakes.send("prices", *HISTORY)
    lakes.send("visits", *HISTORY)

    def lose_the_run(place: str) -> None:
        if place == "ingest.after_late":
            for file in lakes.collection("prices").paths.updates.local.glob("_run=ingest-*/**/*.parquet"):
                file.unlink()

    on_reach(lose_the_run)
    try:
        tick = run_tick_job(lakes.config, instance)
    finally:
        on_reach(None)
    assert not tick.success
    assert materialized(tick) == compacted(tick) == {"visits"}
    assert "prices/topic_complete" not in failed_checks(tick)


@pytest.mark.sweep
def test_a_changed_run_file_blocks_downstream_assets(
    spark: SparkSession, instance: DagsterInstance, lakes: Lakes
) -> None:
    for name in ("prices", "visits"):
        lakes.send(name, *HISTORY)
    assert run_tick_job(lakes.config, instance).success
    folder = lakes.collection("prices").paths.updates
    (file,) = [folder.local / entry.path for entry in OpenTable(folder).files()]
    rows = pq.ParquetFile(file).read()
    at = rows["_time"].to_pylist().index(2)
    times = [*rows["_time"].to_pylist()]
    times[at] = 4  # the file is rewritten with new checksums, so that only the time is wrong
    pq.write_table(rows.set_column(rows.column_names.index("_time"), "_time", pa.array(times, pa.int64())), file)
    moved = run_nightly_job(lakes.config, instance)
    assert failed_checks(moved) == {"prices/announced_is_recounted": "ERROR"}
    assert compacted(moved) == {"visits"}
    _tear(file)
    torn = run_nightly_job(lakes.config, instance)
    assert set(failed_checks(torn)) >= {"prices/announced_is_recounted", "prices/announced_is_counted"}
    assert compacted(torn) == {"visits"}


def _tear(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
