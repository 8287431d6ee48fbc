"""Work on several collections at a time: the result is as if in sequence, and no collection keeps others waiting."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import tick
from jobs.job import Report
from jobs.parallel import TimedOut, for_each
from tests.lakes.dagster_lakes import Lakes
from tests.lakes.lake import progress, updates
from tidelake.errors import TookTooLong
from tidelake.lake import Lake
from tidelake.settings.lake import Settings, load_settings
from tidelake.store.failpoints import on_reach

pytestmark = pytest.mark.spark

NAMES = ("four", "one", "three", "two")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The settings of four collections with two times each, and a broken message in `two`."""
    lakes = Lakes(tmp_path, dict.fromkeys(NAMES, "plain"))
    for name in NAMES:
        lakes.send(name, updates((1, 1, 1), (2, 2, 1)), progress([0], [3], {1: 1, 2: 1}))
    lakes.send("two", b"\x07 garbage")
    return lakes.config


@pytest.fixture(autouse=True)
def reset() -> Iterator[None]:
    yield
    on_reach(None)


def settings_of(file: Path, **values: int) -> Settings:
    return load_settings(file).model_copy(update=values)


def uppers(file: Path) -> dict[str, int | None]:
    found = Lake.open(file).status()
    return {name: getattr(status, "upper", None) for name, status in found.items()}


def test_threads_give_the_same_result_as_one_after_the_other(file: Path, spark: SparkSession) -> None:
    threads: set[str] = set()
    on_reach(lambda _: threads.add(threading.current_thread().name))
    report = tick.run(spark, settings_of(file, parallel=3))
    assert report.ok
    assert list(report.results) == list(NAMES)
    assert all(list(results) == list(tick.STEPS) for results in report.results.values())
    assert report.results["two"]["ingest"].quarantined == 1
    assert uppers(file) == dict.fromkeys(NAMES, 3)
    assert threads == {f"collection {name}" for name in NAMES}


@pytest.mark.sweep
def test_a_collection_that_hangs_is_reported_and_does_not_keep_others_waiting(
    file: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.parallel._GRACE_S", 0.5)
    go_on = threading.Event()

    def hang(_: str) -> None:
        if threading.current_thread().name == "collection two":
            go_on.wait()

    on_reach(hang)
    try:
        report: Report = tick.run(spark, settings_of(file, parallel=2, collection_limit_s=20))
    finally:
        go_on.set()
    assert list(report.errors) == ["two"]
    assert isinstance(report.errors["two"], TookTooLong)
    assert report.errors["two"].fact == "ingest of 'two' was cancelled: the collection had not finished after 20 s"
    assert {name: upper for name, upper in uppers(file).items() if name != "two"} == {"one": 3, "three": 3, "four": 3}


def test_the_jobs_of_a_collection_that_takes_too_long_are_cancelled(spark: SparkSession) -> None:
    raised: list[str] = []

    def work(name: str) -> None:
        if name == "long":
            try:
                spark.range(10**7).crossJoin(spark.range(10**7)).selectExpr("sum(hash(*))").collect()
            except Exception as error:
                raised.append(str(error))
                raise

    ended = dict(for_each(spark, "store", ["long", "short"], work, threads=2, limit_s=2.0))
    assert ended == {"short": None, "long": TimedOut(2.0)}
    assert "cancelled" in raised[0]


def test_an_error_that_work_does_not_handle_ends_everything(spark: SparkSession) -> None:
    def work(name: str) -> None:
        raise LookupError(name)

    with pytest.raises(LookupError, match="one"):
        list(for_each(spark, "store", ["one"], work, threads=2))
