"""Contents hashes: a changed value is found even if all checksums match it; compaction changes no hash."""

from __future__ import annotations

import json
import time as clock
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.golden.shown import EXPECTED, unpack
from tests.lakes.lake import Lake, progress, updates
from tests.lakes.raw_lake import RawLake
from tests.sweeps import swept
from tidelake.catalog.catalog import Catalog
from tidelake.errors import DamagedTable
from tidelake.settings.lake import load_settings
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import RunFile, read_rows, write_run
from tidelake.store.layout import DIFF, RUN, TIME, Store, new_run
from tidelake.store.proof_log import read_proof_log
from tidelake.store.row_hash import sum_of_rows
from tidelake.store.state import CLOSED, SINCE, UPPER
from tidelake.validate.validation import validate

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("any_store")]

ROW: dict[str, Any] = {"type": "record", "name": "row", "fields": [{"name": "id", "type": "long"}]}
WIDER = {**ROW, "fields": [*ROW["fields"], {"name": "page", "type": ["null", "string"]}]}
COLLECTIONS = list(json.loads(EXPECTED.read_text(encoding="utf-8"))["collections"])


def other(value: Any) -> Any:
    """A different value of the same type; in a struct, only one field differs."""
    match value:
        case bool():
            return not value
        case int() | float() | Decimal():
            return value + 1 if value != value + 1 else 0
        case date():
            return value + timedelta(days=1)
        case str():
            return f"{value}x"
        case bytes():
            return value + b"x"
        case dict():
            name = next(name for name in reversed(value) if value[name] is not None)
            return {**value, name: other(value[name])}
        case list():
            return value[:-1]
    raise AssertionError(value)


def swap_in(collection: Collection, rows: pa.Table, run: str) -> None:
    """Replace a run with these rows, and with checksums, a digest and a hash that match them."""
    table = OpenTable(collection.paths.updates)
    files = write_run(table.path, new_run("merge", table.seq), rows.drop_columns([RUN]), sum_of_rows(rows))
    table.commit({}, files, [run])


def change_one_value(collection: Collection) -> None:
    """Change one value in one sealed row whose time is after since."""
    table = OpenTable(collection.paths.updates)
    end = 2**63 if table.value(CLOSED) else table.value(UPPER) or 0
    schema = collection.updates_schema()
    data = [name for name in schema.names if not name.startswith("_")]
    for run in sorted({file.run for file in table.files()}):
        rows = read_rows(table.path, [file for file in table.files() if file.run == run], schema)
        documents = rows.to_pylist()
        for row in documents:
            named = next((name for name in reversed(data) if row[name] not in (None, [])), None)
            if (table.value(SINCE) or -1) < row[TIME] < end and row[DIFF] and named is not None:
                row[named] = other(row[named])
                swap_in(collection, pa.Table.from_pylist(documents, schema=schema), run)
                return
    raise AssertionError("there is no such row")


@pytest.mark.sweep
@pytest.mark.parametrize("name", COLLECTIONS)
def test_a_changed_value_with_matching_checksums_is_found(tmp_path: Path, spark: SparkSession, name: str) -> None:
    settings = load_settings(unpack(tmp_path))
    (spec,) = (collection.spec() for collection in settings.collections if collection.name == name)
    collection = Catalog(Store(settings.store)).open_or_create(spec)
    assert validate(spark, collection, full=True).mismatches == []
    noted = read_proof_log(collection).hashes[-1]
    assert noted.times is not None
    assert noted.contents is not None
    change_one_value(collection)
    report = validate(spark, collection, full=True)
    assert report.damaged
    assert any("the statements hash to" in mismatch for mismatch in report.hash_mismatches)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"keep": 0}, id="plain"),
        pytest.param({"family": "upsert", "key": "id", "keep": 2}, id="upsert", marks=pytest.mark.sweep),
    ],
)
@pytest.mark.parametrize("is_changed", swept([True, False], [True]), ids=["changed", "untouched"])
def test_a_value_that_was_changed_before_a_compaction_is_found_after_it(
    tmp_path: Path, spark: SparkSession, more: Mapping[str, Any], is_changed: bool
) -> None:
    lake = Lake(tmp_path, spark, **more)
    lake.send(updates(((1, 5), 1, 1), ((2, 6), 2, 1)), progress([0], [3], {1: 1, 2: 1}))
    lake.run()
    assert not lake.validate(full=True).damaged
    if is_changed:
        change_one_value(lake.collection)
    lake.send(updates(((3, 7), 3, 1)), progress([3], [4], {3: 1}))
    lake.run()
    assert not lake.validate().damaged  # only the new time is recounted
    lake.compact()
    report = lake.validate(full=True)
    assert report.damaged == is_changed, report.mismatches
    if is_changed:
        assert any("the contents " in mismatch for mismatch in report.hash_mismatches)


