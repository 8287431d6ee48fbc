"""`keep_rows` removes old rows of append-only collections by recorded retractions, and leaves every proof valid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from jobs import compact, ingest, seal
from tests.lakes.kept_rows import DAY_MS, EVENT, KEPT_A_DAY, NOW_MS, clocks_at, events
from tests.lakes.lake import NAME, Lake, progress
from tests.lakes.raw_lake import RawLake
from tests.stops import stop_at
from tests.sweeps import swept
from tidelake import open_lake
from tidelake.read.changes import changes
from tidelake.read.snapshot import snapshot
from tidelake.read.status import read_status
from tidelake.seal.retention import may_hold_old
from tidelake.store.failpoints import on_reach
from tidelake.store.files import write_run
from tidelake.store.layout import DIFF, RUN, TIME, new_run
from tidelake.store.retention import read_departures
from tidelake.store.state import UPPER

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("any_store")]

HOUR_MS = DAY_MS // 24
OLD, RECENT = NOW_MS - DAY_MS - 1, NOW_MS - HOUR_MS


def contents(lake: Lake, as_of: int | None = None) -> dict[Any, int]:
    """How many times each `(id, at)` occurs; `at` is relative to `NOW_MS`."""
    rows = snapshot(lake.spark, lake.collection, as_of).contents.collect()
    return {(row["id"], None if row["at"] is None else row["at"] - NOW_MS): row["_diff"] for row in rows}


def stream(root: Path, spark: SparkSession, **more: Any) -> Lake:
    return Lake(root, spark, "append_only", schema=EVENT, keep_rows=KEPT_A_DAY, **more)


def records(root: Path, spark: SparkSession, **more: Any) -> RawLake:
    return RawLake(root, spark, schema=EVENT, keep_rows=KEPT_A_DAY, idle_upper_s=0, **more)


def whats(lake: Lake, *kinds: str) -> list[str]:
    return [event.what for event in open_lake(lake.file).collection(NAME).history(kinds=kinds).events]


def test_old_rows_of_a_stream_are_removed_by_the_seal_that_proves_the_next_times(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = stream(tmp_path, spark)
    lake.send(
        events((1, OLD, 1, 2), (2, RECENT, 1, 1), (3, None, 2, 1), (2, RECENT, 1, 1)), progress([0], [3], {1: 2, 2: 1})
    )
    with clocks_at(NOW_MS):
        first = lake.run()
    assert first.left is None  # only rows that were already sealed can be removed
    with clocks_at(NOW_MS):
        assert lake.run().left is None  # and only at a time that is not sealed yet
    # an old row is stated again before its removal, and another one is stated at the very time of the removal
    lake.send(events((1, OLD, 3, 1), (4, OLD, 5, 1)), progress([3], [6], {3: 1, 5: 1}))
    with clocks_at(NOW_MS):
        sealed = lake.run()
    assert sealed.left is not None and (sealed.left.rows, sealed.left.time) == (2, 5)
    before = {(1, OLD - NOW_MS): 2, (2, RECENT - NOW_MS): 1, (3, None): 1}
    assert contents(lake, 2) == before
    assert contents(lake, 4) == before | {(1, OLD - NOW_MS): 3}
    assert contents(lake, 5) == before | {(1, OLD - NOW_MS): 1, (4, OLD - NOW_MS): 1}
    gone = {(row["id"], row[TIME]): row[DIFF] for row in changes(spark, lake.collection, 2, 5).updates.collect()}
    assert gone == {(1, 3): 1, (1, 5): -2, (4, 5): 1}
    report = lake.validate(full=True)
    assert not report.damaged and report.rows_left == 2
    assert [row["recounted"] for row in report.times] == [2, 1, 1, 1]
    status = read_status(lake.collection)
    assert (status.rows_left, status.left_at) == (2, 5)
    (what,) = whats(lake, "retention")
    assert what.startswith("2 rows with `at` before ") and what.endswith("were removed from the contents at time 5")
    explained = open_lake(lake.file).collection(NAME).explain(5)
    assert any(fact.startswith("recorded retention: 2 rows") for fact in explained.facts)
    # the next removal is not due for a hundredth of a day; then the other rows are removed
    lake.send(progress([6], [7]))
    with clocks_at(NOW_MS + 60_000):
        assert lake.run().left is None
    lake.send(progress([7], [8]))
    with clocks_at(NOW_MS + HOUR_MS):
        again = lake.run()
    assert again.left is not None and (again.left.rows, again.left.total, again.left.time) == (2, 4, 7)
    assert contents(lake, 7) == {(2, RECENT - NOW_MS): 1, (3, None): 1}
    assert [each.time for each in read_departures(lake.collection, lake.table)] == [5, 7]
    lake.compact()
    assert not lake.validate(full=True).damaged
    assert contents(lake, 7) == {(2, RECENT - NOW_MS): 1, (3, None): 1}


@pytest.mark.sweep
def test_a_row_that_is_stated_again_at_the_time_of_its_removal_stays_until_the_next_pass(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = stream(tmp_path, spark)
    lake.send(events((1, OLD, 1, 2), (2, OLD, 1, 1)), progress([0], [2], {1: 2}))
    lake.run()
    lake.send(events((1, OLD, 4, 1)), progress([2], [5], {4: 1}))
    with clocks_at(NOW_MS):
        assert lake.run().left is not None
    assert contents(lake, 4) == {(1, OLD - NOW_MS): 3}
    assert not lake.validate().damaged
    lake.send(progress([5], [6]))
    with clocks_at(NOW_MS + HOUR_MS):
        sealed = lake.run()
    assert sealed.left is not None and sealed.left.rows == 3
    assert contents(lake, 5) == {}
    assert not lake.validate(full=True).damaged


@pytest.mark.sweep
def test_old_rows_of_a_reclocked_collection_are_removed_at_a_time_of_their_own(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = records(tmp_path, spark)
    lake.put({"id": 1, "at": OLD}, {"id": 1, "at": OLD}, {"id": 2, "at": RECENT})
    with clocks_at(NOW_MS):
        lake.ingest()
        sealed = lake.seal()
    assert sealed.left is not None and (sealed.left.rows, sealed.left.time) == (2, NOW_MS + 1)
    assert contents(lake, NOW_MS) == {(1, OLD - NOW_MS): 2, (2, RECENT - NOW_MS): 1}
    assert contents(lake) == {(2, RECENT - NOW_MS): 1}
    assert [binding.rows for binding in lake.times] == [3, 0]
    report = lake.validate(full=True)
    assert not report.damaged and report.rows_left == 2
    version = lake.table.version
    with clocks_at(NOW_MS + 60_000):
        assert lake.seal().left is None
    assert lake.table.version == version  # nothing was due, so nothing was committed
    lake.put({"id": 1, "at": OLD}, {"id": 3, "at": RECENT})
    with clocks_at(NOW_MS + HOUR_MS):
        lake.ingest()
        assert lake.seal().left is not None
    with clocks_at(NOW_MS + DAY_MS):
        assert lake.seal().left is not None
    assert contents(lake) == {}
    lake.configure(keep=0)
    with clocks_at(NOW_MS + 2 * DAY_MS):
        lake.compact()
    assert lake.table.files() == [] and not lake.validate(full=True).damaged
    assert len(whats(lake, "retention")) == 3


def test_rows_are_removed_by_the_earlier_of_two_clocks_and_not_by_an_unconfirmed_one(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = records(tmp_path, spark)
    lake.put({"id": 2, "at": RECENT})
    with clocks_at(NOW_MS):
        lake.ingest()
    later_ms = NOW_MS + 2 * DAY_MS
    for now_ms, store_ms in ((later_ms, NOW_MS), (NOW_MS, later_ms), (later_ms, later_ms)):
        with clocks_at(now_ms, store_ms):
            assert lake.seal().left is None
    assert contents(lake) == {(2, RECENT - NOW_MS): 1}
    lake.put({"value": {"id": 3, "at": later_ms}})
    with clocks_at(NOW_MS + DAY_MS):
        lake.ingest()
    with clocks_at(later_ms):
        assert lake.seal().left is not None
    assert contents(lake) == {(3, 2 * DAY_MS): 1}


@pytest.mark.sweep
@pytest.mark.parametrize("place", ["retention.after_write", "retention.after_note", "seal.after_commit"])
def test_a_stream_whose_seal_is_stopped_has_each_old_row_removed_once(
    tmp_path: Path, spark: SparkSession, place: str
) -> None:
    lake = stream(tmp_path, spark)
    lake.send(events((1, OLD, 1, 2), (2, RECENT, 1, 1)), progress([0], [2], {1: 2}))
    lake.run()
    lake.send(events((3, RECENT, 2, 1)), progress([2], [4], {2: 1}))
    lake.ingest()
    with clocks_at(NOW_MS):
        stop_at(place, lambda: seal.run(lake.spark, lake.settings))
    lake.send(progress([4], [6]))
    lake.ingest()
    with clocks_at(NOW_MS + 60_000):
        lake.seal()
    (departure,) = read_departures(lake.collection, lake.table)
    assert departure.rows == 2 and departure.time == (3 if place == "seal.after_commit" else 5)
    assert contents(lake, departure.time - 1)[1, OLD - NOW_MS] == 2
    assert contents(lake, 5) == {(2, RECENT - NOW_MS): 1, (3, RECENT - NOW_MS): 1}
    assert not lake.validate(full=True).damaged
    assert len(whats(lake, "retention")) == 1


@pytest.mark.parametrize(
    "place",
    swept([f"retention.after_{step}" for step in ("write", "binding", "note", "commit")], ["retention.after_binding"]),
)
def test_a_reclocked_collection_whose_seal_is_stopped_has_each_old_row_removed_once(
    tmp_path: Path, spark: SparkSession, place: str
) -> None:
    lake = records(tmp_path, spark)
    lake.put({"id": 1, "at": OLD}, {"id": 2, "at": RECENT})
    with clocks_at(NOW_MS):
        lake.ingest()
        stop_at(place, lambda: seal.run(lake.spark, lake.settings))
        lake.seal()
    (departure,) = read_departures(lake.collection, lake.table)
    assert departure.rows == 1
    assert contents(lake) == {(2, RECENT - NOW_MS): 1}
    assert not lake.validate(full=True).damaged


@pytest.mark.sweep
def test_only_one_of_two_processes_removes_the_rows(tmp_path: Path, spark: SparkSession) -> None:
    lake = records(tmp_path, spark)
    lake.put({"id": 1, "at": OLD})
    reached: list[str] = []

    def meet(name: str) -> None:
        if name == "retention.after_note" and not reached:
            reached.append(name)
            lake.seal()

    with clocks_at(NOW_MS):
        lake.ingest()
        on_reach(meet)
        try:
            sealed = lake.seal()
        finally:
            on_reach(None)
    assert reached and sealed.left is None
    assert len(read_departures(lake.collection, lake.table)) == 1 and contents(lake) == {}
    assert not lake.validate(full=True).damaged


@pytest.mark.sweep
@pytest.mark.parametrize("place", ["ingest.before", "ingest.beyond", "compact"])
def test_commits_during_a_seal_do_not_change_which_rows_are_removed(
    tmp_path: Path, spark: SparkSession, place: str
) -> None:
    lake = stream(tmp_path, spark)
    lake.send(events((1, OLD, 1, 2)), progress([0], [2], {1: 1}))
    lake.run()
    lake.send(progress([2], [9]))
    lake.ingest()
    done: list[str] = []

    def meet(name: str) -> None:
        if name == "retention.after_note" and not done:
            done.append(name)
            if place == "compact":
                compact.run(lake.spark, lake.settings, True)
            else:
                lake.send(events((5, RECENT, 4 if place == "ingest.before" else 9, 1)))
                ingest.run(lake.spark, lake.settings)

    with clocks_at(NOW_MS):
        on_reach(meet)
        try:
            sealed = lake.seal()
        finally:
            on_reach(None)
    assert done and sealed.left is not None
    assert sealed.left.time == (3 if place == "ingest.before" else 8) == sealed.upper - 1
    assert contents(lake, sealed.left.time - 1) == {(1, OLD - NOW_MS): 2} and contents(lake, sealed.left.time) == {}
    assert [each.time for each in read_departures(lake.collection, lake.table)] == [sealed.left.time]
    assert not lake.validate(full=True).damaged


def test_a_row_removed_without_a_record_is_reported_as_damage(tmp_path: Path, spark: SparkSession) -> None:
    lake = stream(tmp_path, spark)
    lake.send(events((1, OLD, 1, 2), (2, RECENT, 2, 1)), progress([0], [3], {1: 1, 2: 1}))
    lake.run()
    lake.send(progress([3], [5]))
    with clocks_at(NOW_MS):
        assert lake.run().left is not None
    assert not lake.validate().damaged
    table = lake.table
    rows = [{"id": 2, "at": RECENT, TIME: 4, DIFF: -1}]
    schema = pa.schema([field for field in table.schema() if field.name != RUN])
    run = new_run("seal", table.seq)
    table.commit({}, write_run(table.path, run, pa.Table.from_pylist(rows, schema=schema)))
    report = lake.validate(full=True)
    assert report.damaged
    assert "time 4: 3 rows were removed from the contents, but retention recorded 2" in report.mismatches


@pytest.mark.sweep
def test_a_late_copy_of_a_statement_whose_row_was_removed_is_still_a_copy(tmp_path: Path, spark: SparkSession) -> None:
    lake = stream(tmp_path, spark)
    lake.send(events((1, OLD, 1, 2)), progress([0], [2], {1: 1}))
    lake.run()
    lake.send(progress([2], [5]))
    with clocks_at(NOW_MS):
        assert lake.run().left is not None
    lake.send(events((1, OLD, 1, 2), (1, OLD, 4, -2)), events((1, OLD, 4, 2)))
    lake.run()
    late = lake.validate().late
    assert (late.copies, late.contradictions) == (1, 1)


@pytest.mark.sweep
def test_only_files_that_may_hold_old_rows_are_read(tmp_path: Path, spark: SparkSession) -> None:
    lake = stream(tmp_path, spark)
    rule = lake.settings.collection(NAME).keep_rows
    assert rule is not None
    for time, at in enumerate((OLD, RECENT, None)):
        lake.send(events((time, at, time, 1)), progress([time], [time + 1], {time: 1}))
        lake.ingest()
    found = {file.time_min: may_hold_old(lake.table, file, rule, NOW_MS - DAY_MS) for file in lake.table.files()}
    assert found == {0: True, 1: False, 2: False}


def test_the_status_of_a_lake_shows_the_removed_rows(tmp_path: Path, spark: SparkSession) -> None:
    lake = records(tmp_path, spark)
    lake.put({"id": 1, "at": OLD})
    with clocks_at(NOW_MS):
        lake.ingest()
        lake.seal()
    status = open_lake(lake.file).status()[NAME]
    document = json.loads(json.dumps(status.as_json()))  # type: ignore[union-attr]
    assert document["rows_left"] == 1 and document["left_at"] == (lake.table.value(UPPER) or 0) - 1


@pytest.mark.sweep
def test_publications_and_subscriptions_follow_the_removals(tmp_path: Path, spark: SparkSession) -> None:
    lake = records(tmp_path, spark)
    lake.put({"id": 1, "at": OLD}, {"id": 2, "at": RECENT})
    with clocks_at(NOW_MS):
        lake.ingest()
    lake.current()
    collection = open_lake(lake.file).collection(NAME)
    with collection.subscribe(spark, as_of=NOW_MS, snapshot=True) as subscription:
        batch = next(iter(subscription))
        assert sum(row[DIFF] for row in batch.updates.collect()) == 2
        with clocks_at(NOW_MS):
            assert lake.seal().left is not None
        batch = next(iter(subscription))
        (gone,) = batch.updates.collect()
        assert (gone["id"], gone[DIFF], gone[TIME]) == (1, -1, NOW_MS + 1)
    lake.current()
    published = collection.places().published
    assert published is not None
    rows = spark.read.format("delta").load(str(published.table)).collect()
    assert [row["id"] for row in rows] == [2]
