"""A folder that looks like a checkout, and a shell that runs the text of a page in it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.docs.blocks import PROJECT

_IN_A_CHECKOUT = (
    ".venv",
    ".jars",
    "jobs",
    "src",
    "assets",
    "expectations",
    "orchestration",
    "examples",
    "pyproject.toml",
)


def link_checkout(folder: Path) -> None:
    """Link what a checkout has into a folder."""
    for name in _IN_A_CHECKOUT:
        if (PROJECT / name).exists():
            (folder / name).symlink_to(PROJECT / name)


def run_by_bash(folder: Path, text: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """Run a text as a script that stops at the first command that fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
