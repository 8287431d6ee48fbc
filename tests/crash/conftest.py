"""Fixtures for the crash tests: one nursery on the JVM of the shared session, and the lives of each seed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.crash.harness import Nursery
from tests.crash.lives import Lives


@pytest.fixture(scope="session")
def nursery(spark: SparkSession) -> Iterator[Nursery]:
    with Nursery(spark) as running:
        yield running


@pytest.fixture(scope="session")
def lives(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, nursery: Nursery) -> dict[int, Lives]:
    class BySeed(dict[int, Lives]):
        def __missing__(self, seed: int) -> Lives:
            self[seed] = Lives(tmp_path_factory.mktemp(f"seed-{seed}"), spark, nursery, seed)
            return self[seed]

    return BySeed()
