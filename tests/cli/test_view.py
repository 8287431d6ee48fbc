"""The statement that `tidelake view` prints creates a view that shows the contents AS OF the last sealed time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.cli.commands import call
from tests.lakes.generated import Tide, text_of
from tests.lakes.held import HeldLake
from tests.lakes.lake import NAME, Lake, progress, updates
from tests.lakes.positioned_table import Table
from tests.model.sources import COLUMNS
from tests.sweeps import swept
from tidelake.errors import NoView, UpperError
from tidelake.model.positioned import PositionedStatement
from tidelake.read.view_sql import Dialect, view_sql
from tidelake.store import table_log
from tidelake.store.commit import maintain

pytestmark = pytest.mark.spark
DIALECTS: tuple[Dialect, ...] = ("spark", "duckdb")


def run(spark: SparkSession, sql: str, dialect: Dialect, name: str) -> list[dict[str, Any]]:
    """Create the view in an engine, and read it."""
    if dialect == "spark":
        spark.sql("\n".join(line for line in sql.splitlines() if not line.startswith("--")).removesuffix(";"))
        read: list[dict[str, Any]] = spark.table(f"`{name}`").toArrow().to_pylist()
        return read
    with duckdb.connect() as connection:
        connection.execute(sql)
        rows: list[dict[str, Any]] = connection.table(f'"{name}"').to_arrow_table().to_pylist()
        return rows


@pytest.mark.parametrize(
    "form",
    swept(["sum", "upsert", "debezium with a key", "debezium without a key"], ["upsert"]),
)
def test_both_views_of_a_generated_stream_show_the_model(tmp_path: Path, spark: SparkSession, form: str) -> None:
    tide = Tide(tmp_path, spark, form, Random(f"{form}/view"), (24, 5), ("all",))
    tide.arrive(len(tide.files))
    tide.lake.run()
    for dialect in DIALECTS:
        sql = call("view", "prices", "--dialect", dialect, "--config", str(tide.lake.file))
        found: Counter[str] = Counter()
        for row in run(spark, sql.strip(), dialect, "prices"):
            diff = row.pop("_diff", 1)
            found[text_of(row)] += diff
        assert dict(found) == tide.expected(tide.readable[-1]), dialect
        assert f"AS OF time {tide.readable[-1]}" in sql.splitlines()[0]


def test_a_view_of_a_positioned_collection_uses_the_greatest_position(tmp_path: Path, spark: SparkSession) -> None:
    table = Table(tmp_path, spark)

    def statement(key: str, diff: int, time: int, position: int, value: str) -> PositionedStatement:
        values = (value, *(None for _ in range(COLUMNS - 1)))
        return PositionedStatement(key=key, values=values, diff=diff, position=(position,), time=time)

    table.tick([statement("a", 1, 5, 1, "old"), statement("b", 1, 5, 3, "newer"), statement("c", 1, 5, 4, "gone")])
    table.tick([statement("a", 1, 6, 2, "new"), statement("b", 1, 6, 2, "sent again"), statement("c", -1, 6, 5, "")])
    for dialect in DIALECTS:
        rows = run(spark, view_sql(table.collection, dialect), dialect, "people")
        assert {row["id"]: row["c0"] for row in rows} == {"a": "new", "b": "newer"}, dialect
    table.tick([PositionedStatement(key="a", values=(), diff=1, position=(9,), time=7, error="not a number")])
    with pytest.raises(NoView, match="the table has stored keys in error"):
        view_sql(table.collection, "duckdb")


def test_a_printed_view_shows_only_sealed_times_and_its_contents_never_change(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates(((1, 10), 0, 1)))
    lake.ingest()
    with pytest.raises(UpperError):
        view_sql(lake.collection, "duckdb")
    lake.send(progress([0], [2], {0: 1}), updates(((2, 20), 5, 1)))
    lake.run()
    sql = {dialect: view_sql(lake.collection, dialect) for dialect in DIALECTS}
    lake.send(updates(((1, 10), 3, -1)), progress([2], [6], {3: 1, 5: 1}))
    lake.run()
    lake.compact()
    for dialect in DIALECTS:
        assert run(spark, sql[dialect], dialect, "prices") == [{"id": 1, "price": 10, "_diff": 1}], dialect


def test_a_view_says_how_long_it_can_be_read(
    held_lake: HeldLake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_log, "RETENTION_S", 0)
    held_lake.append((1, 1, 1))
    sql = {dialect: view_sql(held_lake.stored, dialect) for dialect in DIALECTS}
    for upper in range(20, 84):
        held_lake.seal(upper)
        maintain(held_lake.stored.paths.updates)
    assert run(spark, sql["duckdb"], "duckdb", NAME) == [{"id": 1, "price": None, "_diff": 1}]
    assert "It fails a day after a merge has replaced one of its files" in sql["duckdb"]
    with pytest.raises(AnalysisException, match="DELTA_VERSION_NOT_FOUND"):
        run(spark, sql["spark"], "spark", NAME)
    assert "Spark refuses it once the log has forgotten the version" in sql["spark"]
