"""Whole process groups, with their JVMs, are killed at random moments."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import fastavro
import pytest
from pyspark.sql import SparkSession

from orchestration.settings import PROJECT
from tests.crash.harness import WAIT_MAX_S, Nursery, check_acknowledged, check_steps, said, state_of
from tests.crash.lives import KEEP
from tests.crash.pieces import pieces_of
from tests.crash.scenes import CYCLE
from tests.lakes.lake import RECORD, Lake
from tests.sweeps import seeds
from tidelake.schema.avro import cdcv2_schema

pytestmark = [pytest.mark.spark, pytest.mark.sweep, pytest.mark.usefixtures("any_store")]

KILLS = 5
"""The number of kills for each seed."""
DELAY_MAX_S = 15.0
"""A kill comes at most this long after the start of the session: about as long as the first round in a JVM takes."""


def kill_after(order: dict[str, object], delay_s: float, output: Path) -> None:
    """Start a run in its own process group, and kill the group `delay_s` seconds after its session has started."""
    words = Path(str(order["said"]))
    messages_before = len(said(words))
    with output.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.whole_run", json.dumps(order)],
            cwd=PROJECT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    end = time.monotonic() + WAIT_MAX_S
    while len(said(words)) == messages_before and time.monotonic() < end:
        assert process.poll() is None, output.read_text()[-2000:]
        time.sleep(0.05)
    time.sleep(delay_s)
    assert process.poll() is None, output.read_text()[-2000:]
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def updates_of(piece: list[bytes | None]) -> set[tuple[int, int, int, int | None]]:
    """The updates that a piece states, as `(time, diff, id, price)`."""
    schema = fastavro.parse_schema(cdcv2_schema(RECORD))
    messages = [
        fastavro.schemaless_reader(io.BytesIO(value), schema) for value in piece if value not in (None, b"\x07")
    ]
    return {
        (update["time"], update["diff"], update["data"]["id"], update["data"]["price"])
        for batch in messages
        if isinstance(batch, list)
        for update in batch
    }


@pytest.mark.parametrize("seed", seeds())
def test_kills_at_random_moments_change_nothing(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, seed: int
) -> None:
    rng = Random(seed)
    pieces = pieces_of(seed, KILLS)
    killed, whole = (Lake(tmp_path / name, spark, keep=KEEP) for name in ("killed", "whole"))
    orders = {
        lake: {"config": str(lake.file), "said": str(tmp_path / f"{lake.root.name}.jsonl"), "steps": CYCLE}
        for lake in (killed, whole)
    }
    for piece in pieces:
        killed.send(*piece)
        delay_s = rng.uniform(0, DELAY_MAX_S)
        print(f"killed {delay_s:.2f} s after the session had started")
        kill_after(orders[killed] | {"rounds": 1000}, delay_s, tmp_path / "killed.log")
        whole.send(*piece)
        assert nursery.run(orders[whole]) == 0
    before = len(said(tmp_path / "killed.jsonl"))
    assert nursery.run(orders[killed]) == 0
    words = said(tmp_path / "killed.jsonl")
    check_steps(words[before:])
    check_acknowledged(killed, words)
    # Which copies came late depends on how far a seal got before a kill. Nothing else may differ.
    states = [state_of(lake) for lake in (killed, whole)]
    late = [{row[:4] for row in state.pop("late")} for state in states]
    assert states[0] == states[1]
    assert late[0] <= {update for piece in pieces for update in updates_of(piece)}
