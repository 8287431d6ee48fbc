"""Published tables: which engines read them, how they describe themselves, and what happens if a name changes hands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.cli.commands import call, run
from tests.lakes.lake import NAME, Lake, progress, updates
from tests.lakes.published import rows_of, table_of
from tests.stops import stop_at
from tests.sweeps import swept
from tidelake import open_lake
from tidelake.errors import Conflict, DamagedPublication, Fenced, NotPublished, UnknownCollection, WrittenRowsMissing
from tidelake.lake import LakeCollection
from tidelake.read import current
from tidelake.read.current import CurrentReport, update_current
from tidelake.read.publication import contents_rows, publication_of
from tidelake.storage.location import Location
from tidelake.store import staged_rows
from tidelake.store.commit import OpenTable
from tidelake.store.failpoints import on_reach
from tidelake.store.table_log import Entry, read_entry

pytestmark = pytest.mark.spark

RECORD: dict[str, Any] = {
    "type": "record",
    "name": "data",
    "fields": [
        {"name": "id", "type": "long", "doc": "the item's number"},
        {"name": "price", "type": ["null", "int"], "doc": " in cents\n"},
    ],
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("published"), spark, schema=RECORD)
    lake.send(updates(((1, 10), 1, 1), ((2, 20), 2, 5)), progress([0], [3], {1: 1, 2: 1}))
    lake.run()
    published(lake)
    return lake


@pytest.fixture
def lake(prepared: Lake, tmp_path: Path) -> Lake:
    """A collection that is published AS OF time 2, with one row that occurs five times."""
    return prepared.copy(tmp_path / "lake")


def published(lake: Lake) -> CurrentReport:
    """Run the job, and return its report."""
    report = lake.current()
    assert report.ok, report.errors
    result = report.results[NAME]
    assert isinstance(result, CurrentReport)
    return result


def opened(lake: Lake) -> LakeCollection:
    return open_lake(lake.file).collection(NAME)


def send_more(lake: Lake) -> None:
    """Seal one more time, at which a row is removed."""
    lake.send(updates(((1, 10), 3, -1)), progress([3], [4], {3: 1}))
    lake.run()


def test_other_engines_read_the_contents_at_a_path_with_the_name(lake: Lake, spark: SparkSession) -> None:
    path = lake.root / "store" / "tables" / NAME
    assert table_of(lake.collection).local == path
    table = DeltaTable(path).to_pyarrow_table()
    assert sorted(zip(*(table[name].to_pylist() for name in ("id", "price", "_diff")), strict=True)) == [
        (1, 10, 1),
        (2, 20, 5),
    ]
    assert (DeltaTable(path).protocol().min_reader_version, DeltaTable(path).protocol().min_writer_version) == (1, 2)
    assert spark.read.format("delta").load(str(path)).where("price > 10").selectExpr("sum(_diff)").collect() == [(5,)]
    dataset = DeltaTable(path).to_pyarrow_dataset()
    assert list(dataset.get_fragments(filter=pc.field("price") > 10**6)) == []  # the statistics rule it out


def test_the_table_says_what_it_is(lake: Lake) -> None:
    table = DeltaTable(str(table_of(lake.collection)))
    comment: str = table.metadata().description
    entry = lake.collection.entry
    assert table.metadata().name == NAME
    assert comment.startswith(
        f"Contents of the Tidelake collection 'prices' (id {entry.id}) as of time 2; times at or after 0"
    )
    assert "sum(_diff) counts rows" in comment
    comments = {field.name: field.metadata.get("comment") for field in table.schema().fields}
    assert comments["id"] == "the item's number" and comments["price"] == "in cents"
    assert comments["_diff"] is not None
    assert comments["_diff"].startswith("How many times the row occurs; never 0.")
    noted = json.loads(table.history(1)[0]["userMetadata"])
    assert (noted["collection"], noted["collection_id"], noted["as_of"]) == (NAME, entry.id, 2)
    send_more(lake)
    assert published(lake).published
    table = DeltaTable(str(table_of(lake.collection)))
    assert "as of time 3;" in table.metadata().description
    assert table.history(1)[0]["userMetadata"].count('"as_of":3')


def test_each_number_of_rows_says_what_it_counts(lake: Lake) -> None:
    report = published(lake)
    assert (report.published, report.rows, report.contents_rows) == (False, 2, 6)
    assert contents_rows(lake.collection) == (6, 2)
    send_more(lake)
    assert contents_rows(lake.collection) == (6, 2)  # until the next publication
    assert (published(lake).contents_rows, contents_rows(lake.collection)) == (5, (5, 3))
    shown = json.loads(call("status", "--json", "--config", str(lake.file)))["collections"][NAME]
    assert (shown["rows"], shown["publication"]["rows"], shown["publication"]["contents_rows"]) == (3, 1, 5)
    assert shown["publication"]["path"] == str(table_of(lake.collection))


def test_a_collection_with_a_key_has_one_row_for_each_key(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, "upsert", key="id")
    lake.send(updates(((1, 10), 1, 1), ((2, 20), 1, 1), ((1, 11), 2, 1)), progress([0], [3], {1: 2, 2: 1}))
    lake.run()
    report = published(lake)
    assert (report.rows, report.contents_rows) == (2, 2)
    assert sorted(rows_of(lake.collection), key=lambda row: row["id"]) == [
        {"id": 1, "price": 11},
        {"id": 2, "price": 20},
    ]
    comment = DeltaTable(str(table_of(lake.collection))).metadata().description
    assert "One row for each key (id), so count(*) counts rows." in comment
    lake.send(updates(((1, 11), 3, -1), ((2, 20), 3, -1)), progress([3], [4], {3: 2}))
    lake.run()
    assert (published(lake).rows, rows_of(lake.collection)) == (0, [])
    assert contents_rows(lake.collection) == (0, 3)


def test_moving_a_name_to_another_collection_is_one_overwriting_commit_in_the_same_log(lake: Lake) -> None:
    first, path = lake.collection, str(table_of(lake.collection))
    table_id, version = DeltaTable(path).metadata().id, DeltaTable(path).version()
    lake.catalog.rename(NAME, "old_prices")
    lake.catalog.open_or_create(lake.settings.collection(NAME).spec())  # a job would refuse to reuse the old name
    lake.run()
    renewed = lake.collection
    assert renewed.entry.id != first.entry.id and publication_of(renewed) is None
    assert published(lake).path == path
    now = DeltaTable(path)
    assert (now.metadata().id, now.version()) == (table_id, version + 1)
    assert f"(id {renewed.entry.id})" in now.metadata().description
    noted = json.loads(now.history(1)[0]["userMetadata"])
    bound = publication_of(renewed)
    assert bound is not None
    assert (noted["collection_id"], noted["bound_at_ms"]) == (renewed.entry.id, bound.publication.bound_at_ms)
    with pytest.raises(UnknownCollection):
        update_current(lake.spark, first)
    renamed = lake.catalog.find("old_prices")
    assert publication_of(renamed) is None
    update_current(lake.spark, renamed)
    assert table_of(renamed).name == "old_prices" and len(rows_of(renamed)) == 2
    assert DeltaTable(path).version() == version + 1


@pytest.mark.sweep
def test_between_binding_and_commit_the_table_is_not_mistaken_for_that_of_the_new_collection(lake: Lake) -> None:
    lake.catalog.rename(NAME, "old_prices")
    lake.catalog.open_or_create(lake.settings.collection(NAME).spec())  # a job would refuse to reuse the old name
    lake.run()
    stop_at("current.after_catalog", lake.current)
    bound = publication_of(lake.collection)
    assert bound is not None and bound.shown is None
    assert contents_rows(lake.collection) is None
    with pytest.raises(NotPublished):
        call("path", NAME, "--config", str(lake.file))
    assert published(lake).published and contents_rows(lake.collection) == (6, 2)


@pytest.mark.parametrize(
    "place", swept(["current.before_write", "current.after_files", "current.after_entry"], ["current.after_files"])
)
def test_a_publication_that_was_interrupted_shows_the_old_or_the_new_contents(lake: Lake, place: str) -> None:
    send_more(lake)
    stop_at(place, lake.current)
    shown = {row["id"]: row["_diff"] for row in rows_of(lake.collection)}
    is_new = place == "current.after_entry"
    assert shown == ({2: 5} if is_new else {1: 1, 2: 5})
    assert contents_rows(lake.collection) == ((5, 3) if is_new else (6, 2))
    assert published(lake).published is not is_new
    assert {row["id"]: row["_diff"] for row in rows_of(lake.collection)} == {2: 5}


@contextmanager
def another_publishes_first(lake: Lake) -> Iterator[None]:
    """Let another process publish before the first commit of this one."""
    reached: list[str] = []

    def meet(name: str) -> None:
        reached.append(name)
        if name == "current.after_files" and reached.count(name) == 1:
            update_current(lake.spark, lake.collection)

    on_reach(meet)
    try:
        yield
    finally:
        on_reach(None)


@pytest.mark.sweep
def test_if_another_process_publishes_first_the_contents_are_read_once_more(lake: Lake) -> None:
    send_more(lake)
    path = str(table_of(lake.collection))
    version = DeltaTable(path).version()
    with another_publishes_first(lake):
        report = published(lake)
    assert (report.published, report.as_of) == (False, 3)
    assert DeltaTable(path).version() == version + 1
    assert len(list((lake.root / "store" / "tables" / NAME).glob("publish-*"))) == 2


def test_a_process_that_loses_every_race_names_the_published_table(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    send_more(lake)
    monkeypatch.setattr(current, "_ATTEMPTS_MAX", 1)
    with another_publishes_first(lake), pytest.raises(Conflict) as error:
        update_current(lake.spark, lake.collection)
    assert error.value.table == str(table_of(lake.collection))


def test_a_table_stays_as_it_is_if_the_rows_that_were_written_are_not_shown(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(path: Location, version: int) -> Entry:
        return [action for action in read_entry(path, version) or () if "add" not in action]

    before = rows_of(lake.collection)
    send_more(lake)
    monkeypatch.setattr(staged_rows, "read_entry", shown)
    for rebuild in (True, False):
        assert isinstance(lake.current(rebuild).errors[NAME], WrittenRowsMissing)
        assert rows_of(lake.collection) == before
    monkeypatch.undo()
    result = published(lake)
    assert (result.how, result.rows, result.contents_rows) == ("followed", 1, 5)


def test_a_fenced_process_does_not_publish(lake: Lake) -> None:
    send_more(lake)
    before = lake.collection
    lake.catalog.fence(NAME, None)
    with pytest.raises(Fenced):
        update_current(lake.spark, before)
    assert contents_rows(lake.collection) == (6, 2)


def test_path_prints_the_table_and_does_not_start_a_jvm(lake: Lake) -> None:
    done = run("path", NAME, "--config", str(lake.file))
    assert (done.returncode, done.stdout) == (0, f"{table_of(lake.collection)}\n")
    shown = json.loads(call("path", NAME, "--json", "--config", str(lake.file)))
    assert (shown["name"], shown["older"]) == (NAME, None)
    assert shown["publication"]["path"] == str(table_of(lake.collection))
    assert (shown["publication"]["as_of"], shown["publication"]["contents_rows"]) == (2, 6)
    assert shown["updates"] == str(lake.collection.paths.updates)
    assert shown["store_id"] == OpenTable(lake.catalog.store.catalog).id
    publication = opened(lake).publication
    assert publication is not None and str(publication.table) == done.stdout.strip()


@pytest.mark.sweep
def test_the_table_of_an_earlier_version_stays_and_is_named_until_it_is_deleted(lake: Lake) -> None:
    config, older = ("--config", str(lake.file)), lake.collection.paths.current
    shutil.copytree(table_of(lake.collection).local, older.local)
    published(lake)
    both = run("path", NAME, *config)
    assert both.stdout == f"{table_of(lake.collection)}\n"
    assert f"{older} is from an earlier version and is no longer rebuilt" in both.stderr
    assert json.loads(call("path", NAME, "--json", *config))["older"] == str(older)
    send_more(lake)
    published(lake)
    assert DeltaTable(str(older)).to_pyarrow_table().num_rows == 2
    shutil.rmtree(older.local)
    assert json.loads(call("path", NAME, "--json", *config))["older"] is None
    assert run("path", NAME, *config).stderr == ""


def test_before_the_first_publication_path_says_what_to_do(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark)
    lake.ingest()
    assert published(lake).as_of is None
    done = run("path", NAME, "--config", str(lake.file))
    assert (done.returncode, done.stdout) == (2, "")
    assert "'prices' is not published yet" in done.stderr and "run `tidelake current prices` once" in done.stderr


def test_a_damaged_table_does_not_hide_the_status(lake: Lake) -> None:
    log = table_of(lake.collection).local / "_delta_log"
    newest = sorted(log.glob("*.json"))[-1]
    newest.write_text("{")
    shown = json.loads(call("status", "--json", "--config", str(lake.file)))["collections"][NAME]
    assert (shown["state"], shown["severity"]) == ("published table is damaged", "warning")
    assert "is torn" in shown["publication"]["problem"] and shown["publication"]["as_of"] is None
    send_more(lake)
    assert isinstance(lake.current().errors[NAME], DamagedPublication)
    shutil.rmtree(log.parent)  # its contents can always be published again
    assert published(lake).published and contents_rows(lake.collection) == (5, 3)
