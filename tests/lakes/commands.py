"""Runs `tidelake resolve` on a lake."""

from __future__ import annotations

from typer.testing import CliRunner

from tests.lakes.dagster_lakes import Lakes
from tidelake.cli.app import app


def resolve(lakes: Lakes, kind: str, *arguments: str) -> None:
    result = CliRunner().invoke(app, ["resolve", kind, "prices", *arguments, "--config", str(lakes.config)])
    assert result.exit_code == 0, result.exception
