"""Operators' decisions about a collection. Each kind is a class; on disk, all kinds have the same document type."""

from __future__ import annotations

import re
import time as clock
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple, assert_never

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from tidelake.errors import DecisionRefused
from tidelake.protocol.json_values import to_text
from tidelake.protocol.order import INT64_MAX

_OFFSETS = re.compile(r"(?s)(.+):(\d{1,19}):(\d{1,19})(?:-(\d{1,19}))?", re.ASCII)


class Offsets(NamedTuple):
    """A range of offsets in one partition, `[start, end)`."""

    topic: str
    partition: int
    start: int
    end: int

    @staticmethod
    def parse(text: str) -> Offsets:
        """Read `TOPIC:PARTITION:OFFSET` or `TOPIC:PARTITION:FROM-TO`.

        Raises:
            DecisionRefused: the text is neither, or the range is empty.

        >>> Offsets.parse("orders:0:7"), str(Offsets.parse("eu:orders:0:7-9"))
        (Offsets(topic='orders', partition=0, start=7, end=8), 'eu:orders:0:7-9')
        """
        match = _OFFSETS.fullmatch(text)  # parsed from the right: a topic may have a colon in its name
        if match is not None:
            topic, partition, start = match.group(1), int(match.group(2)), int(match.group(3))
            end = start + 1 if match.group(4) is None else int(match.group(4))
            if start < end <= INT64_MAX:
                return Offsets(topic, partition, start, end)
        raise DecisionRefused(
            f"'{text}' is not a range of offsets",
            "write TOPIC:PARTITION:OFFSET or TOPIC:PARTITION:FROM-TO, e.g. orders:0:100-200 (200 is excluded)",
        )

    def holds(self, topic: str, partition: int, offset: int) -> bool:
        """Return whether the range contains the message at this place."""
        return (topic, partition) == (self.topic, self.partition) and self.start <= offset < self.end

    def __str__(self) -> str:
        offsets = f"{self.start}" if self.end == self.start + 1 else f"{self.start}-{self.end}"
        return f"{self.topic}:{self.partition}:{offsets}"


def _now_ms() -> int:
    return int(clock.time() * 1000)


