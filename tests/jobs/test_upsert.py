"""The upsert family: the newest statement of each key wins, in any order of arrival and after any merge."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.lakes.lake import NAME, Lake, encode, progress, updates
from tests.model.histories import random_statements
from tidelake.errors import ConfigurationError
from tidelake.model.keyed import KeyedStatement, contents
from tidelake.read.snapshot import snapshot
from tidelake.store.failpoints import on_reach
from tidelake.store.proof_log import read_proof_log

pytestmark = pytest.mark.spark


@pytest.fixture
def upserts(tmp_path: Path, spark: SparkSession) -> Lake:
    """An upsert collection keyed by `id`."""
    return Lake(tmp_path, spark, family="upsert", key="id")


def test_the_newest_statement_of_each_key_wins_in_any_order_of_arrival(upserts: Lake) -> None:
    upserts.send(updates(((1, 30), 3, 1)), updates(((1, 10), 1, 1), ((2, 5), 1, 1)))
    upserts.ingest()
    upserts.send(updates(((1, 20), 2, 1), ((2, 5), 4, -1)), updates(((1, 30), 3, 1)))
    upserts.send(progress([0], [9], {1: 2, 2: 1, 3: 1, 4: 1}))
    sealed = upserts.run()
    assert (sealed.upper, sealed.copies_cancelled) == (9, 1)
    assert upserts.contents(1) == {(1, 10): 1, (2, 5): 1}
    assert upserts.contents(2) == {(1, 20): 1, (2, 5): 1}
    assert upserts.contents(3) == {(1, 30): 1, (2, 5): 1}
    assert upserts.contents(4) == {(1, 30): 1}
    assert not any(file.run.startswith("seal") for file in upserts.table.files())


def test_a_value_and_a_delete_at_one_time_are_a_replacement(upserts: Lake) -> None:
    upserts.send(updates(((1, 10), 1, 1)), updates(((1, 10), 2, -1), ((1, 20), 2, 1)), updates(((7, 7), 2, -1)))
    upserts.send(progress([0], [3], {1: 1, 2: 3}))
    upserts.run()
    assert upserts.contents(2) == {(1, 20): 1}
    upserts.compact()
    assert upserts.contents(2) == {(1, 20): 1}


def test_storage_after_compaction_is_bounded_by_the_number_of_live_keys(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, family="upsert", key="id", keep=1)
    for time in range(1, 7):
        lake.send(updates(*(((key, time), time, 1) for key in range(20))))
    lake.send(updates(*(((key, 6), 7, -1) for key in range(5))))
    lake.send(progress([0], [10], {**dict.fromkeys(range(1, 7), 20), 7: 5}))
    lake.run()
    assert sum(file.rows for file in lake.table.files()) == 125
    before = lake.contents(9)
    lake.compact()
    assert sum(file.rows for file in lake.table.files()) == 15
    assert lake.contents(9) == before == {(key, 6): 1 for key in range(5, 20)}
    assert not lake.validate(full=True).damaged


@pytest.mark.sweep
def test_two_values_of_one_key_hold_their_time_back_until_one_is_discarded(upserts: Lake) -> None:
    upserts.send(updates(((1, 10), 1, 1), ((2, 1), 3, 1), ((2, 2), 3, 1), ((3, 3), 5, 2)))
    upserts.send(progress([0], [9], {1: 1, 3: 2, 5: 1}))
    sealed = upserts.run()
    assert sealed.upper == 3
    assert {(error.kind, error.time) for error in sealed.contradictions} == {
        ("envelope_breach", 3),
        ("envelope_breach", 5),
    }
    notes = {entry["time"]: entry["detail"] for entry in read_proof_log(upserts.collection).blocked}
    assert notes[3].endswith('; its data: {"id":2,"price":1} and {"id":2,"price":2}')
    assert notes[5].endswith('; its data: {"id":3,"price":3}')
    upserts.decide(time=3, count=2)
    assert upserts.seal().upper == 3  # a count does not say which of the two values is right
    upserts.decide(time=3, discard={"data": {"id": 2, "price": 1}, "diff": 1})
    upserts.decide(time=3, count=1)
    assert upserts.seal().upper == 5
    assert upserts.contents(4) == {(1, 10): 1, (2, 2): 1}
    upserts.decide(time=5, count=1)
    assert upserts.seal().upper == 9
    upserts.compact()
    assert upserts.contents(8) == {(1, 10): 1, (2, 2): 1, (3, 3): 1}
    assert not upserts.validate(full=True).damaged


def test_a_predicate_on_values_does_not_resurrect_older_values(upserts: Lake) -> None:
    upserts.send(updates(((1, 10), 1, 1), ((1, 20), 2, 1), ((2, 10), 2, 1)), progress([0], [3], {1: 1, 2: 2}))
    upserts.run()
    rows = snapshot(upserts.spark, upserts.collection, 2, ["id"], "price = 10").contents.collect()
    assert [(row["id"], row["_diff"]) for row in rows] == [(2, 1)]


def test_current_has_one_row_for_each_key(upserts: Lake) -> None:
    upserts.send(updates(((1, 10), 1, 1), ((1, 20), 2, 1)), progress([0], [3], {1: 1, 2: 1}))
    upserts.run()
    assert upserts.current().results[NAME].rows == 1


@pytest.mark.parametrize(
    ("family", "key", "message"),
    [
        ("upsert", None, "key: does not name the key's columns"),
        ("upsert", [], "key: does not name the key's columns"),
        ("upsert", ["id", "nope"], "key: the schema has no column 'nope'"),
        ("upsert", ["id", "id"], "key: names a column twice"),
        ("plain", "id", "key: is not allowed for the family 'plain'"),
    ],
)
def test_a_key_that_makes_no_sense_is_refused(
    tmp_path: Path, spark: SparkSession, family: str, key: object, message: str
) -> None:
    more: dict[str, Any] = {} if key is None else {"key": key}
    with pytest.raises(ConfigurationError, match=message):
        Lake(tmp_path, spark, family=family, **more)


def test_a_key_is_fixed_when_the_collection_is_created(tmp_path: Path, spark: SparkSession) -> None:
    Lake(tmp_path, spark, family="upsert", key="id").ingest()
    with pytest.raises(ConfigurationError, match="created with the key id"):
        Lake(tmp_path, spark, family="upsert", key="price").ingest()


def random_history_through_delta(lake: Lake, rng: Random) -> None:
    """Send a random history in two parts, with copies and merges; check every readable time against the model."""
    ids = {"x": 1, "y": 2, "z": 3}
    times = 8
    statements = [
        statement._replace(key=ids[str(statement.key)], value=ord(str(statement.value)))
        for statement in random_statements(rng, times)
    ]
    # Each (data, time) has one diff: if a value is both set and deleted at one time, only the +1 is kept.
    unique = {
        (statement.key, statement.value, statement.time): statement
        for statement in sorted(statements, key=lambda statement: statement.diff)
    }
    statements = list(unique.values())
    sent = statements + rng.choices(statements, k=len(statements) // 3)
    rng.shuffle(sent)
    counts: dict[int, int] = {}
    for statement in statements:
        counts[statement.time] = counts.get(statement.time, 0) + 1
    cut = len(sent) // 2
    for part in (sent[:cut], sent[cut:]):
        lake.send(*(updates(((statement.key, statement.value), statement.time, statement.diff)) for statement in part))
        lake.send(progress([0], [4], _before(counts, 4)))
        lake.run()
        if rng.random() < 0.6:
            lake.compact(full=rng.random() < 0.7)
    lake.send(progress([4], [times], {time: count for time, count in counts.items() if time >= 4}))
    assert lake.run().upper == times
    lake.compact()
    since = lake.collection.entry.since[0]
    for as_of in range(since, times):
        expected = dict.fromkeys(contents(statements, as_of).items(), 1)
        assert lake.contents(as_of) == expected, as_of
    assert not lake.validate(full=True).damaged


def _before(counts: dict[int, int], end: int) -> dict[int, int]:
    return {time: count for time, count in counts.items() if time < end}


@pytest.mark.sweep  # test_generated_streams.py has sweeps over generated upserts
@pytest.mark.parametrize("seed", range(3))
def test_random_histories_end_up_equal_to_the_model(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    lake = Lake(tmp_path, spark, family="upsert", key="id", keep=("all", 3, 0)[seed % 3])
    random_history_through_delta(lake, Random(seed))


def test_in_the_model_a_delete_and_a_new_value_at_one_time_are_a_replacement() -> None:
    history = [KeyedStatement(1, 5, 1, 1), KeyedStatement(1, 5, 2, -1), KeyedStatement(1, 6, 2, 1)]
    assert contents(history, 2) == {1: 6}


def discard(price: int) -> dict[str, Any]:
    return {"data": {"id": 1, "price": price}, "diff": 1}


@pytest.mark.sweep
@pytest.mark.parametrize("meanwhile", ["another discard", "withdrawn"])
def test_a_decision_during_a_seal_does_not_change_what_is_published(upserts: Lake, meanwhile: str) -> None:
    upserts.send(updates(((1, 5), 1, 1)), updates(((1, 10), 2, 1), ((1, 20), 2, 1)), progress([0], [9], {1: 1, 2: 2}))
    upserts.ingest()
    upserts.decide(time=2, discard=discard(10))
    upserts.decide(time=2, count=1)

    def decide(place: str) -> None:
        if place == "seal.after_count":
            if meanwhile == "withdrawn":
                upserts.catalog.withdraw(NAME, 2)
            else:
                upserts.decide(time=2, discard=discard(20))

    on_reach(decide)
    try:
        assert upserts.seal().upper == 9
    finally:
        on_reach(None)
    assert (upserts.contents(1), upserts.contents(8)) == ({(1, 5): 1}, {(1, 20): 1})
    assert not upserts.validate(full=True).damaged
    upserts.compact()
    assert upserts.contents(8) == {(1, 20): 1}


@pytest.mark.sweep
def test_a_reader_that_opened_the_collection_before_a_discard_skips_the_statement_too(upserts: Lake) -> None:
    upserts.send(updates(((1, 20), 5, 1), ((1, 21), 5, 1), ((2, 7), 5, 1)), progress([0], [8], {5: 2}))
    upserts.run()
    opened = upserts.collection
    upserts.decide(time=5, discard=discard(21))
    assert upserts.seal().upper == 8
    assert {row["price"] for row in snapshot(upserts.spark, opened, 5).contents.collect()} == {20, 7}


def test_a_discard_removes_every_copy_of_its_statement_and_nothing_else(upserts: Lake) -> None:
    """Copies are in three runs, next to rows that are already sealed and rows that cannot be sealed yet."""
    upserts.send(updates(((1, 5), 1, 1), ((1, 10), 5, 1)), progress([0], [2], {1: 1}))
    upserts.run()
    upserts.send(updates(((1, 10), 5, 1), ((2, 7), 9, 1)))
    upserts.ingest()
    upserts.send(updates(((1, 20), 5, 1), ((1, 10), 5, 1), ((3, 8), 5, 1)), progress([2], [8], {5: 3}))
    upserts.decide(time=5, discard=discard(10))
    upserts.decide(time=5, count=2)
    upserts.run()
    assert upserts.contents(4) == {(1, 5): 1}
    assert upserts.contents(7) == {(1, 20): 1, (3, 8): 1}
    upserts.send(progress([8], [10], {9: 1}))
    upserts.run()
    assert upserts.contents(9) == {(1, 20): 1, (2, 7): 1, (3, 8): 1}
    assert not upserts.validate(full=True).damaged


@pytest.mark.sweep
def test_a_seal_counts_again_if_a_merge_rewrote_the_statements_that_the_seal_discards(upserts: Lake) -> None:
    upserts.send(updates(((1, 5), 1, 1), ((1, 10), 5, 1)), progress([0], [2], {1: 1}))
    upserts.run()
    upserts.send(updates(((4, 4), 2, 1)), progress([2], [3], {2: 1}))
    upserts.run()
    upserts.send(updates(((1, 20), 5, 1)), progress([3], [8], {5: 2}))
    upserts.ingest()
    upserts.decide(time=5, discard=discard(10))
    upserts.decide(time=5, count=1)
    merged: list[int] = []

    def merge(place: str) -> None:
        if place == "seal.after_proofs" and not merged:
            merged.append(upserts.compact().merges)

    on_reach(merge)
    try:
        assert upserts.seal().upper == 8
    finally:
        on_reach(None)
    assert merged[0] > 0
    assert upserts.contents(7) == {(1, 20): 1, (4, 4): 1}
    assert not upserts.validate(full=True).damaged


def test_two_values_of_a_key_with_nulls_in_different_columns_are_a_breach(tmp_path: Path, spark: SparkSession) -> None:
    fields = [{"name": "id", "type": "long"}, *({"name": name, "type": ["null", "int"]} for name in "ab")]
    schema = {"type": "record", "name": "data", "fields": fields}
    lake = Lake(tmp_path, spark, family="upsert", key="id", schema=schema)
    values = [{"id": 1, "a": 5, "b": None}, {"id": 1, "a": None, "b": 5}]
    lake.send(encode([{"data": value, "time": 1, "diff": 1} for value in values], schema))
    lake.send(encode({"lower": [0], "upper": [2], "counts": [{"time": 1, "count": 2}]}, schema))
    sealed = lake.run()
    assert [(error.kind, error.time) for error in sealed.contradictions] == [("envelope_breach", 1)]


@pytest.mark.sweep
def test_compaction_does_not_change_the_contents_at_time_0(upserts: Lake) -> None:
    upserts.send(updates(((1, 10), 0, -1)))
    upserts.ingest()
    upserts.send(updates(((1, 20), 0, 1)), progress([0], [3], {0: 2}))
    upserts.run()
    upserts.compact()
    assert upserts.contents(0) == {(1, 20): 1}
    assert not upserts.validate(full=True).damaged
