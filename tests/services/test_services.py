"""The services themselves: they start, carry a change from a table to a topic, and leave nothing behind."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.services.connect import Connect, debezium_settings
from tests.services.kafka import PASSWORD, USER, WAIT_S, Broker, Record
from tests.services.postgres import Postgres
from tests.services.process import START_TIMEOUT_S

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> Iterator[str]:
    name = postgres.create_database()
    with postgres.connect(name) as session:
        session.execute("create table boats (id int primary key, name text)")
        session.execute("insert into boats values (1, 'Möwe'), (2, null)")
    yield name
    postgres.drop_database(name)


@pytest.mark.sweep
def test_a_change_in_a_table_arrives_in_a_topic_even_if_the_worker_is_killed(
    broker: Broker, postgres: Postgres, connect: Connect, database: str
) -> None:
    connect.put("boats", debezium_settings(postgres, database, "harbour", table_include_list="public.boats"))
    topic = "harbour.public.boats"
    with postgres.connect(database) as session:
        session.execute("update boats set name = 'Albatros' where id = 2")
        assert _wait_for(broker, topic, "u")["after"] == {"id": 2, "name": "Albatros"}
        connect.restart(kill=True)
        connect.wait_until_running("boats")
        # A connector that is killed before it has saved its offsets takes its snapshot again, and a row that has been
        # deleted by then is not in the second snapshot. So row 1 is deleted only after row 3 has arrived, as a change
        # or in a snapshot.
        session.execute("insert into boats values (3, 'Kiebitz')")
        _wait_for(broker, topic, "cr", 3)
        session.execute("delete from boats where id = 1")
        assert _wait_for(broker, topic, "d")["before"]["id"] == 1
    connect.remove("boats")


_SCENE = """
import os, signal, sys
from pathlib import Path
from tests.services.kafka import kafka_broker
from tests.services.postgres import postgres_server

folder = Path(sys.argv[1])
(folder / "kafka").mkdir()
with kafka_broker(folder / "kafka"), postgres_server(folder):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.sweep
def test_the_services_stop_even_if_the_tests_are_killed() -> None:
    with tempfile.TemporaryDirectory(prefix="tidelake-killed-") as folder:
        done = subprocess.run([sys.executable, "-c", _SCENE, folder], timeout=2 * START_TIMEOUT_S, check=False)
        assert done.returncode == -signal.SIGKILL
        end = time.monotonic() + WAIT_S
        while left := _processes_started_with(folder):
            assert time.monotonic() < end, f"still running: {left}"
            time.sleep(0.1)


def _processes_started_with(folder: str) -> list[list[str]]:
    """The commands of all processes that have the name of a folder in their arguments."""
    commands = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # the process has ended
            if any(folder in part for part in process.cmdline()):
                commands.append(process.cmdline())
    return commands


def test_the_brokers_listener_with_tls_accepts_only_the_right_password(broker: Broker) -> None:
    topic = broker.create_topic()
    broker.produce(topic, [Record(b"one", b"key", headers=(("h", b"1"), ("h", None)), timestamp_ms=77)])
    assert broker.consume(topic)[0] == [(0, Record(b"one", b"key", 0, (("h", b"1"), ("h", None)), 77))]
    secure = {
        "bootstrap.servers": broker.secure_bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "ssl.ca.location": str(broker.certificate),
        "log_level": 0,
    }
    assert topic in AdminClient({**secure, "sasl.password": PASSWORD}).list_topics(timeout=WAIT_S).topics
    with pytest.raises(KafkaException, match=r"_TRANSPORT|_TIMED_OUT|_AUTH"):
        AdminClient({**secure, "sasl.password": "another"}).list_topics(timeout=3)


def _wait_for(broker: Broker, topic: str, operations: str, row: int | None = None) -> dict[str, Any]:
    """Wait for a change event with one of these operations, about `row` if that is given, and return it."""
    end = time.monotonic() + WAIT_S
    while True:
        records: list[Record] = []
        if topic in broker.admin.list_topics(timeout=WAIT_S).topics:
            records = [record for part in broker.consume(topic).values() for _, record in part]
        events: list[dict[str, Any]] = [json.loads(record.value) for record in records if record.value is not None]
        for event in events:
            if event["op"] in operations and (row is None or event["after"]["id"] == row):
                return event
        assert time.monotonic() < end, f"{topic} has no event with an operation in {operations!r} among {len(events)}"
        time.sleep(0.1)
