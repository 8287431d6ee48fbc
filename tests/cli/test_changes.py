"""`tidelake changes` lists the updates in a range of times, and says what it read or why it refuses the range."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.commands import call, invoke
from tests.lakes.lake import NAME, Lake, progress, updates
from tests.lakes.raw_lake import RawLake
from tests.lakes.upserts import ITEM, gone, item
from tidelake.errors import OptionRefused, PredicateRefused, UpperError
from tidelake.protocol.iso_times import iso_of


@pytest.mark.spark
def test_changes_lists_updates_by_time_and_says_what_was_read(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, "upsert", key="id")
    lake.send(updates(((1, 1), 1, 1), ((2, 1), 1, 1)), progress([0], [2], {1: 2}))
    lake.run()
    lake.send(updates(((1, 2), 2, 1), ((2, 1), 3, -1)), progress([2], [4], {2: 1, 3: 1}))
    lake.run()
    config = ("--config", str(lake.file))
    document = json.loads(call("changes", NAME, "--after", "1", "--through", "3", "--json", *config))
    assert document == {
        "name": NAME,
        "after": 1,
        "through": 3,
        "since": 0,
        "upper": 4,
        "closed": False,
        "version": lake.table.version,
        "files_read": 2,
        "rows_read": 4,
        "updates": [
            {"_time": 2, "id": 1, "price": 1, "_diff": -1},
            {"_time": 2, "id": 1, "price": 2, "_diff": 1},
            {"_time": 3, "id": 2, "price": 1, "_diff": -1},
        ],
    }
    whole = json.loads(call("changes", NAME, "--columns", "id", "--where", "id = 2", "--json", *config))
    assert (whole["after"], whole["through"]) == (None, 3)
    assert whole["updates"] == [{"_time": 1, "id": 2, "_diff": 1}, {"_time": 3, "id": 2, "_diff": -1}]
    shown = invoke("changes", NAME, "--after", "1", "--limit", "1", *config)
    assert "prices after 1 through 3" in shown.stdout
    assert "1 of 3 updates; --limit shows more" in shown.stderr
    assert "read from 2 files with 4 rows" in shown.stderr
    with pytest.raises(UpperError):
        call("changes", NAME, "--after", "1", "--through", "4", *config)
    with pytest.raises(PredicateRefused, match="Division by zero"):
        call("changes", NAME, "--after", "1", "--where", "1 / (id - 1) > 0", "--engine", "spark", *config)


@pytest.mark.spark
def test_changes_of_a_reclocked_collection_take_and_show_iso_times(tmp_path: Path, spark: SparkSession) -> None:
    lake = RawLake(tmp_path, spark, envelope="upsert", key="id", schema=ITEM)
    for records in ([item(1, 5)], [gone(1)]):
        lake.put(*records)
        lake.ingest()
    first, last = (iso_of(binding.time) for binding in lake.times)
    assert first is not None and last is not None
    config = ("--config", str(lake.file), "--json")
    document = json.loads(call("changes", NAME, "--after", first, "--through", last, *config))
    assert (document["after_iso"], document["through_iso"]) == (first, last)
    assert [(row["id"], row["price"], row["_diff"]) for row in document["updates"]] == [(1, 5, -1)]


def test_changes_refuses_what_is_not_a_time(contradicted: Lake) -> None:
    config = ("--config", str(contradicted.file))
    with pytest.raises(OptionRefused, match="--after is 'soon', which is not a time of 'prices'"):
        call("changes", NAME, "--after", "soon", *config)
    assert "is not in the range" in invoke("changes", NAME, "--through", str(2**63), *config).stderr
