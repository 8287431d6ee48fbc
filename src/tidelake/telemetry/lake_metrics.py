"""The state of a lake as metrics: everything in `tidelake status` that is a number, and its problems as flags."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from tidelake import __version__
from tidelake.errors import TidelakeError
from tidelake.lake import Lake
from tidelake.read.status import CollectionStatus
from tidelake.read.verdict import PROBLEM_KINDS, problems_of
from tidelake.settings.collection import CollectionSettings
from tidelake.telemetry.exposition import Metric, Sample

_REASONS_MAX = 20
"""Maximum number of reasons per collection; the messages of all others count as `other`."""

_INFO = Metric("info", "The version of Tidelake that read the status.", ("version",))
_READ_AT = Metric("status_timestamp_seconds", "When the status was read, in Unix time.", ())
_READABLE = Metric("collection_readable", "1 if the collection's status could be read, otherwise 0.")
_INGESTED = Metric("collection_ingested", "1 if the collection was ever ingested, otherwise 0.")
_ORPHANED = Metric("collection_orphaned", "1 for a collection that is in the store, but not in the settings.")
_NEEDS_SOMEBODY = Metric("needs_somebody", "1 if the collection needs attention before it continues or can be trusted.")
_PROBLEM = Metric("problem", "1 while the collection has this problem, otherwise 0.", ("collection", "problem"))
_STALLED_AFTER = Metric("stalled_after_seconds", "The setting stalled_after_s: how long upper may stay unchanged.")
_UPPER_TIME = Metric("upper_timestamp_seconds", "Reclocked collections: upper as Unix time.")
_UPPER_MOVED = Metric("upper_moved_timestamp_seconds", "When upper last moved, in Unix time.")
_QUARANTINED = Metric("quarantined_messages", "Messages in quarantine, by reason.", ("collection", "reason"))
_UNEXPLAINED = Metric(
    "quarantined_messages_unexplained", "Messages in quarantine that no decision explains, by reason.",
    ("collection", "reason"),
)  # fmt: skip
_LATE = Metric("late_rows", "Rows about times that were already sealed, by verdict.", ("collection", "verdict"))

_NUMBERS: tuple[tuple[Metric, Callable[[CollectionStatus], float | None]], ...] = (
    (Metric("since", "The first time that can be read."), lambda status: status.since),
    (
        Metric("upper", "The first time that is not sealed; absent if the stream is closed."),
        lambda status: status.upper,
    ),
    (Metric("closed", "1 if the stream is closed: every time is sealed."), lambda status: int(status.closed)),
    (Metric("stored_rows", "Stored statements, not rows of the contents."), lambda status: status.rows),
    (Metric("stored_bytes", "Bytes of the files with statements."), lambda status: status.bytes),
    (Metric("stored_runs", "Runs: the files that one tick, seal or merge wrote."), lambda status: status.runs),
    (Metric("pending_rows", "Stored statements at or after upper, copies included."), lambda status: status.pending),
    (
        Metric("pending_announcements", "Progress statements that are not fully sealed."),
        lambda status: status.statements_pending,
    ),
    (
        Metric("waiting", "1 if statements or announcements are waiting at or after upper, otherwise 0."),
        lambda status: int(is_waiting(status)),
    ),
    (
        Metric("missing_updates", "Announced updates that have not arrived, at the first incomplete time."),
        lambda status: _missing(status),
    ),
    (Metric("lag_messages", "Unread messages; absent if a topic cannot be read."), lambda status: status.lag_messages),
    (Metric("topic_gaps", "Ranges of missing offsets that stop ingest."), lambda status: len(status.topic_gaps)),
    (Metric("contradictions", "Open times with a contradiction."), lambda status: len(_contradicted(status))),
    (
        Metric("contradictions_undecided", "Open times with a contradiction and without a decision."),
        lambda status: len(_contradicted(status, decided=False)),
    ),
    (
        Metric("late_contradictions_undecided", "Undecided late facts that contradict what was published."),
        lambda status: status.late_undecided,
    ),
    (
        Metric("sealed_by_decision", "Times that were sealed by a decision."),
        lambda status: len(status.sealed_by_decision),
    ),
    (
        Metric("rows_left", "Rows removed by `keep_rows` since the collection was created."),
        lambda status: status.rows_left,
    ),
    (Metric("keys_in_error", "Keys whose newest record cannot be used."), lambda status: status.keys_in_error),
    (
        Metric("times_ahead_seconds", "How far minted times are ahead of this machine's clock, if by more than a day."),
        lambda status: status.times_ahead_s,
    ),
)

METRICS = (
    _INFO, _READ_AT, _READABLE, _INGESTED, _ORPHANED, _NEEDS_SOMEBODY, _PROBLEM, _STALLED_AFTER,
    *(metric for metric, _ in _NUMBERS), _UPPER_MOVED, _UPPER_TIME, _QUARANTINED, _UNEXPLAINED, _LATE,
)  # fmt: skip
"""All metrics of a lake."""


def _missing(status: CollectionStatus) -> int:
    """Return the number of announced updates that are missing at the first incomplete time."""
    first = None if status.waiting is None else status.waiting.first_missing
    return 0 if first is None else first.missing


def is_waiting(status: CollectionStatus) -> bool:
    """Return whether statements or announcements are waiting at or after upper."""
    return not status.closed and (status.pending > 0 or status.statements_pending > 0)


def lake_samples(lake: Lake, now_s: float) -> Iterator[Sample]:
    """Read the status of every collection of a lake as samples, without a JVM.

    Args:
        lake: the lake; the ends of its topics are looked up.
        now_s: the Unix time at which the status is read.

    Cost: that of `Lake.status`. At most 82 samples for each collection.
    """
    statuses = lake.status()
    yield Sample(_INFO, (__version__,), 1)
    yield Sample(_READ_AT, (), now_s)
    for settings in lake.settings.collections:
        yield from collection_samples(settings, statuses[settings.name], now_s)
    for name in lake.refused:  # its settings are unknown
        yield Sample(_READABLE, (name,), 0)
        yield Sample(_NEEDS_SOMEBODY, (name,), 1)
    for orphaned in lake.orphaned():
        if orphaned.error is None:
            yield Sample(_ORPHANED, (orphaned.name,), 1)


def collection_samples(
    settings: CollectionSettings, status: CollectionStatus | TidelakeError | None, now_s: float
) -> Iterator[Sample]:
    """Return the samples of a collection.

    If the status is None (the collection was never ingested) or an error, there are only flags and the setting
    `stalled_after_s`. Unknown numbers have no sample.
    """
    labels = (settings.name,)
    is_readable = not isinstance(status, TidelakeError)
    yield Sample(_READABLE, labels, int(is_readable))
    yield Sample(_STALLED_AFTER, labels, settings.stalled_after_s)
    if isinstance(status, TidelakeError):
        yield Sample(_NEEDS_SOMEBODY, labels, 1)
        return
    yield Sample(_INGESTED, labels, int(status is not None))
    if status is None:
        yield Sample(_NEEDS_SOMEBODY, labels, 0)
        return
    problems = {verdict.kind for verdict in problems_of(status)}
    yield Sample(_NEEDS_SOMEBODY, labels, int(status.needs_somebody))
    for problem in PROBLEM_KINDS:
        yield Sample(_PROBLEM, (settings.name, problem), int(problem in problems))
    for metric, number_of in _NUMBERS:
        number = number_of(status)
        if number is not None:
            yield Sample(metric, labels, number)
    if status.lag_s is not None:
        yield Sample(_UPPER_MOVED, labels, round(now_s - status.lag_s, 3))
    if settings.mints_times and status.upper is not None:
        yield Sample(_UPPER_TIME, labels, status.upper / 1000)
    for metric, reasons in ((_QUARANTINED, status.quarantine_reasons), (_UNEXPLAINED, status.quarantine_unexplained)):
        for reason, count in _most_frequent(reasons).items():
            yield Sample(metric, (settings.name, reason), count)
    for verdict, count in status.late_verdicts.items():
        yield Sample(_LATE, (settings.name, verdict), count)


def _contradicted(status: CollectionStatus, decided: bool = True) -> set[int]:
    """Return the times with a contradiction; those with a decision are left out if `decided` is not set."""
    return {found["time"] for found in status.contradictions if decided or not found["decided"]}


def _most_frequent(reasons: dict[str, int]) -> dict[str, int]:
    """Return the most frequent reasons, and the sum of all others.

    >>> _most_frequent({f"reason_{number}": number for number in range(1, 23)})["other"]
    3
    """
    by_count = iter(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
    shown = dict(islice(by_count, _REASONS_MAX))
    if others := sum(count for _, count in by_count):
        shown["other"] = shown.get("other", 0) + others
    return shown
