"""Change events of orders, like those of a database; an order may change more than once at the same time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa

from tidelake.generator.history import Bag, History
from tidelake.generator.options import Family
from tidelake.generator.orders import ARROW_SCHEMA, RECORD_SCHEMA, orders_table, random_order
from tidelake.schema.change_events import AFTER, BEFORE

EVENT_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "event",
    "namespace": "shop",
    "fields": [
        {"name": BEFORE, "type": ["null", RECORD_SCHEMA]},
        {"name": AFTER, "type": ["null", "order"]},
        {"name": "op", "type": "string"},
    ],
}


class EventHistory(History):
    """Distinct change events in time order, each with a diff of 1; `rows` holds the events.

    No two orders have the same id at the same time. About one change in ten may affect an order that was already
    changed at the current time, and some changes give an order a new id.

    >>> history = EventHistory("debezium", updates=50, times=10, random=Random(7))
    >>> len({(event, time) for event, time, _ in history.updates}), {row["op"] for row in history.rows} == {*"cud"}
    (50, True)
    """

    def __init__(self, family: Family, updates: int, times: int, random: Random, **others: Any) -> None:
        self._orders: list[dict[str, Any]] = []
        self._numbers: dict[tuple[int | None, int | None], int] = {}
        super().__init__(family, updates, times, random, **others)

    def new_row(self, order_id: int) -> int:
        """Add the event of a new order, and return the event's number."""
        return self._event(None, self._new_order(order_id))

    def _step_of(self, family: Family) -> Callable[[int, int], None]:
        return self._event_step

    def _event_step(self, time: int, left: int) -> None:
        """Create, change or delete an order, in one event."""
        kind = self._random.random()
        order = None
        if kind > 0.4 or not self._has_new_id():
            order = self._any(self._live) if kind > 0.9 else self._pick(self._live)
        if order is None:
            self._add_event(None, self._order_to_create(kind), time)
        elif 0.75 < kind <= 0.9:
            self._add_event(order, None, time)
        else:
            gets_new_id = self._has_new_id() and self._random.random() < 0.1
            self._add_event(order, self._new_order(self._new_id() if gets_new_id else self._orders[order]["id"]), time)

    def _order_to_create(self, kind: float) -> int:
        """Return a deleted order if `kind` calls for one and its id is free, otherwise a new order."""
        deleted = self._pick(self._gone) if kind < 0.1 else None
        if deleted is not None and self._orders[deleted]["id"] not in self._live_by_id:
            return deleted
        return self._new_order(self._new_id())

    def _add_event(self, before: int | None, after: int | None, time: int) -> None:
        self.updates.append((self._event(before, after), time, 1))
        if before is not None:
            self._mark_gone(before, self._orders[before]["id"])
        if after is not None:
            self._mark_live(after, self._orders[after]["id"])

    def _event(self, before: int | None, after: int | None) -> int:
        """Return the number of an event; equal events share a number."""
        if (before, after) not in self._numbers:
            self._numbers[before, after] = len(self.rows)
            rows = (None if order is None else self._orders[order] for order in (before, after))
            operation = "c" if before is None else "d" if after is None else "u"
            self.rows.append({**dict(zip((BEFORE, AFTER), rows, strict=True)), "op": operation})
        return self._numbers[before, after]

    def _new_order(self, order_id: int) -> int:
        self._orders.append(random_order(self._random, order_id, self.first_number + len(self._orders)))
        return len(self._orders) - 1

    def _any(self, bag: Bag) -> int | None:
        return bag.items[int(self._random.random() * len(bag.items))] if bag.items else None


def events_table(events: list[dict[str, Any]]) -> pa.Table:
    """Return events as a table: `before` and `after` are structs, null if there is no such row."""
    kind = pa.struct(list(ARROW_SCHEMA))
    columns: dict[str, pa.Array] = {name: _structs([event[name] for event in events], kind) for name in (BEFORE, AFTER)}
    return pa.table({**columns, "op": pa.array([event["op"] for event in events], pa.string())})


def _structs(orders: list[dict[str, Any] | None], kind: pa.StructType) -> pa.Array:
    present = orders_table([order for order in orders if order is not None]).to_struct_array().combine_chunks()
    places = iter(range(len(present)))
    return present.cast(kind).take(pa.array([None if order is None else next(places) for order in orders], pa.int64()))
