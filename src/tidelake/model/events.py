"""An in-memory collection of change events, the model for collections with framing `cdcv2` and envelope `debezium`.

A statement is an event `(before, after)` with a time, and a count is a number of events. An event represents two
updates of rows: `before` is removed and `after` is added. Updates of equal rows at the same time are summed,
whichever events they come from, so a row that one transaction inserts and deletes never exists.

Without a key, the contents are the sum of all updates. With a key, a key's value is determined by the newest time at
which its updates do not cancel out; at that time, an added row wins over a removed one. So rows from before the start
of the stream need not be known. If a history states all rows, the contents are the same with and without a key.

A `before` with only the key's columns cancels nothing: it only names the key that a row had before. Several events of
the same key at the same time then have no order, and break the envelope.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

from tidelake.schema.change_events import Interval

Row = Hashable
KeyOf = Callable[[Row], Hashable]


class Event(NamedTuple):
    """A change event and its multiplicity; an event that compaction made has no `before`."""

    before: Row | None
    after: Row | None
    time: int
    diff: int = 1


def row_updates(events: Iterable[Event], key: KeyOf | None = None) -> dict[tuple[Row, int], int]:
    """Sum what events remove and add, by row and time, without zeros.

    Args:
        events: the stated events.
        key: given if `before` has only the key's columns; `before` is then ignored if `after` has the same key.

    >>> row_updates([Event(None, "a", 3), Event("a", "b", 3)])
    {('b', 3): 1}
    """
    sums: dict[tuple[Row, int], int] = {}
    for before, after, time, diff in events:
        if key is not None and before is not None and after is not None and key(before) == key(after):
            before = None
        for row, change in ((before, -diff), (after, diff)):
            if row is not None:
                sums[row, time] = sums.get((row, time), 0) + change
    return {update: diff for update, diff in sums.items() if diff}


def summed_contents(events: Iterable[Event], as_of: int) -> dict[Row, int]:
    """Return the multiplicity of each row AS OF a time."""
    counts: dict[Row, int] = {}
    for (row, time), diff in row_updates(events).items():
        if time <= as_of:
            counts[row] = counts.get(row, 0) + diff
    return {row: diff for row, diff in counts.items() if diff}


def newest_updates(updates: dict[tuple[Row, int], int], key: KeyOf) -> dict[Hashable, tuple[Row, int, int]]:
    """Return, by key, the update `(row, time, diff)` that determines its value.

    It is the newest update; of several at the newest time, one that adds a row wins.
    """
    newest: dict[Hashable, tuple[Row, int, int]] = {}
    for (row, time), diff in updates.items():
        current = newest.get(key(row))
        if current is None or (current[1], current[2] > 0) < (time, diff > 0):
            newest[key(row)] = (row, time, diff)
    return newest


def keyed_contents(events: Iterable[Event], as_of: int, key: KeyOf, whole_before: bool = True) -> dict[Row, int]:
    """Return the row of each key AS OF a time."""
    row_diffs = row_updates(events, None if whole_before else key)
    updates = {update: diff for update, diff in row_diffs.items() if update[1] <= as_of}
    return {row: 1 for row, _, diff in newest_updates(updates, key).values() if diff > 0}


def key_breaches(events: Iterable[Event], key: KeyOf) -> set[int]:
    """Return the times at which several events change one key, or an event has a diff other than 1.

    If `before` is only the key, nothing orders several events of one key.

    >>> sorted(key_breaches([Event(None, "a1", 1), Event("a", "a2", 1), Event("a", None, 2)], key=lambda row: row[0]))
    [1]
    """
    about: dict[tuple[Hashable, int], set[Event]] = {}
    for event in events:
        for row in event[:2]:
            if row is not None:
                about.setdefault((key(row), event.time), set()).add(event)
    contested = {time for (_, time), key_events in about.items() if len(key_events) > 1}
    return contested | {event.time for event in events if event.diff != 1}


def breaches(events: Iterable[Event], key: KeyOf) -> set[int]:
    """Return the times whose updates, once summed, add two rows of one key, or add or remove one row more than once.

    >>> sorted(breaches([Event(None, "a1", 1), Event(None, "a2", 1), Event(None, "b1", 2), Event("b1", "b2", 2)],
    ...     key=lambda row: row[0]))
    [1]
    """
    rows: dict[tuple[Hashable, int], set[Row]] = {}
    times = set()
    for (row, time), diff in row_updates(events).items():
        if diff > 0:
            rows.setdefault((key(row), time), set()).add(row)
        if abs(diff) > 1 or len(rows.get((key(row), time), ())) > 1:
            times.add(time)
    return times


class EventCollection:
    """Runs of events, some of them merged, with a key or without.

    Args:
        key: returns the key of a row; if None, equal rows are summed.
        whole_before: whether `before` is the whole row; if not, it has only the key's columns.

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
        """Advance upper, and add a run that cancels the surplus copies of the newly sealed events, if there are any."""
        copies_by_place: dict[tuple[Row | None, Row | None, int], int] = {}
        for event in (event for run in self.runs for event in run if self.upper <= event.time < upper):
            place = (event.before, event.after, event.time)
            copies_by_place[place] = copies_by_place.get(place, 0) + 1
        surplus = [Event(*place, diff=1 - copies) for place, copies in copies_by_place.items() if copies > 1]
        if surplus:
            self.append(surplus)
        self.upper = max(self.upper, upper)

    def read(self, as_of: int) -> dict[Row, int]:
        """Return the contents AS OF a sealed time at or after `since`."""
        events = [event for run in self.runs for event in run]
        if self.key is None:
            return summed_contents(events, as_of)
        return keyed_contents(events, as_of, self.key, self.whole_before)

    def merge(self, chosen: Iterable[int], since: int) -> None:
        """Replace the chosen runs with one.

        Without a key, times advance to `since`, and equal rows are summed. With a key, times never change. An update at
        or before `since` stays if another run spans its time, because an update in that run may cancel it. Of all other
        updates at or before `since`, only the newest of each key stays; if it removes a row, it is dropped as well,
        unless another run holds anything at or before `since`.

        Unsealed events stay as they are.
        """
        self.since = max(self.since, since)
        through = min(self.since, self.upper - 1)
        indexes = set(chosen)
        merged_events = [event for index in sorted(indexes) for event in self.runs[index]]
        left = [run for index, run in enumerate(self.runs) if index not in indexes]
        old = [event for event in merged_events if event.time <= through]
        later = [event for event in merged_events if through < event.time < self.upper]
        unsealed = [event for event in merged_events if event.time >= self.upper]
        if self.key is None:
            moved = row_updates(event._replace(time=through) for event in old)
            remaining = [Event(None, row, time, diff) for (row, time), diff in moved.items()]
        else:
            remaining = self._newest_of(old, [reach for run in left if (reach := _reach(run, through)) is not None])
        self.runs = [*left, [*remaining, *_summed(later), *unsealed]]

    def _newest_of(self, old: Sequence[Event], others: Sequence[Interval]) -> list[Event]:
        assert self.key is not None
        updates = row_updates(old, None if self.whole_before else self.key)
        spanned = {
            update: diff
            for update, diff in updates.items()
            if any(first <= update[1] <= last for first, last in others)
        }
        unspanned = {update: diff for update, diff in updates.items() if update not in spanned}
        newest = newest_updates(unspanned, self.key).values()
        newest_events = [Event(None, row, time, diff) for row, time, diff in newest if diff > 0 or others]
        return [*newest_events, *(Event(None, row, time, diff) for (row, time), diff in spanned.items())]


def _reach(run: Sequence[Event], through: int) -> Interval | None:
    """Return the first and the last of a run's times at or before `through`; None if there are none."""
    times = [event.time for event in run if event.time <= through]
    return (min(times), max(times)) if times else None


def _summed(events: Iterable[Event]) -> list[Event]:
    sums: dict[tuple[Row | None, Row | None, int], int] = {}
    for event in events:
        sums[event[:3]] = sums.get(event[:3], 0) + event.diff
    return [Event(*place, diff=diff) for place, diff in sums.items() if diff]
