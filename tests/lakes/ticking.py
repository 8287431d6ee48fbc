"""Collections whose times are minted or are commits of transactions, changed at random, with their expected contents.

Each tick changes a few keys, or nothing, and reads the topic. `at` has the contents by time: at the greatest time that
each tick sealed or, with transactions, at the time of each transaction. Rows are named by `text_of`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from tests.lakes.changes import Changes
from tests.lakes.raw_lake import RawLake
from tests.lakes.transaction_lake import TransactionLake, end, event
from tests.lakes.upserts import ITEM, gone, item

Rows = dict[str, int]
_KEYS = 4


def text_of(row: dict[str, Any]) -> str:
    """A row as text, without its time and its diff."""
    return repr({name: value for name, value in row.items() if not name.startswith("_")})


class Ticking:
    """One collection, and the contents that its times have."""

    lake: RawLake

    def __init__(self, rng: Random) -> None:
        self.rng, self.at = rng, dict[int, Rows]()
        self.rows: dict[int, Any] = {}

    def tick(self) -> None:
        """Change something, and ingest it."""
        self.change()
        self.lake.ingest()
        self.note()

    def change(self) -> None:
        """Put a few records."""
        raise NotImplementedError

    def note(self) -> None:
        """Note the contents at the last sealed time."""
        if self.last >= 0:  # a first tick without records seals nothing
            self.at[self.last] = dict(Counter(text_of(row) for row in self.contents()))

    def contents(self) -> list[dict[str, Any]]:
        """The rows that the collection has now."""
        raise NotImplementedError

    @property
    def last(self) -> int:
        """The last sealed time; -1 before the first seal."""
        return (self.lake.table.value("upper") or 0) - 1

    @property
    def times(self) -> list[int]:
        """The times whose contents are known and can be read, in order."""
        since = self.lake.collection.entry.since[0]
        return [time for time in sorted(self.at) if time >= since]

    def chosen(self) -> list[int]:
        """The keys to change in a tick: often none."""
        return [self.rng.randrange(_KEYS) for _ in range(self.rng.choice((0, 1, 1, 4)))]


class Records(Ticking):
    """A topic of records without a key."""

    def __init__(self, root: Path, spark: SparkSession, rng: Random, **more: Any) -> None:
        super().__init__(rng)
        self.lake, self.records = RawLake(root, spark, **more), list[dict[str, Any]]()

    def change(self) -> None:
        values = [{"id": key, "page": None} for key in self.chosen()]
        self.lake.put(*values)
        self.records += values

    def contents(self) -> list[dict[str, Any]]:
        return self.records


class Upserts(Ticking):
    """A reclocked topic of values by key; null deletes."""

    def __init__(self, root: Path, spark: SparkSession, rng: Random, **more: Any) -> None:
        super().__init__(rng)
        self.lake = RawLake(root, spark, envelope="upsert", key="id", schema=ITEM, **more)

    def change(self) -> None:
        for key in self.chosen():
            price = self.rng.choice((1, 2, None))
            if self.rng.random() < 0.3:
                self.lake.put(gone(key))
                self.rows.pop(key, None)
            else:
                self.lake.put(item(key, price))
                self.rows[key] = price

    def contents(self) -> list[dict[str, Any]]:
        return [{"id": key, "price": price} for key, price in self.rows.items()]


class Events(Ticking):
    """A reclocked topic of change events, some of which truncate the table."""

    def __init__(self, root: Path, spark: SparkSession, rng: Random, **more: Any) -> None:
        super().__init__(rng)
        self.changes = self.lake = Changes(root, spark, **more)

    def change(self) -> None:
        for key in self.chosen():
            row = (key, self.rng.choice(("a", "b", None)), self.rng.choice(("c", None)))
            chance = self.rng.random()
            if chance < 0.1:
                self.lake.put(self.changes.event("t"))
                self.rows.clear()
            elif chance < 0.35 and key in self.rows:
                self.lake.put(self.changes.event("d", before=self.rows.pop(key)))
            else:
                self.lake.put(self.changes.event("u" if key in self.rows else "c", row))
                self.rows[key] = row

    def contents(self) -> list[dict[str, Any]]:
        return [{"id": key, "a": a, "b": b} for key, a, b in self.rows.values()]


class Transactions(Ticking):
    """Change events with transactions, whose commits are the times; an END may come a tick later than its events."""

    def __init__(self, root: Path, spark: SparkSession, rng: Random, **more: Any) -> None:
        super().__init__(rng)
        self.table = self.lake = TransactionLake(root, spark, **more)
        self.lsn, self.waiting = 100, list[Callable[[], None]]()
        self.stated: dict[int, Rows] = {}

    def tick(self) -> None:
        self.change()
        self.lake.run()
        self.note()

    def change(self) -> None:
        marks, self.waiting = self.waiting, []
        for mark in marks:
            mark()
        for _ in range(self.rng.choice((0, 1, 2))):
            self._transact()

    def _transact(self) -> None:
        previous, number = self.lsn, str(self.lsn)
        self.lsn += 100
        events = list[dict[str, Any]]()
        for key in self.chosen():
            before = self.rows.get(key)
            after = None if before and self.rng.random() < 0.3 else (key, self.rng.choice((1, 2, None)))
            events.append(event(number, len(events) + 1, before, after, previous))
            self.rows[key] = after
            if after is None:
                del self.rows[key]
        self.table.events(*events)
        self.stated[self.lsn] = dict(Counter(text_of(row) for row in self.contents()))
        closed = end(number, self.lsn, len(events))
        if self.waiting or self.rng.random() < 0.4:
            self.waiting.append(lambda: self.table.marks(closed))
        else:
            self.table.marks(closed)

    def note(self) -> None:
        self.at |= {time: rows for time, rows in self.stated.items() if time <= self.last}

    def contents(self) -> list[dict[str, Any]]:
        return [{"id": key, "price": price} for key, price in self.rows.values()]


TICKING: dict[str, type[Any]] = {
    "reclocked records": Records,
    "reclocked upserts": Upserts,
    "reclocked change events": Events,
    "transactions": Transactions,
}
"""The kinds of collections."""
