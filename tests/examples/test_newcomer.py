"""A newcomer's path, from the clone to a lost message that is reported, found and sent again, in less than ten minutes.

The packages and jars are linked, because the time that an installation takes depends on the network. The demo has less
data than by default, because this test shares the machine with others. The commands are those of the README and the
Makefile, in processes of their own.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from tests.docs.blocks import PROJECT
from tests.lakes.lake import progress, updates
from tests.orchestration.ui import dagster_ui, free_port

SECONDS_MAX = 600.0
DEMO = Path("data") / "demo"
TICK = {"resources": {"run_demo": {"config": {"compact": True, "collections": ["prices"]}}}}
LOST = updates(((7, 70), 10, 1), ((8, 80), 10, 1))
SENT = (updates(((9, 90), 10, 1)), progress([10], [11], {10: 3}))
WAITS = "time 10: 3 announced, 1 stored"
"""How time 10 is reported while the message is missing."""


class Newcomer:
    """Somebody with a clone, a shell and a watch."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys
        self.seconds: dict[str, float] = {}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDELAKE_", "DAGSTER_"))}
        kept.pop("JDK_JAVA_OPTIONS", None)  # set for the tests' own JVM
        # The linked packages were installed from another checkout, whose sources must not be used.
        self.environment = kept | {"PYTHONPATH": f"{folder / 'src'}:{folder}", "TIDELAKE_CONFIG": ""}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure a step, and print how long it took."""
        started = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - started
        self.say(name, self.seconds[name])

    def say(self, what: str, seconds: float) -> None:
        """Print a time, although the test's output is captured."""
        with self.capsys.disabled():
            print(f"\n{seconds:7.1f} s  {what}", end="", flush=True)

    def run(self, *command: str, status: int = 0) -> str:
        """Run a command in the clone, and return what it has printed."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * SECONDS_MAX,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def tidelake(self, arguments: str, status: int = 0) -> str:
        """Run a `tidelake` command on the demo's lake."""
        self.environment["TIDELAKE_CONFIG"] = str(DEMO / "collections.yaml")
        return self.run(".venv/bin/python", "-m", "tidelake.cli", *arguments.split(), status=status)


def clone(folder: Path) -> None:
    """Clone the project, and link the packages and jars of this checkout."""
    subprocess.run(["git", "clone", "--quiet", str(PROJECT), str(folder)], check=True)
    for name in (".venv", ".jars"):
        (folder / name).symlink_to((PROJECT / name).resolve())


def send(file: Path, offset: int, *values: bytes) -> None:
    """Write messages to a new file of a topic."""
    lines = [
        {"offset": at, "timestamp_ms": 0, "value_b64": base64.b64encode(value).decode()}
        for at, value in enumerate(values, offset)
    ]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")


@pytest.mark.sweep
@pytest.mark.spark
@pytest.mark.skipif(not (PROJECT / ".git").exists(), reason="this checkout was not made by git, so it cannot be cloned")
def test_a_newcomer_finds_and_resends_a_lost_message_in_less_than_ten_minutes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    me = Newcomer(tmp_path / "tidelake", capsys)
    with me.step("git clone"):
        clone(me.folder)
    with me.step("make run: the main job"):
        assert "all equal" in me.run("make", "--assume-old=setup", "run", "UPDATES=2000")
    config = me.folder / DEMO / "collections.yaml"
    document = yaml.safe_load(config.read_text(encoding="utf-8"))
    document["collections"]["prices"]["stalled_after_s"] = 40  # warn after seconds, not after a day
    config.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")

    port = free_port()
    command = ["make", "--assume-old=setup", "ui", f"PORT={port}"]
    with ExitStack() as running:
        with me.step("make ui: until the assets are there"):
            ui = running.enter_context(dagster_ui(command, port, tmp_path / "ui.log", me.folder, me.environment))
        numbers, checks = ui.asset("demo", "prices")
        assert numbers["upper"] == 10
        assert checks["announced_is_recounted"]["success"] is True

        with me.step("lose a message, and tick in the UI"):
            topic = me.folder / DEMO / "topics" / "prices"
            send(topic / "0.jsonl", 6, *SENT)
            assert ui.run("tick", TICK) == "SUCCESS"
        with me.step("the asset's check"):
            numbers, checks = ui.asset("demo", "prices")
            assert (numbers["upper"], numbers["waiting_for"]) == (
                10,
                "time 10: 3 updates announced, 1 arrived",
            )
            check = checks["frontier_moves"]
            assert (check["success"], check["severity"]) == (False, "WARN")
            assert check["metadata"]["evidence"] == f"upper is waiting at {WAITS}"
        with me.step("tidelake status"):
            assert f"prices: waiting at {WAITS}" in " ".join(me.tidelake("status prices", status=1).split())
        with me.step("tidelake explain"):
            explained = me.tidelake("explain prices")
            assert "prices, time 10: waiting" in explained
            assert "3 announced, 1 stored: 2 updates are missing" in explained
        with me.step("tidelake validate --full: the report"):
            me.tidelake("validate prices --full")
            page = (me.folder / DEMO / "data_docs" / "collections" / "prices.html").read_text(encoding="utf-8")
            assert f"Updates are missing at {WAITS}" in page
            assert "tidelake explain prices --time 10" in page

        with me.step("send it again, and tick in the UI"):
            send(topic / "00.jsonl", 8, LOST)
            assert ui.run("tick", TICK) == "SUCCESS"
        with me.step("sealed again: check, status, explain"):
            numbers, checks = ui.asset("demo", "prices")
            assert numbers["upper"] == 11
            assert checks["frontier_moves"]["success"] is True
            assert "definite in [0, 11)" in " ".join(me.tidelake("status prices").split())
            explained = me.tidelake("explain prices --time 10")
            assert "time 10: sealed" in explained
            assert "3 announced, 3 counted" in explained
    total = sum(me.seconds.values())
    me.say("in total", total)
    assert total < SECONDS_MAX
