"""Errors of messages: statements that contradict each other or break the protocol, and bytes that cannot be decoded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from tidelake.errors.base import TidelakeError, Time, show


class ProtocolError(TidelakeError):
    """A source's statements break the protocol."""


class MalformedMessage(ProtocolError):
    """A message that is invalid whatever other messages say; no part of it counts."""

    problems: Iterable[tuple[str, object]]
    """`(kind, time)`, each once, in order of appearance; the time as it was received, or None. Never empty."""

    FACTS: ClassVar[dict[str, str]] = {
        "zero_diff": "an update has diff 0",
        "negative_time": "a time is negative",
        "bad_time": "a time is not an integer that fits in int64, or does not have the expected number of elements",
        "bad_diff": "a diff is not an integer that fits in int64",
        "bad_interval": "upper is not at or beyond lower",
        "negative_count": "a count is negative",
        "count_outside_interval": "a count is stated for a time outside the interval",
        "duplicate_count": "one time has two counts in one statement",
        "bad_message": "the message has none of the known forms",
    }

    @property
    def kind(self) -> str:
        """The kind of the first problem."""
        return next(iter(self.problems))[0]

    @property
    def time(self) -> object:
        """The time of the first problem, as it was received."""
        return next(iter(self.problems))[1]

    @property
    def fact(self) -> str:
        """Every problem with its time."""
        return "; ".join(
            self.FACTS.get(kind, kind) + ("" if time is None else f" (at time {show(time)})")
            for kind, time in self.problems
        )


class Contradiction(ProtocolError):
    """Two facts about one time cannot both be true; the time is not sealed until an operator decides."""

    kind: ClassVar[str] = "contradiction"
    time: Time

    @property
    def needs_discard(self) -> bool:
        """Whether one of two statements has to be discarded, because a count does not say which one is right."""
        return False

    @property
    def hint(self) -> str:
        """What can settle it."""
        time = show(self.time)
        if self.needs_discard:
            return (
                "earlier times can still be sealed; a count cannot say which statement is right: discard the wrong "
                f"one with `tidelake resolve discard NAME --time {time} --statement …`"
            )
        return (
            f"earlier times can still be sealed; settle this one with `tidelake resolve count NAME --time {time} "
            "--count N --reason …`, or discard a statement with `tidelake resolve discard`"
        )


class ConflictingDiff(Contradiction):
    """One `(data, time)` is stated with two diffs."""

    kind = "conflicting_diff"
    first: int
    second: int
    needs_discard = True
    fact = "one update at time {time} is stated with diff {first} and with diff {second}"


class ConflictingCount(Contradiction):
    """Two statements announce different counts for one time; one that covers the time without listing it states 0."""

    kind = "conflicting_count"
    first: int
    second: int
    fact = "time {time} is announced with different counts: {first} and {second}"


class OverCount(Contradiction):
    """A time has more distinct updates than any statement announces for it."""

    kind = "over_count"
    announced: int
    counted: int
    fact = "time {time} has more distinct updates than announced: {counted} instead of {announced}"


REPEATED = "repeated with different contents"
"""With transactions: how the detail of a breach ends if an event was repeated with different contents."""
TWO_VALUES = "keys with two values"
"""How the detail of an envelope breach starts if no count can settle it."""
LARGE_DIFF = "what is stated of a key has no other diff than +1 and -1"
"""The detail, as it is stored, of a breach by a diff other than +1 and -1. It words the rule; `fact_of` replaces it."""


class EnvelopeBreach(Contradiction):
    """The statements at a time are not allowed by the collection's envelope; the time waits."""

    kind = "envelope_breach"
    detail: str
    fact = "time {time} breaks the envelope: {detail}"

    @property
    def needs_discard(self) -> bool:
        """Whether a key or an event has two values."""
        return TWO_VALUES in self.detail or REPEATED in self.detail


class TransactionCut(Contradiction):
    """The first change of a transaction was not sent: a restarted connector skipped it."""

    kind = "cut_transaction"
    transaction: str
    begins_at: int
    sent: str
    """Where the first event that was sent is; if there is none, where the END is."""
    fact = "transaction {transaction} at time {time} lacks its first change, at log position {begins_at}: {sent}"
    hint = (
        "changes to any of its tables may be missing: let the connector take a new snapshot, and accept the events "
        "that were sent, with `tidelake resolve count NAME --time {time:line} --count N --reason …`; if the connector "
        "leaves out some of what PostgreSQL publishes, write `captures_publication: false`"
    )


class CodecError(TidelakeError):
    """Bytes that are not a message: they are quarantined, and ingest continues."""

    reason: str
    """A slug to group by: `undecodable`, `wrong_magic_byte`, `unknown_schema_id`, `bytes_left_over`."""
    detail: str
    fact = "{reason}: {detail}"
