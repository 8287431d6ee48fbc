"""One Spark session, local by default, with the settings that exactness and small ticks need."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.java_gateway import JavaClass, is_instance_of
from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from tidelake.spark.class_archive import options_to_use
from tidelake.spark.installation import home
from tidelake.spark.interrupt import keep_handler
from tidelake.spark.jars import resolve, resolve_sets, verify

VERIFIED_READS = {
    # With this setting, a flipped bit in a page is an error, not a different value.
    "parquet.page.verify-checksum.enabled": "true",
    # Nothing verifies page indexes and dictionaries before they are used to skip pages: a flipped bit would lose rows.
    "parquet.filter.columnindex.enabled": "false",
    "parquet.filter.dictionary.enabled": "false",
    "parquet.filter.bloom.enabled": "false",
}
"""The options of every read of a table's files, in a session of this module or any other."""
EXACT_PATHS = {"__globPaths__": "false"}
"""The option of every read of files or folders by their paths: `*`, `?`, `[` and `{` stand for themselves."""

_EXACT = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    **{f"spark.hadoop.{name}": value for name, value in VERIFIED_READS.items()},
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # The first two would shorten a plan that turns out to be empty, and remove the counting of `Observed` with it. The
    # third would put a filter before an explode, and so decode every message a dozen more times.
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation,"
        "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation,"
        "org.apache.spark.sql.catalyst.optimizer.InferFiltersFromGenerate"
    ),
    "spark.sql.avro.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    # If this were on, PySpark would send the JVM the call site of each call: 3 of the 4 round trips for a small plan.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Each task may have enough open writers that Spark need not sort rows by the columns that partition files.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    # Stages of a query are numbered in any order, so an id would give the same code different names.
    "spark.sql.codegen.useIdInClassName": "false",
    # A tick and its seal generate fifteen classes; the cache must hold those of dozens of collections.
    "spark.sql.codegen.cache.maxEntries": "2000",
}
_LOCAL = {
    "spark.ui.enabled": "false",
    # Without the UI, nobody looks at what has finished. By default, Spark keeps the plans of the last thousand queries,
    # which take 100 MB in a process that lingers.
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "2g",
    "spark.ui.showConsoleProgress": "false",
}
# A damaged length must not make the decoder allocate more than any message holds.
_AVRO_LIMITS = {
    "org.apache.avro.limits.bytes.maxLength": "268435456",
    "org.apache.avro.limits.string.maxLength": "268435456",
    "org.apache.avro.limits.collectionItems.maxLength": "16777216",
}
_CACHED_NAMES = ("PythonUtils", "PythonSQLUtils", "functions", "org.apache.spark.sql.functions", "py4j")
# A step that reads a whole record becomes a method of more than 8,000 bytes, which the JVM would only interpret.
_COMPILE_ALL = "-XX:-DontCompileHugeMethods"
_JAVA_OPTIONS = " ".join([_COMPILE_ALL, *(f"-D{name}={value}" for name, value in _AVRO_LIMITS.items())])

_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
LOG = home() / ".logs" / "spark.log"
"""The log of Spark and its JVM in a process that started them: start-up warnings and errors."""
_LOG_BYTES_MAX = 10_000_000
"""If the log is longer when a JVM starts, it is truncated."""

_OPTION_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
"""Environment variables from which the driver's JVM reads options."""


