"""The JVM's output goes to a file and, if its start fails, also to the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import PROJECT

pytestmark = pytest.mark.spark

_START = """
from pathlib import Path
from tidelake.spark import session
session.LOG = Path({log!r})
spark = session.start_session()
print(spark.range(3).count())
spark._jvm.java.lang.System.err.println("said later")
"""


def run(log: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _START.format(log=str(log))],
        env=os.environ | {"PYTHONPATH": str(PROJECT / "src")} | variables,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_sparks_output_goes_to_the_log_and_not_to_the_terminal(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "spark.log"
    done = run(log)
    assert (done.stdout, done.stderr, done.returncode) == ("3\n", "", 0)
    assert "incubator" in log.read_text(encoding="utf-8")
    assert "said later" in log.read_text(encoding="utf-8")


def test_a_jvm_that_does_not_start_says_why_on_the_terminal(tmp_path: Path) -> None:
    done = run(tmp_path / "spark.log", JAVA_TOOL_OPTIONS="-XX:+NoSuchOption")
    assert done.returncode != 0
    assert "NoSuchOption" in done.stderr
