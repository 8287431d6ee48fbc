"""Every command once through its own front door, with its errors and its JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.delta.lake import Lake, progress, updates
from tidelake.cli import app
from tidelake.errors import SinceError, TidelakeError, UpperError

TIDELAKE = [sys.executable, "-m", "tidelake.cli"]


def run(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    called = [*TIDELAKE, *map(str, arguments)]
    return subprocess.run(called, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def call(*arguments: str) -> str:
    """The command in this process, with its Spark session; standard output only."""
    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, TidelakeError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_replay_prints_one_line_for_each_line_and_fails_only_for_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    stream = tmp_path / "s.jsonl"
    stream.write_text('{"updates": [["a", 1, 1]]}\n{"progress": {"lower": [0], "upper": [3], "counts": [[1, 1]]}}\nx\n')
    done = run("replay", stream)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert [line["line"] for line in lines] == [1, 2, 3]
    assert lines[1] == {"file": str(stream), "line": 2, "frontier": [3], "updates": [["a", 1, 1]], "errors": []}
    assert lines[2]["errors"] == [{"kind": "undecodable", "time": None}]
    missing = run("replay", tmp_path / "none.jsonl", stream)
    assert missing.returncode == 1
    assert "none.jsonl cannot be read" in missing.stderr
    assert len(missing.stdout.splitlines()) == 3


def test_the_published_example_replays_to_its_published_result() -> None:
    example = Path(__file__).parents[2] / "examples" / "published" / "replay.jsonl"
    lines = [json.loads(line) for line in run("replay", example).stdout.splitlines()]
    assert lines[-1]["frontier"] == [10]
    published = [update for line in lines for update in line["updates"]]
    assert [(time, diff) for _, time, diff in published] == [(4, 1), (5, 1), (5, -1), (6, -1)] or sorted(
        (time, diff) for _, time, diff in published
    ) == [(4, 1), (5, -1), (5, 1), (6, -1)]


def test_status_of_what_is_not_ingested_yet_and_of_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "topics" / "t").mkdir(parents=True)
    schema = {"type": "record", "name": "data", "fields": [{"name": "id", "type": "long"}]}
    block = {"family": "plain", "topic": "t", "schema": schema}
    (tmp_path / "collections.yaml").write_text(json.dumps({"topics": "topics", "collections": {"one": block}}))
    assert "not ingested yet" in run("status", cwd=tmp_path).stdout
    assert json.loads(run("status", "--json", cwd=tmp_path).stdout) == {"collections": {"one": None}}
    unknown = run("status", "two", cwd=tmp_path)
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "there is no collection of this name" in unknown.stderr
    assert "use one of: one" in unknown.stderr
    nothing = run("status", cwd=tmp_path / "topics")
    assert nothing.returncode == 2
    assert "collections.yaml" in nothing.stderr


def test_status_starts_no_jvm_and_imports_no_spark(tmp_path: Path) -> None:
    (tmp_path / "collections.yaml").write_text("collections: {}\n")
    code = (
        "import sys; sys.argv = ['tidelake', 'status', '--json']\n"
        "from tidelake.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('pyspark', 'dagster', 'great_expectations') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_generate_writes_a_topic_once_and_says_where(tmp_path: Path) -> None:
    done = run("generate", "orders", "--updates", "200", "--times", "10", "--writers", "2", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["truth"]["updates"] == 200
    assert list((tmp_path / "data" / "topics" / "orders").glob("*.parquet"))
    again = run("generate", "orders", "--updates", "200", "--times", "10", cwd=tmp_path)
    assert again.returncode == 2
    assert "hint:" in again.stderr


@pytest.fixture
def contradicted(tmp_path: Path, spark: SparkSession) -> Lake:
    """A collection that is sealed up to a contradiction at time 3."""
    lake = Lake(tmp_path, spark)
    lake.send(updates(((1, 5), 1, 1), ((1, 6), 2, 2)), updates((3, 3, 1), (4, 3, 1)), b"\x07 garbage")
    lake.send(progress([0], [9], {1: 1, 2: 1, 3: 1}))
    lake.run()
    return lake


@pytest.mark.spark
def test_a_contradiction_is_shown_decided_and_gone(contradicted: Lake) -> None:
    config = ("--config", str(contradicted.file))
    shown: dict[str, Any] = json.loads(call("status", "--json", *config))["collections"]["prices"]
    assert (shown["upper"], shown["pending"], shown["quarantine"], shown["lag_messages"]) == (3, 2, 1, 0)
    assert [(one["time"], one["decided"]) for one in shown["contradictions"]] == [(3, False)]
    assert "held back at time 3" in call("status", *config)
    decided = json.loads(
        call("resolve", "prices", "--time", "3", "--count", "2", "--reason", "both", "--json", *config)
    )
    assert decided["decisions"][0]["reason"] == "both"
    contradicted.run()
    after = json.loads(call("status", "--json", *config))["collections"]["prices"]
    assert (after["upper"], after["contradictions"]) == (9, [])
    with pytest.raises(TidelakeError, match="time 3 of 'prices' is sealed already"):
        call("resolve", "prices", "--time", "3", "--count", "1", "--reason", "again", *config)


@pytest.mark.spark
def test_read_shows_contents_at_a_time(contradicted: Lake) -> None:
    config = ("--config", str(contradicted.file))
    found = json.loads(call("read", "prices", "--json", *config))
    assert (found["as_of"], found["since"], found["upper"]) == (2, 0, 3)
    assert found["rows"] == [{"id": 1, "price": 5, "_diff": 1}, {"id": 1, "price": 6, "_diff": 2}]
    narrow = json.loads(
        call("read", "prices", "--as-of", "2", "--columns", "id", "--where", "price > 4", "--json", *config)
    )
    assert narrow["rows"] == [{"id": 1, "_diff": 3}]
    assert json.loads(call("read", "prices", "--limit", "1", "--json", *config))["rows"] == found["rows"][:1]
    assert "AS OF 1" in call("read", "prices", "--as-of", "1", *config)
    with pytest.raises(UpperError):
        call("read", "prices", "--as-of", "3", *config)
    with pytest.raises(SinceError):
        call("read", "prices", "--as-of", "-1", *config)
    with pytest.raises(TidelakeError, match="has no column 'nope'"):
        call("read", "prices", "--columns", "nope", *config)
    with pytest.raises(TidelakeError, match="the predicate"):
        call("read", "prices", "--where", "price >", *config)


@pytest.mark.spark
def test_quarantine_shows_the_message_its_place_and_its_reason(contradicted: Lake) -> None:
    config = ("--config", str(contradicted.file))
    assert "undecodable" in call("quarantine", "prices", *config)
    found = json.loads(call("quarantine", "prices", "--json", *config))
    assert [(row["partition"], row["offset"], row["reason"]) for row in found["rows"]] == [(0, 2, "undecodable")]
    assert found["rows"][0]["value"] == {"b64": "ByBnYXJiYWdl"}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--time", "3"), "nothing, or more than one thing, is decided"),
        (("--count", "3"), "no time is given"),
        (("--time", "3", "--discard", "{"), "the statement is not JSON"),
        (
            ("--time", "3", "--discard", '{"data": {"id": "x", "price": null}, "diff": 1}'),
            "does not fit the collection",
        ),
        (("--time", "3", "--discard", '{"data": {"id": 1}}'), "does not have just data and a whole diff"),
        (("--accept-gap", "orders"), "'orders' is not a gap"),
    ],
)
def test_a_decision_that_makes_no_sense_is_refused(
    contradicted: Lake, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(TidelakeError, match=message):
        call("resolve", "prices", "--reason", "because", *arguments, "--config", str(contradicted.file))
    assert contradicted.collection.entry.decisions == ()
