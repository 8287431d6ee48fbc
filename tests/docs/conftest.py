"""The code on the pages starts sessions; here it gets the session that all tests share instead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from pyspark.sql import SparkSession

from tests.docs.shell import link_checkout


@pytest.fixture
def one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """Every start of a session returns the existing session, with its settings unchanged."""
    monkeypatch.setattr("tidelake.spark.session.start_session", lambda *_, **__: spark)
    monkeypatch.setattr("jobs.job.start_session", lambda *_, **__: spark)
    yield spark
    structlog.reset_defaults()  # a job's `main` has directed its log to the captured output of this test


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a checkout, so that commands work unchanged; what they write stays in this folder."""
    link_checkout(tmp_path)
    monkeypatch.delenv("TIDELAKE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path
