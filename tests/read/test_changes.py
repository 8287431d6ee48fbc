"""`changes` returns the consolidated updates of a range of times, for every form of collection; see `change_laws`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tidelake
from tests.lakes.changes import Changes
from tests.lakes.lake import NAME, Lake, progress, updates
from tests.lakes.small_lakes import LAKES
from tests.read.change_laws import updates_of
from tidelake.errors import ArgumentRefused, PredicateRefused, SinceError, UnknownColumn, UpperError
from tidelake.read.changes import changes
from tidelake.read.diff import difference
from tidelake.read.snapshot import snapshot

pytestmark = pytest.mark.spark


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
