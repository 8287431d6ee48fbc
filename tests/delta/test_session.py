"""A JVM of our own has a collector for throughput, and never two."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tidelake.delta.session import _collector

_COLLECTORS = """
from tidelake.delta.session import start_session
beans = start_session("collector", "local[1]")._jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
print(sorted(one.getName() for one in beans))
"""


@pytest.mark.parametrize("name", ["JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"])
def test_a_collector_that_the_environment_has_chosen_is_kept(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for one in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(one, raising=False)
    assert _collector() == ["-XX:+UseParallelGC"]
    monkeypatch.setenv(name, "-Xmx1g -XX:+UseZGC")
    assert _collector() == []


@pytest.mark.spark
def test_a_session_collects_for_throughput(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    done = subprocess.run([sys.executable, "-c", _COLLECTORS], capture_output=True, text=True, check=False)
    assert "['PS MarkSweep', 'PS Scavenge']" in done.stdout, done.stderr