def start_session(
    app_name: str = "tidelake",
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    jar_sets: Iterable[str] = (),
) -> SparkSession:
    """Return the process's Spark session, and start it if there is none.

    A JVM that is started here writes its output to `LOG`, not to the terminal.

    Args:
        app_name: the name in the Spark UI.
        master: the master's URL; None means the choice of spark-submit or, without spark-submit, `local[*]`.
        settings: Spark settings that override the defaults.
        jar_sets: the sets of jars that the lakes of the session need: `jar_sets` of their settings. Jars that are
            missing are fetched. Only the call that starts the JVM can add them.

    Raises:
        JarError: a locked jar has a different sha256, wherever the driver's JVM loads it from: `--jars`, `--packages`,
            a class path or `.jars`; or a missing jar could not be fetched. If the JVM was already running, as with
            spark-submit, no session was started.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    verified: set[Path] = set()
    if _jvm_runs():
        SparkContext._ensure_initialized()
        verified |= verify(jars_in_use())
    builder = SparkSession.builder.appName(app_name)
    chosen = _EXACT | {"spark.executor.extraJavaOptions": _JAVA_OPTIONS}
    # Each thread of `jobs.parallel` has its own pool; with a single thread, this setting makes no difference.
    chosen |= {"spark.scheduler.mode": "FAIR"}
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        chosen |= {"spark.executor.extraJavaOptions": f"{_submitted_executor_options()} {_JAVA_OPTIONS}".strip()}
    else:
        jars = [str(jar) for jar in (*resolve(), *resolve_sets(jar_sets))]
        verified |= {Path(jar).resolve() for jar in jars}
        is_local = master is None or master.startswith("local")
        options = [_JAVA_OPTIONS, *(collector_options(settings or {}) if is_local else []), *options_to_use()]
        chosen |= {"spark.driver.extraJavaOptions": " ".join(options)}
        if not is_local:
            chosen |= {"spark.jars": ",".join(jars)}
        else:
            # The JVM's own class loader can use the class archive, and no jar is copied at each start.
            chosen |= {"spark.driver.extraClassPath": os.pathsep.join(jars)}
            # Only with a local master: executors on other machines could not reach a driver at this address.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            builder = builder.master(master or "local[*]")
            chosen |= _LOCAL
    if master is not None:
        builder = builder.master(master)
    for name, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(name, value)
    with _engine_output_to_log():
        session = builder.getOrCreate()
    keep_handler()
    session.sparkContext.setLogLevel("ERROR")
    jvm = session.sparkContext._jvm
    assert jvm is not None
    sent = (session.sparkContext.getConf().get("spark.jars") or "").split(",")
    verify([*jars_in_use(), *_local_paths(sent)], verified=verified)
    _cache_lookups(jvm)
    for name, value in _AVRO_LIMITS.items():
        # A JVM that spark-submit started did not get these options. Avro reads them later, when it is first used.
        jvm.java.lang.System.setProperty(name, value)
    return session


def jars_in_use() -> list[Path]:
    """Return the paths from which the driver's JVM loads classes: its class path, and what spark-submit added to it.

    A class path that only executors have is not included.
    """
    jvm = SparkContext._jvm
    assert jvm is not None
    system = jvm.java.lang.System
    paths = [Path(path) for path in system.getProperty("java.class.path").split(system.getProperty("path.separator"))]
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if is_instance_of(SparkContext._gateway, loader, "java.net.URLClassLoader"):
        paths += _local_paths(url.toString() for url in loader.getURLs())
    return paths


def _local_paths(jars: Iterable[str]) -> list[Path]:
    """Return the files of this machine among paths and URIs."""
    uris = [(jar, urlsplit(jar)) for jar in jars]
    return [Path(unquote(uri.path) if uri.scheme else jar) for jar, uri in uris if uri.scheme in ("", "file", "local")]


def _jvm_runs() -> bool:
    """Return whether a JVM has already been started, by spark-submit or by this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or SparkContext._gateway is not None


@contextmanager
def _engine_output_to_log() -> Iterator[None]:
    """Redirect to `LOG` the output of a JVM that is started inside the block; if the start fails, print that output.

    The JVM's own warnings, about a module and a missing native library, come before logging is configured, so no log4j
    setting affects them.
    """
    if _jvm_runs():
        yield
        return
    try:
        LOG.parent.mkdir(parents=True, exist_ok=True)
        log = LOG.open("ab")
        if log.tell() > _LOG_BYTES_MAX:
            log.truncate(0)
    except OSError:  # a checkout that this user cannot write to
        yield
        return
    sys.stderr.flush()
    start, terminal = os.fstat(log.fileno()).st_size, os.dup(2)
    os.dup2(log.fileno(), 2)
    try:
        yield
        _pyspark_log_to(LOG)
    except Exception:
        os.dup2(terminal, 2)
        os.write(2, LOG.read_bytes()[start:])
        raise
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        log.close()


def _pyspark_log_to(file: Path) -> None:
    """Redirect PySpark's own log of failed queries, which repeats Java's stack traces on standard error."""
    for name in _QUERY_LOGGERS:
        logger = PySparkLogger.getLogger(name)
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
        logger.addHandler(logging.FileHandler(file, encoding="utf-8", delay=True))
        logger.propagate = False


def collector_options(settings: Mapping[str, str]) -> list[str]:
    """Return the option for the throughput collector, unless the environment or a setting chooses a collector.

    The default collector marks concurrently, which is costly with few CPU cores. A JVM with two collectors does not
    start.
    """
    options = [os.environ.get(name, "") for name in _OPTION_VARIABLES]
    options.append(settings.get("spark.driver.defaultJavaOptions", ""))
    return [] if re.search(r"-XX:\+Use\w+GC\b", " ".join(options)) else ["-XX:+UseParallelGC"]


class _CachedClass(JavaClass):  # type: ignore[misc]
    """A JVM class whose members are looked up once: the meaning of a name does not change."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        setattr(self, name, member)
        return member


def _cache_lookups(jvm: Any) -> None:
    """Cache the classes that PySpark looks up by name in each call, and their members on first use.

    Each lookup makes the JVM try the name in every imported package, and search every jar for each package that lacks
    it; each member costs one more round trip before every call.
    """
    for name in _CACHED_NAMES:
        value = getattr(jvm, name)
        is_class = type(value) is JavaClass
        setattr(jvm, name, _CachedClass(value._fqn, value._gateway_client) if is_class else value)


def _submitted_executor_options() -> str:
    """Return the executors' Java options from spark-submit, which Tidelake's own must not replace."""
    SparkContext._ensure_initialized()
    return SparkConf().get("spark.executor.extraJavaOptions", "") or ""
