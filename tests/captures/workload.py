"""Concurrent sessions that change tables at random: inserts, updates, deletes, key changes, nulls, Unicode, TOAST."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import psycopg

from tests.services.postgres import Postgres

TABLES = ("people", "papers")
"""The tables. Of the old row of a change, the database logs only the key in `people` (the default), and the whole row
in `papers`."""

_COLUMNS = """(
    id int primary key, name text not null, big text, bin bytea, price numeric(12, 3), seen timestamptz, day date,
    note text
)"""
_SHOWN = """id, name, big, encode(bin, 'hex'), price::text, (extract(epoch from seen) * 1000000)::bigint, day::text,
    note"""
COLUMNS = ("id", "name", "big", "bin", "price", "seen", "day", "note")

RECORD: dict[str, Any] = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": "string"},
        {"name": "big", "type": ["null", "string"]},
        {"name": "bin", "type": ["null", "bytes"]},
        {
            "name": "price",
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}],
        },
        {"name": "seen", "type": ["null", {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}]},
        {"name": "day", "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}]},
        {"name": "note", "type": ["null", "string"]},
    ],
}
"""The record schema of the tables' rows, with Debezium's type names."""

_WORDS = ("Möwe", "Sturm", "海", "Ebbe & Flut", 'a "quoted" word', "line\nbreak", "🌊", "", "\\ backslash", "0")
_KEYS = 30


def create_tables(postgres: Postgres, database: str) -> None:
    """Create the tables, with a few rows in each."""
    with postgres.connect(database) as session:
        for table in TABLES:
            session.execute(f"create table {table} {_COLUMNS}")
            for column in ("big", "bin"):  # large values are stored outside the row, uncompressed
                session.execute(f"alter table {table} alter {column} set storage external")
        session.execute("alter table papers replica identity full")
        rng = Random(0)
        for table in TABLES:
            for key in range(1, 9):
                _insert(session, table, rng, key)


def contents(postgres: Postgres, database: str, table: str) -> list[list[Any]]:
    """The rows of a table in key order: bytes in hex, decimals as text, timestamps in microseconds."""
    with postgres.connect(database) as session:
        return [list(row) for row in session.execute(f"select {_SHOWN} from {table} order by id").fetchall()]


Session = psycopg.Connection[Any]
Change = Callable[[Session, str, Random], int]
"""Changes rows of a table, and returns the number of changed rows."""


class Workload:
    """Sessions that work until they are stopped, and that can be paused between two transactions."""

    def __init__(
        self,
        postgres: Postgres,
        database: str,
        seed: int,
        sessions: int = 4,
        pause_s: float = 0.005,
        *,
        change: Change | None = None,
        events_max: float = math.inf,
        events_per_s_max: float = math.inf,
    ) -> None:
        self._postgres, self._database, self._pause_s = postgres, database, pause_s
        self._change, self._most, self._rate = change or change_one, events_max, events_per_s_max
        self._started = time.monotonic()
        self._stop, self._errors = threading.Event(), []  # type: ignore[var-annotated]
        self._gates = [threading.Lock() for _ in range(sessions)]
        self._events = [0] * sessions
        self._threads = [
            threading.Thread(target=self._work, args=(Random(f"{seed} {place}"), place, gate), daemon=True)
            for place, gate in enumerate(self._gates)
        ]

    def __enter__(self) -> Workload:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        assert not self._errors, self._errors[0]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Pause all sessions; inside the `with` block, no transaction is open."""
        for gate in self._gates:
            assert gate.acquire(timeout=60)
        try:
            yield
        finally:
            for gate in self._gates:
                gate.release()

    @property
    def events(self) -> int:
        """How many rows the committed transactions have changed; fails if a session has failed."""
        assert not self._errors, self._errors[0]
        return sum(self._events)

    def _work(self, rng: Random, place: int, gate: threading.Lock) -> None:
        try:
            with self._postgres.connect(self._database) as session:
                session.autocommit = False
                while not self._stop.is_set() and self.events < self._most:
                    with gate:
                        self._events[place] += self._transaction(session, rng)
                    ahead_s = self.events / self._rate - (time.monotonic() - self._started)
                    self._stop.wait(max(ahead_s, self._pause_s * rng.random()))
        except Exception as error:  # an error in a thread must fail the test
            self._errors.append(error)
            raise

    def _transaction(self, session: Session, rng: Random) -> int:
        """Run a transaction and return how many rows it has changed: 0 if it was rolled back."""
        try:
            events = 0
            for _ in range(rng.randint(1, 5)):
                events += self._change(session, rng.choice(TABLES), rng)
                self._stop.wait(self._pause_s * rng.random())
            if rng.random() < 0.1:
                session.rollback()
                return 0
            session.commit()
            return events
        except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
            session.rollback()
            return 0


