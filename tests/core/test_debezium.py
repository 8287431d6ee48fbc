"""The model of the Debezium family: a database's own contents, whatever runs were merged whenever."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tidelake.debezium import (
    Event,
    EventCollection,
    breaches,
    key_breaches,
    keyed_contents,
    row_record_of,
    row_updates,
    summed_contents,
)
from tidelake.errors import SchemaRefused


def key_of(row: Any) -> Any:
    return row[0]


class Database:
    """Rows by key; every change of one gives an event, as a connector would write it."""

    def __init__(self, rng: Random, whole_before: bool = True) -> None:
        self.rng, self.whole_before = rng, whole_before
        self.rows: dict[str, tuple[str, int | None]] = {}

    def transaction(self, time: int) -> list[Event]:
        """Some changes at one time; a key may change more than once, and go back to what it was."""
        events = []
        for _ in range(self.rng.choice([0, 1, 1, 2, 5])):
            key = self.rng.choice("xyz")
            old = self.rows.get(key)
            if old is None:
                new = (key, self.rng.choice([0, 1, None]))
            elif self.rng.random() < 0.35:
                new = None
            else:
                new = (self.rng.choice("xyz") if self.rng.random() < 0.2 else key, self.rng.choice([0, 1, None]))
                if new == old or (new[0] != key and new[0] in self.rows):
                    continue
            self.rows.pop(key, None)
            if new is not None:
                self.rows[new[0]] = new
            before = old
            if not self.whole_before and old is not None:
                # Just the key, or nothing at all where it does not change.
                before = (key, None) if new is None or new[0] != key or self.rng.random() < 0.5 else None
            events.append(Event(before, new, time))
        return events


def history(rng: Random, times: int, whole_before: bool = True) -> tuple[list[Event], list[set[Any]]]:
    """Distinct events, and the database's contents after each time; a time that would repeat an event has none."""
    database = Database(rng, whole_before)
    events: list[Event] = []
    contents = []
    for time in range(times):
        before = dict(database.rows)
        made = database.transaction(time)
        if len(set(made)) < len(made) or (not whole_before and key_breaches(made, key_of)):
            database.rows, made = before, []
        events += made
        contents.append(set(database.rows.values()))
    return events, contents


@pytest.mark.parametrize("seed", range(10))
def test_a_history_with_whole_rows_is_the_databases_contents_with_a_key_and_without(seed: int) -> None:
    rng = Random(seed)
    for _ in range(50):
        events, contents = history(rng, rng.randint(1, 9))
        rng.shuffle(events)
        assert not breaches(events, key_of)
        for as_of, rows in enumerate(contents):
            assert summed_contents(events, as_of) == dict.fromkeys(rows, 1), (seed, as_of, events)
            assert keyed_contents(events, as_of, key_of) == dict.fromkeys(rows, 1), (seed, as_of, events)


@pytest.mark.parametrize("seed", range(10))
def test_with_a_key_rows_before_may_be_just_their_key(seed: int) -> None:
    rng = Random(seed)
    for _ in range(50):
        events, contents = history(rng, rng.randint(1, 9), whole_before=False)
        for as_of, rows in enumerate(contents):
            assert keyed_contents(events, as_of, key_of, False) == dict.fromkeys(rows, 1), (seed, as_of, events)


@pytest.mark.parametrize("form", ["key", "key, and just that before", "no key"])
@pytest.mark.parametrize("seed", range(20))
def test_merges_at_random_moments_change_no_answer_at_or_after_since(seed: int, form: str) -> None:
    rng = Random(seed)
    whole = form != "key, and just that before"
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
        assert sum(map(len, stored.runs)) == len(contents[-1]), "storage is bounded by the keys that live"


def test_updates_that_cancel_at_one_time_leave_what_was_there_before() -> None:
    stored = EventCollection(key_of)
    stored.append([Event(None, "k1", 1), Event("k1", "k2", 3)])
    stored.append([Event("k2", "k1", 3)])
    stored.seal(5)
    stored.merge([0], since=4)
    assert stored.read(4) == {"k1": 1}


def test_a_row_that_comes_and_goes_at_one_time_is_no_update_at_all() -> None:
    assert row_updates([Event(None, "k1", 1), Event("k1", None, 1)]) == {}


def test_one_row_more_than_once_is_a_breach_and_a_chain_of_changes_is_none() -> None:
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
        ([("before", ["null", ROW]), ("after", ["null", OTHER])], "another record"),
        ([("before", ["null", ROW, "string"]), ("after", ["null", "Value"])], "'before'"),
        ([("before", ["null", HIDDEN]), ("after", ["null", "Value"])], "start with _"),
    ],
)
def test_a_schema_that_is_no_change_event_is_refused_by_column(fields: list[Any], problem: str) -> None:
    schema = {"type": "record", "name": "Envelope", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    with pytest.raises(SchemaRefused) as refused:
        row_record_of(schema)
    assert problem in str(refused.value)


def test_several_events_of_one_key_have_no_order_where_before_is_just_the_key() -> None:
    inserted_and_deleted = [Event(None, ("k", 1), 1), Event(("k", None), None, 1)]
    assert key_breaches(inserted_and_deleted, key_of) == {1}
    assert key_breaches([Event(("k", None), ("l", 1), 1), Event(("l", None), ("k", 1), 1)], key_of) == {1}
    assert key_breaches([Event(("k", None), ("k", 1), 1), Event(("k", None), ("k", 2), 2)], key_of) == set()


def test_an_update_to_null_is_one_although_before_looks_the_same() -> None:
    events = [Event(None, ("k", 10), 1), Event(("k", None), ("k", None), 2)]
    assert keyed_contents(events, 2, key_of, whole_before=False) == {("k", None): 1}
