"""Every test here may start Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.delta.lake import Lake


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Lake:
    """A plain collection on an empty topic."""
    return Lake(tmp_path, spark)
