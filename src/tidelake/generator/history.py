"""A random history of orders: when the multiplicity of an order changes, and by how much. It is the ground truth."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tidelake.generator.options import Family
from tidelake.generator.orders import random_order

Triple = tuple[int, int, int]
"""A row number, a time, a diff."""

_ATTEMPTS = 16


class History:
    """Distinct updates in time order.

    Args:
        family: determines which diffs are allowed.
        updates: the exact number of distinct pairs `(row, time)`.
        times: the number of times, beginning at `first_time`.
        random: the source of all randomness.
        keys: the number of ids; exceeded only if necessary.
        empty_times: the minimum share of times without an update.
        negative: the share of deletions that remove a row more often than it occurs.
        needed: times that must have at least one update.
        first_time: the first time of the history.
        first_id: the minimum id of an order.
        first_number: the number that makes the first row differ from all others. Lower numbers belong to an earlier
            history, which shares no orders with this one.

    Raises:
        AssertionError: a needed time is outside the history.

    >>> history = History("plain", updates=50, times=10, random=Random(7))
    >>> len(history.updates), len({(row, time) for row, time, _ in history.updates})
    (50, 50)
    """

    def __init__(
        self,
        family: Family,
        updates: int,
        times: int,
        random: Random,
        *,
        keys: int = 5_000,
        empty_times: float = 0.05,
        negative: float = 0.0,
        needed: tuple[int, ...] = (),
        first_time: int = 0,
        first_id: int = 0,
        first_number: int = 0,
    ) -> None:
        self.rows: list[dict[str, Any]] = []
        """The data of each row, by row number."""
        self.updates: list[Triple] = []
        self.end = first_time + times
        """The first time after the history."""
        self.next_id = first_id
        """The first id that no order has used."""
        self.first_number = first_number
        self._random = random
        self._is_keyed = family == "upsert"
        self._negative = negative
        self._ids = range(first_id, first_id + keys)
        self._free_ids = Bag()
        self._held: dict[int, int] = {}
        self._live_by_id: dict[int, int] = {}
        self._live = Bag()
        self._gone = Bag()
        self._touched: set[int] = set()
        step = self._step_of(family)
        for time, count in _spread(random, updates, range(first_time, self.end), empty_times, needed):
            self._touched.clear()
            target = len(self.updates) + count
            while len(self.updates) < target:
                step(time, target - len(self.updates))

    def new_row(self, order_id: int) -> int:
        """Create a row that differs from every other row."""
        self.rows.append(random_order(self._random, order_id, self.first_number + len(self.rows)))
        return len(self.rows) - 1

    def take_id(self) -> int:
        """Return an unused id."""
        self.next_id += 1
        return self.next_id - 1

    def _step_of(self, family: Family) -> Callable[[int, int], None]:
        """Return the function that makes the next change; its arguments are the time and the number of updates left."""
        return self._append_step if family == "append_only" else self._plain_step

    def _plain_step(self, time: int, left: int) -> None:
        """Make one change to the orders: one update, or two if `left` allows.

        In a keyed history, an order exists once or not at all.
        """
        kind = self._random.random()
        if kind < 0.1:
            row = self._pick(self._gone)
            now = None if row is None else self._live_by_id.get(self.rows[row]["id"])
            if row is not None and now is None:
                self._state(row, time, self._amount())
                return
            if row is not None and now is not None and left > 1 and now not in self._touched:
                self._replace(now, row, time)
                return
        row = self._pick(self._live) if kind > 0.45 or not self._has_new_id() else None
        if row is None:
            self._state(self.new_row(self._new_id()), time, self._amount())
        elif kind > 0.85 or (self._is_keyed and left < 2):
            held = self._held[row]
            below = self._random.randint(1, 3) if held > 0 and self._random.random() < self._negative else 0
            self._state(row, time, -held - below)
        elif not self._is_keyed and (kind > 0.75 or left < 2):
            self._state(row, time, self._change(self._held[row]))
        else:
            self._replace(row, self.new_row(self.rows[row]["id"]), time)

    def _append_step(self, time: int, left: int) -> None:
        """Add to the multiplicity of an order, or add a new order."""
        row = self._pick(self._live) if self._random.random() < 0.15 else None
        if row is None:
            order_id = self._ids[int(self._random.random() * len(self._ids))]
            self.next_id = max(self.next_id, order_id + 1)
            row = self.new_row(order_id)
        self._state(row, time, self._amount())

    def _replace(self, row: int, other: int, time: int) -> None:
        held = self._held[row]
        self._state(row, time, -held)
        self._state(other, time, held)

    def _state(self, row: int, time: int, diff: int) -> None:
        now = self._held.get(row, 0) + diff
        self.updates.append((row, time, diff))
        self._held[row] = now
        if now:
            self._mark_live(row, self.rows[row]["id"])
        else:
            self._mark_gone(row, self.rows[row]["id"])

    def _mark_live(self, row: int, order_id: int) -> None:
        """Record that a row exists from the current time onwards."""
        self._touched.add(row)
        self._gone.discard(row)
        self._live.add(row)
        self._live_by_id[order_id] = row
        self._free_ids.discard(order_id)

    def _mark_gone(self, row: int, order_id: int) -> None:
        """Record that a row no longer exists."""
        self._touched.add(row)
        self._live.discard(row)
        self._gone.add(row)
        self._live_by_id.pop(order_id, None)
        self._free_ids.add(order_id)

    def _amount(self) -> int:
        return self._random.randint(2, 5) if not self._is_keyed and self._random.random() < 0.1 else 1

    def _change(self, held: int) -> int:
        """Return a diff for a row that occurs `held` times: it removes some occurrences, but not all, or adds some."""
        if held > 1 and self._random.random() < 0.6:
            return -self._random.randint(1, held - 1)
        return self._amount()

    def _pick(self, bag: Bag) -> int | None:
        """Return a random row that has not changed at the current time; None if several attempts find none."""
        for _ in range(_ATTEMPTS if bag.items else 0):
            row = bag.items[int(self._random.random() * len(bag.items))]
            if row not in self._touched:
                return row
        return None

    def _has_new_id(self) -> bool:
        return self.next_id < self._ids.stop or bool(self._free_ids.items)

    def _new_id(self) -> int:
        """Return an id that no live order has. If all ids are in use, the new id is beyond `keys`."""
        free = self._free_ids.items
        if free and self.next_id >= self._ids.stop:
            return free[int(self._random.random() * len(free))]
        return self.take_id()


class Bag:
    """A set for random choice: its order depends only on earlier operations, and each operation is O(1)."""

    def __init__(self) -> None:
        self.items: list[int] = []
        self._places: dict[int, int] = {}

    def __contains__(self, item: int) -> bool:
        return item in self._places

    def add(self, item: int) -> None:
        """Add an item, if it is absent."""
        if item not in self._places:
            self._places[item] = len(self.items)
            self.items.append(item)

    def discard(self, item: int) -> None:
        """Remove an item, if it is present."""
        place = self._places.pop(item, None)
        if place is None:
            return
        last = self.items.pop()
        if last != item:
            self.items[place] = last
            self._places[last] = place


def _spread(
    random: Random, updates: int, times: range, empty_times: float, needed: tuple[int, ...]
) -> list[tuple[int, int]]:
    """Return `(time, number of updates)` in time order: unevenly spread, and exactly `updates` in total."""
    assert all(time in times for time in needed)
    others = sorted(set(times) - set(needed))
    empty = set(random.sample(others, min(len(others), round(len(times) * empty_times))))
    full = [time for time in times if time not in empty] if len(empty) < len(times) else [times.start]
    counts = dict.fromkeys(full, 0)
    first = [*needed, *random.sample([time for time in full if time not in set(needed)], len(full) - len(needed))]
    for time in first[:updates]:
        counts[time] += 1
    weights = [0.3 + random.expovariate(1.0) for _ in full]
    for time in random.choices(full, weights, k=max(0, updates - len(first))):
        counts[time] += 1
    return [(time, count) for time, count in counts.items() if count]
