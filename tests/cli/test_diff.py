"""`tidelake diff` shows how contents differ between two times, and `tidelake history` shows a collection's events."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.commands import call, invoke
from tests.lakes.lake import NAME, Lake, progress, updates
from tidelake.errors import OptionRefused, PredicateRefused, UnknownCollection, UpperError


@pytest.mark.spark
def test_diff_shows_by_how_much_the_count_of_each_row_changes(contradicted: Lake) -> None:
    config = ("--config", str(contradicted.file))
    document = json.loads(call("diff", NAME, "--from", "1", "--to", "2", "--json", *config))
    assert document == {
        "name": NAME,
        "from": 1,
        "to": 2,
        "since": 0,
        "upper": 3,
        "closed": False,
        "version": contradicted.table.version,
        "keys": None,
        "rows": [{"id": 1, "price": 6, "_diff": 2}],
    }
    back = json.loads(call("diff", NAME, "--from", "2", "--to", "0", "--columns", "id", "--json", *config))
    assert back["rows"] == [{"id": 1, "_diff": -3}]
    some = call("diff", NAME, "--from", "0", "--to", "2", "--where", "price > 5", "--limit", "1", *config)
    assert "prices from 0 to 2" in some
    assert "-2" not in some
    with pytest.raises(UpperError):
        call("diff", NAME, "--from", "0", "--to", "3", *config)
    with pytest.raises(PredicateRefused, match="Division by zero"):
        call("diff", NAME, "--from", "0", "--to", "2", "--where", "1 / (id - 1) > 0", "--engine", "spark", *config)


@pytest.mark.spark
def test_diff_counts_the_keys_of_a_keyed_collection(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, "upsert", key="id")
    lake.send(updates(((1, 1), 1, 1)), updates(((1, 2), 2, 1), ((2, 2), 2, 1)), progress([0], [3], {1: 1, 2: 2}))
    lake.run()
    document = json.loads(call("diff", NAME, "--from", "1", "--to", "2", "--json", "--config", str(lake.file)))
    assert document["keys"] == {"set": 1, "changed": 1, "deleted": 0}
    assert sorted((row["id"], row["price"], row["_diff"]) for row in document["rows"]) == [
        (1, 1, -1),
        (1, 2, 1),
        (2, 2, 1),
    ]


def test_diff_needs_two_times(contradicted: Lake) -> None:
    assert "Missing option '--to'" in invoke("diff", NAME, "--from", "1").stderr
    config = ("--config", str(contradicted.file))
    with pytest.raises(OptionRefused, match="--from is 'soon', which is not a time of 'prices'"):
        call("diff", NAME, "--from", "soon", "--to", "2", *config)
    with pytest.raises(OptionRefused, match="states times as numbers without a unit"):
        call("explain", NAME, "--time", "2026-11-23T10:00:00Z", *config)
    assert "'-1' is not in the range" in invoke("explain", NAME, "--time", "-1", *config).stderr
    assert "is not in the range" in invoke("diff", NAME, "--from", str(2**63), "--to", "2", *config).stderr


@pytest.mark.spark
def test_history_shows_the_newest_events_last_with_their_times(contradicted: Lake) -> None:
    config = ("--config", str(contradicted.file))
    document = json.loads(call("history", NAME, "--json", *config))
    kinds = [event["kind"] for event in document["events"]]
    assert kinds == ["created", "tick", "contradiction", "seal"]
    assert (document["total"], document["complete_from"]) == (4, None)
    newest = document["events"][-1]
    assert (newest["what"], newest["lower"], newest["upper"]) == (
        "sealed from 0 to 3, 2 times with updates",
        0,
        3,
    )
    shown = invoke("history", NAME, "--limit", "1", "--kind", "seal", "--kind", "tick", *config)
    assert newest["at"] in shown.stdout
    assert "created" not in shown.stdout
    assert shown.stderr == "the newest 1 of 2 events; --limit shows more\n"
    assert "'sealing' is not one of" in invoke("history", NAME, "--kind", "sealing", *config).stderr


def test_the_history_of_a_collection_that_was_never_ingested_is_refused(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "data", "fields": [{"name": "id", "type": "long"}]}
    block = {"family": "plain", "topic": "one", "schema": schema}
    (tmp_path / "collections.yaml").write_text(json.dumps({"collections": {"one": block}}), encoding="utf-8")
    with pytest.raises(UnknownCollection):
        call("history", "one", "--config", str(tmp_path / "collections.yaml"))
