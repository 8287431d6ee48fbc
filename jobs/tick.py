"""Tick: ingest, seal, validate new times and merge within a budget, as the scheduled job does for each collection."""

from __future__ import annotations

import sys
import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, Protocol

from pyspark.sql import SparkSession

from jobs import compact, current, ingest, seal, validate
from jobs.job import Report, run_main, stopped_by, timed_out
from jobs.lake import check_lake
from jobs.parallel import for_each
from tidelake.errors import SourceError, TidelakeError
from tidelake.settings.lake import Settings

Step = Callable[[SparkSession, Settings], Report]
Steps = Mapping[str, Step]
"""Steps by name, in the order in which they run."""
STEPS: dict[str, Step] = {
    "ingest": ingest.run,
    "seal": seal.run,
    "validate": validate.run,
    "compact": partial(compact.run, full=False),
}
"""The steps of a tick, in order."""
FURTHER_STEPS: dict[str, Step] = {
    "current": current.run,
    "current_full": partial(current.run, rebuild=True),
    "validate_full": validate.run_with_pages,
    "compact_full": compact.run,
}
"""Steps that are not part of a tick."""


_PUBLISHING = {"current": False, "current_full": True}
"""The steps that publish, and whether they write all rows."""
_ALONE = {"parallel": 1, "collection_limit_s": None}
"""With these settings, a step runs in its collection's thread, and starts no other."""


class Observer(Protocol):
    """Is notified of each step on each collection."""

    def begins(self, step: str, name: str) -> None:
        """Called when a step begins."""

    def ended(self, step: str, name: str, result: Any) -> None:
        """Called when a step has ended with a result; a step that fails without a result is in the report's errors."""


def run(spark: SparkSession, settings: Settings) -> Report:
    """Run a tick of every collection; raises the same errors as `run_steps`."""
    return run_steps(spark, settings, tuple(STEPS))


@dataclass
class CollectionRun:
    """The steps of a run on one collection, and what came of them. A thread runs them; another may give them up."""

    name: str
    results: dict[str, Any] = field(default_factory=dict)
    """What the steps returned."""
    error: TidelakeError | None = None
    """The first error, unless `stop` has replaced it."""
    step: str = "tick"
    """The step that began last."""
    is_over: bool = False
    """Whether no further step begins."""

    def run(self, spark: SparkSession, settings: Settings, steps: Steps, observer: Observer) -> None:
        """Run steps, in order, until one fails; a problem with the topic does not stop them."""
        only, results = settings.only((self.name,)).model_copy(update=_ALONE), self.results
        for step, function in steps.items():
            if self.is_over:
                return
            self.step = step
            observer.begins(step, self.name)
            try:
                done = function(spark, only)
            except Exception as problem:  # a topic or a name has changed since the settings were checked
                done = Report(step, errors={self.name: stopped_by(problem, step, self.name)})
            if self.is_over:  # the work was given up in the meantime
                return
            if self.name in done.results:
                results[step] = done.results[self.name]
                observer.ended(step, self.name, results[step])
            if (error := done.errors.get(self.name)) is not None:
                self.error = self.error or error
                if not isinstance(error, SourceError):
                    self.is_over = True

    def stop(self, error: TidelakeError) -> None:
        """Begin no further step; a thread that is still at work no longer changes what this run reports."""
        self.results, self.error, self.is_over = dict(self.results), error, True


def run_steps(
    spark: SparkSession, settings: Settings, steps: Sequence[str], observer: Observer | None = None
) -> Report:
    """Run steps of every collection, `settings.parallel` collections at a time.

    A step that fails ends the steps of that collection, as later steps build on it. The exception is a problem with the
    topic: messages read before the problem are still sealed. `current` comes after all other steps of all collections,
    because the tables of one timeline are brought to one time.

    Args:
        spark: the session.
        settings: the settings of the collections.
        steps: names from `STEPS` and `FURTHER_STEPS`, in the order in which they run.
        observer: is notified of each step, by one thread at a time.

    Returns:
        A report with the results of each collection by step, and with the first error of each collection.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    check_lake(settings)
    runs = {collection.name: CollectionRun(collection.name) for collection in settings.collections}
    known = STEPS | FURTHER_STEPS | {"ingest": ingest_at(int(clock.time() * 1000))}
    notified = OneAtATime(observer)

    def phase(names: Sequence[str], steps: Steps) -> None:
        def work(name: str) -> None:
            runs[name].run(spark, settings, steps, notified)

        for name, late in for_each(spark, settings.store, names, work, settings.parallel, settings.collection_limit_s):
            if late is not None:
                runs[name].stop(timed_out(late, runs[name].step, name))

    publishing = [step for step in steps if step in _PUBLISHING]
    phase(list(runs), {step: known[step] for step in steps if step not in _PUBLISHING})
    for step in publishing:
        left = [name for name, each in runs.items() if not each.is_over]
        wanted = current.wanted_tables(settings, _PUBLISHING[step], set(left).__contains__)
        phase(left, {step: partial(current.run, wanted=wanted)})
    return Report(
        "tick" if tuple(steps) == tuple(STEPS) else ", ".join(steps),
        {name: each.results for name, each in runs.items()},
        {name: each.error for name, each in runs.items() if each.error is not None},
    )


def ingest_at(run_ms: int) -> Step:
    """Return the step that ingests with one time for all reclocked collections on a shared timeline."""
    return partial(ingest.run, run_ms=run_ms)


class OneAtATime:
    """Lets one thread at a time notify an observer; without an observer, it does nothing."""

    def __init__(self, observer: Observer | None) -> None:
        """Take the observer."""
        self._observer, self._lock = observer, Lock()

    def begins(self, step: str, name: str) -> None:
        """See `Observer`."""
        if self._observer is not None:
            with self._lock:
                self._observer.begins(step, name)

    def ended(self, step: str, name: str, result: Any) -> None:
        """See `Observer`."""
        if self._observer is not None:
            with self._lock:
                self._observer.ended(step, name, result)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a tick from spark-submit or the shell."""
    return run_main(run, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
