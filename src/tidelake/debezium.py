"""Change events over CDCv2: what a schema of them looks like, and the model of what the family's tables have to do.

A statement is an event `(before, after)` with a time, and it is events that are counted. An event stands for two
updates of rows: `before` leaves and `after` comes. Updates of equal rows at one time add up, whatever events they come
from, so a row that one transaction inserts and deletes is never there.

Without a key the contents are the sum of all that. With a key, the newest time at which a key's updates do not cancel
says its value: a row that comes beats one that leaves. So the rows from before the stream began need not be known. On
a history that states them all both say the same.

A `before` that has just the key's columns cancels nothing, so it only says which key a row leaves; and then several
events of one key at one time have no order, and break the envelope.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from tidelake.errors import SchemaRefused
from tidelake.schema import resolved_schema

BEFORE = "before"
AFTER = "after"

Row = Hashable
KeyOf = Callable[[Row], Hashable]
Interval = tuple[int, int]


def row_record_of(event_schema: dict[str, Any]) -> dict[str, Any]:
    """Give the record of a row, resolved, out of the record of a change event.

    Raises:
        SchemaRefused: `before` and `after` are not both a union of null and one and the same record, or a column of
            that record has a name that starts with `_`.

    >>> row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]}
    >>> event = {"type": "record", "name": "Envelope", "fields": [
    ...     {"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]}]}
    >>> [field["name"] for field in row_record_of(event)["fields"]]
    ['id']
    """
    fields = {field["name"]: field["type"] for field in resolved_schema(event_schema)["fields"]}
    records = []
    for name in (BEFORE, AFTER):
        branches = fields.get(name)
        others = [one for one in branches if one != "null"] if isinstance(branches, list) else []
        if branches is None or len(others) != 1 or len(branches) != 2 or others[0]["type"] != "record":
            raise SchemaRefused(name, "a change event has `before` and `after`, each null or the record of a row")
        records.append(others[0])
    if records[0] != records[1]:
        raise SchemaRefused(AFTER, "it is another record than `before`; a change event has one record for both")
    row: dict[str, Any] = records[0]
    for field in row["fields"]:
        if field["name"].startswith("_"):
            raise SchemaRefused(f"{AFTER}.{field['name']}", "names that start with _ are kept for the system's columns")
    return row


class Event(NamedTuple):
    """A change event, and how often it is stated; one that compaction made has no `before`."""

    before: Row | None
    after: Row | None
    time: int
    diff: int = 1


def row_updates(events: Iterable[Event], key: KeyOf | None = None) -> dict[tuple[Row, int], int]:
    """Add up, by row and time, what events take away and bring; nothing is 0.

    Args:
        events: what is stated.
        key: given where `before` has just the key's columns: then it counts only where its key has no row after it.

    >>> row_updates([Event(None, "a", 3), Event("a", "b", 3)])
    {('b', 3): 1}
    """
    found: dict[tuple[Row, int], int] = {}
    for before, after, time, diff in events:
        if key is not None and before is not None and after is not None and key(before) == key(after):
            before = None
        for row, change in ((before, -diff), (after, diff)):
            if row is not None:
                found[row, time] = found.get((row, time), 0) + change
    return {update: diff for update, diff in found.items() if diff}


def summed_contents(events: Iterable[Event], as_of: int) -> dict[Row, int]:
    """Give each row and how often it is there, AS OF a time."""
    found: dict[Row, int] = {}
    for (row, time), diff in row_updates(events).items():
        if time <= as_of:
            found[row] = found.get(row, 0) + diff
    return {row: diff for row, diff in found.items() if diff}


def newest_updates(updates: dict[tuple[Row, int], int], key: KeyOf) -> dict[Hashable, tuple[Row, int, int]]:
    """Give the update `(row, time, diff)` that decides for each key: the newest, and at one time one that brings."""
    newest: dict[Hashable, tuple[Row, int, int]] = {}
    for (row, time), diff in updates.items():
        found = newest.get(key(row))
        if found is None or (found[1], found[2] > 0) < (time, diff > 0):
            newest[key(row)] = (row, time, diff)
    return newest


def keyed_contents(events: Iterable[Event], as_of: int, key: KeyOf, whole_before: bool = True) -> dict[Row, int]:
    """Give the row of each key, AS OF a time."""
    stated = row_updates(events, None if whole_before else key)
    updates = {update: diff for update, diff in stated.items() if update[1] <= as_of}
    return {row: 1 for row, _, diff in newest_updates(updates, key).values() if diff > 0}


def key_breaches(events: Iterable[Event], key: KeyOf) -> set[int]:
    """Give the times at which several events are about one key; they have no order where `before` is just the key.

    >>> sorted(key_breaches([Event(None, "a1", 1), Event("a", "a2", 1), Event("a", None, 2)], key=lambda row: row[0]))
    [1]
    """
    about: dict[tuple[Hashable, int], set[Event]] = {}
    for event in events:
        for row in event[:2]:
            if row is not None:
                about.setdefault((key(row), event.time), set()).add(event)
    doubled = {time for (_, time), found in about.items() if len(found) > 1}
    return doubled | {event.time for event in events if event.diff != 1}


def breaches(events: Iterable[Event], key: KeyOf) -> set[int]:
    """Give the times at which a key is left with two rows, or with one row more than once.

    >>> sorted(breaches([Event(None, "a1", 1), Event(None, "a2", 1), Event(None, "b1", 2), Event("b1", "b2", 2)],
    ...     key=lambda row: row[0]))
    [1]
    """
    kept: dict[tuple[Hashable, int], set[Row]] = {}
    found = set()
    for (row, time), diff in row_updates(events).items():
        if diff > 0:
            kept.setdefault((key(row), time), set()).add(row)
        if abs(diff) > 1 or len(kept.get((key(row), time), ())) > 1:
            found.add(time)
    return found


class EventCollection:
    """Runs of events, and merges of some of them, with a key or without.

    Args:
        key: what names a row; None adds rows up.
        whole_before: whether `before` is the whole row, or just has the key's columns.

    >>> tides = EventCollection(key=lambda row: row[0])
    >>> tides.append([Event(None, "k1", 1), Event("k1", "k2", 4)]); tides.seal(6); tides.merge([0], since=5)
    >>> tides.runs, tides.read(5)
    ([[Event(before=None, after='k2', time=4, diff=1)]], {'k2': 1})
    """

    def __init__(self, key: KeyOf | None = None, whole_before: bool = True) -> None:
        self.key, self.whole_before = key, whole_before
        self.runs: list[list[Event]] = []
        self.since, self.upper = 0, 0

    def append(self, events: Iterable[Event]) -> None:
        """Add a run."""
        self.runs.append(list(events))

    def seal(self, upper: int) -> None:
        """Move upper, and cancel the surplus copies of what it newly holds in a run of their own."""
        stated: dict[tuple[Row | None, Row | None, int], int] = {}
        for event in (one for run in self.runs for one in run if self.upper <= one.time < upper):
            place = (event.before, event.after, event.time)
            stated[place] = stated.get(place, 0) + 1
        surplus = [Event(*place, diff=1 - copies) for place, copies in stated.items() if copies > 1]
        if surplus:
            self.append(surplus)
        self.upper = max(self.upper, upper)

    def read(self, as_of: int) -> dict[Row, int]:
        """Give the contents AS OF a sealed time at or after since."""
        events = [one for run in self.runs for one in run]
        if self.key is None:
            return summed_contents(events, as_of)
        return keyed_contents(events, as_of, self.key, self.whole_before)

    def merge(self, chosen: Iterable[int], since: int) -> None:
        """Replace some runs by one.

        Without a key, times move up to since and rows add up. With one, a time is *settled* where no other run reaches
        over it: of a key's settled updates at or before since only the newest stays, with its own time. At a time that
        is not settled an update in another run may cancel one here, so all of them stay. A row that leaves is forgotten
        only when no other run holds anything at or before since. What is not sealed is not touched.
        """
        self.since = max(self.since, since)
        through = min(self.since, self.upper - 1)
        indexes = set(chosen)
        taken = [one for index in sorted(indexes) for one in self.runs[index]]
        left = [run for index, run in enumerate(self.runs) if index not in indexes]
        old = [one for one in taken if one.time <= through]
        later = [one for one in taken if through < one.time < self.upper]
        unsealed = [one for one in taken if one.time >= self.upper]
        if self.key is None:
            moved = row_updates(one._replace(time=through) for one in old)
            kept = [Event(None, row, time, diff) for (row, time), diff in moved.items()]
        else:
            kept = self._newest_of(old, [reach for run in left if (reach := _reach(run, through)) is not None])
        self.runs = [*left, [*kept, *_added_up(later), *unsealed]]

    def _newest_of(self, old: Sequence[Event], others: Sequence[Interval]) -> list[Event]:
        assert self.key is not None
        updates = row_updates(old, None if self.whole_before else self.key)
        unsettled = {
            update: diff
            for update, diff in updates.items()
            if any(first <= update[1] <= last for first, last in others)
        }
        settled = {update: diff for update, diff in updates.items() if update not in unsettled}
        newest = newest_updates(settled, self.key).values()
        kept = [Event(None, row, time, diff) for row, time, diff in newest if diff > 0 or others]
        return [*kept, *(Event(None, row, time, diff) for (row, time), diff in unsettled.items())]


def _reach(run: Sequence[Event], through: int) -> Interval | None:
    """The first and the last time of a run at or before a time; None where it has none."""
    times = [one.time for one in run if one.time <= through]
    return (min(times), max(times)) if times else None


def _added_up(events: Iterable[Event]) -> list[Event]:
    found: dict[tuple[Row | None, Row | None, int], int] = {}
    for event in events:
        found[event[:3]] = found.get(event[:3], 0) + event.diff
    return [Event(*place, diff=diff) for place, diff in found.items() if diff]
