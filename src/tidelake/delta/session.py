"""One Spark session, local by default, with the settings that exactness and small ticks need."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tidelake.setup.classes import options_to_use
from tidelake.setup.jars import resolve

_EXACT = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    # A flipped bit in a page is an error, not another value.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # The first two would cut a plan that turns out empty short, and what `observed` counts in it with it. The third
    # would put a filter before an explode that decodes every message a dozen times more.
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation,"
        "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation,"
        "org.apache.spark.sql.catalyst.optimizer.InferFiltersFromGenerate"
    ),
    "spark.sql.avro.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    # PySpark would tell the JVM for each call where in Python it was made: three of four round trips of a small plan.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Enough open writers a task, so that Spark does not sort rows by what parts them into files.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    # Stages of one query are numbered as they come, in any order: the same code has to have the same name.
    "spark.sql.codegen.useIdInClassName": "false",
    # A tick and its seal are fifteen classes; some dozens of collections have to keep theirs side by side.
    "spark.sql.codegen.cache.maxEntries": "2000",
}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "2g",
    "spark.ui.showConsoleProgress": "false",
}
# A damaged length must not make the decoder allocate what no message holds.
_AVRO_LIMITS = {
    "org.apache.avro.limits.bytes.maxLength": "268435456",
    "org.apache.avro.limits.string.maxLength": "268435456",
    "org.apache.avro.limits.collectionItems.maxLength": "16777216",
}
_LOOKED_UP = ("PythonUtils", "PythonSQLUtils", "functions", "org.apache.spark.sql.functions", "py4j")
# A step that reads a whole record becomes a method of more than 8,000 bytes, which the JVM leaves to its interpreter.
_COMPILE_ALL = "-XX:-DontCompileHugeMethods"
_JAVA_OPTIONS = " ".join([_COMPILE_ALL, *(f"-D{name}={value}" for name, value in _AVRO_LIMITS.items())])

_GIVEN_BY = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
"""Variables that the driver's JVM takes options from."""


def start_session(
    app_name: str = "tidelake", master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start, or get, the process's session.

    Args:
        app_name: what the Spark UI calls it.
        master: a master's URL; None keeps what spark-submit chose, and is `local[*]` without it.
        settings: Spark's own settings, over the defaults here.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    chosen = _EXACT | {"spark.executor.extraJavaOptions": _JAVA_OPTIONS}
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        chosen |= {"spark.executor.extraJavaOptions": f"{_submitted_executor_options()} {_JAVA_OPTIONS}".strip()}
    else:
        jars = [str(jar) for jar in resolve()]
        is_local = master is None or master.startswith("local")
        options = [_JAVA_OPTIONS, *(_collector(settings or {}) if is_local else []), *options_to_use()]
        chosen |= {"spark.driver.extraJavaOptions": " ".join(options)}
        if not is_local:
            chosen |= {"spark.jars": ",".join(jars)}
        else:
            # By the JVM's own loader, whose classes an archive can have; and no jar is copied at each start.
            chosen |= {"spark.driver.extraClassPath": os.pathsep.join(jars)}
            # Only here: executors on other machines could not find a driver that listens on this address.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            builder = builder.master(master or "local[*]")
            chosen |= _LOCAL
    if master is not None:
        builder = builder.master(master)
    for name, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    jvm = session.sparkContext._jvm
    assert jvm is not None
    _keep_looked_up(jvm)
    for name, value in _AVRO_LIMITS.items():
        # spark-submit has started this JVM without our options; Avro reads them when it is first used.
        jvm.java.lang.System.setProperty(name, value)
    return session


def _collector(settings: Mapping[str, str]) -> list[str]:
    """The collector for a JVM of our own: one for throughput, unless the environment or a setting has chosen another.

    The default marks beside the work, which takes a share of few processors. A JVM with two of them does not start.
    """
    given = [os.environ.get(name, "") for name in _GIVEN_BY] + [settings.get("spark.driver.defaultJavaOptions", "")]
    return [] if re.search(r"-XX:\+Use\w+GC\b", " ".join(given)) else ["-XX:+UseParallelGC"]


class _LookedUp(JavaClass):  # type: ignore[misc]
    """A class of the JVM whose members are asked for once: what a name stands for does not change."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        setattr(self, name, found)
        return found


def _keep_looked_up(jvm: Any) -> None:
    """Look the classes up once that PySpark asks for by name in each call, and their members as they are asked for.

    Every time it does, the JVM tries that name in each imported package, and for those that it is not in, in every jar;
    and for a member it makes a round trip more before each call.
    """
    for name in _LOOKED_UP:
        found = getattr(jvm, name)
        is_class = type(found) is JavaClass
        setattr(jvm, name, _LookedUp(found._fqn, found._gateway_client) if is_class else found)


def _submitted_executor_options() -> str:
    """The executors' Java options that spark-submit was given, which ours must not push out."""
    SparkContext._ensure_initialized()
    return SparkConf().get("spark.executor.extraJavaOptions", "") or ""
