"""The verdict of a status: the state of a collection in words, and whether an operator must act."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidelake.read.status_facts import StatusFacts
from tidelake.read.words import counted, duration, fact_of

FINE, WARNING, PROBLEM = "fine", "warning", "problem"
"""Severities. `fine`: nothing to do. `warning`: an operator should look. `problem`: an operator must act."""


DAMAGED, TOPIC_UNREADABLE, TOPIC_GAP, HELD_BACK = "damaged", "topic_unreadable", "topic_gap", "held_back"
LATE_CONTRADICTION, LATE_UNREADABLE, NOT_SEALED = "late_contradiction", "late_unreadable", "not_sealed"
UPDATES_MISSING, KEYS_IN_ERROR, CLOCK_AHEAD = "updates_missing", "keys_in_error", "clock_ahead"
PUBLISHED_DAMAGED, PUBLISHED_CHANGED, DECIDED, IN_ORDER = (
    "published_damaged",
    "published_changed",
    "decided",
    "in_order",
)
PROBLEM_KINDS = (
    *(DAMAGED, TOPIC_UNREADABLE, TOPIC_GAP, HELD_BACK, LATE_CONTRADICTION, LATE_UNREADABLE, NOT_SEALED),
    *(UPDATES_MISSING, KEYS_IN_ERROR, CLOCK_AHEAD),
)
"""The kinds of verdicts that can be problems."""

_GAPS = {
    "TopicGap": ("a gap in the topic", "the missing offsets, or a decision to continue without them"),
    "TopicChanged": ("topic was recreated or cut", "the earlier topic, or a decision to continue with this one"),
    "TransactionWentBack": ("log positions went back", "a new topic, or a decision to leave out the transaction"),
}
"""By the name of the error that stops ingest: the state in a few words, and what it waits for."""

_RANK = {FINE: 0, WARNING: 1, PROBLEM: 2}


class Verdict(NamedTuple):
    """One verdict on the state of a collection, in words."""

    kind: str
    """The kind of verdict, as a name for programs."""
    state: str
    """A few words."""
    waits_for: str | None
    """What must happen before the collection continues, or can be trusted again; None if it waits for nothing."""
    sentence: str
    """The state with its numbers."""
    severity: str
    """`fine`, `warning` or `problem`."""


def verdict_of(status: StatusFacts) -> Verdict:
    """Return the first of the most severe verdicts on a collection."""
    verdicts = list(_verdicts(status))
    worst = max(verdicts, key=lambda verdict: _RANK[verdict.severity])
    # The last verdict is `in_order`. It is the worst only if it is alone, or if it is a warning and all
    # others are `fine`. In the second case, the first verdict keeps its words, but becomes a warning.
    return verdicts[0]._replace(severity=worst.severity) if worst is verdicts[-1] else worst


def problems_of(status: StatusFacts) -> list[Verdict]:
    """Return the verdicts on which an operator must act, the worst first."""
    return [verdict for verdict in _verdicts(status) if verdict.severity == PROBLEM]


def _verdicts(status: StatusFacts) -> Iterator[Verdict]:
    """Yield the verdicts that apply; of those with the same severity, the worst first."""
    if status.damaged:
        remedy = "`tidelake repair`, its folder restored from a copy, or a new collection made from its topic"
        state = "DAMAGED files" if status.has_damaged_files else "DAMAGED below upper"
        yield Verdict(DAMAGED, state, remedy, f"{state}: {status.damaged}", PROBLEM)
    if status.topic_problem:
        sentence = f"topic cannot be read: {status.topic_problem}"
        yield Verdict(TOPIC_UNREADABLE, "topic cannot be read", "the topic", sentence, PROBLEM)
    if status.topic_gaps:
        state, remedy = _GAPS.get(status.topic_gap_kind, _GAPS["TopicGap"])
        yield Verdict(TOPIC_GAP, state, remedy, f"{state}: {status.topic_gaps[0]}", PROBLEM)
    yield from _contradicted(status)
    yield from _late(status)
    yield from _waiting_for_ends(status)
    yield from _incomplete(status)
    if status.keys_in_error:
        state = f"{counted(status.keys_in_error, 'key')} in error"
        remedy = "a later good value, or a delete, for each key in error"
        sentence = f"{state}: reads without --skip-errors fail until a later good value, or a delete, arrives"
        yield Verdict(KEYS_IN_ERROR, state, remedy, sentence, PROBLEM)
    if status.times_ahead_s:
        remedy = f"the clock: {status.times_ahead_s} s until it reaches the last time"
        sentence = f"times are ahead of the clock, which reaches the last time in {duration(status.times_ahead_s)}"
        yield Verdict(CLOCK_AHEAD, "times are ahead of the clock", remedy, sentence, PROBLEM)
    yield from _published(status)
    yield _in_order(status)


def _contradicted(status: StatusFacts) -> Iterator[Verdict]:
    undecided = next((noted for noted in status.contradictions if not noted["decided"]), None)
    if undecided is not None:
        time = undecided["time"]
        state = f"held back at time {time}"
        fact = fact_of(undecided["detail"])
        yield Verdict(HELD_BACK, state, f"a decision about time {time}", f"{state}: {fact}", PROBLEM)
    elif status.contradictions:
        time = status.contradictions[0]["time"]
        if time in status.decided_counts:
            state, remedy = f"time {time} is decided, and the next seal applies the decision", "the next seal"
        else:
            state = f"time {time} is decided, and the next seal counts the remaining updates"
            remedy = "the next seal, or a decision about the count"
        yield Verdict(DECIDED, state, remedy, state, FINE)


def _late(status: StatusFacts) -> Iterator[Verdict]:
    if status.late_undecided:
        facts = counted(status.late_undecided, "late fact")
        first = f": {status.late_evidence[0]}" if status.late_evidence else ""
        sentence = f"contradicted by {facts}{first}; the published contents do not change"
        remedy = f"a decision about {facts}"
        yield Verdict(LATE_CONTRADICTION, "contradicted by late facts", remedy, sentence, PROBLEM)
    if status.late_problem:
        remedy = "the notes about late facts"
        yield Verdict(LATE_UNREADABLE, "late facts cannot be read", remedy, status.late_problem, PROBLEM)


def _incomplete(status: StatusFacts) -> Iterator[Verdict]:
    """Yield the verdict on times that could be sealed, or that are waiting for updates."""
    waiting = status.waiting
    if waiting is None:
        return
    stands = status.upper_age_s >= status.stalled_after_s
    if not waiting.is_sealed:
        end = "to its end" if waiting.provable_upper is None else f"before {waiting.provable_upper}"
        sentence = f"not sealed yet: complete {end}, sealed before {status.upper}; the next seal moves upper"
        yield Verdict(NOT_SEALED, "not sealed yet", "the next seal", sentence, PROBLEM if stands else FINE)
    elif (first := waiting.first_missing) is not None:
        state = f"waiting at time {first.time}"
        counts = str(first).partition(": ")[2]
        stands_still = f"upper has not moved for {duration(status.upper_age_s)}"
        sentence = f"{state}: {counts}; {stands_still}{_unexplained(status)}{_unread(status)}"
        has_arrived = status.lag_messages == 0
        remedy = f"{counted(first.missing, 'update')} at time {first.time}, or a decision about the count"
        severity = PROBLEM if has_arrived or stands else WARNING
        yield Verdict(UPDATES_MISSING, state, remedy, sentence, severity)


def _waiting_for_ends(status: StatusFacts) -> Iterator[Verdict]:
    """Yield a verdict if events make ingest wait. Usually they need only an END, which comes within a second."""
    if not status.waiting_transactions:
        return
    first = max(status.waiting_transactions, key=lambda event: event["age_s"] or 0)
    is_old = (first["age_s"] or 0) >= status.stalled_after_s
    if first["transaction"] is None:
        state = "an event belongs to no transaction"
        remedy = "a decision to continue without the event"
        yield Verdict(UPDATES_MISSING, state, remedy, first["sentence"], PROBLEM)
    else:
        state = f"waiting for the END of transaction {first['transaction']}"
        remedy = f"the END of transaction {first['transaction']}, or a decision to park the transaction"
        yield Verdict(UPDATES_MISSING, state, remedy, first["sentence"], PROBLEM if is_old else FINE)


def _published(status: StatusFacts) -> Iterator[Verdict]:
    """Yield a warning if something is wrong with the published table; the collection itself is not affected."""
    if status.published_is_changed:
        state = "published table was changed"
        remedy = f"the next `tidelake current {status.name}`, which writes all rows again"
        yield Verdict(PUBLISHED_CHANGED, state, remedy, f"{state}: {status.published_problem}", WARNING)
    elif status.published_problem is not None:
        state = "published table is damaged"
        remedy = f"its folder to be moved away or made readable, and then `tidelake current {status.name}`"
        yield Verdict(PUBLISHED_DAMAGED, state, remedy, f"{state}: {status.published_problem}", WARNING)


def _in_order(status: StatusFacts) -> Verdict:
    """Return the verdict that always applies: `in order`, as a warning if upper stalls or messages are unexplained."""
    if status.since is None:
        definite = "but no time can be read"
    elif status.closed:
        definite = f"closed and definite at every time at or after {status.since}"
    elif status.upper == status.since:
        definite = "but nothing is sealed yet"
    else:
        definite = f"definite in [{status.since}, {status.upper})"
    parts = [f"in order, {definite}"]
    if status.asserted_times:
        last = max(status.asserted_times)
        parts.append(f"the snapshot at {last} is asserted to be complete, not proven")
    if status.pending:
        parts.append(f"{counted(status.pending, 'row')} at or after upper")
    severity = FINE
    if status.upper_age_s >= status.stalled_after_s:
        parts.append(f"upper has not moved for {duration(status.upper_age_s)}")
        severity = WARNING
    unexplained = _unexplained(status)
    severity = WARNING if unexplained else severity
    return Verdict(IN_ORDER, "in order", None, "; ".join(parts) + unexplained + _unread(status), severity)


def _unexplained(status: StatusFacts) -> str:
    unexplained = sum(status.quarantine_unexplained.values())
    return f"; {counted(unexplained, 'quarantined message')} without an explanation" if unexplained else ""


def _unread(status: StatusFacts) -> str:
    return f"; {counted(status.lag_messages, 'message')} unread" if status.lag_messages else ""
