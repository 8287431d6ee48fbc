"""Ticks reuse compiled code: Spark compiles nothing for new numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.lakes.lake import Lake, progress, updates
from tests.lakes.raw_lake import RawLake
from tests.sweeps import swept
from tidelake.protocol.order import INT64_MAX
from tidelake.spark.runtime_constant import parameter

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def compiling(spark: SparkSession) -> SparkSession:
    """A session that compiles its plans, as the sessions of users do."""
    session = spark.newSession()
    session.conf.set("spark.sql.codegen.wholeStage", "true")
    session.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    return session


def compiled(spark: SparkSession) -> int:
    """How many classes the JVM of a session has compiled for plans so far."""
    jvm = spark._jvm
    assert jvm is not None
    return int(jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount())


@pytest.mark.parametrize("number", [0, -1, INT64_MAX])
def test_a_parameter_has_the_value_of_the_number(spark: SparkSession, compiling: SparkSession, number: int) -> None:
    for session in (spark, compiling):
        rows = session.range(-1, 2).select(parameter(number, F.col("id")).alias("n")).collect()
        assert [row.n for row in rows] == [number] * 3


@pytest.mark.parametrize("family", swept(["plain", "upsert"], ["plain"]))
def test_a_later_tick_and_its_seal_compile_nothing(tmp_path: Path, compiling: SparkSession, family: str) -> None:
    key: dict[str, Any] = {"key": ["id"]} if family == "upsert" else {}
    lake = Lake(tmp_path, compiling, family, **key)
    for tick in range(4):
        before = compiled(compiling)
        low = 10 * tick
        # A copy from the previous tick is late; an update far ahead gets a file of its own.
        late = [updates((tick - 1, low - 9, 1))] if tick else []
        lake.send(updates((tick, low + 1, 1), (99, 10**6 + tick, 1)), *late, progress([low], [low + 10], {low + 1: 1}))
        assert lake.run().upper == low + 10
        lake.compact(full=False)
    assert compiled(compiling) == before


@pytest.mark.parametrize("family", swept(["plain", "upsert"], ["upsert"]))
def test_a_later_validation_compiles_nothing(tmp_path: Path, compiling: SparkSession, family: str) -> None:
    key: dict[str, Any] = {"key": ["id"]} if family == "upsert" else {}
    lake = Lake(tmp_path, compiling, family, **key)
    for tick in range(4):
        # The first run has both updates in one file. Its second update is not sealed before the next tick. A copy from
        # the previous tick is late.
        low, sealed = 10 * tick, 2 if tick else 1
        late = [updates((tick - 1, low - 9, 1))] if tick else []
        lake.send(updates((tick, low + 1, 1), (99, low + 11, 1)), *late)
        lake.run()
        lake.send(progress([low], [low + 10], {low + 1: sealed}))
        assert lake.run().upper == low + 10
        before = compiled(compiling)
        report = lake.validate()
        assert ([row["recounted"] for row in report.times], report.late.copies) == ([sealed], len(late))
    assert compiled(compiling) == before


def test_a_later_raw_tick_compiles_nothing(tmp_path: Path, compiling: SparkSession) -> None:
    lake = RawLake(tmp_path, compiling, envelope="upsert", key=["id"])
    for tick in range(4):
        before = compiled(compiling)
        lake.put({"key": {"id": tick}, "value": {"id": tick, "page": "a"}})
        lake.ingest()
    assert compiled(compiling) == before
