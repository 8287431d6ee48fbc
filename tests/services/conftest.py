"""A fixture for these tests: all services together."""

from __future__ import annotations

import pytest

from tests.captures.record import Services
from tests.services.connect import Connect
from tests.services.kafka import Broker
from tests.services.postgres import Postgres


@pytest.fixture(scope="session")
def services(broker: Broker, postgres: Postgres, connect: Connect) -> Services:
    """Broker, database and worker together."""
    return Services(postgres, broker, connect)
