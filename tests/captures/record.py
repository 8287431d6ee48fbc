"""Record the captures: `python -m tests.captures.record` starts PostgreSQL, a broker and Debezium, and writes topics.

`steady`: concurrent sessions, while the Connect worker is killed and restarted. `snapshots`: concurrent sessions, while
the connector loses its offsets, so that it takes another snapshot mid-stream. `types`: a row with a column of every
type, and its schema, once for each way to write decimals (`precise`, `string`, `double`). `bank`: concurrent
sessions that move money between two tables, with the topic of transactions, while the worker is killed once; this
capture is written to `examples/bank`.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.captures.bank import BANK, create_bank, move_money, read_bank
from tests.captures.lake import BANK_FOLDER
from tests.captures.workload import TABLES, Workload, contents, create_tables
from tests.services.connect import Connect, connect_worker, debezium_settings
from tests.services.kafka import Broker, kafka_broker
from tests.services.postgres import Postgres, postgres_server

FOLDER = Path(__file__).parent
_WAIT_S = 300.0


@dataclass
class Services:
    """The services that a capture needs."""

    postgres: Postgres
    broker: Broker
    connect: Connect


@dataclass
class Capture:
    """A database whose tables a connector follows, and what the tables held at several moments."""

    services: Services
    name: str
    database: str
    settings: dict[str, object]
    moments: list[dict[str, Any]] = field(default_factory=list)

    def start(self) -> None:
        """Add the connector."""
        self.services.connect.put(self.name, self.settings)

    def topic(self, table: str) -> str:
        """The topic of a table."""
        return f"{self.name}.public.{table}"

    def catch_up(self) -> None:
        """Wait until everything committed so far is in the topics: write a mark, and wait until the mark arrives."""
        with self.services.postgres.connect(self.database) as session:
            session.execute("insert into marks default values")
            row = session.execute("select max(id) from marks").fetchone()
        assert row is not None
        end = time.monotonic() + _WAIT_S
        while time.monotonic() < end:
            if any(mark["id"] == row[0] for mark in self._marks()):
                return
            time.sleep(0.2)
        raise AssertionError(
            f"{self.name}: the mark {row[0]} did not arrive within {_WAIT_S:.0f} s; {self._situation()}"
        )

    def _situation(self) -> str:
        """What an engineer would look at if events stopped arriving."""
        with self.services.postgres.connect(self.database) as session:
            slots = session.execute(
                "select slot_name, active, confirmed_flush_lsn::text, pg_current_wal_lsn()::text"
                " from pg_replication_slots"
            ).fetchall()
        connect = self.services.connect
        return f"slots {slots}; {json.dumps(connect.status(self.name))}; the worker said:\n{connect.server.said()}"

    def _marks(self) -> Iterator[dict[str, Any]]:
        if self.topic("marks") not in self.services.broker.admin.list_topics(timeout=60).topics:
            return
        for records in self.services.broker.consume(self.topic("marks")).values():
            for _, record in records:
                if record.value is not None and (after := payload(record.value).get("after")):
                    yield after

    def note(self, tables: tuple[str, ...]) -> None:
        """Note what the tables hold now and where the topics end; nothing may change the tables during the call."""
        self.catch_up()
        offsets = {
            self.topic(table): {
                str(partition): end for partition, (_, end) in self.services.broker.ends(self.topic(table)).items()
            }
            for table in tables
        }
        rows = {table: contents(self.services.postgres, self.database, table) for table in tables}
        self.moments.append({"offsets": offsets, "rows": rows})

    def forget_offsets(self) -> None:
        """Delete the connector's offsets, as if it had been killed before it saved them."""
        self.services.connect.pause(self.name, stop=True)
        end = time.monotonic() + _WAIT_S
        while True:
            try:
                self.services.connect.call("DELETE", f"/connectors/{self.name}/offsets")
                return
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.3)

    def write(self, tables: tuple[str, ...], folder: Path, topics: tuple[str, ...] = ()) -> None:
        """Write the moments, and write the tables' topics and further topics as file topics."""
        shutil.rmtree(folder, ignore_errors=True)
        for topic in (*map(self.topic, tables), *topics):
            for partition, records in self.services.broker.consume(topic).items():
                write_lines(folder / "topics" / topic / f"{partition}.jsonl.gz", records)
        if self.moments:
            write_text(folder / "moments.json.gz", json.dumps(self.moments, ensure_ascii=False))


