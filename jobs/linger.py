"""Keeps running for minutes after a tick: one warm session polls the topics, and ingests and seals what arrives."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from threading import Event

from pyspark.sql import SparkSession

from jobs.job import Report, stopped_by, timed_out
from jobs.lake import check_lake
from jobs.parallel import Crew, TimedOut, abandoned
from jobs.tick import STEPS, CollectionRun, Observer, OneAtATime, Step, ingest_at
from tidelake.catalog.catalog import Catalog
from tidelake.errors import TidelakeError
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.lake import Settings
from tidelake.store.layout import Store
from tidelake.topic.open import open_topics
from tidelake.topic.topic import Topic

POLL_S = 0.5
"""How long to wait between two polls of a collection's topics."""
AGAIN_S = 30.0
"""How long to wait before retrying a collection that has stopped, if no message has arrived since."""
MAINTAIN_S = 60.0
"""How often sealed times are validated, and their runs merged."""
LIMIT_S = 300.0
"""How long the work on a collection may take if the settings have no `collection_limit_s`."""
POLLERS = 16
"""Maximum number of collections polled at a time, for each source: slow brokers do not delay the polls of folders."""
POLL_LIMIT_S = 120.0
"""How long a poll may take. Kafka's three requests may each take `request_timeout_s`, by default 30 s."""
_LOOK_S = 0.05
"""How long to wait for a step to end before looking at the polls again."""
_SLOW_POLL_S = 2.0
"""After a poll that took longer than this, a collection rests for `AGAIN_S`: other collections need the pollers."""
_UNREACHABLE_S = 300.0
"""Used instead of `AGAIN_S` if the topics cannot be polled: an ingest would only keep a thread from other work."""


@dataclass
class _Watched:
    """A collection whose topics are polled. One thread at a time works on it or polls it."""

    settings: CollectionSettings
    run: CollectionRun
    """Its newest steps."""
    topics: Sequence[Topic] = ()
    ends: Mapping[str, Mapping[int, int]] | None = None
    """The ends of the topics before they were last ingested; None if they could not be looked up."""
    at_s: float = 0.0
    """When it was last ingested, by the monotonic clock."""
    stopped: bool = False
    """Whether the last steps stopped with an error."""
    has_news: bool = False
    """Whether the last poll found that it is time to ingest."""
    poll_at_s: float = 0.0
    """When it may be polled again."""
    wanted_ms: int | None = None
    """The time to mint at the next ingest, in milliseconds since 1970; None if nothing is to be ingested."""
    has_run: bool = False
    """Whether something has been sealed since the last validation and merge."""
    is_due: bool = False
    """Whether it is time for a validation and a merge."""

    def poll(self) -> None:
        """Find out whether it is time to ingest new messages, to move an idle `upper`, or to retry after an error."""
        begun_s = time.monotonic()
        ends, waited_s = self._ends(), begun_s - self.at_s
        if self.stopped:
            again_s = AGAIN_S if ends is not None else _UNREACHABLE_S
            self.has_news = waited_s >= again_s or ends not in (None, self.ends)
        else:
            idle_s = getattr(self.settings, "idle_upper_s", 0)
            self.has_news = ends != self.ends or 0 < idle_s <= waited_s
        now_s = time.monotonic()
        self.poll_at_s = now_s + (POLL_S if now_s - begun_s < _SLOW_POLL_S else AGAIN_S)

    def begin(self, store: Store) -> None:
        """Open the topics (if that fails, the earlier ones stay), and note where they end before they are ingested."""
        self.at_s = time.monotonic()
        try:
            stored = Catalog(store).get(self.settings.name)
            self.topics = open_topics(self.settings, stored.entry.decisions if stored is not None else ())
        finally:
            self.ends = self._ends()

    def _ends(self) -> Mapping[str, Mapping[int, int]] | None:
        try:
            return {topic.name: topic.end_offsets() for topic in self.topics}
        except Exception:  # ingest meets the same error, and reports it
            return None

    def steps(self) -> dict[str, Step]:
        """Return the steps that are to run now."""
        steps = {}
        if self.wanted_ms is not None:
            steps = {"ingest": ingest_at(self.wanted_ms), "seal": STEPS["seal"]}
        if self.is_due and self.has_run and not self.stopped:
            steps |= {step: STEPS[step] for step in ("validate", "compact")}
        return steps


