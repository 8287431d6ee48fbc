"""Fixtures for all tests: one Spark session for the whole run, started only when a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that every Spark test shares."""
    from tidelake.delta.session import start_session

    session = start_session("tidelake-tests", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()
