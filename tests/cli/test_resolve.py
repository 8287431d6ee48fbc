"""`tidelake resolve`: its options, and collections with the name of a sub-command. The scripts test the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.cli.commands import call
from tests.lakes.lake import NAME, Lake, progress, updates
from tidelake.cli.app import app
from tidelake.errors import TidelakeError, TopicGap, UnknownCollection


@pytest.mark.spark
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--time", "3"), "exactly one option must say what to decide"),
        (("--count", "3"), "no time is given"),
        (("--time", "3", "--discard", "{"), "the statement cannot be read"),
        (
            ("--time", "3", "--discard", '{"data": {"id": "x", "price": null}, "diff": 1}'),
            "does not fit the collection",
        ),
        (("--time", "3", "--discard", '{"data": {"id": 1}}'), "does not have exactly `data` and an integer `diff`"),
        (("--time", "3", "--discard", '{"data": {"id": 1, "price": 5}, "diff": 0}'), "the statement's diff is 0"),
        (("--accept-gap", "orders"), "'orders' is not a range of offsets"),
        (("--accept-gap", "prices:0:5-5"), "'prices:0:5-5' is not a range of offsets"),
        (("--accept-gap", "prices:0:-5-5"), "'prices:0:-5-5' is not a range"),
        (("--accept-gap", "prices:٠:0-1"), "'prices:٠:0-1' is not a range"),
        (("--accept-gap", "prices:0:0-9223372036854775808"), "is not a range of offsets"),
        (("--accept-gap", "prices:0:0-1", "--time", "3"), "a gap, a topic and a message have no time"),
        (("--accept-gap", "orders:0:0-1"), "'prices' reads the topic 'prices', not 'orders'"),
        (("--accept-gap", "prices:0:0-1"), "is not within a gap that now stops ingest; gaps: none"),
        (("--withdraw", "--time", "3", "--count", "1"), "exactly one option must say what to decide"),
        (("--withdraw",), "no time is given"),
        (("--quarantined", "prices:0"), "'prices:0' is not a range of offsets"),
        (("--quarantined", "prices:0:3-3"), "'prices:0:3-3' is not a range of offsets"),
        (("--quarantined", "prices:0:1"), "'prices' has no unexplained quarantined message at 'prices:0:1'"),
        (("--quarantined", "prices:0:2", "--time", "3"), "a gap, a topic and a message have no time"),
        (("--quarantined", "prices:0:2", "--withdraw"), "'prices' has no acknowledgement of 'prices:0:2'"),
        (("--withdraw", "--time", "3"), "there is no decision about time 3 of 'prices'"),
        (("--withdraw", "--time", "2"), "time 2 of 'prices' is already sealed"),
        (("--time", "3", "--count", "1", "--reason", " "), "the reason is missing or empty"),
    ],
)
def test_a_decision_that_does_not_make_sense_is_refused(
    contradicted: Lake, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(TidelakeError, match=message):
        call("resolve", "prices", "--reason", "because", *arguments, "--config", str(contradicted.file))
    assert contradicted.collection.entry.decisions == ()


@pytest.mark.spark
def test_only_a_gap_that_now_stops_ingest_can_be_accepted_in_whole_or_in_part(
    tmp_path: Path, spark: SparkSession
) -> None:
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
    for not_within in ("0-5", "1-6", "5-6"):
        with pytest.raises(TidelakeError, match="gaps: far:prices:0:1-5"):
            accept_gap(lake, f"{name}:0:{not_within}")
    with pytest.raises(TidelakeError, match="gaps: far:prices:0:1-5"):
        accept_gap(lake, f"{name}:1:1-5")
    accept_gap(lake, f"{name}:0:1-3")
    with pytest.raises(TidelakeError, match="gaps: far:prices:0:3-5"):
        accept_gap(lake, f"{name}:0:1-3")
    accept_gap(lake, f"{name}:0:3-5")
    for covered in ("1-3", "2"):
        with pytest.raises(
            TidelakeError, match=f"'{name}:0:{covered}' of '{NAME}' is an accepted gap, which cannot be"
        ):
            call("resolve", "withdraw", NAME, "--offsets", f"{name}:0:{covered}", "--config", str(lake.file))
    with pytest.raises(TidelakeError, match=f"no acknowledgement of '{name}:0:3-6'\nhint: acknowledged: none"):
        call("resolve", "withdraw", NAME, "--offsets", f"{name}:0:3-6", "--config", str(lake.file))
    assert lake.run().upper == 2
    with pytest.raises(TidelakeError, match="gaps: none\nhint: `tidelake status prices` shows"):
        accept_gap(lake, f"{name}:0:1-5")


def accept_gap(lake: Lake, gap: str) -> None:
    call("resolve", "gap", NAME, "--reason", "lost", "--offsets", gap, "--config", str(lake.file))


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
def test_a_number_out_of_range_is_refused_with_the_name_of_its_option(arguments: tuple[str, ...], option: str) -> None:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.stderr


COUNT = ("--time", "3", "--count", "1", "--reason", "r")


@pytest.mark.parametrize(
    ("words", "named", "is_old"),
    [
        (("count", "count", *COUNT), "count", False),
        (("count", *COUNT, "count"), "count", False),
        (("count", *COUNT), "count", True),
        (("count", "--time=3", "--count=1", "--reason=r"), "count", True),
        ((*COUNT, "count"), "count", True),
        (("list", *COUNT), "list", True),
        (("list", "list"), "list", False),
        (("withdraw", "--time", "3", "--withdraw"), "withdraw", True),
        (("withdraw", "withdraw", "--time", "3"), "withdraw", False),
        (("by-options", *COUNT), "by-options", True),
        (("prices", *COUNT), "prices", True),
    ],
)
def test_a_collection_may_have_the_name_of_a_sub_command(
    tmp_path: Path, words: tuple[str, ...], named: str, is_old: bool
) -> None:
    schema = {"type": "record", "name": "data", "fields": [{"name": "id", "type": "long"}]}
    names = ("count", "list", "withdraw", "by_options", "prices")
    blocks = {name: {"family": "plain", "topic": name, "schema": schema} for name in names}
    config = tmp_path / "collections.yaml"
    config.write_text(json.dumps({"collections": blocks}), encoding="utf-8")
    result = CliRunner().invoke(app, ["resolve", *words, "--config", str(config)])
    assert isinstance(result.exception, TidelakeError)
    if named == "by-options":  # neither a collection nor a sub-command that a user can call
        assert "there is no collection of this name" in str(result.exception)
    else:
        assert isinstance(result.exception, UnknownCollection)
        assert f"has no collection '{named}'" in str(result.exception)
    assert ("note: each kind of decision is a sub-command now" in result.stderr) == is_old


def test_a_sub_command_without_a_name_says_what_is_missing() -> None:
    for words in (
        ("count",),
        ("list",),
        ("withdraw", "--time", "3"),
        ("gap", "--offsets", "prices:0:1", "--reason", "r"),
    ):
        result = CliRunner().invoke(app, ["resolve", *words])
        assert result.exit_code == 2
        assert "Missing argument 'NAME'" in result.stderr


def test_help_shows_the_sub_commands_and_hides_the_old_form_with_options() -> None:
    shown = CliRunner().invoke(app, ["resolve", "--help"]).stdout
    assert all(kind in shown for kind in ("count", "discard", "gap", "topic", "quarantine", "withdraw", "list"))
    assert "by-options" not in shown
    assert "--statement" in CliRunner().invoke(app, ["resolve", "discard", "--help"]).stdout
