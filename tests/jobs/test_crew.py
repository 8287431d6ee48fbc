"""Threads for work on collections: how many there are, and what happens to one that hangs. No JVM is started."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from jobs import parallel
from jobs.job import timed_out
from jobs.parallel import Crew, TimedOut, abandoned, for_each

_NO_SESSION = cast(SparkSession, None)
"""Stands for the session, which is needed only with several threads or with a time limit."""


class Hanging:
    """Work that hangs until it is told to go on."""

    def __init__(self) -> None:
        self.goes_on, self.woke = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.goes_on.wait()
        self.woke.set()


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    monkeypatch.setattr("jobs.parallel._GRACE_S", 0.05)
    work = Hanging()
    yield work
    work.goes_on.set()


@contextmanager
def crew_of(threads: int, store: str = "store") -> Iterator[Crew]:
    with Crew(store, threads, 0.5) as crew:
        yield crew


def ended(crew: Crew) -> list[tuple[str, TimedOut | None]]:
    found: list[tuple[str, TimedOut | None]] = []
    while crew.is_at_work:
        crew.wait()
        found += crew.ended()
    return found


def test_a_collection_that_hangs_gives_its_place_to_the_next(hanging: Hanging) -> None:
    with crew_of(1, "first") as crew:
        crew.start("hangs", hanging)
        crew.start("next", lambda: None)
        assert ended(crew) == [("hangs", TimedOut(0.5)), ("next", None)]


def test_nothing_begins_on_a_collection_whose_abandoned_thread_lives(hanging: Hanging) -> None:
    begun: list[str] = []
    with crew_of(2) as crew:
        crew.start("hangs", hanging)
        ended(crew)
        threads = threading.active_count()
        for _ in range(5):
            crew.start("hangs", lambda: begun.append("in vain"))
            crew.start("other", lambda: begun.append("other"))
            assert {name: late is None for name, late in ended(crew)} == {"hangs": False, "other": True}
        assert begun == ["other"] * 5
        assert threading.active_count() <= threads + 1  # plus the thread of `other`
        with crew_of(1) as another:
            another.start("hangs", lambda: begun.append("in vain"))
            (found,) = ended(another)
        name, late = found
        assert late is not None
        assert re.fullmatch(
            r"tick of 'hangs' did not begin: an earlier thread, begun \d+ s ago, still works on the collection",
            timed_out(late, "tick", name).fact,
        )
        assert [late is None for _, late in for_each(_NO_SESSION, "store", ["hangs"], begun.append)] == [False]
        assert [late is None for _, late in for_each(_NO_SESSION, "another", ["hangs"], begun.append)] == [True]
        hanging.goes_on.set()
        assert hanging.woke.wait(10.0)
        while abandoned("store", "hangs") is not None:
            time.sleep(0.01)
        crew.start("hangs", lambda: begun.append("again"))
        assert ended(crew) == [("hangs", None)]
    assert begun == ["other"] * 5 + ["hangs", "again"]


@pytest.mark.parametrize("has_earlier", [False, True], ids=["the first", "after one that woke up"])
def test_work_that_is_abandoned_while_another_thread_asks_for_it_is_not_forgotten(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch, has_earlier: bool
) -> None:
    asked, stored = threading.Event(), threading.Event()

    class Slow(dict[tuple[str, str], parallel._Job]):
        """A dictionary whose lookups are so slow that other work may be stored during one."""

        def get(self, key: Any, default: Any = None) -> Any:
            found = super().get(key, default)
            asked.set()
            stored.wait(0.3)
            return found

        def __setitem__(self, key: tuple[str, str], job: parallel._Job) -> None:
            super().__setitem__(key, job)
            stored.set()

    asks = threading.Thread(target=abandoned, args=("store", "hangs"))
    with Crew("store", 1, 0.05) as crew:
        crew.start("hangs", hanging)
        crew.wait()
        assert list(crew.ended()) == []  # the work counts as cancelled, but continues
        earlier = {("store", "hangs"): parallel._Job("hangs", hanging, is_over=True)}
        monkeypatch.setattr(parallel, "_abandoned", Slow(earlier if has_earlier else {}))
        asks.start()
        assert asked.wait(10.0)
        assert ended(crew) == [("hangs", TimedOut(0.05))]
        asks.join(10.0)
    assert abandoned("store", "hangs") is not None


def test_threads_are_used_again_and_end_with_the_crew() -> None:
    before = set(threading.enumerate())
    with crew_of(3) as crew:
        for _ in range(4):
            for name in ("a", "b", "c", "d", "e"):
                crew.start(name, lambda: None)
            assert {name for name, late in ended(crew) if late is None} == {"a", "b", "c", "d", "e"}
        own = set(threading.enumerate()) - before
        assert len(own) <= 3
    for thread in own:
        thread.join(10.0)
        assert not thread.is_alive()


def test_an_error_of_the_work_is_raised() -> None:
    def work() -> None:
        raise LookupError("its own bug")

    with crew_of(1) as crew:
        crew.start("bug", work)
        with pytest.raises(LookupError, match="its own bug"):
            ended(crew)
