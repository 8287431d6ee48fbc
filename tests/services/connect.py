"""Kafka Connect with Debezium: its REST API, and a worker that can be killed and restarted."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.services.kafka import Broker
from tests.services.postgres import USER, Postgres
from tests.services.process import Server, free_ports, java, write_properties

WAIT_S = 120.0
"""The time limit of each wait for a connector."""
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_WORKER = {
    "group.id": "connect",
    "key.converter": _JSON,
    "value.converter": _JSON,
    "plugin.discovery": "service_load",
    "offset.storage.partitions": 1,
    "status.storage.partitions": 1,
    **{f"{name}.storage.topic": f"connect-{name}" for name in ("config", "offset", "status")},
    **{f"{name}.storage.replication.factor": 1 for name in ("config", "offset", "status")},
    # After a kill, changes since the last flush of offsets are read again: a short interval keeps them few.
    "offset.flush.interval.ms": 1_000,
    # A worker that is restarted after a kill gets its work at once.
    "scheduled.rebalance.max.delay.ms": 0,
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 2_000,
}


@dataclass
class Connect:
    """A worker that can be stopped and restarted; it restores its connectors from Kafka."""

    url: str
    server: Server

    def start(self) -> None:
        """Start the worker, and return when it answers."""
        self.server.start(self._answers)

    def restart(self, *, kill: bool = True) -> None:
        """Kill the worker, or stop it gracefully, and restart it; its connectors resume by themselves."""
        self.server.kill() if kill else self.server.stop()
        self.start()

    def put(self, name: str, settings: Mapping[str, object], *, wait: bool = True) -> None:
        """Add or change a connector, and by default wait until it is running."""
        self.call("PUT", f"/connectors/{name}/config", {key: str(value) for key, value in settings.items()})
        if wait:
            self.wait_until_running(name)

    def remove(self, name: str) -> None:
        """Delete a connector; its replication slot stays until the database is dropped."""
        self.call("DELETE", f"/connectors/{name}")

    def pause(self, name: str, *, stop: bool = False) -> None:
        """Pause a connector; with `stop`, end its task."""
        self.call("PUT", f"/connectors/{name}/{'stop' if stop else 'pause'}")

    def resume(self, name: str) -> None:
        """Resume a connector, and wait until it is running."""
        self.call("PUT", f"/connectors/{name}/resume")
        self.wait_until_running(name)

    def status(self, name: str) -> dict[str, Any]:
        """The worker's report about a connector and its task."""
        return dict(self.call("GET", f"/connectors/{name}/status"))

    def wait_until_running(self, name: str) -> None:
        """Wait until the connector and its only task are running.

        Raises:
            AssertionError: the connector or its task failed, or was not running in time.
        """
        end, status = time.monotonic() + WAIT_S, {}
        while time.monotonic() < end:
            try:
                status = self.status(name)
            except urllib.error.HTTPError as error:
                if error.code not in (404, 409, 500):  # not known yet, or the worker is still joining its group
                    raise
            states = [status.get("connector", {}).get("state"), *(task["state"] for task in status.get("tasks", []))]
            assert "FAILED" not in states, f"the connector {name} failed: {json.dumps(status, indent=2)}"
            if len(states) > 1 and set(states) == {"RUNNING"}:
                return
            time.sleep(0.1)
        raise AssertionError(f"the connector {name} is not running after {WAIT_S:.0f} s: {status}")

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Send a request, and repeat it while the worker is rebalancing."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data=data, method=method, headers={"Content-Type": "application/json"}
        )
        end = time.monotonic() + WAIT_S
        while True:
            try:
                with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                    text = answer.read()
                    return json.loads(text) if text else None
            except urllib.error.HTTPError as error:
                with error:
                    if error.code != 409 or time.monotonic() > end:
                        detail = error.read().decode(errors="replace")
                        error.msg = f"{error.msg}: {detail}"
                        raise
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/connectors", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def connect_worker(folder: Path, broker: Broker, settings: Mapping[str, object] | None = None) -> Iterator[Connect]:
    """Start a worker with Debezium's PostgreSQL connector; the worker always stops when the context ends.

    Cost: a few seconds, and 200 MB of memory before the worker has a connector.
    """
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    places = {
        "bootstrap.servers": broker.bootstrap_servers,
        "listeners": url,
        "rest.advertised.host.name": "127.0.0.1",
    }
    properties = write_properties(folder / "connect.properties", {**_WORKER, **places, **(settings or {})})
    command = java("org.apache.kafka.connect.cli.ConnectDistributed", str(properties))
    connect = Connect(url, Server("Kafka Connect", command, folder / "connect.log"))
    try:
        connect.start()
        yield connect
    finally:
        connect.server.stop()


def debezium_settings(postgres: Postgres, database: str, prefix: str, **more: object) -> dict[str, object]:
    """The settings of a connector for one database.

    Its topics are called `<prefix>.<schema>.<table>`, have two partitions, and contain JSON without schemas.

    Args:
        postgres: the server.
        database: the database whose tables are captured.
        prefix: the first part of the topics' names; the slot and the publication have the database's name.
        more: settings of Debezium, with `_` for `.`, that override these.
    """
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": 1,
        "database.hostname": "127.0.0.1",
        "database.port": postgres.port,
        "database.user": USER,
        "database.dbname": database,
        "topic.prefix": prefix,
        "plugin.name": "pgoutput",
        "slot.name": database,
        "publication.name": database,
        # The converters are named, because their options apply only to converters that the connector itself names.
        "key.converter": _JSON,
        "key.converter.schemas.enable": "false",
        "value.converter": _JSON,
        "value.converter.schemas.enable": "false",
        "topic.creation.default.partitions": 2,
        "topic.creation.default.replication.factor": 1,
        "poll.interval.ms": 50,
        "status.update.interval.ms": 1_000,
        "retriable.restart.connector.wait.ms": 500,
        **{name.replace("_", "."): value for name, value in more.items()},
    }
