"""A lingering run: messages that arrive are sealed while it polls, and unresolved errors are in its report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.job import Report
from jobs.linger import linger
from tests.cli.commands import invoke
from tests.lakes.dagster_lakes import Lakes
from tests.lakes.lake import progress, updates
from tests.lakes.places import Stores
from tests.sweeps import swept
from tidelake.catalog.catalog import Catalog
from tidelake.errors import DamagedTable, OptionRefused, TookTooLong
from tidelake.lake import Lake
from tidelake.settings.lake import load_settings
from tidelake.store.failpoints import on_reach
from tidelake.store.layout import Store
from tidelake.topic.files import FileTopic

_WAIT_S = 60.0


def wait_for(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < end_s, "waited too long"
        time.sleep(0.1)


@contextmanager
def lingering(spark: SparkSession, lakes: Lakes, **more: int) -> Iterator[list[Report]]:
    """Linger until the block ends; afterwards the list has the report."""
    reports: list[Report] = []
    settings, ends = load_settings(lakes.config).model_copy(update=more), threading.Event()
    staying = threading.Thread(target=lambda: reports.append(linger(spark, settings, 3600.0, ends=ends)))
    staying.start()
    try:
        yield reports
    finally:
        ends.set()
        staying.join(_WAIT_S)
    assert len(reports) == 1


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.linger.MAINTAIN_S", 2.0)
    monkeypatch.setattr("jobs.linger.AGAIN_S", 1.0)


@pytest.mark.spark
def test_new_messages_are_sealed_while_the_run_lingers(tmp_path: Path, spark: SparkSession) -> None:
    lakes = Lakes(tmp_path, {"prices": "plain", "visits": "plain"})
    lakes.send("prices", updates((1, 1, 1)), progress([0], [2], {1: 1}))
    with lingering(spark, lakes) as reports:
        wait_for(lambda: uppers(lakes) == (2, 0))
        lakes.send("visits", updates((5, 1, 1)), progress([0], [3], {1: 1}))
        wait_for(lambda: uppers(lakes) == (2, 3))
        lakes.send("prices", updates((2, 3, 1)), progress([2], [4], {3: 1}), skip=2)  # offsets 2 and 3 are missing
        time.sleep(2.0)
        lakes.send("visits", updates((6, 3, 1)), progress([3], [5], {3: 1}))
        wait_for(lambda: uppers(lakes) == (2, 5))
    (report,) = reports
    assert list(report.errors) == ["prices"]
    assert "offsets 2 to 3 are missing" in str(report.errors["prices"])
    assert set(report.results["visits"]) == {"ingest", "seal", "validate", "compact"}


@pytest.mark.spark
def test_a_collection_that_cannot_be_opened_stops_no_other_and_goes_on_once_it_can(
    tmp_path: Path, spark: SparkSession
) -> None:
    lakes = Lakes(tmp_path, {"prices": "plain", "visits": "plain"})
    for collection in load_settings(lakes.config).collections:
        Catalog(Store(tmp_path / "store")).open_or_create(collection.spec())
    handles = lakes.collection("prices").paths.handles.local
    handles.rename(tmp_path / "handles")
    for name in ("prices", "visits"):
        lakes.send(name, updates((1, 1, 1)), progress([0], [2], {1: 1}))
    report = linger(spark, load_settings(lakes.config), 0.0)
    assert list(report.errors) == ["prices"]
    assert isinstance(report.errors["prices"], DamagedTable)
    assert uppers(lakes) == (None, 2)
    with lingering(spark, lakes) as reports:
        lakes.send("visits", updates((5, 2, 1)), progress([2], [3], {2: 1}))
        wait_for(lambda: uppers(lakes) == (None, 3))
        (tmp_path / "handles").rename(handles)
        wait_for(lambda: uppers(lakes) == (2, 3))
    assert reports[0].ok


@pytest.mark.spark
def test_a_collection_that_hangs_takes_one_thread_and_does_not_delay_the_others(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`visits` hangs in its ingest, and `pages` in a poll."""
    lakes = Lakes(tmp_path, {"pages": "plain", "prices": "plain", "visits": "plain"})
    for name, value in {"LIMIT_S": 8.0, "POLL_LIMIT_S": 5.0}.items():
        monkeypatch.setattr(f"jobs.linger.{name}", value)
    monkeypatch.setattr("jobs.parallel._GRACE_S", 0.2)
    lakes.send("prices", updates((1, 1, 1)), progress([0], [2], {1: 1}))
    lakes.send("visits", updates((1, 1, 1)), progress([0], [2], {1: 1}))
    goes_on, end_offsets = threading.Event(), FileTopic.end_offsets

    def hang(_: str) -> None:
        if threading.current_thread().name == "collection visits":
            goes_on.wait()

    def hang_in_polls(topic: FileTopic) -> dict[int, int]:
        if threading.current_thread().name == "poll pages":
            goes_on.wait()
        return end_offsets(topic)

    monkeypatch.setattr(FileTopic, "end_offsets", hang_in_polls)
    on_reach(hang)
    threads: list[int] = []
    try:
        with lingering(spark, lakes, parallel=2) as reports:
            for upper in (3, 4, 5):
                lakes.send("prices", updates((upper, upper - 1, 1)), progress([upper - 1], [upper], {upper - 1: 1}))
                wait_for(partial(is_sealed, lakes, upper))
                threads.append(sum(thread.name.startswith("collection ") for thread in threading.enumerate()))
    finally:
        goes_on.set()
        on_reach(None)
        for thread in threading.enumerate():
            if thread.name in ("collection visits", "poll pages"):
                thread.join(_WAIT_S)
    assert max(threads) <= 3
    (report,) = reports
    assert {name: error.fact for name, error in report.errors.items()} == {
        "pages": "poll of 'pages' was cancelled: the collection had not finished after 5 s",
        "visits": "ingest of 'visits' was cancelled: the collection had not finished after 8 s",
    }
    assert isinstance(report.errors["visits"], TookTooLong)
    assert set(report.results["prices"]) == {"ingest", "seal", "validate", "compact"}


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.sweep
def test_two_collections_on_s3_are_sealed_side_by_side_while_the_run_lingers(
    tmp_path: Path, spark: SparkSession, stores_by_kind: dict[str, Stores]
) -> None:
    lakes, rounds = Lakes(stores_by_kind["s3"].hold(tmp_path), {"prices": "plain", "visits": "plain"}), 3
    side_by_side, met = threading.Barrier(2, timeout=_WAIT_S), set[str]()

    def meet(place: str) -> None:
        thread = threading.current_thread().name
        if place == "ingest.before_write" and thread not in met:
            met.add(thread)
            side_by_side.wait()

    def send(time: int) -> None:
        for name, price in (("prices", 1), ("visits", 2)):
            rows = updates(((time, price), time, 1), ((-time, price), time, 1))
            lakes.send(name, rows, progress([time - 1], [time + 1], {time: 2}))

    send(1)
    on_reach(meet)
    try:
        with lingering(spark, lakes, parallel=2) as reports:
            for time in range(1, rounds + 1):
                if time > 1:
                    send(time)
                wait_for(partial(are_sealed, lakes, time + 1))
    finally:
        on_reach(None)
    assert met == {"collection prices", "collection visits"}
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith(("collection ", "poll "))]
    (report,) = reports
    assert report.errors == {}
    for name, price in (("prices", 1), ("visits", 2)):
        assert lakes.collection(name).paths.updates.root.startswith("s3://")
        assert set(report.results[name]) == {"ingest", "seal", "validate", "compact"}
        ids = [*range(-rounds, 0), *range(1, rounds + 1)]
        assert lakes.contents(spark, name, rounds) == {(id, price): 1 for id in ids}


def are_sealed(lakes: Lakes, upper: int) -> bool:
    """Whether both collections have this upper."""
    return uppers(lakes) == (upper, upper)


def is_sealed(lakes: Lakes, upper: int) -> bool:
    """Whether `prices` has this upper."""
    return uppers(lakes)[0] == upper


def uppers(lakes: Lakes) -> tuple[int | None, int | None]:
    """The `upper` of both collections; None before the first tick."""
    found = Lake.open(lakes.config).status()
    prices, visits = (getattr(found[name], "upper", None) for name in ("prices", "visits"))
    return prices, visits


@pytest.mark.parametrize("text", swept(["4", "4 minutes", "0s", "25h", "-1m"], ["4", "25h"]))
def test_a_duration_needs_a_unit_and_must_be_within_bounds(text: str, tmp_path: Path) -> None:
    with pytest.raises(OptionRefused, match=r"(but must be more than 0 s|which is not a number with one of the units)"):
        invoke("run", f"--linger={text}", "--config", str(tmp_path / "collections.yaml"))
