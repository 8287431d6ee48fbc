"""The demo runs as `make run` starts it, but with less data, and everything that it compares is equal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo.topics import CAPTURE, LARGE, PERSON, moments
from tests.captures.lake import moments as recorded_moments
from tests.captures.workload import RECORD
from tests.docs.blocks import PROJECT

TOPIC = "snapshots.public.people"


@pytest.mark.spark
def test_the_demo_finds_everything_equal_and_shows_no_spark_output(tmp_path: Path) -> None:
    folders = ["--folder", str(tmp_path / "demo"), "--home", str(tmp_path / "home")]
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--updates", "1000", *folders],
        cwd=PROJECT,
        env=os.environ | {"COLUMNS": "80", "PYTHONPATH": os.pathsep.join((str(PROJECT / "src"), str(PROJECT)))},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^all equal: 18 comparisons", done.stdout, flags=re.MULTILINE), done.stdout
    for name in ("prices", "people", *LARGE):
        assert len(re.findall(rf"^{name} .* equal *$", done.stdout, flags=re.MULTILINE)) == 3, name
    assert re.search(r"^collection +envelope +upper +stored +late +quarantine *$", done.stdout, flags=re.MULTILINE)
    assert "WARN" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "log4j" not in done.stderr


def test_the_capture_in_the_demo_is_the_recorded_one_and_is_small() -> None:
    recorded = PROJECT / "tests" / "captures" / "snapshots" / "topics" / TOPIC
    for partition in ("0", "1"):
        name = f"{partition}.jsonl.gz"
        assert (CAPTURE / name).read_bytes() == (recorded / name).read_bytes()
    noted = [
        {"offsets": moment["offsets"][TOPIC], "rows": moment["rows"]["people"]}
        for moment in recorded_moments("snapshots")
    ]
    assert moments() == noted
    assert PERSON["fields"] == RECORD["fields"]
    assert sum(file.stat().st_size for file in CAPTURE.iterdir()) < 200_000
