"""A change during a run of a job stops only the collection that the change concerns. No JVM is started."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from jobs.job import Report
from jobs.tick import CollectionRun, run_steps
from tests.lakes.shared_times import SharedTimes
from tidelake.errors import CollectionRenamed, ConfigurationError, TookTooLong
from tidelake.settings.lake import Settings

_NO_SESSION = cast(SparkSession, None)
"""Seal needs no session for a collection without rows."""


class _Once:
    """Calls a function when the first step begins: the settings have been checked by then."""

    def __init__(self, change: Callable[[], None] | None) -> None:
        self.change = change

    def begins(self, step: str, name: str) -> None:
        if self.change is not None:
            self.change()
            self.change = None

    def ended(self, step: str, name: str, result: Any) -> None:
        pass


def lake_of_three(root: Path) -> tuple[SharedTimes, Settings]:
    lake = SharedTimes(root, first={}, second={}, third={})
    return lake, lake.lake.settings


def test_a_topic_that_vanishes_during_a_run_stops_only_its_collection(tmp_path: Path) -> None:
    _, settings = lake_of_three(tmp_path)
    report = run_steps(_NO_SESSION, settings, ["seal"], _Once(lambda: shutil.rmtree(tmp_path / "topics" / "second")))
    assert list(report.errors) == ["second"]
    assert isinstance(report.errors["second"], ConfigurationError)
    assert [name for name, results in report.results.items() if "seal" in results] == ["first", "third"]


def test_a_collection_that_is_renamed_during_a_run_stops_alone(tmp_path: Path) -> None:
    lake, settings = lake_of_three(tmp_path)
    renames = _Once(lambda: lake.lake.rename("second", "other"))
    report = run_steps(_NO_SESSION, settings, ["seal"], renames)
    assert list(report.errors) == ["second"]
    assert isinstance(report.errors["second"], CollectionRenamed)
    assert set(report.results["third"]) == {"seal"}


def test_wrong_settings_stop_a_run_before_anything_begins(tmp_path: Path) -> None:
    _, settings = lake_of_three(tmp_path)
    shutil.rmtree(tmp_path / "topics" / "third")
    begun: list[None] = []
    with pytest.raises(ConfigurationError, match="the topic 'third' has no folder"):
        run_steps(_NO_SESSION, settings, ["seal"], _Once(lambda: begun.append(None)))
    assert begun == []


def test_steps_that_were_given_up_end_after_the_step_that_hung(tmp_path: Path) -> None:
    _, settings = lake_of_three(tmp_path)
    hangs, goes_on, begun = threading.Event(), threading.Event(), list[str]()

    def hang(spark: SparkSession, settings: Settings) -> Report:
        hangs.set()
        goes_on.wait()
        return Report("ingest", {"first": "too late"})

    def seal(spark: SparkSession, settings: Settings) -> Report:
        begun.append("seal")
        return Report("seal")

    run = CollectionRun("first")
    thread = threading.Thread(target=run.run, args=(_NO_SESSION, settings, {"ingest": hang, "seal": seal}, _Once(None)))
    thread.start()
    assert hangs.wait(10.0)
    run.stop(TookTooLong(run.step, "first", "limit", "was cancelled"))
    goes_on.set()
    thread.join(10.0)
    assert (begun, run.results, run.step) == ([], {}, "ingest")
    assert isinstance(run.error, TookTooLong)
