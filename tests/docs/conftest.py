"""The pages' code starts sessions by itself; here it gets the one that every test shares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from pyspark.sql import SparkSession

from tests.docs.shell import link_checkout


@pytest.fixture
def one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """Whoever starts a session gets the one that is there, with its settings as they are."""
    monkeypatch.setattr("tidelake.spark.session.start_session", lambda *_, **__: spark)
    monkeypatch.setattr("jobs.job.start_session", lambda *_, **__: spark)
    yield spark
    structlog.reset_defaults()  # a job's `main` has let it write to what this test captured


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What looks like a checkout, so that commands need not be changed; the tour writes beside the links."""
    link_checkout(tmp_path)
    monkeypatch.delenv("TIDELAKE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path
