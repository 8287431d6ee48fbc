"""A lake for the tests of several commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.lakes.lake import Lake, progress, updates


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("contradicted"), spark)
    lake.send(updates(((1, 5), 1, 1), ((1, 6), 2, 2)), updates((3, 3, 1), (4, 3, 1)), b"\x07 garbage")
    lake.send(progress([0], [9], {1: 1, 2: 1, 3: 1}))
    lake.run()
    return lake


@pytest.fixture
def contradicted(prepared: Lake, tmp_path: Path) -> Lake:
    """A collection that is sealed up to a contradiction at time 3."""
    return prepared.copy(tmp_path / "contradicted")
