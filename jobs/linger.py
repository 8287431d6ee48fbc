"""Keeps running for minutes after a tick: one warm session polls the topics, and ingests and seals what arrives."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from jobs.job import Report
from jobs.tick import Observer, run_steps
from tidelake.catalog.catalog import Catalog
from tidelake.errors import TidelakeError
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.lake import Settings
from tidelake.store.layout import Store
from tidelake.topic.open import open_topics
from tidelake.topic.topic import Topic

POLL_S = 0.5
"""How long to wait between two polls of the topics."""
AGAIN_S = 30.0
"""How long to wait before retrying a collection that has stopped, if no message has arrived since."""
MAINTAIN_S = 60.0
"""How often sealed times are validated, and their runs merged."""
_ARRIVE, _MAINTAIN = ("ingest", "seal"), ("validate", "compact")


@dataclass
class _Watched:
    """A collection whose topics are polled."""

    settings: CollectionSettings
    topics: Sequence[Topic] = ()
    ends: Mapping[str, Mapping[int, int]] | None = None
    """The ends of the topics before they were last ingested; None if they could not be looked up."""
    at_s: float = 0.0
    """When it was last ingested, by the monotonic clock."""
    stopped: bool = False
    """Whether the last ingest or seal stopped with an error."""
    has_run: bool = False
    """Whether something has been sealed since the last validation and merge."""

    def has_news(self, now_s: float) -> bool:
        """Whether it is time to ingest: messages have arrived, or upper of an idle topic may move."""
        if self.stopped:
            return now_s >= self.at_s + AGAIN_S or self._ends() not in (None, self.ends)
        idle_s = getattr(self.settings, "idle_upper_s", 0)
        return (idle_s > 0 and now_s >= self.at_s + idle_s) or self._ends() != self.ends

    def begin(self, store: Store, now_s: float) -> None:
        """Note how far the topics go, before they are ingested."""
        stored = Catalog(store).get(self.settings.name)
        self.topics = open_topics(self.settings, stored.entry.decisions if stored is not None else ())
        self.ends, self.at_s = self._ends(), now_s

    def _ends(self) -> Mapping[str, Mapping[int, int]] | None:
        try:
            return {topic.name: topic.end_offsets() for topic in self.topics}
        except TidelakeError:  # ingest meets the same error, and reports it
            return None


@dataclass
class _Seen:
    """The reports of the steps of all rounds."""

    report: Report
    names: dict[str, _Watched] = field(default_factory=dict)

    def add(self, part: Report) -> None:
        """Keep the newest result of each step, and the errors that still apply."""
        for name, results in part.results.items():
            self.report.results.setdefault(name, {}).update(results)
            self.report.errors.pop(name, None)
            self.names[name].stopped = name in part.errors
            self.names[name].has_run |= "seal" in results
        self.report.errors |= part.errors


def linger(spark: SparkSession, settings: Settings, seconds: float, observer: Observer | None = None) -> Report:
    """Run a tick of every collection, and then of each that has news, until the time is up.

    Messages are ingested and sealed as soon as a poll of the topics finds them. Sealed times are validated, and runs
    are merged, once a minute and at the end.

    Args:
        spark: the session.
        settings: the settings of the collections.
        seconds: how long to keep running; a round that has begun is finished.
        observer: is notified of each step.

    Returns:
        A report that has, for each collection, the newest result of each step, and the error, if it still applies.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    end_s, maintain_at_s = time.monotonic() + seconds, time.monotonic() + MAINTAIN_S
    store = Store(settings.store)
    watched = {collection.name: _Watched(collection) for collection in settings.collections}
    seen = _Seen(Report("tick"), names=watched)

    def run(names: Sequence[str], steps: Sequence[str]) -> None:
        seen.add(run_steps(spark, settings.only(tuple(names)), steps, observer))

    def ingest(names: Sequence[str]) -> None:
        for name in names:
            watched[name].begin(store, time.monotonic())
        run(names, _ARRIVE)

    def maintain() -> None:
        names = [name for name, each in watched.items() if each.has_run and not each.stopped]
        if names:
            run(names, _MAINTAIN)
        for name in names:
            watched[name].has_run = False

    ingest(list(watched))
    while (now_s := time.monotonic()) < end_s:
        news = _with_others_on_their_timelines(watched, now_s)
        if news:
            ingest(news)
        else:
            time.sleep(max(0.0, min(POLL_S, end_s - now_s)))
        if time.monotonic() >= maintain_at_s:
            maintain()
            maintain_at_s = time.monotonic() + MAINTAIN_S
    maintain()
    return seen.report


def _with_others_on_their_timelines(watched: Mapping[str, _Watched], now_s: float) -> list[str]:
    """Return the collections that have news, and those that share a timeline of minted times with one of them."""
    news = {name for name, each in watched.items() if each.has_news(now_s)}
    timelines = {watched[name].settings.timeline for name in news if watched[name].settings.mints_times} - {None}
    shared = {name for name, each in watched.items() if each.settings.timeline in timelines and not each.stopped}
    return [name for name in watched if name in news | shared]