class _Decided(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: str
    """The reason for the decision; each report that shows the decision includes it."""
    at_ms: int = Field(default_factory=_now_ms)


class Count(_Decided):
    """Sets the number of distinct updates for one time, whatever was announced."""

    time: int
    count: int


class Discard(_Decided):
    """Removes the effect of one statement about one time."""

    time: int
    statement: dict[str, Any]
    """`data`, as lossless JSON, and `diff`."""


class AcceptGap(_Decided):
    """Accepts that offsets are lost for good."""

    offsets: Offsets


class AcceptTopic(_Decided):
    """Accepts a recreated or truncated topic, which gets a new name in the collection's tables."""

    topic: str
    identity: int = 0
    """The identity of the accepted topic; 0 if the cluster gives none."""
    starts: dict[int, int] = {}
    """By partition, the first offset to read, if it is not 0."""


class Acknowledge(_Decided):
    """Acknowledges the quarantined messages at these offsets."""

    offsets: Offsets


class Park(_Decided):
    """Quarantines the events of a transaction whose END will never arrive."""

    transaction: str


Decision = Count | Discard | AcceptGap | AcceptTopic | Acknowledge | Park
"""A decision about a collection. Every ingest and every seal applies it."""


class DecisionDocument(BaseModel):
    """A decision as the handles store it and `--json` prints it. The fields that are set determine its kind.

    Once a field exists, its place and its shape never change, so that every release of Tidelake can read what earlier
    releases stored. A field that was added later is left out if it is not set.

    >>> document = DecisionDocument(time=3, count=2, reason="both", at_ms=7)
    >>> document.decision()
    Count(reason='both', at_ms=7, time=3, count=2)
    >>> DecisionDocument.of(document.decision()) == document
    True
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    time: int | None = None
    count: int | None = None
    discard: dict[str, Any] | None = None
    accept_gap: Offsets | None = None
    accept_topic: tuple[str, int, dict[int, int]] | None = None
    quarantined: Offsets | None = None
    park: str | None = Field(default=None, exclude_if=lambda park: park is None)
    """Left out of other kinds of decisions: earlier releases, which know no transactions, refuse an unknown field."""
    reason: str
    at_ms: int

    @staticmethod
    def of(decision: Decision) -> DecisionDocument:
        """Return the document of a decision."""
        fields: dict[str, Any] = {"reason": decision.reason, "at_ms": decision.at_ms}
        match decision:
            case Count():
                fields |= {"time": decision.time, "count": decision.count}
            case Discard():
                fields |= {"time": decision.time, "discard": decision.statement}
            case AcceptGap():
                fields |= {"accept_gap": decision.offsets}
            case AcceptTopic():
                fields |= {"accept_topic": (decision.topic, decision.identity, decision.starts)}
            case Acknowledge():
                fields |= {"quarantined": decision.offsets}
            case Park():
                fields |= {"park": decision.transaction}
            case _:
                assert_never(decision)
        return DecisionDocument(**fields)

    def decision(self) -> Decision:
        """Read the decision.

        Raises:
            ValueError: the document holds no decision, or several.
        """
        kinds = (self.count, self.discard, self.accept_gap, self.accept_topic, self.quarantined, self.park)
        about_time = self.count is not None or self.discard is not None
        if sum(kind is not None for kind in kinds) != 1 or (self.time is not None) != about_time:
            raise ValueError(f"not exactly one decision: {self.model_dump_json(exclude_none=True)}")
        fields: dict[str, Any] = {"reason": self.reason, "at_ms": self.at_ms}
        if self.count is not None:
            return Count(time=self.time, count=self.count, **fields)
        if self.discard is not None:
            return Discard(time=self.time, statement=self.discard, **fields)
        if self.accept_gap is not None:
            return AcceptGap(offsets=self.accept_gap, **fields)
        if self.accept_topic is not None:
            topic, identity, starts = self.accept_topic
            return AcceptTopic(topic=topic, identity=identity, starts=starts, **fields)
        if self.park is not None:
            return Park(transaction=self.park, **fields)
        return Acknowledge(offsets=self.quarantined, **fields)


def _read(stored: Any) -> Any:
    return DecisionDocument.model_validate(stored).decision() if isinstance(stored, dict) else stored


StoredDecision = Annotated[Decision, BeforeValidator(_read), PlainSerializer(DecisionDocument.of)]
"""A field that is a `Decision` in memory and a `DecisionDocument` on disk."""


def replaces(decision: Decision, earlier: Decision) -> bool:
    """Return whether a decision repeats an earlier one, or sets a new count for the same time."""
    match decision, earlier:
        case AcceptTopic(), _:
            return False  # a topic may be recreated more than once, and each acceptance is kept
        case Count(), Count():
            return decision.time == earlier.time
        case _:
            return earlier.model_copy(update={"at_ms": decision.at_ms, "reason": decision.reason}) == decision


def time_of(decision: Decision) -> int | None:
    """Return the time that a decision is about; None if it is about offsets, a topic or a transaction."""
    return decision.time if isinstance(decision, Count | Discard) else None


def counts_in(decisions: Iterable[Decision]) -> dict[int, Count]:
    """Return the decisions that set a count, by time."""
    return {decision.time: decision for decision in decisions if isinstance(decision, Count)}


def discards_in(decisions: Iterable[Decision]) -> list[Discard]:
    """Return the decisions to discard a statement."""
    return [decision for decision in decisions if isinstance(decision, Discard)]


def parked_in(decisions: Iterable[Decision]) -> dict[str, str]:
    """Return the reason for each decision to park a transaction, by transaction id."""
    return {decision.transaction: decision.reason for decision in decisions if isinstance(decision, Park)}


def reasons_in(decisions: Iterable[Decision]) -> dict[int, str]:
    """Return the reason for the newest decision about each time, by time."""
    return {decision.time: decision.reason for decision in decisions if isinstance(decision, Count | Discard)}


def described(decision: Decision) -> tuple[str, str]:
    """Return the kind of a decision, which is the name of its sub-command, and the subject of the decision.

    >>> described(Count(time=3, count=2000, reason="both"))
    ('count', 'time 3: 2,000 updates')
    """
    match decision:
        case Count(time=time, count=count):
            return "count", f"time {time}: {count:,} update{'' if count == 1 else 's'}"
        case Discard(time=time, statement=statement):
            return "discard", f"time {time}: {to_text(statement)}"
        case AcceptGap(offsets=offsets):
            return "gap", str(offsets)
        case AcceptTopic(topic=topic):
            return "topic", topic
        case Acknowledge(offsets=offsets):
            return "quarantine", str(offsets)
        case Park(transaction=transaction):
            return "transaction", transaction
        case _:
            assert_never(decision)
