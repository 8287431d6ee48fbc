"""Apicurio as a schema registry with Confluent's API and in-memory storage."""

from __future__ import annotations

import json
import tarfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.services.process import Server, free_ports
from tidelake.spark.jars import SERVICES_FOLDER, SERVICES_LOCK, java_command, locked_jars, resolve

_APP = "apicurio-registry-app"


@dataclass
class Registry:
    """A running registry."""

    url: str
    server: Server

    def register(self, subject: str, schema: Any) -> int:
        """Add a schema to a subject, and return its id."""
        request = urllib.request.Request(
            f"{self.url}/subjects/{subject}/versions",
            data=json.dumps({"schema": json.dumps(schema)}).encode(),
            headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(json.load(answer)["id"])


@contextmanager
def schema_registry(folder: Path) -> Iterator[Registry]:
    """Start a registry; it always stops when the context ends.

    Cost: a few seconds, 270 MB of memory, and 130 MB in `folder`.
    """
    locked = locked_jars(SERVICES_LOCK)
    packed = next(
        path
        for jar, path in zip(locked, resolve(SERVICES_FOLDER, java=java_command(), jars=locked), strict=True)
        if jar.artifact == _APP
    )
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    runner = next(folder.glob(f"{_APP}-*-runner.jar"))
    [port] = free_ports(1)
    command = [java_command(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command += ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}", "-Dquarkus.log.level=WARN"]
    command += ["-cp", f"{runner}:{folder}/lib/*", "io.quarkus.runner.GeneratedMain"]
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"

    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"{url}/subjects", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    server = Server("the schema registry", command, folder / "registry.log")
    try:
        server.start(ready)
        yield Registry(url, server)
    finally:
        server.stop()
