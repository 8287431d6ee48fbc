"""`diff` is the difference between two snapshots, for every form of collection, and refuses what a snapshot refuses."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tidelake
from jobs.job import to_json
from tests.lakes.changes import Changes
from tests.lakes.lake import NAME, Lake, progress, updates
from tests.lakes.small_lakes import LAKES
from tests.lakes.upserts import item
from tidelake.errors import KeysInError, PredicateRefused, SinceError, UnknownColumn, UpperError
from tidelake.lake import LakeCollection
from tidelake.protocol.order import INT64_MAX, INT64_MIN
from tidelake.read.diff import count_keys

pytestmark = pytest.mark.spark


def opened(lake: Lake) -> LakeCollection:
    return tidelake.open_lake(lake.file).collection(NAME)


def counted(frame: object) -> Counter[str]:
    """How many times each row occurs, by its data as JSON."""
    rows: Counter[str] = Counter()
    for row in frame.collect():  # type: ignore[attr-defined]
        data = {name: value for name, value in row.asDict(recursive=True).items() if name != "_diff"}
        rows[json.dumps(to_json(data), default=str)] += row["_diff"]
    return rows


def contents(lake: Lake, time: int, **more: object) -> Counter[str]:
    return counted(opened(lake).snapshot(lake.spark, time, **more).contents)  # type: ignore[arg-type]


def difference(lake: Lake, first: int, last: int, **more: object) -> dict[str, int]:
    return dict(counted(opened(lake).diff(lake.spark, first, last, **more).rows))  # type: ignore[arg-type]


def expected(lake: Lake, first: int, last: int, **more: object) -> dict[str, int]:
    """The difference between the contents at two times, computed from the contents themselves."""
    rows = contents(lake, last, **more)
    rows.subtract(contents(lake, first, **more))
    return {row: diff for row, diff in rows.items() if diff}


@pytest.mark.sweep
@pytest.mark.parametrize("form", LAKES)
def test_a_difference_is_what_turns_one_snapshot_into_the_other(tmp_path: Path, spark: SparkSession, form: str) -> None:
    lake = LAKES[form](tmp_path, spark)
    upper = lake.table.value("upper") or 0
    skips = {"skip_errors": True} if form == "reclocked" else {}
    first = lake.times[0].time if form == "reclocked" else opened(lake).since or 0  # type: ignore[attr-defined]
    for start, end in ((first, upper - 1), (first + 1, upper - 2), (upper - 1, first)):
        assert difference(lake, start, end, **skips) == expected(lake, start, end, **skips)
    assert difference(lake, first, upper - 1, **skips)
    assert difference(lake, first, first, **skips) == {}
    narrow = {"columns": ["id"], "where": "id % 2 = 0", **skips}
    assert difference(lake, first, upper - 1, **narrow) == expected(lake, first, upper - 1, **narrow)


def test_a_difference_is_read_from_one_version_whatever_is_merged_or_written_meanwhile(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Lake(tmp_path, spark, "upsert", key="id", keep=0)
    for time in range(1, 5):
        lake.send(updates(((1, time), time, 1), ((time + 1, 0), time, 1)))
    lake.send(progress([0], [5], dict.fromkeys(range(1, 5), 2)))
    lake.run()
    planned, wanted = opened(lake).diff(spark, 1, 4), expected(lake, 1, 4)
    lake.compact()
    assert opened(lake).since == 4
    assert dict(counted(planned.rows)) == wanted
    with pytest.raises(SinceError):
        opened(lake).diff(spark, 1, 4)


def test_both_times_must_be_readable_and_columns_and_predicate_must_fit(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, keep=2)
    lake.send(updates((1, 3, 1), ((2, 5), 5, 1)), progress([0], [6], {3: 1, 5: 1}))
    lake.run()
    lake.compact()
    prices = opened(lake)
    for first, last in ((3, 5), (5, 3)):
        with pytest.raises(SinceError, match="time 3 is not at or after since"):
            prices.diff(spark, first, last)
    for first, last in ((5, 6), (6, 5)):
        with pytest.raises(UpperError, match="time 6 is not before upper"):
            prices.diff(spark, first, last)
    with pytest.raises(UnknownColumn):
        prices.diff(spark, 4, 5, ["nope"])
    with pytest.raises(PredicateRefused):
        prices.diff(spark, 4, 5, where="now() > 0")
    found = prices.diff(spark, 4, 5, ["price"], "price = 5")
    assert [row.asDict() for row in found.rows.collect()] == [{"price": 5, "_diff": 1}]
    assert (found.first, found.last, found.since, found.upper, found.key) == (4, 5, 4, 6, ())


def test_the_least_diff_has_a_difference_in_both_directions(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates((1, 1, INT64_MIN), (2, 1, INT64_MAX)), progress([0], [2], {1: 2}))
    lake.run()
    there, back = difference(lake, 0, 1), difference(lake, 1, 0)
    assert there == {'{"id": 1, "price": null}': INT64_MIN, '{"id": 2, "price": null}': INT64_MAX}
    assert back == {row: -diff for row, diff in there.items()}


def test_the_keys_that_were_set_changed_and_deleted_are_counted_if_the_key_is_compared(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Lake(tmp_path, spark, "upsert", key="id")
    lake.send(updates(*(((key, 1), 1, 1) for key in range(6))))
    lake.send(updates(((0, 2), 2, 1), ((1, 1), 2, 1), ((2, 1), 2, -1), ((3, 1), 2, -1), ((9, 9), 2, 1)))
    lake.send(progress([0], [3], {1: 6, 2: 5}))
    lake.run()
    found = count_keys(opened(lake).diff(spark, 1, 2))
    assert found is not None
    assert (found.set, found.changed, found.deleted) == (1, 1, 2)
    back = count_keys(opened(lake).diff(spark, 2, 1))
    assert back is not None
    assert (back.set, back.changed, back.deleted) == (2, 1, 1)
    assert count_keys(opened(lake).diff(spark, 1, 2, ["price"])) is None


def test_a_key_in_error_at_either_time_is_refused_or_left_out(tmp_path: Path, spark: SparkSession) -> None:
    lake = Changes(tmp_path, spark)
    lake.put(lake.event("c", (1, "x")), lake.event("c", (2, "y")))
    lake.ingest()
    lake.put(item(1, 5) | {"value": {"op": "c", "after": {"id": 1}}})
    lake.ingest()
    lake.put(lake.event("u", (1, "z")), lake.event("u", (2, "w")))
    lake.ingest()
    first, second, third = (binding.time for binding in lake.times)
    for start, end in ((first, second), (second, third)):
        with pytest.raises(KeysInError):
            difference(lake, start, end)
    assert difference(lake, second, third, skip_errors=True) == expected(lake, second, third, skip_errors=True)
    assert len(difference(lake, first, third)) == 4
