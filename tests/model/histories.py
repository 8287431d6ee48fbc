"""Random histories of keyed collections and of collections of events."""

from __future__ import annotations

from random import Random
from typing import Any

from tidelake.model.events import (
    Event,
    key_breaches,
)
from tidelake.model.keyed import KeyedStatement


def random_statements(rng: Random, times: int) -> list[KeyedStatement]:
    """Upserts without breaches: at each time, a key has at most one value, and perhaps a delete of any value."""
    statements = []
    for time in range(times):
        for key in "xyz":
            choice = rng.random()
            if choice < 0.3:
                statements.append(KeyedStatement(key, rng.choice("abc"), time, 1))
            if choice < 0.15 or choice > 0.85:
                statements.append(KeyedStatement(key, rng.choice("abc"), time, -1))
    return statements


def key_of(row: Any) -> Any:
    return row[0]


class Database:
    """Rows by key; every change of a row gives an event, as a connector would write it."""

    def __init__(self, rng: Random, whole_before: bool = True) -> None:
        self.rng, self.whole_before = rng, whole_before
        self.rows: dict[str, tuple[str, int | None]] = {}

    def transaction(self, time: int) -> list[Event]:
        """A few changes at one time; a row may change more than once, even back to what it was."""
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
                # Only the key; if the event is an update that leaves the key as it is, perhaps nothing at all.
                before = (key, None) if new is None or new[0] != key or self.rng.random() < 0.5 else None
            events.append(Event(before, new, time))
        return events


def history(rng: Random, times: int, whole_before: bool = True) -> tuple[list[Event], list[set[Any]]]:
    """Return distinct events, and the database's contents after each time.

    The events made for a time are all discarded if nothing would order them: if two are equal or, without
    `whole_before`, if several are about one key.
    """
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
