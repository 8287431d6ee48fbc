"""Ctrl-C: a command ends within two seconds, with status 130 and one line, and no collection reports an error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.commands import TIDELAKE
from tests.lakes.lake import Lake, progress, updates
from tests.sweeps import swept

ENDS_WITHIN_S = 2.0
LINE = "interrupted: committed work is kept, and the next run resumes from there\n"
_START = """
import sys, time
from tidelake.spark.interrupt import interruptible
with interruptible():
    print("ready", flush=True)
    {work}
"""


def interrupt(process: subprocess.Popen[str]) -> tuple[float, int, str, str]:
    """Send Ctrl-C; return how long the process took to end, its status, and its output."""
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, messages = process.communicate(timeout=60)
    return time.monotonic() - start, process.returncode, out, messages


@pytest.mark.parametrize("work", ["time.sleep(60)", "LOOP", "print(1 / 0 if not time.sleep(60) else 0)"])
def test_a_command_ends_whatever_it_is_doing(work: str) -> None:
    loop = "while True:\n        try:\n            time.sleep(60)\n        except BaseException:\n            pass"
    script = _START.format(work=work.replace("LOOP", loop))
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        took_s, status, _, messages = interrupt(process)
    assert (status, messages) == (130, LINE)
    assert took_s < ENDS_WITHIN_S


def test_outside_of_a_command_nothing_changes() -> None:
    script = (
        "import signal; from tidelake.spark.interrupt import interruptible, keep_handler\n"
        "before = signal.getsignal(signal.SIGINT)\n"
        "with interruptible(): pass\n"
        "keep_handler()\n"
        "print(signal.getsignal(signal.SIGINT) is before, signal.set_wakeup_fd(-1))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True -1\n"


@pytest.mark.spark
@pytest.mark.parametrize(
    "command",
    swept([[*TIDELAKE, "run"], [sys.executable, "-m", "jobs.ingest"]], [[*TIDELAKE, "run"]]),
    ids=["run", "job"],
)
def test_ctrl_c_during_an_ingest_ends_the_process_and_loses_nothing(
    tmp_path: Path, spark: SparkSession, command: list[str]
) -> None:
    lake = Lake(tmp_path, spark, messages_per_tick_max=1)
    lake.send(*(updates((time, time, 1)) for time in range(200)), progress([0], [200], dict.fromkeys(range(200), 1)))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipe, called = subprocess.PIPE, [*command, "--config", str(lake.file)]
    with subprocess.Popen(called, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        wait_for_a_commit(lake)
        took_s, status, out, messages = interrupt(process)
    assert status == 130, out + messages
    assert messages.endswith(LINE)
    assert "Traceback" not in messages
    assert "error" not in messages
    assert '"ok"' not in out
    assert took_s < ENDS_WITHIN_S
    lake.settings = lake.settings.model_copy(
        update={"collections": (lake.settings.collections[0].model_copy(update={"messages_per_tick_max": 1_000}),)}
    )
    assert lake.run().upper == 200
    assert sum(lake.contents(199).values()) == 200


def wait_for_a_commit(lake: Lake) -> None:
    """Wait until an ingest has written a file of rows, which it is about to commit or has committed."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if lake.store_folder.exists() and any(lake.store_folder.glob("c/*/updates/_run=*/**/*.parquet")):
            return
        time.sleep(0.1)
    raise AssertionError("no ingest has written anything")
