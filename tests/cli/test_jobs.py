"""`tidelake run` and the commands for single steps: what they do, print and return."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.cli.commands import call
from tests.lakes.lake import NAME, Lake, progress, updates
from tests.lakes.raw_lake import RawLake
from tidelake.cli.app import app
from tidelake.errors import ConfigurationError, UpperError

pytestmark = pytest.mark.spark


def outcome(*arguments: str) -> tuple[int, list[str], str]:
    """The exit status of a command, the lines of its output, and its messages."""
    done = CliRunner().invoke(app, list(arguments))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout.splitlines(), done.stderr


def test_run_does_what_a_scheduled_tick_does_and_reports_it_in_sentences(lake: Lake) -> None:
    lake.send(updates((1, 1, 1), (1, 1, 1), (2, 2, 1)), b"\x07 garbage", progress([0], [4], {1: 1, 2: 1, 3: 1}))
    config = ("--config", str(lake.file))
    status, lines, messages = outcome("run", *config)
    assert (status, messages) == (0, "")
    assert lines == [
        "prices: ingest: 3 messages: 3 rows stored, 1 message quarantined (1 undecodable)",
        "prices: seal: 2 new times are sealed, upper is 3, 1 copy cancelled; waiting at time 3: 1 announced, 0 stored",
        "prices: validate: 2 sealed times recounted and found as sealed",
        "prices: compact: nothing to merge; since is 0",
    ]
    lake.send(updates((3, 3, 1)))
    assert (
        call("run", "--current", *config).splitlines()[-1]
        == "prices: current: 3 rows as of 3, rebuilt: it was not published before"
    )
    assert call("current", *config) == "prices: current: 3 rows as of 3, unchanged\n"
    assert call("ingest", NAME, *config) == "prices: ingest: no new messages\n"
    assert call("seal", *config) == "prices: seal: nothing new, upper is 4\n"
    assert call("validate", *config) == "prices: validate: nothing new\n"
    assert call("validate", "--full", *config).startswith(
        "prices: validate: 3 sealed times recounted and found as sealed"
    )
    assert call("compact", "--full", *config) == "prices: compact: 3 runs became 1; since is 0\n"


@pytest.mark.sweep
def test_the_report_of_a_validation_has_totals_instead_of_every_time(lake: Lake) -> None:
    lake.send(updates(*((1, time, 1) for time in range(40))), progress([0], [40], dict.fromkeys(range(40), 1)))
    report = json.loads(call("run", "--json", "--config", str(lake.file)))
    validated = report["results"][NAME]["validate"]
    assert (report["ok"], report["errors"]) == (True, {})
    assert validated["times"] == {
        "number": 40,
        "first": 0,
        "last": 39,
        "announced": 40,
        "counted": 40,
        "recounted": 40,
        "differing": 0,
    }
    assert validated["times_differing"] == []


def test_a_gap_stops_ingest_but_what_was_read_is_still_sealed(lake: Lake) -> None:
    lake.send(updates((1, 1, 1)), progress([0], [2], {1: 1}))
    lake.send(updates((2, 2, 1)), at=5)
    status, lines, messages = outcome("run", "--config", str(lake.file))
    assert status == 1
    assert "prices: seal: 1 new time is sealed, upper is 2" in lines
    assert messages.startswith("error: prices: topic 'prices', partition 0: offsets 2 to 4 are missing")
    assert messages.splitlines()[-1] == "see: tidelake errors TopicGap"


def test_a_collection_that_fails_skips_its_later_steps_and_the_others_continue(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates((1, 1, 1)), progress([0], [2], {1: 1}))
    document = yaml.safe_load(lake.file.read_text(encoding="utf-8"))
    document["collections"]["others"] = document["collections"][NAME]
    lake.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    config = ("--config", str(lake.file))
    call("ingest", *config)
    call("fence", NAME, "--writer", "elsewhere", *config)
    status, lines, messages = outcome("run", *config)
    assert status == 1
    assert [line for line in lines if line.startswith(NAME)] == []
    assert lines[1] == "others: seal: 1 new time is sealed, upper is 2"
    assert messages.startswith("error: prices: 'prices' is fenced: only the writer 'elsewhere' may write to it")
    assert messages.count("error:") == 1


def test_an_unknown_name_gets_a_suggestion(lake: Lake) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no collection of this name\nhint: did you mean 'prices'\?"):
        call("run", "prises", "--config", str(lake.file))


@pytest.mark.sweep
def test_minted_times_are_printed_with_the_same_time_in_iso(tmp_path: Path, spark: SparkSession) -> None:
    lake = RawLake(tmp_path, spark)
    lake.put({"id": 1, "page": "/"})
    config = ("--config", str(lake.file))
    assert "seal: nothing to do: each tick of ingest seals its own time" in call("run", *config)
    (row,) = json.loads(call("times", NAME, "--json", *config))["rows"]
    assert row["iso"].startswith("20")
    assert row["iso"].endswith("Z")
    read = call("read", NAME, "--as-of", row["iso"], *config)
    assert f"AS OF {row['time']} ({row['iso']})" in read
    document = json.loads(call("read", NAME, "--as-of", str(row["time"]), "--json", *config))
    assert (document["as_of"], document["as_of_iso"]) == (row["time"], row["iso"])
    assert row["iso"] in call("times", NAME, *config)
    assert f"time {row['time']} ({row['iso']}): sealed" in call("explain", NAME, "--time", row["iso"], *config)
    lake.put({"id": 1, "page": "/a"})
    call("run", *config)
    last = json.loads(call("times", NAME, "--json", *config))["rows"][-1]
    changed = call("diff", NAME, "--from", row["iso"], "--to", last["iso"], *config)
    assert f"from {row['time']} ({row['iso']}) to {last['time']} ({last['iso']})" in changed
    with pytest.raises(UpperError, match=r"time 32503680000000 \(3000-01-01T00:00:00.000Z\) is not before upper"):
        call("read", NAME, "--as-of", "3000-01-01T00:00:00Z", *config)
