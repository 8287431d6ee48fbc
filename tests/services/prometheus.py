"""A real Prometheus, and its tool that checks rules. Debian's package has both; `make services` unpacks it."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.services.process import Server, free_ports
from tidelake.spark.jars import SERVICES_FOLDER

_UNPACKED = SERVICES_FOLDER.parent / "prometheus"


def tool(name: str) -> str:
    """The path of `prometheus` or `promtool`; the test is skipped if neither PATH nor the set-up has it."""
    found = shutil.which(name) or shutil.which(name, path=str(_UNPACKED))
    if found is None:
        pytest.skip(f"{name} is neither on PATH nor in {_UNPACKED}; `make services` unpacks it if apt-get has it")
    return found


@dataclass
class Prometheus:
    """A running Prometheus."""

    url: str

    def get(self, path: str) -> Any:
        """The data of an API response."""
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]

    def firing(self) -> set[tuple[str, str]]:
        """The name and the collection of each firing alert."""
        alerts = [alert for alert in self.get("alerts")["alerts"] if alert["state"] == "firing"]
        return {(alert["labels"]["alertname"], alert["labels"].get("collection", "")) for alert in alerts}


@contextmanager
def prometheus(folder: Path, rules: Path, job: str, target: str) -> Iterator[Prometheus]:
    """Start a server that scrapes a target and evaluates rules every second; it always stops when the context ends."""
    [port] = free_ports(1)
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": job, "static_configs": [{"targets": [target]}]}],
    }
    file = folder / "prometheus.yml"
    file.write_text(json.dumps(configuration), encoding="utf-8")
    command = [tool("prometheus"), f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}"]
    running = Prometheus(f"http://127.0.0.1:{port}")

    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"{running.url}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    server = Server("Prometheus", command, folder / "prometheus.log")
    try:
        server.start(ready)
        yield running
    finally:
        server.stop()
