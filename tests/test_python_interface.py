"""The Python interface shows and does the same as the command line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tidelake
from tests.lakes.lake import NAME, Lake, progress, updates
from tidelake.decisions import AcceptGap, Acknowledge, Count, Discard, Offsets
from tidelake.errors import (
    ConfigurationError,
    DecisionRefused,
    NotReclocked,
    StoreUnreadable,
    UnknownCollection,
    UpperError,
)

YAML = """
collections:
  orders:
    family: plain
    topic: orders
    schema: {type: record, name: order, fields: [{name: id, type: long}]}
"""


def modules_after(code: str) -> set[str]:
    """The modules that a new process has imported after running this code."""
    code = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = {"deltalake", "numpy", "pyarrow", "pydantic", "pyspark", "typer", "yaml"}
    assert not heavy & modules_after("import tidelake; tidelake.errors.UpperError")


def test_opening_a_lake_does_not_import_spark() -> None:
    assert "pyspark" not in modules_after("import tidelake.lake")


def test_if_no_path_is_given_the_variable_or_the_current_folder_determines_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDELAKE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"collections\.yaml"):
        tidelake.open_lake()
    (tmp_path / "collections.yaml").write_text("collections: {}\n", encoding="utf-8")
    assert tidelake.open_lake().collections() == []
    other = tmp_path / "other.yaml"
    other.write_text(YAML, encoding="utf-8")
    monkeypatch.setenv("TIDELAKE_CONFIG", str(other))
    assert [collection.name for collection in tidelake.open_lake().collections()] == ["orders"]
    assert tidelake.open_lake("collections.yaml").collections() == []


def test_a_collection_that_was_never_ingested_has_no_status_and_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "collections.yaml").write_text(YAML, encoding="utf-8")
    lake = tidelake.open_lake(tmp_path / "collections.yaml")
    orders = lake.collection("orders")
    assert (orders.status(), lake.status(), lake.status("orders")) == (None, {"orders": None}, {"orders": None})
    for ask in (lambda: orders.upper, lambda: orders.columns, orders.quarantine, lambda: orders.decisions):
        with pytest.raises(UnknownCollection, match="has no collection 'orders'"):
            ask()
    with pytest.raises(ConfigurationError, match="no collection of this name"):
        lake.collection("sales")


@pytest.mark.spark
def test_a_collection_can_be_read_and_inspected_and_takes_decisions(tmp_path: Path, spark: SparkSession) -> None:
    written = Lake(tmp_path, spark)
    written.send(
        updates(((1, 5), 1, 1)), updates((3, 3, 1), (4, 3, 1)), b"\x07 garbage", progress([0], [9], {1: 1, 3: 1})
    )
    written.run()
    prices = tidelake.open_lake(written.file).collection(NAME)
    assert (prices.since, prices.upper, prices.path) == (0, 3, str(written.collection.paths.root))
    assert [(column.name, column.nullable) for column in prices.columns] == [("id", False), ("price", True)]
    prices_at_1 = prices.snapshot(spark, as_of=1, columns=["id"], where="price = 5")
    assert (prices_at_1.as_of, [row.asDict() for row in prices_at_1.contents.collect()]) == (1, [{"id": 1, "_diff": 1}])
    with pytest.raises(UpperError):
        prices.snapshot(spark, as_of=3)
    status = prices.status()
    assert status is not None
    assert (status.state, status.waits_for) == ("held back at time 3", "a decision about time 3")
    assert [(row["offset"], row["reason"], row["explained"]) for row in prices.quarantine()] == [
        (2, "undecodable", None)
    ]
    assert (prices.late().contradictions, prices.late().first) == (0, [])
    with pytest.raises(NotReclocked):
        prices.times()

    stored = prices.decide(Count(time=3, count=2, reason=" both "))
    assert (stored.reason, prices.decisions) == ("both", (stored,))
    seen = Offsets.parse(f"{NAME}:0:2")
    prices.decide(Acknowledge(offsets=seen, reason="a test message"))
    assert [row["explained"] for row in prices.quarantine()] == ["a test message"]
    prices.withdraw(seen)
    assert prices.decisions == (stored,)
    written.seal()
    assert prices.upper == 9
    with pytest.raises(DecisionRefused, match="time 3 of 'prices' is already sealed"):
        prices.withdraw(3)


@pytest.mark.spark
def test_an_invalid_decision_is_refused_and_not_stored(tmp_path: Path, spark: SparkSession) -> None:
    written = Lake(tmp_path, spark)
    written.send(updates((1, 1, 1)))
    written.run()
    prices = tidelake.open_lake(written.file).collection(NAME)
    for decision, problem in (
        (Count(time=-1, count=1, reason="r"), "the time is -1"),
        (Count(time=2**63, count=1, reason="r"), "the time is 9223372036854775808"),
        (Count(time=1, count=-1, reason="r"), "the count is -1"),
        (Discard(time=-1, statement={}, reason="r"), "the time is -1"),
        (AcceptGap(offsets=Offsets(NAME, 0, 5, 5), reason="r"), "not within a gap"),
    ):
        with pytest.raises(DecisionRefused, match=problem):
            prices.decide(decision)
    assert prices.decisions == ()


@pytest.mark.spark
def test_an_unreadable_table_is_an_error_for_its_own_collection_only(tmp_path: Path, spark: SparkSession) -> None:
    written = Lake(tmp_path, spark)
    written.send(updates((1, 1, 1)))
    written.run()
    lake = tidelake.open_lake(written.file)
    table = written.collection.paths.quarantine.local
    shutil.rmtree(table)
    table.symlink_to(table)
    with pytest.raises(StoreUnreadable, match="Too many levels of symbolic links"):
        lake.collection(NAME).status()
    assert isinstance(lake.status()[NAME], StoreUnreadable)
