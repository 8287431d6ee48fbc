"""Every command once through its own front door, with its errors and its JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.delta.lake import NAME, Lake, progress, updates
from tests.delta.test_landing import ALL, everything
from tidelake.cli import app
from tidelake.codec import AvroCodec
from tidelake.delta.late import compare_late
from tidelake.delta.statements import encode_data
from tidelake.errors import RuleBroken, SinceError, StepFailed, TidelakeError, TopicGap, UpperError
from tidelake.json_values import parse
from tidelake.message import Progress, Updates

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


def test_reading_a_store_loads_no_log() -> None:
    code = "import sys, tidelake.delta.status; print('structlog' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_generate_writes_a_topic_once_and_says_where(tmp_path: Path) -> None:
    done = run("generate", "orders", "--updates", "200", "--times", "10", "--writers", "2", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["truth"]["updates"] == 200
    assert list((tmp_path / "data" / "topics" / "orders").glob("*.parquet"))
    again = run("generate", "orders", "--updates", "200", "--times", "10", cwd=tmp_path)
    assert again.returncode == 2
    assert "hint:" in again.stderr


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
    assert after["sealed_by_decision"] == [{"time": 3, "announced": 2, "reason": "both"}]
    assert "sealed by decision: time 3: both" in call("status", *config)
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
    assert (found["messages"], found["unexplained"], found["rows"][0]["explained"]) == (1, 1, None)
    for place in ("prices:0:2", "prices:0:0-9"):  # one message, or several
        call("resolve", NAME, "--quarantined", place, "--reason", "a test message", *config)
        found = json.loads(call("quarantine", NAME, "--json", *config))
        assert (found["messages"], found["unexplained"], found["rows"][0]["explained"]) == (1, 0, "a test message")
        assert "quarantine: 1 undecodable, 1 of them explained" in call("status", *config)
        call("resolve", NAME, "--quarantined", place, "--withdraw", *config)
    assert json.loads(call("quarantine", NAME, "--json", *config))["unexplained"] == 1


@pytest.mark.spark
def test_a_late_contradiction_is_shown_with_its_place_and_settled_by_what_was_published(
    contradicted: Lake, spark: SparkSession
) -> None:
    config = ("--config", str(contradicted.file))
    assert json.loads(call("late", NAME, "--json", *config))["rows"] == []
    contradicted.send(updates(((1, 6), 2, 3), ((1, 5), 1, 1)), progress([2], [3], {2: 4}))
    contradicted.run()
    compare_late(spark, contradicted.collection)
    assert "contradicted late" not in call("status", *config)  # what holds upper back comes first
    shown = call("status", *config)
    assert "late statements: 1 copies, 1 contradict what was published" in shown
    assert "late contradictions: 2; what was published stays; see `tidelake late prices`" in shown
    found = json.loads(call("late", NAME, "--json", *config))
    assert (found["contradictions"], found["statements"]["copy"], found["statements"]["contradiction"]) == (2, 1, 1)
    assert [(row["kind"], row["time"], row["stated"], row["published"], row["offset"]) for row in found["rows"]] == [
        ("late_update", 2, 3, 2, 4),
        ("late_count", 2, 4, 1, 5),
    ]
    assert "late_update" in call("late", NAME, *config)

    def refused(*decision: str) -> str:
        with pytest.raises(TidelakeError, match="time 2 of 'prices' is sealed already, and no late statement") as error:
            call("resolve", NAME, "--time", "2", "--reason", "r", *decision, *config)
        return str(error.value)

    published = '{"data": {"id": 1, "price": 6}, "diff": 2}'
    assert "tidelake late prices" in refused("--discard", published)
    refused("--count", "4")  # not what was published
    stated = json.dumps({"data": found["rows"][0]["data"], "diff": found["rows"][0]["stated"]})
    done = call("resolve", NAME, "--time", "2", "--reason", "taken back", "--discard", stated, *config)
    assert "prices: settled. What is published stays as it is" in done
    call("resolve", NAME, "--time", "2", "--reason", "one is right", "--count", "1", *config)
    assert "late contradictions: 2, 2 of them settled by decision" in call("status", *config)
    rows = json.loads(call("late", NAME, "--json", *config))["rows"]
    assert [row["decision"] for row in rows] == ["taken back", "one is right"]


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
        (("--time", "3", "--discard", '{"data": {"id": 1, "price": 5}, "diff": 0}'), "the statement's diff is 0"),
        (("--accept-gap", "orders"), "'orders' is not a gap"),
        (("--accept-gap", "prices:0:5-5"), "'prices:0:5-5' is not a gap"),
        (("--accept-gap", "prices:0:-5-5"), "'prices:0:-5-5' is not a gap"),
        (("--accept-gap", "prices:٠:0-1"), "'prices:٠:0-1' is not a gap"),
        (("--accept-gap", "prices:0:0-9223372036854775808"), "is not a gap"),
        (("--accept-gap", "prices:0:0-1", "--time", "3"), "a gap has no time"),
        (("--accept-gap", "orders:0:0-1"), "'prices' reads the topic 'prices', not 'orders'"),
        (("--accept-gap", "prices:0:0-1"), "is not within a gap that ingest stops at now; there are: none"),
        (("--withdraw", "--time", "3", "--count", "1"), "nothing, or more than one thing, is decided"),
        (("--withdraw",), "no time is given"),
        (("--quarantined", "prices:0"), "'prices:0' is no place"),
        (("--quarantined", "prices:0:3-3"), "'prices:0:3-3' is no place"),
        (("--quarantined", "prices:0:1"), "no quarantined message of 'prices' is at 'prices:0:1'"),
        (("--quarantined", "prices:0:2", "--time", "3"), "a message is named by its place"),
        (("--quarantined", "prices:0:2", "--withdraw"), "nothing is decided about 'prices:0:2' of 'prices'"),
        (("--withdraw", "--time", "3"), "nothing is decided about time 3 of 'prices'"),
        (("--withdraw", "--time", "2"), "time 2 of 'prices' is sealed already"),
        (("--time", "3", "--count", "1", "--reason", " "), "the reason is missing or empty"),
    ],
)
def test_a_decision_that_makes_no_sense_is_refused(
    contradicted: Lake, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(TidelakeError, match=message):
        call("resolve", "prices", "--reason", "because", *arguments, "--config", str(contradicted.file))
    assert contradicted.collection.entry.decisions == ()


@pytest.mark.spark
def test_only_a_gap_that_ingest_names_now_can_be_accepted_whole_or_in_part(tmp_path: Path, spark: SparkSession) -> None:
    name = "far:prices"
    (tmp_path / "topics" / name).mkdir(parents=True)
    lake = Lake(tmp_path, spark, topic=name)
    lake.topic = tmp_path / "topics" / name
    lake.send(updates((1, 1, 1)))
    with pytest.raises(TidelakeError, match="has no collection 'prices'"):
        accept_gap(lake, f"{name}:0:1-5")
    lake.send(progress([0], [2], {1: 1}), at=5)
    with pytest.raises(TopicGap):
        lake.ingest()
    for wrong in ("0-5", "1-6", "5-6"):
        with pytest.raises(TidelakeError, match="there are: far:prices:0:1-5"):
            accept_gap(lake, f"{name}:0:{wrong}")
    with pytest.raises(TidelakeError, match="there are: far:prices:0:1-5"):
        accept_gap(lake, f"{name}:1:1-5")
    accept_gap(lake, f"{name}:0:1-3")
    with pytest.raises(TidelakeError, match="there are: far:prices:0:3-5"):
        accept_gap(lake, f"{name}:0:1-3")
    accept_gap(lake, f"{name}:0:3-5")
    assert lake.run().upper == 2
    with pytest.raises(TidelakeError, match="there are: none"):
        accept_gap(lake, f"{name}:0:1-5")


def accept_gap(lake: Lake, gap: str) -> None:
    call("resolve", NAME, "--reason", "lost", "--accept-gap", gap, "--config", str(lake.file))


@pytest.mark.spark
def test_a_count_does_not_settle_two_diffs_of_one_update_but_a_discard_does(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates(((1, 5), 3, 1), ((1, 5), 3, 2)), progress([0], [9], {3: 1}))
    assert lake.run().upper == 3
    count = ("resolve", NAME, "--time", "3", "--count", "1", "--reason", "r", "--config", str(lake.file))
    with pytest.raises(TidelakeError, match="at time 3 one update has two diffs") as caught:
        call(*count)
    assert "--discard" in str(caught.value)
    wrong = '{"data": {"id": 1, "price": {"int": 5}}, "diff": 2}'
    call("resolve", NAME, "--time", "3", "--discard", wrong, "--reason", "r", "--config", str(lake.file))
    call(*count)
    assert lake.run().upper == 9
    assert lake.contents(3) == {(1, 5): 1}


@pytest.mark.spark
def test_after_a_discard_that_leaves_less_than_announced_the_status_says_what_to_decide(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Lake(tmp_path, spark, family="upsert", key="id")
    lake.send(updates(((1, 5), 3, 1), ((1, 6), 3, 1)), progress([0], [9], {3: 2}))
    assert lake.run().upper == 3
    config = ("--config", str(lake.file))
    call(
        "resolve",
        NAME,
        "--time",
        "3",
        "--discard",
        '{"data": {"id": 1, "price": 6}, "diff": 1}',
        "--reason",
        "r",
        *config,
    )
    assert lake.seal().upper == 3
    shown = call("status", *config)
    assert "decided at time 3, next seal counts the rest" in shown
    assert "time 3: a statement is left out; if the rest is not as many as announced" in shown
    call("resolve", NAME, "--time", "3", "--count", "1", "--reason", "r", *config)
    assert "decided at time 3, next seal applies it" in call("status", *config)
    assert lake.seal().upper == 9


@pytest.mark.spark
def test_a_table_that_is_no_folder_is_an_error_and_no_traceback(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark)
    lake.ingest()
    table = lake.collection.paths.quarantine
    shutil.rmtree(table)
    table.write_text("no folder")
    done = run("quarantine", NAME, "--config", lake.file)
    assert done.returncode == 1
    assert done.stderr.startswith("error: [Errno 20] Not a directory")
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.spark
def test_a_decision_about_an_open_time_is_shown_until_it_is_applied_and_can_be_withdrawn(contradicted: Lake) -> None:
    config = ("--config", str(contradicted.file))
    count = ("resolve", NAME, "--time", "3", "--count", "2", "--reason", "both", *config)
    call(*count)
    assert "decided at time 3, next seal applies it" in call("status", *config)
    assert json.loads(call("resolve", NAME, "--time", "3", "--withdraw", "--json", *config))["decisions"] == []
    assert "held back at time 3" in call("status", *config)
    assert contradicted.run().upper == 3
    call(*count)
    assert contradicted.run().upper == 9
    assert "in order" in call("status", *config)
    with pytest.raises(TidelakeError, match="time 3 of 'prices' is sealed already"):
        call("resolve", NAME, "--time", "3", "--withdraw", *config)


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("resolve", "one", "--reason", "r", "--time", "-1", "--count", "1"), "--time"),
        (("resolve", "one", "--reason", "r", "--time", str(2**63), "--count", "1"), "--time"),
        (("resolve", "one", "--reason", "r", "--time", "1", "--count", str(2**63)), "--count"),
        (("read", "one", "--as-of", str(2**63)), "--as-of"),
        (("read", "one", "--as-of", str(-(2**63) - 1)), "--as-of"),
        (("read", "one", "--limit", str(2**31)), "--limit"),
    ],
)
def test_a_number_that_does_not_fit_is_refused_with_its_option(arguments: tuple[str, ...], option: str) -> None:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.stderr


@pytest.mark.spark
def test_read_prints_every_type_without_loss_and_what_it_prints_can_be_discarded(
    tmp_path: Path, spark: SparkSession
) -> None:
    at = {"type": "record", "name": "at", "fields": [{"name": "raw", "type": ["null", "bytes"]}]}
    nested = {"type": "array", "items": [at, "string"]}
    schema = {**ALL, "fields": [*ALL["fields"], {"name": "nested", "type": nested}]}
    data = everything(
        d=float("nan"),
        f=float("-inf"),
        us=2**63 - 1,
        day=2**31 - 1,
        dec=b"\x00",
        nested=[{"at": {"raw": b"\xff"}}, {"string": "ż"}, {"at": {"raw": None}}],
    )
    lake = Lake(tmp_path, spark, schema=schema)
    codec = AvroCodec(schema)
    lake.send(codec.encode(Updates([(data, 1, 1)])), codec.encode(Progress([0], [2], [(1, 1)])))
    assert lake.run().upper == 2
    config = ("--config", str(lake.file))
    text = call("read", NAME, "--json", *config)
    (row,) = json.loads(text, parse_float=str)["rows"]
    assert (row["d"], row["f"], row["dec"], row["again"]) == ("NaN", "-Infinity", "0.000", None)
    assert (row["us"], row["day"]) == ("+294247-01-10T04:00:54.775807Z", "+5881580-07-11")
    assert (row["by"], row["fix"]) == ({"b64": "AP8="}, {"b64": "YWJjZA=="})
    assert [one["at"] for one in row["nested"]] == [{"raw": {"b64": "/w=="}}, None, {"raw": None}]
    assert row["several"] == {"int": None, "long": 5, "string": None, "place": None}
    (typed,) = parse(text)["rows"]
    del typed["_diff"]
    assert encode_data(schema, typed) == codec.encode_data(data)
    table = call("read", NAME, "--columns", "by,dec,nested,by", *config)
    assert "00 ff" in table
    assert "0.000" in table
    assert "ż" in table


@pytest.mark.spark
@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("1 / (id - 1) > 0", "Division by zero"),
        ("cast(concat('a', id) as int) > 0", "CAST_INVALID_INPUT"),
        ("raise_error('so not') is null", "so not"),
    ],
)
def test_a_predicate_that_fails_on_the_data_is_named_with_the_reason(
    contradicted: Lake, where: str, message: str
) -> None:
    with pytest.raises(RuleBroken, match=message) as caught:
        call("read", NAME, "--where", where, "--config", str(contradicted.file))
    assert "the predicate" in str(caught.value)
    assert str(caught.value).count("\n") == 1


@pytest.mark.spark
def test_what_spark_cannot_read_is_named_and_not_blamed_on_the_predicate(contradicted: Lake) -> None:
    for file in contradicted.collection.paths.updates.rglob("*.parquet"):
        file.write_bytes(b"not parquet")
    for more in ((), ("--where", "id > 0")):
        with pytest.raises(StepFailed, match="read of 'prices' failed"):
            call("read", NAME, *more, "--config", str(contradicted.file))


@pytest.mark.spark
def test_the_greatest_limit_shows_all_rows(contradicted: Lake) -> None:
    found = json.loads(call("read", NAME, "--json", "--limit", str(2**31 - 1), "--config", str(contradicted.file)))
    assert len(found["rows"]) == 2
