"""Pathway with persistence, in its own environment: a process that times itself."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks.measure import Measured
from benchmarks.peers.places import BUILT, HINT

PYTHON = BUILT / "pathway" / "bin" / "python"
WHY_ABSENT = f"its environment does not exist: {HINT}"
_PROGRAM = Path(__file__).parent / "run.py"
_TIMEOUT_S = 300.0


def write_input(updates: DataFrame, folder: Path) -> None:
    """Write decoded updates as JSON lines, which Pathway parses itself.

    Columns are renamed, because Pathway reserves the names `id` and `time`.
    """
    renamed = updates.withColumnsRenamed({"id": "key", "_time": "at", "_diff": "change"})
    scratch = folder.with_name(f"{folder.name}-scratch")
    renamed.coalesce(2).write.json(str(scratch))
    folder.mkdir()
    for file in scratch.glob("*.json"):
        file.replace(folder / file.name)
    shutil.rmtree(scratch)


def ingest(source: Path, folder: Path) -> Measured:
    """Read everything into a CSV file, with persistence, starting from an empty state."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    done = subprocess.run(
        [str(PYTHON), str(_PROGRAM), str(source), str(folder)],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    counters = json.loads(done.stdout.splitlines()[-1])
    written = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return Measured(**counters, bytes_written=written)
