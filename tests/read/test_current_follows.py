"""A published table that follows the changes shows the contents, and only the files that they touch are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.lakes.generated import FORMS, Tide, text_of
from tests.lakes.lake import Lake, progress, updates
from tests.lakes.positioned_table import NAMES, Table
from tests.lakes.published import rows_in_duckdb, rows_of, table_of
from tests.model.sources import Ticks, random_source
from tests.sweeps import seeds
from tidelake.errors import KeysInError
from tidelake.model.positioned import contents
from tidelake.read import following, published_files
from tidelake.read.current import CONTENTS_AT_UPPER, CurrentReport, Wanted, update_current
from tidelake.read.publication import publication_of
from tidelake.store.entry import Collection

pytestmark = pytest.mark.spark


def counted(rows: Iterable[dict[str, Any]], text: Callable[[dict[str, Any]], str]) -> dict[str, int]:
    """How many times each row occurs; with `_diff`, no row is there twice."""
    found: Counter[str] = Counter()
    for row in rows:
        diff, place = row.pop("_diff", None), text(row)
        assert diff != 0, place
        assert diff is None or place not in found, f"{place} is there twice"
        found[place] += 1 if diff is None else diff
    return dict(found)


def check_shows(collection: Collection, expected: dict[str, int], text: Callable[[dict[str, Any]], str]) -> None:
    """Check that delta-rs and DuckDB read these contents."""
    assert counted(rows_of(collection), text) == expected
    assert counted(rows_in_duckdb(collection), text) == expected


def check_stream(root: Path, spark: SparkSession, form: str, rng: Random, size: tuple[int, int]) -> set[str]:
    """Publish some times of each piece of a generated topic, with merges in between; return how they were published."""
    ways: set[str] = set()
    tide, shown = Tide(root, spark, form, rng, size, ("all", 3)), -1
    while tide.files:
        tide.arrive(rng.randint(1, max(1, len(tide.files) // 2)))
        tide.lake.run()
        if rng.random() < 0.4:
            tide.lake.compact(full=rng.random() < 0.6)
        times = [time for time in tide.readable if time > shown]
        for shown in sorted(rng.sample(times[:-1], min(len(times[:-1]), 2))) + times[-1:]:
            report = update_current(spark, tide.lake.collection, Wanted(through=shown, rebuild=rng.random() < 0.1))
            assert report.as_of == shown
            check_shows(tide.lake.collection, tide.expected(shown), text_of)
            ways.add(report.how)
    return ways


@pytest.mark.parametrize("form", ["sum", "debezium with a key"])
def test_the_published_table_of_a_generated_stream_is_the_model_after_every_tick(
    tmp_path: Path, spark: SparkSession, form: str
) -> None:
    assert "followed" in check_stream(tmp_path, spark, form, Random(f"{form}/current"), (24, 5))


@pytest.mark.sweep
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stream", range(3))
@pytest.mark.parametrize("seed", seeds())
def test_published_tables_of_generated_streams_are_the_model_after_every_tick(
    tmp_path: Path, interpreted: SparkSession, seed: int, stream: int, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(f"{form}/{seed}/{stream}")
    monkeypatch.setattr(following, "CHANGED_ROWS_FOLLOWED", rng.choice((2, 1_000)))
    monkeypatch.setattr(following, "_HELD_ROWS_MAX", rng.choice((0, 1_000)))
    monkeypatch.setattr(published_files, "SMALL_FILES_MAX", rng.choice((2, 4, 16)))
    check_stream(tmp_path, interpreted, form, rng, (60, 10))


@pytest.mark.sweep
@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("stream", range(6))
def test_the_published_table_of_a_positioned_collection_is_the_model_after_every_tick(
    tmp_path: Path, interpreted: SparkSession, seed: int, stream: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(f"positioned/{seed}/{stream}")
    monkeypatch.setattr(published_files, "SMALL_FILES_MAX", rng.choice((2, 16)))
    table, statements, since = Table(tmp_path, interpreted), [], 0
    ticks = Ticks(rng, random_source(rng, 2, 12), 40)
    while not ticks.done:
        if not (read := list(dict.fromkeys(ticks.tick()))):
            continue
        statements += read
        table.tick(read)
        if rng.random() < 0.3:
            since = rng.randint(since, (since + ticks.time) // 2)
            table.compact(since, full=rng.random() < 0.6)
        last = max(statement.time for statement in statements)
        model = contents(statements, last)
        if model.errors:
            with pytest.raises(KeysInError):
                update_current(interpreted, table.collection)
            continue
        update_current(interpreted, table.collection)
        rows = {repr({"id": key, **dict(zip(NAMES, values, strict=True))}): 1 for key, values in model.rows.items()}
        check_shows(table.collection, rows, repr)


def published(lake: Lake, wanted: Wanted = CONTENTS_AT_UPPER) -> CurrentReport:
    return update_current(lake.spark, lake.collection, wanted)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    """A collection with a key, which is published in two files: the keys 1 and 2, and the key 3."""
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
