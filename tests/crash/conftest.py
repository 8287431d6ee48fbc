"""Fixtures for these tests: a nursery on the shared session's JVM, and the lives of each seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from tests.crash.harness import Nursery
from tests.crash.lives import Lives
from tests.lakes.places import Bucket, Stores
from tests.services.faulty_proxy import RandomFaults, faulty_proxy
from tests.services.object_store import ObjectStore


@pytest.fixture(scope="session")
def nursery(spark: SparkSession) -> Iterator[Nursery]:
    with Nursery(spark) as running:
        yield running


@pytest.fixture(scope="session")
def lives_by_kind(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, nursery: Nursery, stores_by_kind: dict[str, Stores]
) -> dict[str, dict[int, Lives]]:
    """All lives, by kind of store and by seed."""

    class BySeed(dict[int, Lives]):
        def __init__(self, stores: Stores) -> None:
            super().__init__()
            self._stores = stores

        def __missing__(self, seed: int) -> Lives:
            folder = self._stores.hold(tmp_path_factory.mktemp(f"seed-{seed}"))
            self[seed] = Lives(folder, spark, nursery, seed)
            return self[seed]

    class ByKind(dict[str, dict[int, Lives]]):
        def __missing__(self, kind: str) -> dict[int, Lives]:
            self[kind] = BySeed(stores_by_kind[kind])
            return self[kind]

    return ByKind()


@pytest.fixture
def lives(store_kind: str, lives_by_kind: dict[str, dict[int, Lives]]) -> dict[int, Lives]:
    """All lives on the kind of store that a test runs on, by seed."""
    return lives_by_kind[store_kind]


@pytest.fixture(scope="session")
def lives_with_faults(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, nursery: Nursery, object_store: ObjectStore
) -> Iterator[dict[int, Lives]]:
    """All lives in a bucket behind a proxy, by seed.

    Requests fail at random while a process is killed and others take over.
    """
    with faulty_proxy(object_store.endpoint) as proxy:
        stores = Stores(Bucket(replace(object_store, endpoint=proxy.endpoint), object_store.create_bucket()))

        @contextmanager
        def requests_that_fail(name: str) -> Iterator[None]:
            proxy.met.clear()
            proxy.requests.clear()
            proxy.at_random = RandomFaults(name)
            try:
                yield
            finally:
                proxy.at_random = None
            print(f"{sum(proxy.requests.values())} requests; failures: {dict(proxy.met)}")
            assert proxy.met

        class BySeed(dict[int, Lives]):
            def __missing__(self, seed: int) -> Lives:
                folder = stores.hold(tmp_path_factory.mktemp(f"faults-{seed}"))
                self[seed] = Lives(folder, spark, nursery, seed, disturbed=requests_that_fail)
                return self[seed]

        yield BySeed()
