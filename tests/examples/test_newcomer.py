"""A newcomer's path, from the clone to a lost message that is named, found and sealed again, in less than ten minutes.

The packages and jars are linked instead of installed: how long that takes depends on the network. The demo has a tenth
of its data, since sweeps share the machine. The commands are those of the README and the Makefile, in processes of
their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from tests.docs.blocks import PROJECT
from tests.orchestration.ui import dagster_ui, free_port
from tidelake.codec.avro import AvroCodec
from tidelake.protocol.message import Progress, Updates

SECONDS_MAX = 600.0
DEMO = Path("data") / "demo"
TICK = {"resources": {"run_demo": {"config": {"compact": True, "collections": ["orders"]}}}}
GENERATE = (
    "generate orders --append --topics data/demo/topics --out data/demo --seed 1 --updates 400 --times 20 "
    "--empty-times 0 --updates-per-message 10"
)


class Newcomer:
    """Somebody with a clone, a shell and a watch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[str, float] = {}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDELAKE_", "DAGSTER_"))}
        kept.pop("JDK_JAVA_OPTIONS", None)  # the tests' own
        # The linked packages were installed from another checkout, whose sources must not be used.
        self.environment = kept | {"PYTHONPATH": f"{folder / 'src'}:{folder}", "TIDELAKE_CONFIG": ""}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure a step."""
        started = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - started

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
        """Run a command of `tidelake` on the demo's lake."""
        self.environment["TIDELAKE_CONFIG"] = str(DEMO / "collections.yaml")
        return self.run(".venv/bin/python", "-m", "tidelake.cli", *arguments.split(), status=status)


def clone(folder: Path) -> None:
    """Clone the project, and link the packages and jars of this checkout."""
    subprocess.run(["git", "clone", "--quiet", str(PROJECT), str(folder)], check=True)
    for name in (".venv", ".jars"):
        (folder / name).symlink_to((PROJECT / name).resolve())


def lose_first_updates(file: Path) -> pa.Table:
    """Remove the first message with updates from a file of a topic, as if it had never been sent; return its row."""
    rows = pq.read_table(file)
    lost = next(number for number, value in enumerate(rows["value"].to_pylist()) if value[:1] == b"\0")
    row = rows.slice(lost, 1)
    later = pc.greater(rows["offset"], row["offset"][0])  # the file has one partition
    offsets = pc.subtract(rows["offset"], later.cast(pa.int64()))
    kept = rows.set_column(rows.schema.get_field_index("offset"), rows.schema.field("offset"), offsets)
    pq.write_table(pa.concat_tables([kept.slice(0, lost), kept.slice(lost + 1)]), file)
    return row


def numbers_at(time: int, file: Path, schema: Path) -> tuple[int, int]:
    """The number of updates that a file of a topic announces for a time, and the number that it has."""
    codec = AvroCodec(json.loads(schema.read_text(encoding="utf-8")))
    announced = here = 0
    for message in map(codec.decode, pq.read_table(file, columns=["value"])["value"].to_pylist()):
        if isinstance(message, Updates):
            here += sum(at == time for _, at, _ in message.batch)
        elif isinstance(message, Progress):
            announced = message.counts.get(time, announced)
    return announced, here


def send_again(file: Path, row: pa.Table, offset: int) -> None:
    """Write a message to a new file of its topic."""
    at = pa.array([offset], pa.int64())
    pq.write_table(row.set_column(row.schema.get_field_index("offset"), row.schema.field("offset"), at), file)


@pytest.mark.sweep
@pytest.mark.spark
@pytest.mark.skipif(not (PROJECT / ".git").exists(), reason="this checkout was not made by git, so it has no clone")
def test_a_newcomer_finds_and_mends_a_lost_message_in_less_than_ten_minutes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    me = Newcomer(tmp_path / "tidelake")
    with me.step("git clone"):
        clone(me.folder)
    with me.step("make run: the main job"):
        assert "all equal" in me.run("make", "--assume-old=setup", "run", "UPDATES=10000")
    config = me.folder / DEMO / "collections.yaml"
    document = yaml.safe_load(config.read_text(encoding="utf-8"))
    document["collections"]["orders"]["stalled_after_s"] = 5  # warn after seconds, not after a day
    config.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")

    port = free_port()
    command = ["make", "--assume-old=setup", "ui", f"PORT={port}"]
    with ExitStack() as running:
        with me.step("make ui: until the assets are there"):
            ui = running.enter_context(dagster_ui(command, port, tmp_path / "ui.log", me.folder, me.environment))
        numbers, checks = ui.asset("demo", "orders")
        assert numbers["upper"] == 1_000
        assert checks["announced_is_recounted"]["success"] is True

        with me.step("lose a message, and tick in the UI"):
            topic = me.folder / DEMO / "topics" / "orders"
            before = set(topic.iterdir())
            me.tidelake(GENERATE)
            (added,) = set(topic.iterdir()) - before
            lost = lose_first_updates(added)
            announced, here = numbers_at(1_000, added, me.folder / DEMO / "orders.avsc")
            waits = f"time 1000: {announced} announced, {here} here"
            assert announced > here
            assert ui.run("tick", TICK) == "SUCCESS"
        with me.step("the asset's check"):
            numbers, checks = ui.asset("demo", "orders")
            assert (numbers["upper"], numbers["waiting_for"][:9]) == (1_000, "time 1000")
            check = checks["frontier_moves"]
            assert (check["success"], check["severity"]) == (False, "WARN")
            assert check["metadata"]["evidence"] == f"upper waits at {waits}"
        with me.step("tidelake status"):
            assert f"orders: waits at {waits}" in " ".join(me.tidelake("status orders", status=1).split())
        with me.step("tidelake explain"):
            explained = me.tidelake("explain orders")
            assert "orders, time 1000: waiting" in explained
            assert f"{waits.partition(': ')[2]}: {announced - here} updates are missing" in explained
        with me.step("tidelake validate --full: the report"):
            me.tidelake("validate orders --full")
            page = (me.folder / DEMO / "data_docs" / "collections" / "orders.html").read_text(encoding="utf-8")
            assert f"Updates are missing at {waits}" in page
            assert "tidelake explain orders --time 1000" in page

        with me.step("send it again, and tick in the UI"):
            offsets = pq.read_table(added, columns=["offset"])["offset"]
            send_again(added.with_name("part-99999.parquet"), lost, pc.max(offsets).as_py() + 1)
            assert ui.run("tick", TICK) == "SUCCESS"
        with me.step("sealed again: check, status, explain"):
            numbers, checks = ui.asset("demo", "orders")
            assert numbers["upper"] == 1_020
            assert checks["frontier_moves"]["success"] is True
            assert "definite from 0 to before 1020" in " ".join(me.tidelake("status orders").split())
            explained = me.tidelake("explain orders --time 1000")
            assert "time 1000: sealed" in explained
            assert f"{announced} announced, {announced} counted" in explained
    total = sum(me.seconds.values())
    with capsys.disabled():
        print()
        for name, seconds in (*me.seconds.items(), ("in total", total)):
            print(f"{seconds:7.1f} s  {name}")
    assert total < SECONDS_MAX