@contextmanager
def services() -> Iterator[Services]:
    """Start all three services, in folders that are removed when the services stop."""
    with ExitStack() as stack:
        folders = []
        for name in ("postgres", "kafka", "connect"):
            folders.append(Path(tempfile.mkdtemp(prefix=f"tidelake-{name}-")))
            stack.callback(shutil.rmtree, folders[-1], ignore_errors=True)
        postgres = stack.enter_context(postgres_server(folders[0]))
        broker = stack.enter_context(kafka_broker(folders[1]))
        yield Services(postgres, broker, stack.enter_context(connect_worker(folders[2], broker)))


def capture(running: Services, name: str, **settings: object) -> Capture:
    """Create a database with the workload's tables; its connector is not started yet."""
    database = running.postgres.create_database()
    create_tables(running.postgres, database)
    with running.postgres.connect(database) as session:
        session.execute("create table marks (id serial primary key)")
    more = {"skipped_operations": "none", "slot_drop_on_stop": "false", **settings}
    return Capture(running, name, database, debezium_settings(running.postgres, database, name, **more))


def record_steady(running: Services, name: str, seed: int, truncates: bool = True) -> Capture:
    """Record concurrent sessions; the worker is killed twice.

    With `truncates`, one table is truncated and refilled at the end.
    """
    recording = capture(running, name)
    recording.start()
    with Workload(running.postgres, recording.database, seed, pause_s=0.03) as work:
        for place in range(3):
            time.sleep(2.0)
            if place < 2:
                running.connect.restart(kill=True)
                running.connect.wait_until_running(name)
                time.sleep(1.0)
            with work.held():
                recording.note(TABLES)
    if truncates:
        with running.postgres.connect(recording.database) as session:
            session.execute("truncate people")
            session.execute("insert into people (id, name) values (3, 'after'), (31, 'the flood')")
        recording.note(TABLES)
    return recording


def record_snapshots(running: Services, name: str, seed: int) -> Capture:
    """Record concurrent sessions; the connector loses its offsets twice, and rows are deleted while it is stopped."""
    recording = capture(running, name)
    recording.start()
    with Workload(running.postgres, recording.database, seed, pause_s=0.03) as work:
        for _ in range(2):
            time.sleep(1.5)
            with work.held():
                recording.note(TABLES)
            recording.forget_offsets()
            time.sleep(0.5)
            running.connect.resume(name)
            time.sleep(1.0)
        with work.held():
            recording.note(TABLES)
    return recording


