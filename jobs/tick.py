"""Tick: ingest, seal, validate new times and merge within a budget, as the scheduled job does for each collection."""

from __future__ import annotations

import sys
import time as clock
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any, Protocol

from pyspark.sql import SparkSession

from jobs import compact, current, ingest, seal, validate
from jobs.job import Report, run_main, stopped_by, timed_out
from jobs.lake import check_lake
from jobs.parallel import for_each
from tidelake.errors import SourceError
from tidelake.settings.lake import Settings

STEPS: dict[str, Callable[[SparkSession, Settings], Report]] = {
    "ingest": ingest.run,
    "seal": seal.run,
    "validate": validate.run,
    "compact": partial(compact.run, full=False),
}
"""The steps of a tick, in order."""
FURTHER_STEPS: dict[str, Callable[[SparkSession, Settings], Report]] = {
    "current": current.run,
    "current_full": partial(current.run, rebuild=True),
    "validate_full": validate.run_with_pages,
    "compact_full": compact.run,
}
"""Steps that are not part of a tick."""


_PUBLISHING = {"current": False, "current_full": True}
"""The steps that publish, and whether they write all rows."""
_ALONE = {"parallel": 1, "collection_limit_s": None}
"""The thread of a collection runs its steps itself."""


class Observer(Protocol):
    """Is notified of each step on each collection."""

    def begins(self, step: str, name: str) -> None:
        """A step begins."""

    def ended(self, step: str, name: str, result: Any) -> None:
        """A step has ended with a result; a step that fails without a result is in the report's errors."""


def run(spark: SparkSession, settings: Settings) -> Report:
    """Run a tick of every collection; raises the same errors as `run_steps`."""
    return run_steps(spark, settings, tuple(STEPS))


def run_steps(
    spark: SparkSession, settings: Settings, steps: Sequence[str], observer: Observer | None = None
) -> Report:
    """Run steps of every collection, `settings.parallel` collections at a time.

    A step that fails ends the steps of that collection, as later steps build on it. The exception is a problem with the
    topic: messages read before it are still sealed. `current` comes after all other steps of all collections, because
    the tables of one timeline are brought to one time.

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
    names = [collection.name for collection in settings.collections]
    report = Report("tick" if tuple(steps) == tuple(STEPS) else ", ".join(steps), {name: {} for name in names})
    at_work: dict[str, str] = {}
    one_time = {"ingest": partial(ingest.run, run_ms=int(clock.time() * 1000))}
    speaking = Lock()

    def work(name: str, steps: Sequence[str], more: Mapping[str, Callable[..., Report]]) -> None:
        results, only = report.results[name], settings.only((name,)).model_copy(update=_ALONE)
        for step in steps:
            at_work[name] = step
            if observer is not None:
                with speaking:
                    observer.begins(step, name)
            try:
                done = {**STEPS, **FURTHER_STEPS, **more}[step](spark, only)
            except Exception as problem:  # a topic or a name has changed since the check above
                done = Report(step, errors={name: stopped_by(problem, step, name)})
            if name in done.results:
                results[step] = done.results[name]
                if observer is not None:
                    with speaking:
                        observer.ended(step, name, results[step])
            if (error := done.errors.get(name)) is not None:
                report.errors.setdefault(name, error)
                if not isinstance(error, SourceError):
                    stopped.add(name)
                    break

    def phase(names: Sequence[str], steps: Sequence[str], more: Mapping[str, Callable[..., Report]]) -> None:
        do = partial(work, steps=steps, more=more)
        for name, late in for_each(spark, names, do, settings.parallel, settings.collection_limit_s):
            if late is not None:
                report.results[name] = dict(report.results[name])  # the thread may still be at work
                report.errors[name] = timed_out(late, at_work[name], name)
                stopped.add(name)

    stopped: set[str] = set()
    publishing = [step for step in steps if step in _PUBLISHING]
    phase(names, [step for step in steps if step not in _PUBLISHING], one_time)
    for step in publishing:
        left = [name for name in names if name not in stopped]
        wanted = current.wanted_tables(settings, _PUBLISHING[step], set(left).__contains__)
        phase(left, [step], {step: partial(current.run, wanted=wanted)})
    return report


def main(argv: Sequence[str] | None = None) -> int:
    """Run a tick from spark-submit or the shell."""
    return run_main(run, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
