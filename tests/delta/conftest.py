"""Every test here may start Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.delta.lake import Lake


@pytest.fixture
def interpreted(spark: SparkSession) -> SparkSession:
    """A session beside the other that interprets its plans: a sweep runs each once, and compiling costs half of all.

    The everyday siblings of the sweeps run in the other.
    """
    beside = spark.newSession()
    beside.conf.set("spark.sql.shuffle.partitions", "1")
    beside.conf.set("spark.sql.adaptive.enabled", "false")
    beside.conf.set("spark.sql.codegen.wholeStage", "false")
    beside.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return beside


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Lake:
    """A plain collection on an empty topic."""
    return Lake(tmp_path, spark)
