"""`tidelake subscribe` prints complete times as a stream that `replay` reads, and resumes no matter how it ended."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cli.commands import TIDELAKE, call, invoke
from tests.lakes.held import HeldLake
from tests.lakes.lake import NAME, Lake, progress, updates
from tests.lakes.raw_lake import RawLake
from tests.lakes.upserts import ITEM, gone, item
from tidelake import open_lake
from tidelake.cli.subscribe import subscribe
from tidelake.errors import CapabilityTaken, OptionRefused
from tidelake.protocol.json_values import identity, parse
from tidelake.protocol.recorded_lines import UPDATES_IN_LINE_MAX
from tidelake.protocol.replay import replay_file

TIMES = 40


def replayed(lines: Sequence[str]) -> tuple[Counter[str], list[Any]]:
    """The sum of a stream, and its last frontier; fails if a line causes an error, or if an update comes twice."""
    stated = [json.dumps(update[:2]) for line in lines for update in json.loads(line).get("updates", ())]
    assert len(stated) == len(set(stated)), "the lines state the same data at the same time twice"
    rows: Counter[str] = Counter()
    frontier: list[Any] = [0]
    for output in replay_file([line.encode() for line in lines], "stream"):
        assert output["errors"] == []
        frontier = output["frontier"]
        for data, _, diff in output["updates"]:
            rows[identity(data)] += diff
    return Counter({row: diff for row, diff in rows.items() if diff}), frontier


def complete(lines: Sequence[str]) -> tuple[list[str], int | None]:
    """The lines through the last progress statement that is whole, and the last time that it completes, or None."""
    whole: list[str] = []
    kept = 0
    token: int | None = None
    for line in lines:
        try:
            message = json.loads(line)
        except ValueError:  # the process was killed while printing this line
            break
        whole.append(line)
        if "progress" in message:
            kept, token = len(whole), message["progress"]["upper"][0] - 1
    return whole[:kept], token


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("subscribed"), spark, "upsert", key="id")
    lake.send(*(updates(((at % 5, at), at, 1)) for at in range(TIMES)))
    lake.send(progress([0], [TIMES + 2], dict.fromkeys(range(TIMES), 1)))
    lake.run()
    return lake


@pytest.fixture
def lake(prepared: Lake, tmp_path: Path) -> Lake:
    """Five keys that get new values in turn, one key at each time; nothing happens at the last two times."""
    return prepared.copy(tmp_path / "subscribed")


@pytest.mark.spark
def test_a_stream_that_is_subscribed_and_replayed_gives_the_same_collection(lake: Lake) -> None:
    config = ("--config", str(lake.file))
    first = call("subscribe", NAME, "--as-of", "3", "--until", "7", "--json", *config).splitlines()
    assert json.loads(first[0]) == {"updates": [[{"id": id, "price": id}, 3, 1] for id in range(4)]}
    assert json.loads(first[1]) == {"progress": {"lower": [0], "upper": [4], "counts": [[3, 4]]}}
    assert json.loads(first[2]) == {"updates": [[{"id": 4, "price": 4}, 4, 1]]}
    rest = call("subscribe", NAME, "--after", "7", "--json", *config).splitlines()
    assert json.loads(rest[-1]) == {"progress": {"lower": [TIMES], "upper": [TIMES + 2], "counts": []}}
    rows, frontier = replayed([*first, *rest])
    assert frontier == [TIMES + 2]
    held = lake.contents(TIMES + 1)
    assert rows == {identity({"id": id, "price": price}): diff for (id, price), diff in held.items()}
    file = lake.root / "stream.jsonl"
    file.write_text("".join(f"{line}\n" for line in [*first, *rest]))
    outputs = [parse(line) for line in call("replay", str(file)).splitlines()]
    assert outputs[-1]["frontier"] == [TIMES + 2]
    assert lake.collection.entry.capabilities[1:] == ()


@pytest.mark.spark
def test_a_subscription_can_omit_the_contents_and_end_after_some_times(lake: Lake) -> None:
    config = ("--config", str(lake.file))
    done = invoke("subscribe", NAME, "--as-of", "1", "--no-snapshot", "--limit", "2", "--where", "id > 0", *config)
    assert done.stdout.splitlines() == [
        "1  complete",
        '2  +1  {"id":2,"price":2}',
        "2  complete",
        '3  +1  {"id":3,"price":3}',
        "3  complete",
    ]
    assert f"{NAME}: complete through 3; --after 3 continues" in done.stderr
    nothing = invoke("subscribe", NAME, "--after", str(TIMES + 1), "--wait", "0.2s", "--poll", "0.1s", *config)
    assert nothing.stdout == ""


@pytest.mark.spark
def test_a_hold_moves_along_and_its_token_is_used_up(lake: Lake) -> None:
    config = ("--config", str(lake.file))
    token = call("hold", NAME, "--at", "5", *config).strip()
    done = invoke("subscribe", NAME, "--hold", token, "--limit", "1", "--columns", "id", "--json", *config)
    assert [json.loads(line)["progress"]["upper"] for line in done.stdout.splitlines() if "progress" in line][:1] == [
        [TIMES + 2]
    ]  # the column does not change, so no time has an update
    fresh = done.stderr.split("new token: ")[1].split()[0]
    (held,) = open_lake(lake.file).collection(NAME).holds()
    assert held.since == TIMES + 1
    with pytest.raises(CapabilityTaken):
        call("subscribe", NAME, "--hold", token, *config)
    open_lake(lake.file).collection(NAME).release(fresh)


class SlowReader(io.StringIO):
    """A slow reader of standard output: while it reads a line, a time is sealed, and a compaction checks the leases."""

    def __init__(self, lake: HeldLake, upper: int) -> None:
        super().__init__()
        self.lake, self.upper = lake, upper

    def write(self, text: str) -> int:
        self.upper += 1
        self.lake.seal(self.upper)
        self.lake.compact()
        time.sleep(0.001)
        return super().write(text)


def test_a_subscription_to_which_nothing_comes_says_where_to_continue(tmp_path: Path) -> None:
    lake = HeldLake.create(tmp_path, upper=5)
    config = ("--no-hold", "--config", str(lake.file))
    done = invoke("subscribe", NAME, "--no-snapshot", "--json", *config)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"progress": {"lower": [0], "upper": [5], "counts": []}}
    ]
    assert "complete through 4; --after 4 continues" in done.stderr
    lake.append((1, 6, 1), upper=8)
    rest = invoke("subscribe", NAME, "--after", "4", "--json", *config)
    assert replayed([*done.stdout.splitlines(), *rest.stdout.splitlines()]) == (
        Counter({identity({"id": 1, "price": None}): 1}),
        [8],
    )
    for options in (("--as-of", "9", "--no-snapshot"), ("--after", "9")):
        later = invoke("subscribe", NAME, *options, *config)
        assert (later.stdout, later.exit_code) == ("", 0)
        assert "9 is not sealed yet; --after 9 continues" in later.stderr


def test_a_hold_lives_while_its_batch_is_printed_for_longer_than_its_lease(tmp_path: Path) -> None:
    lake = HeldLake.create(tmp_path)
    lake.append(*((id, 1, 1) for id in range(3 * UPDATES_IN_LINE_MAX)), upper=2)
    with redirect_stdout(SlowReader(lake, 2)) as output:
        subscribe(NAME, as_of="1", until="3", lease="0.001s", as_json=True, config=lake.file)
    rows, frontier = replayed(output.getvalue().splitlines())
    assert (sum(rows.values()), frontier) == (3 * UPDATES_IN_LINE_MAX, [4])
    assert lake.collection.holds() == []


def test_ctrl_c_says_where_to_continue(tmp_path: Path) -> None:
    lake = HeldLake.create(tmp_path)
    lake.append((1, 1, 1), (2, 2, 1), upper=5)
    command = [*TIDELAKE, "subscribe", NAME, "--as-of", "1", "--wait", "1h", "--config", str(lake.file)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with (tmp_path / "out").open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.PIPE, text=True)
        stop_after(process, tmp_path / "out", 5, signal.SIGINT)
        _, messages = process.communicate(timeout=60)
    assert (process.returncode, messages) == (130, "interrupted: complete through 4; --after 4 continues\n")
    assert lake.collection.holds() == []


@pytest.mark.spark
def test_without_a_hold_nothing_is_written(lake: Lake) -> None:
    before = lake.collection.entry
    store = {path: path.stat().st_mtime_ns for path in (lake.root / "store").rglob("*")}
    call("subscribe", NAME, "--no-hold", "--limit", "1", "--config", str(lake.file))
    assert {path: path.stat().st_mtime_ns for path in (lake.root / "store").rglob("*")} == store
    assert lake.collection.entry == before


@pytest.mark.spark
def test_a_reclocked_stream_replays_with_bytes_and_iso_times(tmp_path: Path, spark: SparkSession) -> None:
    lake = RawLake(tmp_path, spark, envelope="upsert", key="id", schema=ITEM)
    for records in ([item(1, 5), item(2, 6)], [gone(1)]):
        lake.put(*records)
        lake.ingest()
    first, last = (binding.time for binding in lake.times)
    lines = call("subscribe", NAME, "--as-of", str(first), "--json", "--config", str(lake.file)).splitlines()
    assert replayed(lines) == (Counter({identity({"id": 2, "price": 6}): 1}), [last + 1])


def test_options_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    config = tmp_path / "collections.yaml"
    config.write_text("collections: {}\n")
    for options in (
        ("--after", "3", "--as-of", "3"),
        ("--after", "3", "--no-snapshot"),
        ("--hold", "a.b.c", "--as-of", "3"),
        ("--hold", "a.b.c", "--no-hold"),
        ("--wait", "soon"),
    ):
        with pytest.raises(OptionRefused):
            call("subscribe", NAME, *options, "--config", str(config))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    "ends",
    [[signal.SIGKILL], pytest.param([signal.SIGKILL, signal.SIGTERM, signal.SIGINT], marks=pytest.mark.sweep)],
    ids=["killed", "killed, stopped and interrupted"],
)
def test_a_killed_command_that_is_resumed_prints_each_time_once(
    lake: Lake, tmp_path: Path, ends: list[signal.Signals]
) -> None:
    stream: list[str] = []
    token: int | None = None
    upper = TIMES + 2
    for end in ends:
        options = ["--as-of", "0"] if token is None else ["--after", str(token)]
        file = tmp_path / f"{end}.jsonl"
        command = [*TIDELAKE, "subscribe", NAME, *options, "--wait", "1h", "--json", "--config", str(lake.file)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        with file.open("wb") as output, (tmp_path / "errors").open("wb") as errors:
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=errors)
            stop_after(process, file, 3, end)
            process.wait(timeout=120)
        text = file.read_text()
        lines, last = complete(text.splitlines()[: None if text.endswith("\n") else -1])
        stream += lines
        token = last if last is not None else token
        left = open_lake(lake.file).collection(NAME).holds()
        # SIGKILL leaves a hold until its lease ends; Ctrl-C may leave one if the command has not ended after a second.
        assert 1 <= len(left) <= (2 if end == signal.SIGINT else 1), (end, (tmp_path / "errors").read_text())
        lake.send(*(updates(((at % 5, at), at, 1)) for at in range(upper, upper + 9)))
        lake.send(progress([upper], [upper + 9], dict.fromkeys(range(upper, upper + 9), 1)))
        lake.run()
        upper += 9
    stream += call("subscribe", NAME, "--after", str(token), "--json", "--config", str(lake.file)).splitlines()
    times = [at for line in stream if "updates" in line for _, at, _ in json.loads(line)["updates"]]
    assert set(times) == set(range(upper)) - {TIMES, TIMES + 1}
    statements = [json.loads(line)["progress"] for line in stream if "progress" in line]
    assert [each["lower"] for each in statements[1:]] == [each["upper"] for each in statements[:-1]]
    rows, frontier = replayed(stream)
    assert (frontier, sum(rows.values())) == ([upper], 5)


def stop_after(process: subprocess.Popen[Any], file: Path, lines: int, number: int) -> None:
    """Send a signal once the process has printed some lines."""
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        if file.read_bytes().count(b"\n") >= lines:
            process.send_signal(number)
            return
        time.sleep(0.005)
    raise AssertionError(f"fewer than {lines} lines were printed")
