"""A published table that follows the changes shows the contents, and rewrites only the files that the changes touch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from tests.lakes.lake import NAME, Lake, progress, updates
from tests.lakes.published import counted, rows_of, table_of
from tests.lakes.raw_lake import RawLake
from tests.lakes.upserts import ITEM, item
from tests.stops import stop_at
from tidelake.errors import BagRefused, KeysInError
from tidelake.read import following, published_files
from tidelake.read.current import CONTENTS_AT_UPPER, CurrentReport, Wanted, update_current
from tidelake.read.publication import publication_of

pytestmark = pytest.mark.spark


def published(lake: Lake, wanted: Wanted = CONTENTS_AT_UPPER) -> CurrentReport:
    return update_current(lake.spark, lake.collection, wanted)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    """A collection with a key: the keys 1 and 2 are published in one file, and the key 3 is not published yet."""
    lake = Lake(tmp_path_factory.mktemp("follows"), spark, "upsert", key="id")
    lake.send(updates(((1, 10), 0, 1), ((2, 20), 0, 1)), progress([0], [1], {0: 2}))
    lake.run()
    assert published(lake).reason == "it was not published before"
    lake.send(updates(((3, 30), 1, 1)), progress([1], [2], {1: 1}))
    lake.run()
    return lake


@pytest.fixture
def lake(prepared: Lake, tmp_path: Path) -> Lake:
    return prepared.copy(tmp_path / "lake")


def prices(lake: Lake) -> dict[int, int]:
    return {row["id"]: row["price"] for row in rows_of(lake.collection)}


def files_of(lake: Lake) -> set[str]:
    return set(DeltaTable(str(table_of(lake.collection))).file_uris())


def test_a_new_key_adds_a_file_and_a_changed_key_rewrites_only_its_file(lake: Lake) -> None:
    first = files_of(lake)
    report = published(lake)
    assert (report.how, report.rows_changed, report.files_rewritten, report.rows_rewritten) == ("followed", 1, 0, 1)
    assert first < files_of(lake) and prices(lake) == {1: 10, 2: 20, 3: 30}
    added = files_of(lake) - first
    lake.send(updates(((1, 11), 2, 1), ((4, 40), 2, 1)), progress([2], [3], {2: 2}))
    lake.run()
    report = published(lake)
    assert (report.rows_changed, report.files_rewritten, report.rows_rewritten) == (2, 1, 3)
    assert added < files_of(lake) and not first & files_of(lake)
    assert prices(lake) == {1: 11, 2: 20, 3: 30, 4: 40}
    shown = publication_of(lake.collection)
    assert shown is not None and shown.shown is not None
    assert (shown.shown.how, shown.shown.followed_from, shown.shown.rows) == ("followed", 1, 4)


def test_a_table_that_another_engine_wrote_to_is_rebuilt_and_the_report_names_the_engine(lake: Lake) -> None:
    path = str(table_of(lake.collection))
    write_deltalake(path, pa.table({"id": [9], "price": pa.array([9], pa.int32())}), mode="append")
    report = published(lake)
    assert report.how == "rebuilt" and report.reason is not None
    assert report.reason.startswith("delta-rs") and "has written to it" in report.reason
    assert prices(lake) == {1: 10, 2: 20, 3: 30}


@pytest.mark.sweep
def test_a_table_that_another_engine_compacted_is_followed(lake: Lake) -> None:
    published(lake)
    DeltaTable(str(table_of(lake.collection))).optimize.compact()
    lake.send(updates(((1, 11), 2, 1)), progress([2], [3], {2: 1}))
    lake.run()
    assert (published(lake).how, prices(lake)) == ("followed", {1: 11, 2: 20, 3: 30})


@pytest.mark.sweep
def test_a_table_is_rebuilt_on_request_and_if_a_file_is_missing_or_since_has_passed_it(lake: Lake) -> None:
    assert published(lake, Wanted(rebuild=True)).reason == "it was requested"
    lake.send(updates(((1, 11), 2, 1)), progress([2], [3], {2: 1}))
    lake.run()
    for file in table_of(lake.collection).local.glob("publish-*/*.parquet"):
        file.unlink()
    assert "is missing" in str(published(lake).reason) and prices(lake) == {1: 11, 2: 20, 3: 30}
    lake.send(updates(((1, 12), 3, 1)), progress([3], [4], {3: 1}))
    lake.run()
    lake.document["collections"]["prices"]["keep"] = 0
    lake.settings = lake.written()
    lake.compact()
    assert published(lake).reason == "it shows time 2, which is before since"
    assert prices(lake) == {1: 12, 2: 20, 3: 30}


def test_a_table_with_many_small_files_merges_them_and_a_much_changed_table_is_rebuilt(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_files, "SMALL_FILES_MAX", 1)
    assert (published(lake).files_rewritten, len(files_of(lake))) == (1, 1)
    monkeypatch.setattr(following, "CHANGED_ROWS_FOLLOWED", 1)
    lake.send(updates(((1, 11), 2, 1), ((2, 21), 2, 1)), progress([2], [3], {2: 2}))
    lake.run()
    assert published(lake).reason == "2 rows have changed, of 3"


def test_a_deleted_key_is_removed_from_the_table_and_deleting_an_unknown_key_changes_nothing(lake: Lake) -> None:
    published(lake)
    lake.send(updates(((1, 10), 2, -1), ((7, 70), 2, -1), ((2, 20), 2, 1)), progress([2], [3], {2: 3}))
    lake.run()
    report = published(lake)
    assert (report.how, report.rows, report.contents_rows, report.rows_rewritten) == ("followed", 2, 2, 1)
    assert prices(lake) == {2: 20, 3: 30}


@pytest.mark.sweep
def test_a_source_that_repeats_most_rows_unchanged_does_not_rewrite_a_file(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(lake)
    first = files_of(lake)
    monkeypatch.setattr(following, "CHANGED_ROWS_FOLLOWED", 1)
    lake.send(updates(((1, 10), 2, 1), ((2, 20), 2, 1)), progress([2], [3], {2: 2}))
    lake.run()
    report = published(lake)
    assert (report.how, report.as_of, report.rows_changed, files_of(lake)) == ("followed", 2, 0, first)


def test_a_bag_repeats_rows_and_refuses_negative_ones(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, bag=True)
    bag = Wanted(bag=True)
    lake.send(updates(((1, 10), 0, 2), ((2, 20), 0, 1)), progress([0], [1], {0: 2}))
    lake.run()
    assert (published(lake, bag).rows, table_of(lake.collection)) == (3, table_of(lake.collection))
    lake.send(updates(((1, 10), 1, 1), ((2, 20), 1, -1)), progress([1], [2], {1: 2}))
    lake.run()
    report = lake.current().results["prices"]
    assert (report.how, report.rows, report.contents_rows) == ("followed", 3, 3)
    assert rows_of(lake.collection) == 3 * [{"id": 1, "price": 10}]
    lake.send(updates(((5, 50), 2, -4)), progress([2], [3], {2: 1}))
    lake.run()
    for rebuild in (False, True):
        with pytest.raises(BagRefused, match=r'row {"id":5,"price":50} occurs -4 times'):
            published(lake, Wanted(bag=True, rebuild=rebuild))
    assert len(rows_of(lake.collection)) == 3
    assert published(lake).reason == "the setting `bag` has changed"
    assert counted(rows_of(lake.collection), lambda row: str(row["id"])) == {"1": 3, "5": -4}


def test_keys_in_error_are_left_out_until_they_are_healed_if_the_settings_say_so(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = RawLake(tmp_path, spark, envelope="upsert", key="id", schema=ITEM)

    def shown(*records: Any) -> tuple[str | None, dict[int, int]]:
        """Ingest records and publish; return why the table was rebuilt, and its rows."""
        lake.put(*records)
        lake.ingest()
        return result().reason, prices(lake)

    def result() -> CurrentReport:
        report = lake.current()
        if not report.ok:
            raise report.errors[NAME]
        done: CurrentReport = report.results[NAME]
        return done

    def comment() -> str:
        text: str = DeltaTable(str(table_of(lake.collection))).metadata().description
        return text

    def bad(key: int) -> dict[str, Any]:
        return {"key": {"id": key}, "value": {"id": key, "price": "dear"}}

    with pytest.raises(KeysInError):
        shown(item(1, 10), item(2, 20), bad(3))
    lake.configure(current={"skip_errors": True})
    assert (result().reason, prices(lake)) == ("it was not published before", {1: 10, 2: 20})
    assert comment().endswith("so count(*) counts rows. Keys in error are left out.")
    assert shown(bad(1), item(3, 30)) == (None, {2: 20, 3: 30})
    lake.configure(current={"skip_errors": False})
    with pytest.raises(KeysInError):
        result()
    assert prices(lake) == {2: 20, 3: 30}
    assert shown(item(1, 11)) == ("the setting `skip_errors` has changed", {1: 11, 2: 20, 3: 30})
    assert "in error" not in comment()


def test_if_no_key_is_in_error_beginning_to_leave_them_out_changes_only_the_note(lake: Lake) -> None:
    published(lake)
    before = files_of(lake)
    report = published(lake, Wanted(skip_errors=True))
    assert (report.how, report.rows_rewritten, files_of(lake)) == ("followed", 0, before)
    shown = publication_of(lake.collection)
    assert shown is not None and shown.shown is not None and shown.shown.skip_errors
    assert published(lake, Wanted(skip_errors=True)).how == "unchanged"


@pytest.mark.sweep
def test_a_process_that_dies_while_it_follows_leaves_the_earlier_contents(lake: Lake) -> None:
    for place in ("current.after_changes", "current.after_scan", "current.after_files"):
        stop_at(place, lambda: published(lake))
        assert prices(lake) == {1: 10, 2: 20}
    assert (published(lake).how, prices(lake)) == ("followed", {1: 10, 2: 20, 3: 30})


def test_a_table_that_an_earlier_release_published_is_followed(lake: Lake) -> None:
    (entry,) = (table_of(lake.collection).local / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    info = actions[0]["commitInfo"]
    note = json.loads(info["userMetadata"])
    new = ("how", "reason", "followed_from", "together")
    info["userMetadata"] = json.dumps({name: value for name, value in note.items() if name not in new})
    entry.write_text("".join(json.dumps(action) + "\n" for action in actions))
    report = published(lake)
    assert (report.how, report.rows_changed, prices(lake)) == ("followed", 1, {1: 10, 2: 20, 3: 30})
