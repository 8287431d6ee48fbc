"""A folder that looks like a checkout, and a shell that runs a page's commands in it."""

from __future__ import annotations

import importlib
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.blocks import PROJECT, Block

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
    """Link the parts of a checkout into a folder."""
    for name in _IN_A_CHECKOUT:
        if (PROJECT / name).exists():
            (folder / name).symlink_to(PROJECT / name)


def run_by_bash(folder: Path, text: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """Run a script in bash, which stops at the first command that fails."""
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


@dataclass(frozen=True)
class Ran:
    """The result of a command."""

    command: str
    status: int
    output: str


class Shell:
    """Runs commands as a shell would; the project's own commands run in this process, which already has a JVM."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.monkeypatch, self.capsys = folder, monkeypatch, capsys

    def run(self, command: str) -> Ran:
        """Run a command to completion."""
        words = shlex.split(command)
        if words[0] == "export":
            for name, value in (word.split("=", 1) for word in words[1:]):
                self.monkeypatch.setenv(name, value.replace("$PWD", str(self.folder)))
            return Ran(command, 0, "")
        if words[0] == ".venv/bin/tidelake":
            return self._called(command, "tidelake.cli", words[1:])
        if words[:2] == [".venv/bin/python", "-m"]:
            return self._called(command, words[2], words[3:])
        done = run_by_bash(self.folder, command)
        return Ran(command, done.returncode, done.stdout + done.stderr)

    def _called(self, command: str, module: str, arguments: list[str]) -> Ran:
        self.capsys.readouterr()
        self.monkeypatch.setattr(sys, "argv", [module, *arguments])
        try:
            status = importlib.import_module(module).main() or 0
        except SystemExit as end:
            status = int(end.code or 0)
        captured = self.capsys.readouterr()
        return Ran(command, status, captured.out + captured.err)


def write_file(folder: Path, block: Block) -> None:
    """Write a block that is the content of a file."""
    path = folder / block.remark
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text, encoding="utf-8")