@pytest.mark.sweep
def test_neither_copies_nor_compaction_nor_validation_change_a_hash(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, keep=2)
    hashes = []
    for start in range(0, 12, 3):
        message = updates(((1, start), start, 1), ((2, start), start + 1, 3), ((2, start), start + 2, -3))
        lake.send(message, message, progress([start], [start + 3], dict.fromkeys(range(start, start + 3), 1)))
        lake.run()
        report = lake.validate(full=start == 6)
        assert not report.damaged
        hashes.append(report.contents_hash)
        if start == 6:
            lake.compact()
    report = lake.validate(full=True)
    assert not report.damaged
    assert report.contents_hash == hashes[-1]
    assert len(set(hashes)) == len(hashes)


def test_a_merge_refuses_a_run_whose_rows_are_not_those_that_were_written(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates((1, 1, 1)), progress([0], [3], {1: 1}))
    lake.run()
    lake.send(updates((2, 3, 1)), progress([3], [4], {3: 1}))
    lake.run()
    table = lake.table
    live, second = sorted(table.files(), key=lambda file: file.time_min or 0)
    assert live.rows_hash is not None
    rows = read_rows(table.path, [live], lake.collection.updates_schema())
    assert sum_of_rows(rows) == live.rows_hash
    changed = rows.set_column(rows.column_names.index("id"), "id", pa.array([2]))
    run = new_run("merge", table.seq)
    files: list[RunFile] = write_run(table.path, run, changed.drop_columns([RUN]))
    table.commit({}, [replace(file, rows_hash=live.rows_hash) for file in files], [live.run])
    with pytest.raises(DamagedTable, match=f"the rows of {run} are not those that were written"):
        lake.compact()
    assert {file.run for file in lake.table.files()} == {run, second.run}
    assert lake.validate(full=True).mismatches[0] == f"the rows of the run {run} are not those that were written"


@pytest.mark.sweep
def test_a_validation_that_does_not_know_a_new_column_hashes_it_anyway(tmp_path: Path, spark: SparkSession) -> None:
    lake = RawLake(tmp_path, spark, evolution="additive", schema=ROW)
    lake.put({"id": 1})
    lake.ingest()
    earlier = lake.collection
    assert validate(spark, earlier, full=True).mismatches == []
    lake.configure(schema=WIDER)
    lake.put({"id": 2, "page": "b"})
    lake.ingest()
    for collection in (earlier, lake.collection, earlier):
        assert validate(spark, collection, full=True).mismatches == []


def test_no_merge_hides_what_a_validation_has_found(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, keep=0)
    lake.send(updates(((1, 5), 1, 1)), progress([0], [3], {1: 1}))
    lake.run()
    assert not lake.validate(full=True).damaged
    change_one_value(lake.collection)
    assert lake.validate(full=True).damaged
    lake.send(updates(((2, 6), 3, 1)), progress([3], [9], {3: 1}))
    lake.run()
    since = lake.collection.entry.since
    with pytest.raises(DamagedTable, match="a validation found damage that merges would hide: times 0 to 2"):
        lake.compact()
    assert lake.collection.entry.since == since
    assert lake.validate().damaged


@pytest.mark.sweep
def test_an_idle_topic_adds_no_notes(tmp_path: Path, spark: SparkSession) -> None:
    lake = RawLake(tmp_path, spark, schema=ROW, idle_upper_s=1)
    lake.put({"id": 1})
    lake.ingest()
    assert not validate(spark, lake.collection).damaged
    notes = len(OpenTable(lake.collection.paths.proofs).files())
    upper = lake.table.value(UPPER)
    clock.sleep(1.1)
    lake.ingest()
    assert (lake.table.value(UPPER) or 0) > (upper or 0)
    report = validate(spark, lake.collection)
    assert (report.damaged, report.times, report.diff_sum_recorded) == (False, [], 1)
    assert len(OpenTable(lake.collection.paths.proofs).files()) == notes
    assert validate(spark, lake.collection, full=True).mismatches == []
