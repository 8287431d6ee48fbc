"""`changes` returns the consolidated updates of a range of times, for every form of collection; see `change_laws`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tidelake
from tests.lakes.changes import Changes
from tests.lakes.generated import FORMS, Tide, text_of
from tests.lakes.lake import NAME, Lake, progress, updates
from tests.lakes.positioned_table import NAMES, Table
from tests.lakes.small_lakes import LAKES
from tests.lakes.ticking import TICKING
from tests.lakes.ticking import text_of as ticking_text_of
from tests.model.sources import Ticks, random_source
from tests.read.change_laws import check_laws, updates_of
from tests.sweeps import seeds
from tidelake.compact import compaction
from tidelake.errors import ArgumentRefused, KeysInError, PredicateRefused, SinceError, UnknownColumn, UpperError
from tidelake.model.positioned import contents
from tidelake.read.changes import changes
from tidelake.read.diff import difference
from tidelake.read.snapshot import snapshot

pytestmark = pytest.mark.spark


def check_stream(root: Path, spark: SparkSession, form: str, seed: str, size: tuple[int, int]) -> None:
    """Send a topic in pieces, with random merges in between, and check the laws."""
    rng = Random(f"{form}/{seed}")
    tide = Tide(root, spark, form, rng, size, ("all", 3))
    while tide.files:
        tide.arrive(rng.randint(1, len(tide.files)))
        tide.lake.run()
        if rng.random() < 0.6:
            tide.lake.compact(full=rng.random() < 0.6)
    if tide.readable:
        check_laws(spark, tide.lake.collection, tide.readable, tide.expected, rng, text_of)


@pytest.mark.sweep
@pytest.mark.parametrize("form", ["append only", "debezium with a key"])
def test_changes_of_a_generated_stream_add_up_to_the_model(tmp_path: Path, spark: SparkSession, form: str) -> None:
    check_stream(tmp_path, spark, form, "every day", (24, 5))


@pytest.mark.sweep
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stream", range(30))
@pytest.mark.parametrize("seed", seeds())
def test_changes_of_generated_streams_add_up_to_the_model(
    tmp_path: Path, interpreted: SparkSession, seed: int, stream: int, form: str
) -> None:
    check_stream(tmp_path, interpreted, form, f"{seed}/{stream}", (36, 6))


def check_source(root: Path, spark: SparkSession, seed: str, length: int) -> None:
    """Read a random source of positioned statements, with random merges in between, and check the laws."""
    rng = Random(seed)
    table, statements, since = Table(root, spark), [], 0
    ticks = Ticks(rng, random_source(rng, 2, length), 40)
    while not ticks.done:
        if not (read := list(dict.fromkeys(ticks.tick()))):
            continue
        statements += read
        table.tick(read)
        if rng.random() < 0.3:
            since = rng.randint(since, (since + ticks.time) // 2)
            table.compact(since, full=rng.random() < 0.6)
    last = max(statement.time for statement in statements)

    def expected(as_of: int) -> dict[str, int]:
        rows = contents(statements, as_of).rows
        return {repr({"id": key, **dict(zip(NAMES, values, strict=True))}): 1 for key, values in rows.items()}

    times = range(since, last + 1)
    check_laws(spark, table.collection, times, expected, rng, repr, skip_errors=True)
    after = rng.choice(times)
    failed = [time for time in range(after, last + 1) if contents(statements, time).errors]
    if failed:
        with pytest.raises(KeysInError) as refused:
            changes(spark, table.collection, after, last)
        assert refused.value.as_of == failed[0]
        assert refused.value.count == len(contents(statements, failed[0]).errors)
    else:
        changes(spark, table.collection, after, last)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", [1, 2])
def test_changes_of_a_random_source_add_up_to_the_model(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(compaction, "FAN_IN", 2)
    check_source(tmp_path, spark, f"every day {seed}", 10)


@pytest.mark.sweep
@pytest.mark.parametrize("source", range(30))
@pytest.mark.parametrize("seed", seeds())
def test_changes_of_random_sources_add_up_to_the_model(
    tmp_path: Path, interpreted: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int, source: int
) -> None:
    monkeypatch.setattr(compaction, "FAN_IN", 2)
    check_source(tmp_path, interpreted, f"{seed}/{source}", 16)


def check_ticks(root: Path, spark: SparkSession, kind: str, seed: str, ticks: int) -> None:
    """Run ticks of a collection, with random merges in between, and check the laws."""
    rng = Random(f"{kind}/{seed}")
    ticking = TICKING[kind](root, spark, rng, keep=rng.choice(("all", 0, 200)))
    for _ in range(ticks):
        ticking.tick()
        if rng.random() < 0.3 and ticking.at:
            ticking.lake.compact(full=rng.random() < 0.6)
    if times := ticking.times:
        check_laws(spark, ticking.lake.collection, times, ticking.at.__getitem__, rng, ticking_text_of)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", TICKING)
@pytest.mark.parametrize("history", range(30))
@pytest.mark.parametrize("seed", seeds())
def test_changes_of_random_ticks_add_up_to_the_contents(
    tmp_path: Path, interpreted: SparkSession, seed: int, history: int, kind: str
) -> None:
    check_ticks(tmp_path, interpreted, kind, f"{seed}/{history}", 10)


@pytest.mark.sweep
@pytest.mark.parametrize("form", LAKES)
def test_a_predicate_and_columns_apply_to_the_rows_on_both_sides(
    tmp_path: Path, spark: SparkSession, form: str
) -> None:
    lake = LAKES[form](tmp_path, spark)
    last = (lake.table.value("upper") or 0) - 1
    skips: dict[str, Any] = {"skip_errors": True} if form == "reclocked" else {}
    after = lake.times[1].time if form == "reclocked" else 2  # type: ignore[attr-defined]
    few: dict[str, Any] = {"columns": ["price"], "where": "id % 2 = 0 and price < 40", **skips}
    found = updates_of(changes(spark, lake.collection, after, last, **few), repr)
    rows: Counter[str] = Counter()
    for (row, _), diff in found.items():
        rows[row] += diff
    wanted: Counter[str] = Counter()
    for at, sign in ((after, -1), (last, 1)):
        for row in snapshot(spark, lake.collection, at, **few).contents.toArrow().to_pylist():
            diff = row.pop("_diff")
            wanted[repr(row)] += sign * diff
    assert {row: diff for row, diff in rows.items() if diff} == {row: diff for row, diff in wanted.items() if diff}
    assert any(wanted.values())
    nothing = changes(spark, lake.collection, last, last, **skips)
    assert updates_of(nothing, repr) == {}


def test_a_late_older_value_fills_a_column_and_a_truncate_erases_but_a_resent_row_changes_nothing(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Changes(tmp_path, spark)
    unavailable = "__debezium_unavailable_value"
    lake.put(lake.event("c", (1, "a", "b")), lake.event("c", (2, "c", "d")), lake.event("u", (3, unavailable, "e")))
    lake.ingest()
    lake.put(lake.event("c", (3, "late", "older"), lsn=lake.lsn - 5))
    lake.ingest()
    lake.put(lake.event("u", (1, "a", "b")), lake.event("c", (2, "x", "x"), lsn=900))
    lake.ingest()
    lake.put(lake.event("t"), lake.event("c", (4, "f", "g")))
    lake.ingest()
    first, filled, same, truncated = (binding.time for binding in lake.times)

    def found(after: int, through: int) -> dict[tuple[str, int], int]:
        about = changes(spark, lake.collection, after, through)
        return updates_of(about, lambda row: repr(tuple(row.values())))

    filling = {("(3, None, 'e')", filled): -1, ("(3, 'late', 'e')", filled): 1}
    assert found(first, filled) == filling
    assert found(filled, same) == {}
    erased = {
        ("(1, 'a', 'b')", truncated): -1,
        ("(2, 'c', 'd')", truncated): -1,
        ("(3, 'late', 'e')", truncated): -1,
        ("(4, 'f', 'g')", truncated): 1,
    }
    assert found(same, truncated) == erased
    assert found(first, truncated) == filling | erased


def test_zero_diffs_and_copies_that_a_seal_cancelled_do_not_show(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates((1, 1, 1), (1, 1, 1)), updates((1, 1, 1), (2, 2, 3)), progress([0], [3], {1: 1, 2: 1}))
    lake.run()
    assert sum(file.rows for file in lake.table.files()) > 2
    found = changes(spark, lake.collection, 0, 2, ["id"])
    assert updates_of(found, lambda row: str(row["id"])) == {("1", 1): 1, ("2", 2): 3}


def test_times_that_cannot_be_read_and_bad_arguments_are_refused(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, keep=2)
    lake.send(updates((1, 3, 1), ((2, 5), 5, 1)), progress([0], [6], {3: 1, 5: 1}))
    lake.run()
    lake.compact()
    collection = lake.collection
    with pytest.raises(SinceError, match="time 3 is not at or after since"):
        changes(spark, collection, 3, 5)
    with pytest.raises(SinceError, match="time 3 is not at or after since"):
        changes(spark, collection, None, 3)
    with pytest.raises(UpperError, match="time 6 is not before upper"):
        changes(spark, collection, 4, 6)
    with pytest.raises(ArgumentRefused, match="after is 5, but must not be later than `through`, 4"):
        changes(spark, collection, 5, 4)
    with pytest.raises(UnknownColumn):
        changes(spark, collection, 4, 5, ["nope"])
    with pytest.raises(PredicateRefused):
        changes(spark, collection, 4, 5, where="now() > 0")
    for time in (-1, 4.5, "5", True, 2**63):
        calls: tuple[Callable[[], object], ...] = (
            lambda time=time: changes(spark, collection, time, 5),  # type: ignore[misc]
            lambda time=time: changes(spark, collection, 4, time),  # type: ignore[misc]
            lambda time=time: snapshot(spark, collection, time),  # type: ignore[misc]
            lambda time=time: difference(spark, collection, (4, time)),  # type: ignore[misc]
        )
        for call in calls:
            with pytest.raises(ArgumentRefused, match="but must be an integer between 0 and"):
                call()


def test_a_closed_stream_has_no_changes_after_its_last_update(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, "upsert", key="id")
    lake.send(updates(((1, 1), 1, 1), ((1, 2), 2, 1)), progress([0], [], {1: 1, 2: 1}))
    lake.run()
    found = tidelake.open_lake(lake.file).collection(NAME).changes(spark, after=1)
    assert found.closed
    assert sorted(updates_of(found, repr).values()) == [-1, 1]
    assert updates_of(changes(spark, lake.collection, 2, 1_000_000), repr) == {}
