"""Works on several collections at a time, in threads that share one Spark session."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

from pyspark import InheritableThread
from pyspark.sql import SparkSession

_GRACE_S = 5.0
"""How long work may continue after its Spark jobs were cancelled, before its thread is abandoned."""


@dataclass(frozen=True)
class TimedOut:
    """A collection whose work took too long; as text, the end of a sentence about its step."""

    seconds: float
    """The limit or, if the work of an earlier thread is not finished, how long ago that thread began."""
    is_earlier: bool = False
    """Whether nothing was begun, because an earlier thread still works on the collection."""

    def __str__(self) -> str:
        if self.is_earlier:
            return f"did not begin: an earlier thread, begun {self.seconds:.0f} s ago, still works on the collection"
        return f"was cancelled: the collection had not finished after {self.seconds:g} s"


@dataclass(eq=False)
class _Job:
    """The work on one collection."""

    name: str
    work: Callable[[], None]
    begun_s: float | None = None
    """When a thread began it, by the monotonic clock; None while it waits."""
    cancelled_s: float | None = None
    is_abandoned: bool = False
    is_over: bool = False
    """Whether its thread has returned from it."""


_abandoned: dict[tuple[str, str], _Job] = {}
"""By store and collection, the newest work of this process whose thread was abandoned."""
_abandoned_lock = threading.Lock()
"""Held while `_abandoned` is read or changed: every step on a collection looks there, each in its own thread."""


class Crew(AbstractContextManager["Crew"]):
    """Threads for work on collections: at most `threads` collections at a time, and at most one thread for each.

    If work takes longer than a limit, its Spark jobs are cancelled. If it still does not end, its thread is abandoned,
    and another one takes its place. As long as an abandoned thread lives, no work on its collection begins, in this
    crew or in any other of the process: a collection that hangs costs one thread, however often it is due. A thread
    that wakes up later does no harm: to the store it is one of two writers, and a commit succeeds only on top of the
    state that its writer has read.

    Only one thread may call the methods.
    """

    def __init__(
        self, store: object, threads: int, limit_s: float | None = None, spark: SparkSession | None = None
    ) -> None:
        """Start no thread yet.

        Args:
            store: where the collections' store is; it distinguishes collections with the same name.
            threads: the maximum number of collections at a time.
            limit_s: how long the work on a collection may take; None means as long as it takes.
            spark: the session, if the work uses it. Each collection then has a pool of Spark's fair scheduler to
                itself, so that a large collection does not make small ones wait.
        """
        self._store, self._limit_s, self._spark = str(store), limit_s, spark
        self._threads_max, self._threads = threads, 0
        self._jobs: dict[str, _Job] = {}
        self._refused: list[tuple[str, TimedOut]] = []
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._ended: SimpleQueue[tuple[_Job, BaseException | None]] = SimpleQueue()
        self._changed, self._lock, self._is_closed = threading.Event(), threading.Lock(), False

    def __exit__(self, *_: object) -> None:
        """Begin nothing more, and let the threads end."""
        self._is_closed = True
        for _number in range(self._threads):
            self._queue.put(None)

    @property
    def is_at_work(self) -> bool:
        """Whether there is work that has not ended and was not given up."""
        return bool(self._jobs or self._refused)

    def has(self, name: str) -> bool:
        """Whether work on a collection waits or is under way."""
        return name in self._jobs

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Begin work on a collection as soon as a thread is free; `has` must be false for it.

        Args:
            name: the name of the collection.
            work: handles its own errors. If it raises anyway, so does `ended`.
        """
        if (late := abandoned(self._store, name)) is not None:
            self._refused.append((name, late))
            return
        self._jobs[name] = job = _Job(name, work)
        self._queue.put(job)
        self._start_threads()

    def ended(self) -> Iterator[tuple[str, TimedOut | None]]:
        """Yield each collection whose work has ended or was given up since the last call.

        Yields:
            The name, and the `TimedOut` if the work took too long, or else None.
        """
        while self._refused:
            yield self._refused.pop()
        while not self._ended.empty():
            job, error = self._ended.get()
            if job.is_abandoned:
                continue
            del self._jobs[job.name]
            if error is not None and job.cancelled_s is None:
                raise error
            yield job.name, None if job.cancelled_s is None else TimedOut(self._limit_s or 0.0)
        for job in [job for job in self._jobs.values() if self._is_given_up(job)]:
            del self._jobs[job.name]
            with _abandoned_lock:
                _abandoned[self._store, job.name] = job
            self._threads -= 1
            yield job.name, TimedOut(self._limit_s or 0.0)
        self._start_threads()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until work has ended or takes too long, but for at most `seconds`, if given."""
        self._changed.wait(min((each for each in (seconds, self._due_s()) if each is not None), default=None))
        self._changed.clear()

    def _due_s(self) -> float | None:
        """Return in how many seconds `ended` must be called although no work has ended; None if it need not be.

        It must be called at once if refused work is to be reported, and otherwise when a limit passes.
        """
        if self._refused:
            return 0.0
        if self._limit_s is None or not self._jobs:
            return None
        now_s = time.monotonic()
        return max(0.0, min(self._give_up_s(job, now_s, self._limit_s) for job in self._jobs.values()) - now_s)

    @staticmethod
    def _give_up_s(job: _Job, now_s: float, limit_s: float) -> float:
        """Return when work is to be cancelled or, after that, abandoned; work that waits counts as begun now."""
        return job.cancelled_s + _GRACE_S if job.cancelled_s is not None else (job.begun_s or now_s) + limit_s

    def _start_threads(self) -> None:
        while self._threads < min(self._threads_max, len(self._jobs)):
            self._threads += 1
            # A daemon: a thread that hangs does not keep the process from ending.
            if self._spark is None:
                threading.Thread(target=self._work, daemon=True).start()
            else:
                InheritableThread(target=self._work, session=self._spark, daemon=True).start()

    def _work(self) -> None:
        while (job := self._queue.get()) is not None and not self._is_closed:
            raised: BaseException | None = None
            threading.current_thread().name = f"{'poll' if self._spark is None else 'collection'} {job.name}"
            job.begun_s = time.monotonic()
            try:
                if self._spark is not None:
                    self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", job.name)
                    description = f"the collection {job.name}"
                    self._spark.sparkContext.setJobGroup(_group(job.name), description, interruptOnCancel=True)
                job.work()
            except BaseException as error:
                raised = error
            with self._lock:
                job.is_over = True
            self._ended.put((job, raised))
            self._changed.set()
            if job.is_abandoned:  # another thread has taken its place
                return

    def _is_given_up(self, job: _Job) -> bool:
        """Cancel the Spark jobs of work that takes too long.

        If the work still continues after the grace period, abandon its thread and return true.
        """
        now_s = time.monotonic()
        if self._limit_s is None or job.begun_s is None or now_s < job.begun_s + self._limit_s:
            return False
        if job.cancelled_s is None:
            job.cancelled_s = now_s
            if self._spark is not None:
                self._spark.sparkContext.cancelJobGroup(_group(job.name))
        if now_s < job.cancelled_s + _GRACE_S:
            return False
        with self._lock:
            job.is_abandoned = not job.is_over
        return job.is_abandoned


def abandoned(store: object, name: str) -> TimedOut | None:
    """Return how long ago the abandoned work on a collection was begun; None if no abandoned thread works on it."""
    key = str(store), name
    with _abandoned_lock:
        job = _abandoned.get(key)
        if job is None:
            return None
        if job.is_over:
            del _abandoned[key]
            return None
    return TimedOut(time.monotonic() - (job.begun_s or 0.0), is_earlier=True)


def for_each(
    spark: SparkSession,
    store: object,
    names: Sequence[str],
    work: Callable[[str], None],
    threads: int = 1,
    limit_s: float | None = None,
) -> Iterator[tuple[str, TimedOut | None]]:
    """Work on each collection, and yield its name when its work has ended or was given up.

    With one thread and no limit, everything happens in the calling thread; otherwise see `Crew`.

    Args:
        spark: the session of all threads.
        store: where the collections' store is.
        names: the collections, in the order in which they begin.
        work: works on a collection; handles its own errors. If it raises anyway, the iteration ends.
        threads: the maximum number of collections at a time.
        limit_s: how long the work on a collection may take.

    Yields:
        The name, and the `TimedOut` if the work took too long, or else None.
    """
    if threads == 1 and limit_s is None:
        for name in names:
            late = abandoned(store, name)
            if late is None:
                work(name)
            yield name, late
        return
    with Crew(store, threads, limit_s, spark) as crew:
        for name in names:
            crew.start(name, partial(work, name))
        while crew.is_at_work:
            crew.wait()
            yield from crew.ended()


def _group(name: str) -> str:
    return f"tidelake {name}"
