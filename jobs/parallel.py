"""Works on several collections at a time, in threads that share one Spark session."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from pyspark import InheritableThread
from pyspark.sql import SparkSession

_GRACE_S = 5.0
"""How long the work on a collection may continue after its jobs were cancelled, before its result is ignored."""


@dataclass(frozen=True)
class TimedOut:
    """A collection whose work took too long; its Spark jobs were cancelled."""

    seconds: float
    """The limit."""


@dataclass
class _Running:
    """The work on one collection, in a thread of its own."""

    cancel_at_s: float
    """When its jobs are cancelled, by the monotonic clock."""
    is_cancelled: bool = False


def for_each(
    spark: SparkSession,
    names: Sequence[str],
    work: Callable[[str], None],
    threads: int = 1,
    limit_s: float | None = None,
) -> Iterator[tuple[str, TimedOut | None]]:
    """Work on each collection, and yield its name when its work has ended.

    Each thread has a pool of Spark's fair scheduler to itself, so that a large collection does not make small ones
    wait. With one thread and no limit, everything happens in the calling thread.

    Args:
        spark: the session of all threads.
        names: the collections, in the order in which they begin.
        work: works on a collection; handles its own errors. If it raises anyway, the iteration ends.
        threads: the maximum number of collections at a time.
        limit_s: if the work on a collection takes longer, its Spark jobs are cancelled. If the work still does not end,
            its thread is abandoned, and another collection begins.

    Yields:
        The name, and the `TimedOut` if the work took too long, or else None.
    """
    if threads == 1 and limit_s is None:
        for name in names:
            work(name)
            yield name, None
        return
    waiting, running = deque(names), dict[str, _Running]()
    ended: SimpleQueue[tuple[str, BaseException | None]] = SimpleQueue()
    while waiting or running:
        while waiting and len(running) < threads:
            name = waiting.popleft()
            running[name] = _Running(float("inf") if limit_s is None else time.monotonic() + limit_s)
            _start(spark, name, work, ended)
        try:
            name, error = ended.get(timeout=_until_next(running))
        except Empty:
            for name in _cancel(spark, running):
                del running[name]
                yield name, TimedOut(limit_s or 0.0)
            continue
        if name not in running:  # it was abandoned
            continue
        done = running.pop(name)
        if error is not None and not done.is_cancelled:
            raise error
        yield name, TimedOut(limit_s or 0.0) if done.is_cancelled else None


def _start(
    spark: SparkSession,
    name: str,
    work: Callable[[str], None],
    ended: SimpleQueue[tuple[str, BaseException | None]],
) -> None:
    context = spark.sparkContext

    def run() -> None:
        try:
            context.setLocalProperty("spark.scheduler.pool", name)
            context.setJobGroup(_group(name), f"the collection {name}", interruptOnCancel=True)
            work(name)
        except BaseException as error:
            ended.put((name, error))
        else:
            ended.put((name, None))

    # A daemon: a thread that hangs does not keep the process from ending.
    InheritableThread(target=run, session=spark, name=f"collection {name}", daemon=True).start()


def _group(name: str) -> str:
    return f"tidelake {name}"


def _until_next(running: dict[str, _Running]) -> float | None:
    """Return the seconds until the next time limit of a running collection; None if there is none."""
    next_s = min(work.cancel_at_s + (_GRACE_S if work.is_cancelled else 0.0) for work in running.values())
    return None if next_s == float("inf") else max(0.0, next_s - time.monotonic())


def _cancel(spark: SparkSession, running: dict[str, _Running]) -> list[str]:
    """Cancel the jobs of collections that take too long; return those that continue although they were cancelled."""
    now_s, abandoned = time.monotonic(), []
    for name, work in running.items():
        if now_s >= work.cancel_at_s + _GRACE_S:
            abandoned.append(name)
        elif now_s >= work.cancel_at_s and not work.is_cancelled:
            work.is_cancelled = True
            spark.sparkContext.cancelJobGroup(_group(name))
    return abandoned