_KINDS = {
    "c_bool": ("bool", "true"),
    "c_smallint": ("smallint", "'-32768'"),
    "c_int": ("int", "2147483647"),
    "c_bigint": ("bigint", "'-9223372036854775808'"),
    "c_real": ("real", "'-1.5'"),
    "c_double": ("double precision", "'1e-300'"),
    "c_numeric": ("numeric(20, 4)", "'-1234567890123456.7891'"),
    "c_small": ("numeric(6, 3)", "'0.001'"),
    "c_free": ("numeric", "'-12345678901234567890.000123'"),
    "c_money": ("money", "'12.34'"),
    "c_text": ("text", "'Möwe 🌊'"),
    "c_char": ("char(5)", "'ab'"),
    "c_varchar": ("varchar(9)", "''"),
    "c_bytea": ("bytea", "'\\x00fffe'"),
    "c_date": ("date", "'1969-12-31'"),
    "c_time": ("time", "'23:59:59.999999'"),
    "c_time3": ("time(3)", "'00:00:00.123'"),
    "c_timetz": ("timetz", "'12:00:00+02'"),
    "c_timestamp": ("timestamp", "'1969-12-31 23:59:59.999999'"),
    "c_timestamp3": ("timestamp(3)", "'2024-02-29 12:00:00.123'"),
    "c_timestamptz": ("timestamptz", "'2024-02-29 12:00:00.000001+05:30'"),
    "c_interval": ("interval", "'1 year 2 months 3 days 4:05:06.000007'"),
    "c_uuid": ("uuid", "'0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0'"),
    "c_json": ("json", "'{\"a\": [1, null]}'"),
    "c_jsonb": ("jsonb", '\'{"b": "ü"}\''),
    "c_xml": ("xml", "'<a>b</a>'"),
    "c_bit1": ("bit(1)", "B'1'"),
    "c_bits": ("bit(10)", "B'1000000001'"),
    "c_enum": ("mood", "'high tide'"),
    "c_inet": ("inet", "'10.0.0.1/8'"),
    "c_ints": ("int[]", "'{1,NULL,-3}'"),
    "c_texts": ("text[]", "'{a,NULL,\"b c\"}'"),
    "c_numerics": ("numeric(8, 2)[]", "'{1.25,-0.01}'"),
    "c_dates": ("date[]", "'{2024-02-29}'"),
    "c_range": ("int4range", "'[1,5)'"),
    "c_point": ("point", "'(1.5,-2)'"),
}
"""A column of every type: its type and a value, both in SQL."""

_MODES: dict[str, dict[str, object]] = {
    "precise": {},
    "string": {
        "decimal_handling_mode": "string",
        "binary_handling_mode": "hex",
        "time_precision_mode": "connect",
        "interval_handling_mode": "string",
    },
    "double": {
        "decimal_handling_mode": "double",
        "binary_handling_mode": "base64-url-safe",
        "time_precision_mode": "nanoseconds",
    },
}


def record_types(running: Services, folder: Path) -> None:
    """Record a row with a value of every type and a row of nulls, in each mode of the connector.

    Each message contains its schema.
    """
    database = running.postgres.create_database()
    with running.postgres.connect(database) as session:
        session.execute("create type mood as enum ('ebb', 'high tide')")
        kinds = {}
        for name, (kind, value) in _KINDS.items():
            try:
                session.execute(f"select {value}::{kind}")
            except psycopg.Error as error:
                print(f"{name}: left out, because this server does not know the type: {error}")
                continue
            kinds[name] = (kind, value)
        columns = ", ".join(f"{name} {kind}" for name, (kind, _) in kinds.items())
        session.execute(f"create table kinds (id int primary key, {columns})")
        session.execute(f"insert into kinds values (1, {', '.join(value for _, value in kinds.values())})")
        session.execute("insert into kinds (id) values (2)")
        shown = session.execute(
            f"select {', '.join(f'{name}::text' for name in kinds)} from kinds where id = 1"
        ).fetchone()
    assert shown is not None
    shutil.rmtree(folder, ignore_errors=True)
    write_text(folder / "row.json.gz", json.dumps(dict(zip(kinds, shown, strict=True)), ensure_ascii=False, indent=1))
    for mode, more in _MODES.items():
        settings = {"slot_name": f"types_{mode}", "publication_name": f"types_{mode}", **more}
        settings |= {f"{part}_converter_schemas_enable": "true" for part in ("key", "value")}
        recording = Capture(
            running,
            f"types_{mode}",
            database,
            debezium_settings(running.postgres, database, f"types_{mode}", **settings),
        )
        recording.start()
        end = time.monotonic() + _WAIT_S
        while not (lines := _rows_of(running, recording.topic("kinds"))) or len(lines) < 2:
            assert time.monotonic() < end, f"{mode}: the rows did not arrive"
            time.sleep(0.3)
        recording.write(("kinds",), folder / mode)
        running.connect.remove(recording.name)


