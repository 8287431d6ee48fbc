"""The model of change events agrees with the database, whichever runs are merged."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.model.histories import history, key_of
from tidelake.errors import SchemaRefused
from tidelake.model.events import (
    Event,
    EventCollection,
    breaches,
    key_breaches,
    keyed_contents,
    row_updates,
    summed_contents,
)
from tidelake.schema.change_events import row_record_of


@pytest.mark.parametrize("seed", range(10))
def test_a_history_with_whole_rows_gives_the_databases_contents_with_a_key_and_without(seed: int) -> None:
    rng = Random(seed)
    for _ in range(50):
        events, contents = history(rng, rng.randint(1, 9))
        rng.shuffle(events)
        assert not breaches(events, key_of)
        for as_of, rows in enumerate(contents):
            assert summed_contents(events, as_of) == dict.fromkeys(rows, 1), (seed, as_of, events)
            assert keyed_contents(events, as_of, key_of) == dict.fromkeys(rows, 1), (seed, as_of, events)


@pytest.mark.parametrize("seed", range(10))
def test_in_a_keyed_collection_the_row_before_may_hold_only_the_key(seed: int) -> None:
    rng = Random(seed)
    for _ in range(50):
        events, contents = history(rng, rng.randint(1, 9), whole_before=False)
        for as_of, rows in enumerate(contents):
            assert keyed_contents(events, as_of, key_of, False) == dict.fromkeys(rows, 1), (seed, as_of, events)


@pytest.mark.parametrize("form", ["key", "key, and `before` is just the key", "no key"])
@pytest.mark.parametrize("seed", range(20))
def test_merges_at_random_moments_change_no_answer_at_or_after_since(seed: int, form: str) -> None:
    rng = Random(seed)
    whole = form != "key, and `before` is just the key"
    for _ in range(100):
        times = rng.randint(1, 9)
        events, contents = history(rng, times, whole)
        stored = EventCollection(None if form == "no key" else key_of, whole)
        shuffled = [*events, *rng.choices(events, k=len(events) // 3)] if events else []
        if rng.random() < 0.5:
            rng.shuffle(shuffled)
        while shuffled:
            size = rng.randint(1, 4)
            stored.append(shuffled[:size])
            shuffled = shuffled[size:]
        stored.seal(rng.randint(0, times))
        for _ in range(rng.randint(1, 5)):
            since = rng.randint(stored.since, times + 1)
            stored.merge(rng.sample(range(len(stored.runs)), rng.randint(0, len(stored.runs))), since)
            stored.seal(rng.randint(stored.upper, times))
            for as_of in range(stored.since, stored.upper):
                assert stored.read(as_of) == dict.fromkeys(contents[as_of], 1), (seed, as_of, events)
        stored.seal(times)
        stored.merge(range(len(stored.runs)), times)
        assert sum(map(len, stored.runs)) == len(contents[-1]), "storage is bounded by the number of live keys"


def test_updates_that_cancel_each_other_at_one_time_leave_the_earlier_row() -> None:
    stored = EventCollection(key_of)
    stored.append([Event(None, "k1", 1), Event("k1", "k2", 3)])
    stored.append([Event("k2", "k1", 3)])
    stored.seal(5)
    stored.merge([0], since=4)
    assert stored.read(4) == {"k1": 1}


def test_a_row_that_is_inserted_and_deleted_at_one_time_is_not_an_update() -> None:
    assert row_updates([Event(None, "k1", 1), Event("k1", None, 1)]) == {}


def test_a_row_that_occurs_twice_is_a_breach_and_a_chain_of_changes_is_not() -> None:
    assert breaches([Event(None, "k1", 1, 2)], key_of) == {1}
    assert breaches([Event(None, "k1", 1), Event("k1", "k2", 1), Event("k2", "k3", 1)], key_of) == set()


ROW = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]}
OTHER = {"type": "record", "name": "Other", "fields": [{"name": "id", "type": "long"}]}
HIDDEN = {"type": "record", "name": "Value", "fields": [{"name": "_id", "type": "long"}]}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ([("before", ["null", ROW])], "'after'"),
        ([("before", ROW), ("after", ["null", "Value"])], "'before'"),
        ([("before", ["null", ROW]), ("after", ["null", "long"])], "'after'"),
        ([("before", ["null", ROW]), ("after", ["null", OTHER])], "a different record"),
        ([("before", ["null", ROW, "string"]), ("after", ["null", "Value"])], "'before'"),
        ([("before", ["null", HIDDEN]), ("after", ["null", "Value"])], "start with _"),
    ],
)
def test_a_schema_that_does_not_describe_change_events_is_refused_and_the_column_is_reported(
    fields: list[Any], problem: str
) -> None:
    schema = {"type": "record", "name": "Envelope", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    with pytest.raises(SchemaRefused) as refused:
        row_record_of(schema)
    assert problem in str(refused.value)


def test_several_events_of_one_key_at_one_time_have_no_order_if_before_holds_only_the_key() -> None:
    inserted_and_deleted = [Event(None, ("k", 1), 1), Event(("k", None), None, 1)]
    assert key_breaches(inserted_and_deleted, key_of) == {1}
    assert key_breaches([Event(("k", None), ("l", 1), 1), Event(("l", None), ("k", 1), 1)], key_of) == {1}
    assert key_breaches([Event(("k", None), ("k", 1), 1), Event(("k", None), ("k", 2), 2)], key_of) == set()


def test_an_update_to_null_takes_effect_although_before_looks_the_same() -> None:
    events = [Event(None, ("k", 10), 1), Event(("k", None), ("k", None), 2)]
    assert keyed_contents(events, 2, key_of, whole_before=False) == {("k", None): 1}
