"""Fixtures for these tests: a nursery on the JVM of the shared session, and the services of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.captures.record import Services
from tests.crash.harness import Nursery
from tests.services.connect import Connect
from tests.services.kafka import Broker
from tests.services.postgres import Postgres


@pytest.fixture(scope="session")
def services(broker: Broker, postgres: Postgres, connect: Connect) -> Services:
    """Broker, database and worker together."""
    return Services(postgres, broker, connect)


@pytest.fixture(scope="session")
def nursery(spark: SparkSession) -> Iterator[Nursery]:
    with Nursery(spark) as running:
        yield running
