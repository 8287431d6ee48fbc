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


_GIVEN_BY = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")


@pytest.mark.parametrize("name", _GIVEN_BY)
def test_a_collector_that_the_environment_has_chosen_is_kept(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for one in _GIVEN_BY:
        monkeypatch.delenv(one, raising=False)
    assert _collector({}) == ["-XX:+UseParallelGC"]
    assert _collector({"spark.driver.defaultJavaOptions": "-XX:+UseG1GC"}) == []
    monkeypatch.setenv(name, "-Xmx1g -XX:+UseZGC")
    assert _collector({}) == []


@pytest.mark.spark
def test_a_session_collects_for_throughput(monkeypatch: pytest.MonkeyPatch) -> None:
    for one in _GIVEN_BY:
        monkeypatch.delenv(one, raising=False)
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    done = subprocess.run([sys.executable, "-c", _COLLECTORS], capture_output=True, text=True, check=False)
    assert "['PS MarkSweep', 'PS Scavenge']" in done.stdout, done.stderr
