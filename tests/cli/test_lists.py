"""`tidelake quarantine` and `tidelake late`: the messages and statements that a collection has set aside."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.commands import call, invoke, run
from tests.lakes.lake import NAME, Lake, progress, updates
from tidelake.catalog.catalog import Catalog
from tidelake.errors import TidelakeError
from tidelake.settings.lake import load_settings
from tidelake.store.layout import Store
from tidelake.validate.late import compare_late


@pytest.mark.spark
def test_quarantine_shows_each_message_with_its_place_and_reason(contradicted: Lake) -> None:
    config = ("--config", str(contradicted.file))
    assert "undecodable" in call("quarantine", "prices", *config)
    document = json.loads(call("quarantine", "prices", "--json", *config))
    assert [(row["partition"], row["offset"], row["reason"]) for row in document["rows"]] == [(0, 2, "undecodable")]
    assert document["rows"][0]["value"] == {"b64": "ByBnYXJiYWdl"}
    assert (document["messages"], document["unexplained"], document["rows"][0]["explained"]) == (1, 1, None)
    for place in ("prices:0:2", "prices:0:0-9"):  # one message, or several
        call("resolve", "quarantine", NAME, "--offsets", place, "--reason", "a test message", *config)
        document = json.loads(call("quarantine", NAME, "--json", *config))
        assert (document["messages"], document["unexplained"], document["rows"][0]["explained"]) == (
            1,
            0,
            "a test message",
        )
        assert "quarantine: 1 undecodable, 1 of them explained" in invoke("status", *config).stdout
        call("resolve", "withdraw", NAME, "--offsets", place, *config)
    assert json.loads(call("quarantine", NAME, "--json", *config))["unexplained"] == 1


@pytest.mark.spark
def test_a_late_contradiction_is_shown_with_its_offset_and_a_decision_changes_nothing_published(
    contradicted: Lake, spark: SparkSession
) -> None:
    config = ("--config", str(contradicted.file))
    assert json.loads(call("late", NAME, "--json", *config))["rows"] == []
    contradicted.send(updates(((1, 6), 2, 3), ((1, 5), 1, 1)), progress([2], [3], {2: 4}))
    contradicted.run()
    compare_late(spark, contradicted.collection)
    assert "contradicted by late facts" not in invoke("status", *config).stdout  # what holds upper back comes first
    shown = invoke("status", *config).stdout
    assert "late statements: 1 copy, 1 contradicting what was published" in shown
    assert "late contradictions: 2; the published contents do not change; see `tidelake late prices`" in shown
    document = json.loads(call("late", NAME, "--json", *config))
    assert (document["contradictions"], document["statements"]["copy"], document["statements"]["contradiction"]) == (
        2,
        1,
        1,
    )
    assert [(row["kind"], row["time"], row["stated"], row["published"], row["offset"]) for row in document["rows"]] == [
        ("late_update", 2, 3, 2, 4),
        ("late_count", 2, 4, 1, 5),
    ]
    assert "late_update" in call("late", NAME, *config)
    assert "limit" not in invoke("late", NAME, "--limit", "2", *config).stderr
    first = invoke("late", NAME, "--limit", "1", *config)
    assert "late_update" in first.stdout
    assert "late_count" not in first.stdout
    assert "the first 1 contradiction is shown; --limit shows more" in first.stderr

    def refused(kind: str, *decision: str) -> str:
        with pytest.raises(
            TidelakeError, match="time 2 of 'prices' is already sealed, and this decision settles no late contradiction"
        ) as error:
            call("resolve", kind, NAME, "--time", "2", "--reason", "r", *decision, *config)
        return str(error.value)

    published = '{"data": {"id": 1, "price": 6}, "diff": 2}'
    assert "tidelake late prices" in refused("discard", "--statement", published)
    refused("count", "--count", "4")  # not the published count
    statement = json.dumps({"data": document["rows"][0]["data"], "diff": document["rows"][0]["stated"]})
    done = call("resolve", "discard", NAME, "--time", "2", "--reason", "taken back", "--statement", statement, *config)
    assert "prices: settled. The published contents stay as they are" in done
    call("resolve", "count", NAME, "--time", "2", "--reason", "one is right", "--count", "1", *config)
    assert "late contradictions: 2, 2 of them settled by decision" in invoke("status", *config).stdout
    rows = json.loads(call("late", NAME, "--json", *config))["rows"]
    assert [row["decision"] for row in rows] == ["taken back", "one is right"]


@pytest.mark.spark
def test_a_table_that_is_not_a_folder_is_reported_without_a_traceback(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark)
    lake.ingest()
    table = lake.collection.paths.quarantine.local
    shutil.rmtree(table)
    table.write_text("not a folder")
    done = run("quarantine", NAME, "--config", lake.file)
    assert done.returncode == 1
    assert "quarantine is damaged: there is no table" in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_on_a_damaged_table_exits_with_status_1_and_a_hint(tmp_path: Path) -> None:
    (tmp_path / "topics" / "t").mkdir(parents=True)
    schema = {"type": "record", "name": "data", "fields": [{"name": "id", "type": "long"}]}
    block = {"family": "plain", "topic": "t", "schema": schema}
    (tmp_path / "collections.yaml").write_text(json.dumps({"topics": "topics", "collections": {"one": block}}))
    settings = load_settings(tmp_path / "collections.yaml")
    collection = Catalog(Store(settings.store)).open_or_create(settings.collection("one").spec())
    assert run("quarantine", "one", cwd=tmp_path).returncode == 0
    shutil.rmtree(collection.paths.quarantine.local)
    done = run("quarantine", "one", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is damaged: there is no table\nhint: run nothing that writes to it" in done.stderr
