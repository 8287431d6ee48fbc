"""Runs commands of `tidelake` for tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from click.testing import Result
from typer.testing import CliRunner

from tidelake.cli.app import app
from tidelake.errors import TidelakeError

TIDELAKE = [sys.executable, "-m", "tidelake.cli"]


def run(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in its own process."""
    called = [*TIDELAKE, *map(str, arguments)]
    return subprocess.run(called, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def call(*arguments: str) -> str:
    """Run the command in this process, with the Spark session of the tests; return standard output only."""
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def invoke(*arguments: str) -> Result:
    """Run the command in this process; the result has its exit status, standard output and standard error."""
    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, TidelakeError):
        raise result.exception
    return result
