"""The rules of `resolve`: which decisions a collection accepts now, and what is stored for each.

A decision is accepted only if it can have an effect. So it has to be about one of these: a gap that stops ingest; a
topic that has changed; a transaction whose END ingest waits for or stops at; an unexplained message in the quarantine;
a time that is not sealed yet; or a late fact about a sealed time. Sealed times never change, so a decision about a late
fact has to confirm what was published.
"""

from __future__ import annotations

from typing import Any, assert_never

from tidelake.errors import (
    CodecError,
    DecisionRefused,
    StatementRefused,
    TopicChanged,
    TopicGap,
    name_in_kafka,
)
from tidelake.ingest.position import RECREATED, plan_next
from tidelake.ingest.went_back import went_back
from tidelake.protocol.json_values import parse, to_text
from tidelake.protocol.order import INT64_MAX
from tidelake.read.waiting_events import waiting_events
from tidelake.seal.ambiguity import ambiguity_of, discard_command
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.transactions import TransactionSettings
from tidelake.store.commit import OpenTable
from tidelake.store.decision import (
    AcceptGap,
    AcceptTopic,
    Acknowledge,
    Count,
    Decision,
    Discard,
    Offsets,
    Park,
    discards_in,
    time_of,
)
from tidelake.store.entry import Collection
from tidelake.store.late_notes import LateNotes, settles
from tidelake.store.proof_log import read_proof_log
from tidelake.store.quarantine import explanation_of, quarantine_rows
from tidelake.store.state import CLOSED, UPPER, next_offsets
from tidelake.topic.open import open_topics
from tidelake.topic.topic import OffsetRange, Topic

__all__ = [
    "AcceptGap",
    "AcceptTopic",
    "Acknowledge",
    "Count",
    "Decision",
    "Discard",
    "Offsets",
    "Park",
    "check_decision",
    "check_withdrawal",
    "is_sealed",
    "parse_statement",
    "time_of",
]


def check_decision(collection: Collection, settings: CollectionSettings, decision: Decision) -> Decision:
    """Check a decision against what the collection is waiting for.

    Args:
        collection: the collection, with its newest catalog entry.
        settings: the collection's settings, which say where to look up a gap or a topic.
        decision: the requested decision. In an `AcceptTopic`, only the name and the reason are used.

    Returns:
        The decision to store: its statement in lossless JSON, its topic as it is now, its reason without surrounding
        whitespace.

    Raises:
        DecisionRefused: it cannot have an effect, or cannot be read.
        StatementRefused, DataRefused: a statement does not fit the collection's schema.
        TopicChanged: the decision names a gap, and the topic has been recreated or has shrunk.
        TopicUnreachable: the decision names a gap, a topic or a transaction, and the brokers do not answer.
    """
    if not decision.reason.strip():
        raise DecisionRefused("the reason is missing or empty", "give a reason: every report repeats it")
    decision = decision.model_copy(update={"reason": decision.reason.strip()})
    match decision:
        case Count():
            return _check_count(collection, decision)
        case Discard():
            return _check_discard(collection, decision)
        case AcceptGap():
            return _check_gap(collection, settings, decision)
        case AcceptTopic():
            return _current_topic(collection, settings, decision)
        case Acknowledge():
            return _check_acknowledgement(collection, decision)
        case Park():
            return _check_parking(collection, settings, decision)
        case _:
            assert_never(decision)


def check_withdrawal(collection: Collection, subject: int | Offsets) -> None:
    """Refuse to withdraw a decision that does not exist or cannot be undone.

    Args:
        collection: the collection, with its newest catalog entry.
        subject: a time, or the offsets of an acknowledgement exactly as they were given.

    Raises:
        DecisionRefused: there is no decision about it, the time is sealed, or the offsets are those of an accepted gap.
    """
    name, decisions = collection.name, collection.entry.decisions
    if isinstance(subject, Offsets):
        acknowledged = [decision.offsets for decision in decisions if isinstance(decision, Acknowledge)]
        if subject in acknowledged:
            return
        gaps = [decision.offsets for decision in decisions if isinstance(decision, AcceptGap)]
        if any(gap[:2] == subject[:2] and gap.start <= subject.start < subject.end <= gap.end for gap in gaps):
            raise DecisionRefused(
                f"'{subject}' of '{name}' is an accepted gap, which cannot be withdrawn",
                "only acknowledgements and decisions about unsealed times can be withdrawn",
            )
        known = ", ".join(map(str, acknowledged))
        raise DecisionRefused(
            f"'{name}' has no acknowledgement of '{subject}'",
            f"acknowledged: {known}; repeat the offsets exactly as they were given" if known else "acknowledged: none",
        )
    if is_sealed(collection, subject):
        raise DecisionRefused(f"time {subject} of '{name}' is already sealed", "sealed times never change")
    times = sorted({time for time in map(time_of, decisions) if time is not None})
    if subject not in times:
        raise DecisionRefused(
            f"there is no decision about time {subject} of '{name}'",
            f"times with a decision: {', '.join(map(str, times)) or 'none'}",
        )


