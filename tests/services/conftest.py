"""One nursery for all tests here, on the JVM of the shared session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.crash.harness import Nursery


@pytest.fixture(scope="session")
def nursery(spark: SparkSession) -> Iterator[Nursery]:
    with Nursery(spark) as there:
        yield there