def change_one(session: Session, table: str, rng: Random) -> int:
    """Run a random statement on a random key, or on every seventh key, and return how many rows it has changed."""
    key, choice = rng.randint(1, _KEYS), rng.random()
    if choice < 0.25:
        return _insert(session, table, rng, key)
    if choice < 0.6:  # large values stay as they are
        return _rows(
            session,
            f"update {table} set name = %s, price = %s, note = %s where id = %s",
            [rng.choice(_WORDS), _price(rng), rng.choice((*_WORDS, None)), key],
        )
    if choice < 0.7:
        return _rows(session, f"update {table} set big = %s, bin = %s where id = %s", [*_large(rng), key])
    if choice < 0.8:
        # Debezium sends only the large values that a statement writes. For `people`, it does not get the whole old row,
        # so this statement writes the large values again: without that, they would be unknown for the new key.
        anew = ", big = big || '', bin = bin || ''::bytea" if table == "people" else ""
        return _rows(session, f"update {table} set id = %s{anew} where id = %s", [rng.randint(1, _KEYS), key])
    if choice < 0.85:
        return _rows(
            session, f"update {table} set day = day + 1, seen = seen + interval '1 us' where id %% 7 = %s", [key % 7]
        )
    return _rows(session, f"delete from {table} where id = %s", [key])


def change_many(session: Session, table: str, rng: Random) -> int:
    """Run a random statement on a random range of keys, and return how many rows it has changed.

    There are about a thousand keys. A truncated table is refilled in the same transaction, so that no snapshot finds it
    empty.
    """
    first, choice = rng.choice((0, 2 * _MANY)) + rng.randrange(_MANY), rng.random()
    within = "id between %s and %s"
    span = [first, first + rng.randint(1, 40)]
    if choice < 0.3:
        return _insert_many(session, table, rng, span)
    if choice < 0.65:
        sets = "name = %s::text || id, price = %s, note = %s, seen = seen + interval '1 us'"
        values = [rng.choice(_WORDS), _price(rng), rng.choice((*_WORDS, None))]
        return _rows(session, f"update {table} set {sets} where {within}", [*values, *span])
    if choice < 0.7:
        return _rows(session, f"update {table} set big = %s, bin = %s where {within}", [*_large(rng), first, first + 3])
    if choice < 0.85:  # to the other range of keys or back: XOR is its own inverse
        anew = ", big = big || '', bin = bin || ''::bytea" if table == "people" else ""
        free = f"not exists (select from {table} other where other.id = {table}.id # {2 * _MANY})"
        return _rows(
            session, f"update {table} set id = id # {2 * _MANY}{anew} where {within} and {free}", [first, first + 10]
        )
    if choice < 0.997:
        return _rows(session, f"delete from {table} where {within}", span)
    session.execute(f"truncate {table}")
    return _insert_many(session, table, rng, [1, 60])


_MANY = 512
"""Keys are in two ranges: one begins at 0, the other at twice this number. One kind of update moves keys across."""


def _insert_many(session: Session, table: str, rng: Random, span: Sequence[int]) -> int:
    """Insert or rename the rows of a range of keys; the first row has large values."""
    big, bin_ = _large(rng)
    return _rows(
        session,
        f"""insert into {table} select id, %s::text || id,
            case when id = span.first then %s else 'b' || id end, case when id = span.first then %s else 'c'::bytea end,
            %s::numeric, timestamptz '2024-02-29 12:00:00.000001+01' + id * interval '1.000001 s',
            date '1969-12-31' + id, %s::text
            from (select %s::int, %s::int) span(first, last), generate_series(span.first, span.last) id
            on conflict (id) do update set name = excluded.name, note = excluded.note""",
        [rng.choice(_WORDS), big, bin_, _price(rng), rng.choice((*_WORDS, None)), *span],
    )


def _rows(session: Session, statement: str, values: Sequence[object]) -> int:
    return session.execute(statement, values).rowcount


def _insert(session: Session, table: str, rng: Random, key: int) -> int:
    return _rows(
        session,
        f"""insert into {table} values (%s, %s, %s, %s, %s,
            timestamptz '2024-02-29 12:00:00.000001+01' + %s * interval '1.000001 s', date '1969-12-31' + %s, %s)
            on conflict (id) do update set name = excluded.name, note = excluded.note""",
        [
            *(key, rng.choice(_WORDS), *_large(rng), _price(rng)),
            *(rng.randint(-(10**9), 10**9), rng.randint(-9999, 9999), rng.choice((*_WORDS, None))),
        ],
    )


def _price(rng: Random) -> str | None:
    return None if rng.random() < 0.2 else f"{rng.randint(-(10**9), 10**9) / 1000:.3f}"


def _large(rng: Random) -> tuple[str | None, bytes | None]:
    big = None if rng.random() < 0.1 else rng.choice(_WORDS[:4]) * rng.choice([1, 1500])
    return big, None if rng.random() < 0.3 else bytes([rng.randrange(256)]) * rng.choice([3, 5000])
