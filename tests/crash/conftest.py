"""Fixtures for these tests: a nursery on the JVM of the shared session, what the lives of a seed share, and a store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.crash.harness import Nursery
from tests.crash.lives import Lives
from tests.lakes.whole_store import WholeStore, make_whole_store


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


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> WholeStore:
    """A store of every family and framing, which tests copy before they change anything."""
    return make_whole_store(tmp_path_factory.mktemp("whole"))
