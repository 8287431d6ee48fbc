"""Fixtures for all tests: one Spark session for the whole run, started only when a test asks for it."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.sweeps import command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Thousands of small plans, each run once: the JVM's first compiler takes 40 % less processor time here than both do. It
# holds for the processes that tests start, too.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say how to run a failed case of a sweep again."""
    report = yield
    seed = item.callspec.params.get("seed") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None
    if report.failed and seed is not None and item.get_closest_marker("sweep") is not None:
        report.sections.append((f"again, with seed {seed}", command(seed, item.nodeid)))
    return report


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that every Spark test shares."""
    from tidelake.delta.session import start_session

    session = start_session("tidelake-tests", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()
