"""The pages' code starts sessions by itself; here it gets the session that every test shares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from pyspark.sql import SparkSession

from tests.docs.shell import link_checkout


@pytest.fixture
def one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """Every start of a session returns the session that exists, with its settings unchanged."""
    monkeypatch.setattr("tidelake.spark.session.start_session", lambda *_, **__: spark)
    monkeypatch.setattr("jobs.job.start_session", lambda *_, **__: spark)
    yield spark
    structlog.reset_defaults()  # a job's `main` made it write to the captured output of this test


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a checkout, so that commands work unchanged; the tour writes next to the links."""
    link_checkout(tmp_path)
    monkeypatch.delenv("TIDELAKE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path