def linger(
    spark: SparkSession,
    settings: Settings,
    seconds: float,
    observer: Observer | None = None,
    ends: Event | None = None,
) -> Report:
    """Run a tick of every collection, and then of each that has news, until the time is up.

    Messages are ingested and sealed as soon as a poll of the topics finds them. Sealed times are validated, and runs
    are merged, once a minute and at the end. At most `settings.parallel` collections are worked on at a time. A
    collection that fails is retried; one that exceeds its limit is reported, and left alone as long as its thread
    lives. Neither stops the others.

    Args:
        spark: the session.
        settings: the settings of the collections. Without `collection_limit_s`, the limit is `LIMIT_S`.
        seconds: how long to poll; steps that have begun are finished, within the limit.
        observer: is notified of each step.
        ends: ends the run early, once it is set.

    Returns:
        A report that has, for each collection, the newest result of each step, and the error, if it still applies.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    check_lake(settings)
    limit_s = settings.collection_limit_s or LIMIT_S
    sources: set[str] = {collection.source for collection in settings.collections}
    with ExitStack() as crews:
        workers = crews.enter_context(Crew(settings.store, settings.parallel, limit_s, spark))
        pollers = {source: crews.enter_context(Crew(settings.store, POLLERS, POLL_LIMIT_S)) for source in sources}
        lingering = _Lingering(spark, settings, OneAtATime(observer), workers, pollers)
        lingering.until(time.monotonic() + seconds, ends or Event())
    return lingering.report


@dataclass
class _Lingering:
    """A run that lingers. The thread that calls `until` starts all work, and waits for no collection."""

    spark: SparkSession
    settings: Settings
    observer: Observer
    workers: Crew
    pollers: Mapping[str, Crew]
    """By source."""
    report: Report = field(default_factory=partial(Report, "tick"))

    def __post_init__(self) -> None:
        self.store = Store(self.settings.store)
        names = [collection.name for collection in self.settings.collections]
        self.watched = {name: _Watched(self.settings.collection(name), CollectionRun(name)) for name in names}
        self.report.results = {name: {} for name in names}

    def until(self, end_s: float, ends: Event) -> None:
        """Run until the time is up or `ends` is set, and then finish what has begun."""
        maintain_at_s = time.monotonic() + MAINTAIN_S
        self._want(self.watched)
        while True:
            now_s = time.monotonic()
            is_ending = now_s >= end_s or ends.is_set()
            if is_ending or now_s >= maintain_at_s:
                maintain_at_s = now_s + MAINTAIN_S
                for each in self.watched.values():
                    each.is_due |= each.has_run
            has_more = self._start(now_s, is_ending)
            if is_ending and not (has_more or self.workers.is_at_work):
                return
            self.workers.wait(_LOOK_S)
            for name, late in self.workers.ended():
                self._add(name, late)
            self._want(_with_others_on_their_timelines(self.watched, set(self._news())))

    def _start(self, now_s: float, is_ending: bool) -> bool:
        """Begin the steps and the polls that are due; return whether steps wait for a poll to end."""
        has_more = False
        for name, each in self.watched.items():
            if self.workers.has(name) or abandoned(self.settings.store, name) is not None:
                continue
            pollers = self.pollers[each.settings.source]
            steps, is_polled = each.steps(), pollers.has(name)
            if steps and not is_polled:
                each.run = CollectionRun(name)
                self.workers.start(name, partial(self._work, each, each.run, steps))
                each.wanted_ms, each.is_due, each.has_run = None, False, each.has_run and "compact" not in steps
            elif not (steps or is_polled or is_ending) and now_s >= each.poll_at_s:
                pollers.start(name, each.poll)
            has_more |= bool(steps) and is_polled
        return has_more

    def _work(self, each: _Watched, run: CollectionRun, steps: Mapping[str, Step]) -> None:
        if "ingest" in steps:
            try:
                each.begin(self.store)
            except Exception as error:
                run.stop(stopped_by(error, "ingest", run.name))
        run.run(self.spark, self.settings, steps, self.observer)

    def _add(self, name: str, late: TimedOut | None) -> None:
        """Keep the newest result of each step, and the errors that still apply."""
        each = self.watched[name]
        if late is not None:
            each.run.stop(timed_out(late, each.run.step, name))
        self.report.results[name].update(each.run.results)
        each.has_run |= "seal" in each.run.results and "compact" not in each.run.results
        each.poll_at_s = 0.0
        self._note(each, each.run.error)

    def _note(self, each: _Watched, error: TidelakeError | None) -> None:
        each.stopped = error is not None
        self.report.errors.pop(each.settings.name, None)
        if error is not None:
            self.report.errors[each.settings.name] = error

    def _news(self) -> Iterator[str]:
        """Yield the collections whose polls have found news; report those whose polls hang."""
        for name, late in chain.from_iterable(pollers.ended() for pollers in self.pollers.values()):
            each = self.watched[name]
            if late is not None:
                self._note(each, timed_out(late, "poll", name))
            elif each.has_news:
                yield name

    def _want(self, names: Iterable[str]) -> None:
        """Ingest collections as soon as they are free; those on one timeline get the same time."""
        run_ms = int(time.time() * 1000)
        for name in names:
            self.watched[name].wanted_ms = run_ms


def _with_others_on_their_timelines(watched: Mapping[str, _Watched], news: set[str]) -> list[str]:
    """Return the collections that have news, and those that share a timeline of minted times with one of them.

    Collections without news that have stopped are left out.
    """
    timelines = {watched[name].settings.timeline for name in news if watched[name].settings.mints_times} - {None}
    shared = {name for name, each in watched.items() if each.settings.timeline in timelines and not each.stopped}
    return [name for name in watched if name in news | shared]