def is_sealed(collection: Collection, time: int) -> bool:
    """Return whether a time is before upper."""
    table = OpenTable(collection.paths.updates)
    return bool(table.value(CLOSED)) or time < (table.value(UPPER) or 0)


def parse_statement(text: str) -> dict[str, Any]:
    """Read `{"data": {…}, "diff": 1}`; `check_decision` checks that it fits the collection.

    Raises:
        StatementRefused: it is not a JSON object.

    >>> parse_statement('{"data": {"id": 1}, "diff": -1}')
    {'data': {'id': 1}, 'diff': -1}
    """
    hint = 'write it as {"data": {…}, "diff": 1}'
    try:
        statement = parse(text)
    except CodecError as error:
        raise StatementRefused(f"the statement cannot be read: {error.detail}", hint) from error
    if not isinstance(statement, dict):
        raise StatementRefused("the statement does not have exactly `data` and an integer `diff`", hint)
    return statement


# --- about a time ----------------------------------------------------------------------------------------------------


def _check_count(collection: Collection, decision: Count) -> Count:
    _check_time(collection, decision.time)
    if not 0 <= decision.count <= INT64_MAX:
        raise DecisionRefused(f"the count is {decision.count}", f"a count must be from 0 to {INT64_MAX}")
    if is_sealed(collection, decision.time):
        _check_settles(collection, decision.time, decision.count, None)
    else:
        _check_count_helps(collection, decision.time)
    return decision


def _check_discard(collection: Collection, decision: Discard) -> Discard:
    _check_time(collection, decision.time)
    from tidelake.codec.typed import read_statement  # imported late: only this decision needs an Avro codec

    statement = read_statement(collection.entry.statement_schema, to_text(decision.statement))
    if is_sealed(collection, decision.time):
        _check_settles(collection, decision.time, None, statement)
    return decision.model_copy(update={"statement": statement})


def _check_time(collection: Collection, time: int) -> None:
    if not 0 <= time <= INT64_MAX:
        raise DecisionRefused(f"the time is {time}", f"a time must be from 0 to {INT64_MAX}")
    if collection.entry.mints_times:
        raise DecisionRefused(
            f"'{collection.name}' mints its times itself, and the tick that mints a time also seals it",
            f"no time of it waits for a decision; `tidelake status {collection.name}` shows what does",
        )


def _check_settles(collection: Collection, time: int, count: int | None, discard: dict[str, Any] | None) -> None:
    """Accept a decision about a sealed time only if it confirms what was published and so settles a late fact."""
    if not any(settles(collection, fact, time, count, discard) for fact in LateNotes(collection).at(time)):
        raise DecisionRefused(
            f"time {time} of '{collection.name}' is already sealed, and this decision settles no late contradiction",
            "sealed times never change; "
            f"you can discard a statement listed by `tidelake late {collection.name}`, "
            "or settle a count listed there with the published count",
        )


def _check_count_helps(collection: Collection, time: int) -> None:
    """Refuse a count if an update has two diffs, or a key or an event has two values.

    A count does not say which of the two is right, so a statement at this time has to be discarded first.
    """
    if any(discard.time == time for discard in discards_in(collection.entry.decisions)):
        return
    noted = [note["detail"] for note in read_proof_log(collection).blocked if note["time"] == time]
    if (ambiguity := ambiguity_of(noted)) is not None:
        raise DecisionRefused(
            f"at time {time}, {ambiguity}, but a count does not say which one is right",
            f"discard one statement first: `{discard_command(collection.name, time)}`",
        )


# --- about a topic ---------------------------------------------------------------------------------------------------


def _check_gap(collection: Collection, settings: CollectionSettings, decision: AcceptGap) -> AcceptGap:
    """Check that the offsets are within a gap that now stops ingest.

    An event without a transaction counts as the start of such a gap, which extends to the end of the partition.
    """
    asked = decision.offsets
    topic, _, gaps = _stops_at(collection, settings, asked.topic)
    if gaps and isinstance(gaps[0], TopicChanged):
        raise gaps[0]
    open_gaps = [Offsets(topic.name, gap.partition, gap.from_offset, gap.to_offset) for gap in gaps]
    if collection.entry.counts_positions:
        blocked = waiting_events(settings, OpenTable(collection.paths.updates), topic)
        ends = topic.end_offsets()
        # Such an event may be a row of a snapshot of any size, so the decision may cover all later offsets of the
        # partition: of the events at these offsets, ingest leaves out only those that have no transaction.
        open_gaps += [
            Offsets(topic.name, event.partition, event.offset, ends[event.partition])
            for event in blocked
            if event.transaction is None
        ]
    if not any(
        gap.partition == asked.partition and gap.start <= asked.start < asked.end <= gap.end for gap in open_gaps
    ):
        raise DecisionRefused(
            f"'{asked}' is not within a gap that now stops ingest; gaps: {', '.join(map(str, open_gaps)) or 'none'}",
            "accept these offsets, or a part of them"
            if open_gaps
            else f"`tidelake status {collection.name}` shows what the collection is waiting for",
        )
    return decision.model_copy(update={"offsets": asked._replace(topic=topic.name)})