SINGLE_PARTITION: dict[str, object] = {
    "topic_creation_groups": "single",
    "topic_creation_single_include": r".*\.transaction",
    "topic_creation_single_partitions": 1,
    "topic_creation_single_replication_factor": 1,
}
"""Connector settings that give the topic of transactions one partition and every other topic two."""


def capture_bank(running: Services, name: str, **settings: object) -> Capture:
    """Create the bank's database; its connector, which writes transactions as well, is not started yet."""
    database = running.postgres.create_database()
    create_bank(running.postgres, database)
    more = {"provide_transaction_metadata": "true", "slot_drop_on_stop": "false", **SINGLE_PARTITION, **settings}
    return Capture(running, name, database, debezium_settings(running.postgres, database, name, **more))


def note_bank(recording: Capture) -> None:
    """Commit a mark, and note its transaction and the tables' contents; no other session may write meanwhile."""
    postgres, database = recording.services.postgres, recording.database
    with postgres.connect(database) as session:
        session.autocommit = False
        row = session.execute("insert into marks default values returning id, pg_current_xact_id()::text").fetchone()
        session.commit()
    assert row is not None
    rows = {table: read_bank(postgres, database, table) for table in BANK}
    recording.moments.append({"mark": row[0], "transaction": row[1], "rows": rows})
    recording.catch_up()


def record_bank(running: Services, name: str, seed: int) -> Capture:
    """Record sessions that move money between two tables; the worker is killed once, so that it repeats events."""
    recording = capture_bank(running, name)
    recording.start()
    recording.catch_up()
    with Workload(running.postgres, recording.database, seed, sessions=3, pause_s=0.06, change=move_money) as work:
        for place in range(4):
            time.sleep(0.8)
            if place == 1:
                running.connect.restart(kill=True)
                running.connect.wait_until_running(name)
            with work.held():
                note_bank(recording)
    return recording


def _rows_of(running: Services, topic: str) -> list[Any]:
    if topic not in running.broker.admin.list_topics(timeout=60).topics:
        return []
    return [record for records in running.broker.consume(topic).values() for record in records]


def payload(value: bytes) -> dict[str, Any]:
    """The event itself, without the schema that may wrap it."""
    event = json.loads(value)
    return dict(event.get("payload", event))


def write_lines(path: Path, records: list[tuple[int, Any]]) -> None:
    """Write records as the lines of a file topic."""
    lines = []
    for offset, record in records:
        line: dict[str, Any] = {"offset": offset, "timestamp_ms": record.timestamp_ms}
        line["key"] = None if record.key is None else json.loads(record.key)
        if record.headers:
            line["headers"] = {name: None if value is None else value.decode() for name, value in record.headers}
        line["value"] = None if record.value is None else json.loads(record.value)
        lines.append(json.dumps(line, ensure_ascii=False, separators=(",", ":")))
    write_text(path, "".join(f"{line}\n" for line in lines))


def write_text(path: Path, text: str) -> None:
    """Write text, compressed so that equal text gives equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def main() -> None:
    """Record the captures that the command line names, or all of them."""
    names = sys.argv[1:] or ["steady", "snapshots", "types", "bank"]
    with services() as running:
        if "types" in names:
            record_types(running, FOLDER / "types")
        if "steady" in names:
            record_steady(running, "steady", 1).write(TABLES, FOLDER / "steady")
        if "snapshots" in names:
            record_snapshots(running, "snapshots", 2).write(TABLES, FOLDER / "snapshots")
        if "bank" in names:
            record_bank(running, "shop", 3).write(BANK, BANK_FOLDER, ("shop.transaction",))


if __name__ == "__main__":
    main()
