"""A JVM that Tidelake starts uses the throughput collector, and a session forgets queries that have finished."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from tidelake.spark.session import collector_options

_COLLECTORS = """
from tidelake.spark.session import start_session
beans = start_session("collector", "local[1]")._jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
print(sorted(bean.getName() for bean in beans))
"""

_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")


@pytest.mark.parametrize("name", _VARIABLES)
def test_a_collector_that_the_environment_has_chosen_is_kept(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for variable in _VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    assert collector_options({}) == ["-XX:+UseParallelGC"]
    assert collector_options({"spark.driver.defaultJavaOptions": "-XX:+UseG1GC"}) == []
    monkeypatch.setenv(name, "-Xmx1g -XX:+UseZGC")
    assert collector_options({}) == []


@pytest.mark.spark
def test_a_session_uses_the_throughput_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in _VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    done = subprocess.run([sys.executable, "-c", _COLLECTORS], capture_output=True, text=True, check=False)
    assert "['PS MarkSweep', 'PS Scavenge']" in done.stdout, done.stderr


@pytest.mark.spark
def test_a_session_forgets_queries_that_have_finished(spark: SparkSession) -> None:
    for _ in range(60):
        spark.range(1).collect()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    assert spark._jsparkSession.sharedState().statusStore().executionsCount() < 40
