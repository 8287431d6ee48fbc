"""Concurrent sessions that change tables at random: inserts, updates, deletes, key changes, nulls, Unicode, TOAST."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import psycopg

from tests.services.postgres import Postgres

TABLES = ("people", "papers")
"""They differ in what the database says of a row before a change: its key (the default), or all of it."""

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
"""What the tables' rows are, with the names that Debezium gives to types."""

_WORDS = ("Möwe", "Sturm", "海", "Ebbe & Flut", 'a "quoted" word', "line\nbreak", "🌊", "", "\\ backslash", "0")
_KEYS = 30


def create_tables(postgres: Postgres, database: str) -> None:
    """Make the tables, with some rows."""
    with postgres.connect(database) as session:
        for table in TABLES:
            session.execute(f"create table {table} {_COLUMNS}")
            for column in ("big", "bin"):  # large values lie outside of the row, uncompressed
                session.execute(f"alter table {table} alter {column} set storage external")
        session.execute("alter table papers replica identity full")
        rng = Random(0)
        for table in TABLES:
            for key in range(1, 9):
                _insert(session, table, rng, key)


def contents(postgres: Postgres, database: str, table: str) -> list[list[Any]]:
    """The rows of a table in the order of keys, by `COLUMNS`: bytes in hex, decimals as text, times in microseconds."""
    with postgres.connect(database) as session:
        return [list(row) for row in session.execute(f"select {_SHOWN} from {table} order by id").fetchall()]


class Workload:
    """Sessions that work until they are told to stop, and may be held between two transactions."""

    def __init__(self, postgres: Postgres, database: str, seed: int, sessions: int = 4, pause_s: float = 0.005) -> None:
        self._postgres, self._database, self._pause_s = postgres, database, pause_s
        self._stop, self._errors = threading.Event(), []  # type: ignore[var-annotated]
        self._gates = [threading.Lock() for _ in range(sessions)]
        self.statements = 0
        self._threads = [
            threading.Thread(target=self._work, args=(Random(f"{seed} {one}"), gate), daemon=True)
            for one, gate in enumerate(self._gates)
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
        """No transaction is open meanwhile."""
        for gate in self._gates:
            assert gate.acquire(timeout=60)
        try:
            yield
        finally:
            for gate in self._gates:
                gate.release()

    def _work(self, rng: Random, gate: threading.Lock) -> None:
        try:
            with self._postgres.connect(self._database) as session:
                session.autocommit = False
                while not self._stop.is_set():
                    with gate:
                        self._transaction(session, rng)
                    self._stop.wait(self._pause_s * rng.random())
        except Exception as error:  # a thread's error is the test's
            self._errors.append(error)
            raise

    def _transaction(self, session: psycopg.Connection[Any], rng: Random) -> None:
        try:
            for _ in range(rng.randint(1, 5)):
                change(session, rng.choice(TABLES), rng)
                self.statements += 1
                self._stop.wait(self._pause_s * rng.random())
            if rng.random() < 0.1:
                session.rollback()
            else:
                session.commit()
        except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
            session.rollback()


def change(session: psycopg.Connection[Any], table: str, rng: Random) -> None:
    """One statement of some kind about some key."""
    key, choice = rng.randint(1, _KEYS), rng.random()
    if choice < 0.25:
        _insert(session, table, rng, key)
    elif choice < 0.6:  # large values stay as they are
        session.execute(
            f"update {table} set name = %s, price = %s, note = %s where id = %s",
            [rng.choice(_WORDS), _price(rng), rng.choice((*_WORDS, None)), key],
        )
    elif choice < 0.7:
        session.execute(f"update {table} set big = %s, bin = %s where id = %s", [*_large(rng), key])
    elif choice < 0.8:
        # Without the whole row before, nobody could know what large values the new key has: they are sent anew.
        anew = ", big = big || '', bin = bin || ''::bytea" if table == "people" else ""
        session.execute(f"update {table} set id = %s{anew} where id = %s", [rng.randint(1, _KEYS), key])
    elif choice < 0.85:
        session.execute(
            f"update {table} set day = day + 1, seen = seen + interval '1 us' where id %% 7 = %s", [key % 7]
        )
    else:
        session.execute(f"delete from {table} where id = %s", [key])


def _insert(session: psycopg.Connection[Any], table: str, rng: Random, key: int) -> None:
    session.execute(
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
