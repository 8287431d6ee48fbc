"""Instances as `make ui` has them, and lakes with as many collections as a test asks for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import DagsterInstance

from orchestration.settings import PROJECT
from tests.orchestration.lakes import Lakes


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    """A real instance on SQLite, with the project's own settings."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(PROJECT / "orchestration" / "dagster.yaml", home / "dagster.yaml")
    with DagsterInstance.from_config(str(home)) as real:
        yield real


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    """A plain and an append-only collection on empty topics."""
    return Lakes(tmp_path / "lakes", {"prices": "plain", "visits": "append_only"})