def _current_topic(collection: Collection, settings: CollectionSettings, decision: AcceptTopic) -> AcceptTopic:
    """Complete a decision with the topic that has this name now, and with the offsets to start from.

    A recreated topic is read from its beginning. Each partition of a truncated topic is read from the offset that it
    was read up to, or from its end if that is earlier.
    """
    topic, offsets, gaps = _stops_at(collection, settings, decision.topic)
    changed = next((gap for gap in gaps if isinstance(gap, TopicChanged)), None)
    if changed is None:
        raise DecisionRefused(
            f"the topic '{decision.topic}' has not changed since the collection '{collection.name}' read it, or was "
            "never read",
            "accept a topic only if ingest says that it has changed",
        )
    starts = {}
    if changed.why != RECREATED:
        ends = topic.end_offsets()
        read = next_offsets(OpenTable(collection.paths.updates), topic.name)
        starts = {partition: min(end, ends[partition]) for partition, end in read.items() if partition in ends}
    known = {"topic": name_in_kafka(topic.name), "identity": offsets.identity or 0, "starts": starts}
    return decision.model_copy(update=known)


def _stops_at(
    collection: Collection, settings: CollectionSettings, name: str
) -> tuple[Topic, OffsetRange, list[TopicGap]]:
    """Return a topic, the range that ingest would read next, and the gaps at which it would stop."""
    for at, topic in zip(settings.topics, open_topics(settings, collection.entry.decisions), strict=True):
        if name in (at, topic.name):
            return topic, *plan_next(topic, OpenTable(collection.paths.updates), collection, 1)
    names = [f"'{topic}'" for topic in settings.topics]
    read = f"topic {names[0]}" if len(names) == 1 else f"topics {', '.join(names[:-1])} and {names[-1]}"
    raise DecisionRefused(f"'{settings.name}' reads the {read}, not '{name}'", "correct the topic's name")


# --- about a transaction ---------------------------------------------------------------------------------------------


def _check_parking(collection: Collection, settings: CollectionSettings, decision: Park) -> Park:
    """Check that ingest is waiting for the transaction's END, or stops at that END because it came too late."""
    if not isinstance(settings, TransactionSettings):
        raise DecisionRefused(
            f"'{collection.name}' reads no transactions", "only collections with `framing: transactions` do"
        )
    events, marks = open_topics(settings, collection.entry.decisions)
    table = OpenTable(collection.paths.updates)
    back = went_back(marks, table, collection, settings, marks.end_offsets())
    if back is not None:
        if back.transaction == decision.transaction:
            return decision
        raise DecisionRefused(f"the END of transaction {decision.transaction} may still arrive: {back.fact}", back.hint)
    waiting = waiting_events(settings, table, events)
    if decision.transaction not in [event.transaction for event in waiting]:
        named = ", ".join(event.transaction for event in waiting if event.transaction is not None)
        hints = [f"it is waiting for: {named}"] if named else []
        hints += [
            f"{event.sentence}: `tidelake resolve gap {collection.name} --offsets "
            f"{Offsets(event.topic, event.partition, event.offset, event.offset + 1)} --reason …`"
            for event in waiting
            if event.transaction is None
        ]
        raise DecisionRefused(
            f"'{collection.name}' is not waiting for the END of transaction {decision.transaction}",
            "; ".join(hints) or "it is waiting for: none",
        )
    return decision


# --- about the quarantine --------------------------------------------------------------------------------------------


def _check_acknowledgement(collection: Collection, decision: Acknowledge) -> Acknowledge:
    rows = quarantine_rows(collection, ["topic", "partition", "offset", "reason", "times"])
    unexplained = [row for row in rows if explanation_of(row, collection.entry.decisions) is None]
    if not any(explanation_of(row, [decision]) for row in unexplained):
        raise DecisionRefused(
            f"'{collection.name}' has no unexplained quarantined message at '{decision.offsets}'",
            f"`tidelake quarantine {collection.name}` shows the quarantined messages",
        )
    return decision
