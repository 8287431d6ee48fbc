"""Judges a validation with Great Expectations; if it was full, writes the pages of its collection and the lake."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from threading import RLock
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import pyarrow as pa
from deltalake.exceptions import DeltaError

from jobs.job import log
from tidelake.errors import DamagedTable, StoreUnreadable, TidelakeError
from tidelake.report.facts import Facts, read_facts, unreadable_facts
from tidelake.report.pages import write_report
from tidelake.spark.interrupt import is_interrupted
from tidelake.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from expectations.judgement import Judgement
    from tidelake.read.status import CollectionStatus
    from tidelake.settings.collection import CollectionSettings
    from tidelake.settings.lake import Settings
    from tidelake.store.entry import Collection
    from tidelake.validate.validation import ValidateReport

_NOT_OF_THE_TABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""The operating system's errors that are about this machine, not about the table."""


@dataclass(frozen=True)
class Judged:
    """A validation that was judged."""

    judgement: Judgement
    status: CollectionStatus
    """The state of the collection after the validation."""
    page: Location | None
    """The page of the collection; None unless the validation was full and the page was written."""


_judging = RLock()
"""Held while judging: Great Expectations keeps one context per process, and all collections share the lake's page."""
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _one_at_a_time(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Make a function run in only one thread at a time."""

    @wraps(function)
    def call(*positional: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        with _judging:
            return function(*positional, **named)

    return call


@_one_at_a_time
def judge_and_report(
    spark: SparkSession,
    lake: Settings,
    settings: CollectionSettings,
    collection: Collection,
    validated: ValidateReport,
    full: bool = True,
) -> Judged | None:
    """Judge a validation; if it was full, write the page of its collection and that of the lake.

    Returns:
        The verdicts; None if proofs or files are damaged: there is nothing to judge. After a full validation, the page
        says so. If the folder of the reports cannot be written to, that is logged, and changes no verdict.
    """
    if validated.proofs_problem is not None:
        if full:
            report_unreadable(lake, settings, collection, validated.proofs_problem, validated)
        return None
    from expectations.judgement import check_results, judge_collection
    from expectations.last_verdicts import save_verdicts
    from expectations.suite import rules_of

    # In a tick, brokers are asked only if the collection is reclocked: its upper need not move if nothing is unread.
    status = status_of(settings, collection, reads_topics=full or settings.mints_times)
    facts = read_facts(collection, settings, status, validated) if full else None
    judge = partial(judge_collection, spark, collection, settings, validated, status, lake.data_docs, facts)
    if facts is None:
        return Judged(judge(), status, None)
    unwritten: OSError | StoreUnreadable | None = None
    try:
        judgement = judge()
    except (OSError, StoreUnreadable) as error:
        # The library writes while it judges. If a read caused the error, judging again raises it again.
        judgement, unwritten = judge(writes_docs=False), error
    results, page = check_results(settings, judgement), None
    facts.add_checks(results)
    own = {rule.name for rule in rules_of(settings) if rule.is_own}
    try:
        save_verdicts(lake.data_docs, settings.name, facts.at_ms, [result for result in results if result.check in own])
        page = write_report(lake.data_docs, facts, lake.names)
    except (OSError, StoreUnreadable) as error:
        unwritten = unwritten or error
    if unwritten is not None:
        _log_unwritten(settings, unwritten)
    return Judged(judgement, status, page)


def unreadable_errors() -> tuple[type[Exception], ...]:
    """Return the errors that reading a damaged table may raise."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JJavaError, DamagedTable, pa.ArrowException, OSError)


def is_about_the_table(error: BaseException) -> bool:
    """Return whether an error says that the table is damaged or cannot be read.

    Lost races, a lack of memory or of disk space, a lost JVM, and whatever follows an interrupt say nothing about it.
    """
    if isinstance(error, DamagedTable):
        return True
    if is_interrupted() or isinstance(error, (MemoryError, ConnectionError)) or "OutOfMemoryError" in str(error):
        return False
    if isinstance(error, OSError) and error.errno in _NOT_OF_THE_TABLE:
        return False
    return isinstance(error, unreadable_errors())


@_one_at_a_time
def report_unreadable(
    lake: Settings,
    settings: CollectionSettings,
    collection: Collection,
    error: BaseException,
    validated: ValidateReport | None = None,
) -> None:
    """Write the page of a collection that could not be validated; it begins with the reason.

    For errors that are not about the table, nothing is written (see `is_about_the_table`): the last report is kept.
    The last verdicts on the user's own expectations are always kept. If the folder of the reports cannot be written to,
    that is only logged, so that the caller can raise `error` itself.
    """
    if not is_about_the_table(error):
        return
    from expectations.last_verdicts import keep_verdicts

    problem = str(error).strip() or type(error).__name__
    facts: Facts
    try:
        facts = read_facts(collection, settings, status_of(settings, collection), validated)
        facts.mark_unreadable(problem)
    except (TidelakeError, DeltaError, pa.ArrowException, OSError) as second:
        facts = unreadable_facts(settings, f"{problem}\n{second}" if str(second) != problem else problem)
    try:
        keep_verdicts(lake.data_docs, settings.name)
        write_report(lake.data_docs, facts, lake.names)
    except (OSError, StoreUnreadable) as unwritten:
        _log_unwritten(settings, unwritten)


def _log_unwritten(settings: CollectionSettings, error: OSError | StoreUnreadable) -> None:
    log.error("the report was not written", collection=settings.name, reason=str(error))


def status_of(settings: CollectionSettings, collection: Collection, reads_topics: bool = True) -> CollectionStatus:
    """Read the state of a collection, with the lag of its topics if they are read."""
    from tidelake.read.status import read_status
    from tidelake.topic.open import open_topics

    topics = open_topics(settings, collection.entry.decisions) if reads_topics else ()
    return read_status(collection, topics, settings.stalled_after_s, settings=settings)
