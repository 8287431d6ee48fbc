"""Every error of Tidelake, in one tree: who has to act decides where an error hangs.

`ProtocolError`: the source contradicts itself. `CodecError`: bytes do not fit. `InvalidUsage`: the caller broke a rule.
`CapabilityError`: a right is unknown or gone. `CommitError`: a commit did not happen, or perhaps did.

Every error keeps its values as attributes and as `args`, so that it survives a pickle from an executor to the driver.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from tidelake.order import Time

SHOWN_CHARACTERS_MAX = 120


def show(value: object) -> str:
    """Write any value for a person: never raises, never longer than a line.

    >>> show("a" * 500)[-6:], show([1, 2])
    ('aaa...', '[1, 2]')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, a list nested thousands deep
        return f"<{type(value).__name__} too big to show>"
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 3] + "..."


def show_frontier(elements: Iterable[Time]) -> str:
    """Write a frontier as its elements in brackets; `[]` is the closed one."""
    return "[" + ", ".join(show(element) for element in elements) + "]"


class TidelakeError(Exception):
    """The root: a fact in lower case, then what to do about it after `hint:`."""

    def fact(self) -> str:
        """Say what is the case, with its values, in one lower-case sentence."""
        return ", ".join(show(value) for value in self.args)

    @property
    def hint(self) -> str | None:
        """What a person can do about it; None where there is nothing general to say."""
        return None

    def __str__(self) -> str:
        return self.fact() if self.hint is None else f"{self.fact()}\nhint: {self.hint}"


# --- the source contradicts itself, or says what cannot be said ---------------------------------------------------


class ProtocolError(TidelakeError):
    """What a source said breaks the protocol."""


class MalformedMessage(ProtocolError):
    """A message that is wrong in itself: it contributes nothing, as a whole.

    Args:
        problems: `(kind, time)`, each once, in order of appearance; the time is in the form it came in, None where the
            problem has none. Never empty.
    """

    FACTS: ClassVar[dict[str, str]] = {
        "zero_diff": "an update has diff 0",
        "negative_time": "a time is negative",
        "bad_time": "a time is not an integer of int64, or not as wide as the others",
        "bad_diff": "a diff is not an integer of int64",
        "bad_interval": "upper is not at or beyond lower",
        "negative_count": "a count is negative",
        "count_outside_interval": "a count is stated for a time outside the interval",
        "duplicate_count": "one time has two counts in one statement",
        "bad_message": "the message has none of the known forms",
    }

    def __init__(self, problems: Iterable[tuple[str, object]]) -> None:
        self.problems: tuple[tuple[str, object], ...] = tuple(problems)
        super().__init__(self.problems)

    @property
    def kind(self) -> str:
        """The kind of the first problem."""
        return self.problems[0][0]

    @property
    def time(self) -> object:
        """The time of the first problem, in the form it came in."""
        return self.problems[0][1]

    def fact(self) -> str:
        """Name every problem with its time."""
        return "; ".join(
            self.FACTS.get(kind, kind) + ("" if time is None else f" (at time {show(time)})")
            for kind, time in self.problems
        )


class Contradiction(ProtocolError):
    """Two facts about one time cannot both be true; the time does not seal until somebody decides."""

    kind: ClassVar[str] = "contradiction"
    time: Time

    @property
    def hint(self) -> str | None:
        """The way out of every stop is the same."""
        return f"earlier times go on sealing; settle this one with `tidelake resolve NAME --time {show(self.time)}`"


class ConflictingDiff(Contradiction):
    """One `(data, time)` is stated with two diffs."""

    kind = "conflicting_diff"

    def __init__(self, time: Time, first: int, second: int) -> None:
        super().__init__(time, first, second)
        self.time, self.first, self.second = time, first, second

    def fact(self) -> str:
        """Name the time and both diffs."""
        return f"one update at time {self.time} is stated with diff {self.first} and with diff {self.second}"


class ConflictingCount(Contradiction):
    """Two statements announce different counts for one time; a count that a statement leaves out is 0."""

    kind = "conflicting_count"

    def __init__(self, time: Time, first: int, second: int) -> None:
        super().__init__(time, first, second)
        self.time, self.first, self.second = time, first, second

    def fact(self) -> str:
        """Name the time and both counts."""
        return f"time {self.time} is announced with {self.first} updates and with {self.second}"


class OverCount(Contradiction):
    """More distinct updates arrived at a time than any statement announces for it."""

    kind = "over_count"

    def __init__(self, time: Time, announced: int, counted: int) -> None:
        super().__init__(time, announced, counted)
        self.time, self.announced, self.counted = time, announced, counted

    def fact(self) -> str:
        """Name the time and both numbers."""
        return f"time {self.time} is announced with {self.announced} updates, and {self.counted} distinct ones arrived"


TWO_VALUES = "keys with two values"
"""How the detail of an envelope's breach begins that no count can settle."""


class EnvelopeBreach(Contradiction):
    """What is stated at a time is not what the collection's envelope allows; the time waits."""

    kind = "envelope_breach"

    def __init__(self, time: Time, detail: str) -> None:
        super().__init__(time, detail)
        self.time, self.detail = time, detail

    def fact(self) -> str:
        """Name the time and the rule."""
        return f"time {self.time} breaks the envelope: {self.detail}"


class LateContradiction(Contradiction):
    """A late fact disagrees with what was published at its time; what was published stays."""

    kind = "late_contradiction"

    def __init__(self, time: Time, detail: str) -> None:
        super().__init__(time, detail)
        self.time, self.detail = time, detail

    def fact(self) -> str:
        """Name the time and how the facts differ."""
        return f"a late statement disagrees with what is sealed at time {self.time}: {self.detail}"

    @property
    def hint(self) -> str | None:
        """Nothing is taken back."""
        return "what was sealed stays as it is; look for a second source that writes to the same topic"


# --- bytes do not fit ----------------------------------------------------------------------------------------------


class CodecError(TidelakeError):
    """Bytes that are no message: they go to the quarantine and stop nothing.

    Args:
        reason: a slug to group by: `undecodable`, `wrong_magic_byte`, `unknown_schema_id`, `bytes_left_over`.
        detail: one sentence for a person.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail

    def fact(self) -> str:
        """Name the reason and the detail."""
        return f"{self.reason}: {self.detail}"


# --- the caller broke a rule ---------------------------------------------------------------------------------------


class InvalidUsage(TidelakeError):
    """The caller broke a rule of the interface; nothing was changed."""


class RuleBroken(InvalidUsage):
    """A rule of some room was broken that has no error of its own.

    Args:
        problem: the fact, in lower case, with its values.
        fix: what to do about it.
    """

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem, fix)
        self.problem, self.fix = problem, fix

    def fact(self) -> str:
        """Say what is the case."""
        return self.problem

    @property
    def hint(self) -> str | None:
        """Say what to do about it."""
        return self.fix


class CommitRefused(RuleBroken):
    """A commit that may not be made: whoever prepared it is wrong, not what it was made from."""


class MixedTimes(InvalidUsage):
    """Two times of different width were compared, or a time is no time at all."""

    def __init__(self, first: object, second: object) -> None:
        super().__init__(first, second)
        self.first, self.second = first, second

    def fact(self) -> str:
        """Name both times."""
        return f"times {show(self.first)} and {show(self.second)} cannot be compared: their widths differ"


class SchemaRefused(InvalidUsage):
    """A record schema that a collection cannot hold.

    Args:
        column: the path of the column, with dots; empty for the record itself.
        reason: why, in one lower-case clause.
    """

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(column, reason)
        self.column, self.reason = column, reason

    def fact(self) -> str:
        """Name the column and the reason."""
        return f"column {self.column!r} is refused: {self.reason}" if self.column else f"schema refused: {self.reason}"


class ConfigurationError(InvalidUsage):
    """A setting is wrong; nothing was started.

    Args:
        file: where it stands.
        field: the path of the setting, with dots, or a line number.
        problem: what is wrong.
        fix: what to write instead.
    """

    def __init__(self, file: str, field: str, problem: str, fix: str) -> None:
        super().__init__(file, field, problem, fix)
        self.file, self.field, self.problem, self.fix = file, field, problem, fix

    def fact(self) -> str:
        """Name the place and the problem."""
        return ": ".join(part for part in (self.file, self.field, self.problem) if part)

    @property
    def hint(self) -> str | None:
        """The fix."""
        return self.fix


class SinceError(InvalidUsage):
    """A read asks for a time that is not at or after `since`: its history was forgotten."""

    def __init__(self, as_of: Time, since: Iterable[Time]) -> None:
        self.as_of, self.since = as_of, tuple(since)
        super().__init__(self.as_of, self.since)

    def fact(self) -> str:
        """Name both."""
        return f"time {self.as_of} is not at or after since {show_frontier(self.since)}"

    @property
    def hint(self) -> str | None:
        """What can be read instead."""
        return (
            "read at since or after it" if self.since else "the collection is unreadable for ever: its since is empty"
        )


class UpperError(InvalidUsage):
    """A read asks for a time at or after `upper`: it is not definite yet."""

    def __init__(self, as_of: Time, upper: Iterable[Time]) -> None:
        self.as_of, self.upper = as_of, tuple(upper)
        super().__init__(self.as_of, self.upper)

    def fact(self) -> str:
        """Name both."""
        return f"time {self.as_of} is not before upper {show_frontier(self.upper)}"

    @property
    def hint(self) -> str | None:
        """What can be done."""
        return "wait until upper has passed it, or read before upper"


class KeysInError(InvalidUsage):
    """A read would leave keys out whose newest record could not be decoded.

    Args:
        collection: its name.
        as_of: the time of the read.
        count: how many keys.
        keys: the first of them, each as JSON.
    """

    def __init__(self, collection: str, as_of: int, count: int, keys: Iterable[str]) -> None:
        self.collection, self.as_of, self.count, self.keys = collection, as_of, count, tuple(keys)
        super().__init__(collection, as_of, count, self.keys)

    def fact(self) -> str:
        """Name the keys."""
        more = f" and {self.count - len(self.keys)} more" if self.count > len(self.keys) else ""
        keys = "1 key" if self.count == 1 else f"{self.count} keys"
        are = "is" if self.count == 1 else "are"
        return f"{keys} of '{self.collection}' {are} in error: {', '.join(self.keys)}{more} (AS OF {self.as_of})"

    @property
    def hint(self) -> str | None:
        """What heals a key, and how to read the others."""
        return "a later good value or a delete heals a key; read the others with --skip-errors"


class SealedTime(InvalidUsage):
    """An update was appended at a time that is sealed already."""

    def __init__(self, time: Time, upper: Iterable[Time]) -> None:
        self.time, self.upper = time, tuple(upper)
        super().__init__(self.time, self.upper)

    def fact(self) -> str:
        """Name both."""
        return f"time {self.time} is before upper {show_frontier(self.upper)}, and so sealed"


class FrontierRegression(InvalidUsage):
    """A frontier was asked to go back.

    Args:
        role: which one: `since`, `upper`, `frontier`.
        current: its elements now.
        asked: the elements asked for.
    """

    def __init__(self, role: str, current: Iterable[Time], asked: Iterable[Time]) -> None:
        self.role, self.current, self.asked = role, tuple(current), tuple(asked)
        super().__init__(self.role, self.current, self.asked)

    def fact(self) -> str:
        """Name both frontiers."""
        return f"{self.role} is {show_frontier(self.current)} and never goes back to {show_frontier(self.asked)}"


class TopicGap(InvalidUsage):
    """Offsets of a topic that should be there are not; nothing was skipped.

    Args:
        topic: its name.
        partition: the partition.
        from_offset: the first offset that is missing.
        to_offset: the first offset that is there again; equal to `from_offset` where the topic shrank.
        why: what was noticed.
    """

    def __init__(self, topic: str, partition: int, from_offset: int, to_offset: int, why: str) -> None:
        super().__init__(topic, partition, from_offset, to_offset, why)
        self.topic, self.partition, self.from_offset, self.to_offset = topic, partition, from_offset, to_offset
        self.why = why

    def fact(self) -> str:
        """Name the exact gap."""
        return (
            f"topic {self.topic!r}, partition {self.partition}: offsets {self.from_offset} to {self.to_offset} "
            f"are missing: {self.why}"
        )

    @property
    def hint(self) -> str | None:
        """Restore, or accept by an explicit flag."""
        gap = f"{self.topic}:{self.partition}:{self.from_offset}-{self.to_offset}"
        return (
            f"restore what is missing, or accept the gap: `tidelake resolve NAME --accept-gap {gap} --reason …`; "
            "what was in it is then lost"
        )


class TopicChanged(TopicGap):
    """What was read of a topic is no longer what it is: it was made anew, or ends before what was read.

    Args: those of `TopicGap`; `from_offset` is what is left of what was read, `to_offset` how far it was read.
    """

    def fact(self) -> str:
        """Name the topic, and what was read of it."""
        return (
            f"topic {self.topic!r}, partition {self.partition}, was read up to offset {self.to_offset}, of which "
            f"{self.from_offset} are there now: {self.why}"
        )

    @property
    def hint(self) -> str | None:
        """Restore, or go on by an explicit flag."""
        return (
            f"mend the topic or its name, or go on with what is there: `tidelake resolve NAME --accept-topic "
            f"{self.topic.partition('#')[0]} --reason …`; what was not read before is then lost"
        )


class TopicUnreachable(TidelakeError):
    """The brokers of a topic did not answer, or did not let us in; nothing was read, and nothing is lost.

    Args:
        topic: its name.
        servers: where the brokers were looked for.
        detail: what the client said.
    """

    def __init__(self, topic: str, servers: str, detail: str) -> None:
        super().__init__(topic, servers, detail)
        self.topic, self.servers, self.detail = topic, servers, detail

    def fact(self) -> str:
        """Name the topic, the brokers and what they, or the client, said."""
        return f"the topic '{self.topic}' cannot be read from {self.servers}: {self.detail}"

    @property
    def hint(self) -> str | None:
        """Look at the way there first; the next run goes on where this one stopped."""
        return "see whether the brokers run and the settings below `kafka:` fit them; the next run goes on from here"


class RegistryUnreachable(TidelakeError):
    """The schema registry did not answer, or not as one does; nothing was read, and nothing is lost.

    Args:
        url: where it was looked for.
        detail: what came instead.
    """

    def __init__(self, url: str, detail: str) -> None:
        super().__init__(url, detail)
        self.url, self.detail = url, detail

    def fact(self) -> str:
        """Name the place, and what came."""
        return f"the schema registry at {self.url} cannot be asked: {self.detail}"

    @property
    def hint(self) -> str | None:
        """Look at the way there first; the next run goes on where this one stopped."""
        return "see whether it runs and the settings below `registry:` fit it; the next run goes on from here"


# --- a right is gone -----------------------------------------------------------------------------------------------


class StepFailed(TidelakeError):
    """An engine below us failed in a way that has no error of ours; the collection's step stopped there.

    Args:
        step: which one.
        collection: whose.
        kind: the engine's own error.
        detail: its first line.
    """

    def __init__(self, step: str, collection: str, kind: str, detail: str) -> None:
        super().__init__(step, collection, kind, detail)
        self.step, self.collection, self.kind, self.detail = step, collection, kind, detail

    def fact(self) -> str:
        """Name the step and the engine's error."""
        return f"{self.step} of '{self.collection}' failed: {self.kind}: {self.detail}"

    @property
    def hint(self) -> str | None:
        """Where to look."""
        return "nothing was committed by the step that failed; the whole error is in the log"


class CapabilityError(TidelakeError):
    """A capability is unknown, expired, dropped, or somebody else's.

    Args:
        capability_id: which one.
        detail: what is wrong with it, in one lower-case clause.
    """

    def __init__(self, capability_id: str, detail: str) -> None:
        super().__init__(capability_id, detail)
        self.capability_id, self.detail = capability_id, detail

    def fact(self) -> str:
        """Name the capability and what is wrong."""
        return f"capability {self.capability_id!r}: {self.detail}"

    @property
    def hint(self) -> str | None:
        """A right is never repaired, only acquired anew."""
        return "acquire a new capability; its since may be later than the one that was lost"


# --- a commit did not happen, or perhaps did -----------------------------------------------------------------------


class CommitError(TidelakeError):
    """A commit to a table did not succeed, or nobody knows."""


class Conflict(CommitError):
    """Somebody else committed this version first; nothing was written."""

    def __init__(self, table: str, version: int, detail: str) -> None:
        super().__init__(table, version, detail)
        self.table, self.version, self.detail = table, version, detail

    def fact(self) -> str:
        """Name the table and version."""
        return f"version {self.version} of {self.table} was not committed: {self.detail}"

    @property
    def hint(self) -> str | None:
        """Retry from fresh state."""
        return "load the table again and retry from what it says now"


class Fenced(CommitError):
    """Another writer took over: this one can commit nothing more."""

    def __init__(self, table: str, expected_epoch: int, found_epoch: int) -> None:
        super().__init__(table, expected_epoch, found_epoch)
        self.table, self.expected_epoch, self.found_epoch = table, expected_epoch, found_epoch

    def fact(self) -> str:
        """Name both epochs."""
        return f"the writer of {self.table} with epoch {self.expected_epoch} was fenced by epoch {self.found_epoch}"

    @property
    def hint(self) -> str | None:
        """Stop."""
        return "stop this writer: the other one goes on from the stored offsets"


class Indeterminate(CommitError):
    """The commit may have been written."""

    def __init__(self, table: str, version: int, nonce: str, detail: str) -> None:
        super().__init__(table, version, nonce, detail)
        self.table, self.version, self.nonce, self.detail = table, version, nonce, detail

    def fact(self) -> str:
        """Name the version, the nonce to look for, and what the engine said."""
        return f"version {self.version} of {self.table} may be written or not; its nonce is {self.nonce}: {self.detail}"

    @property
    def hint(self) -> str | None:
        """Read back, then decide."""
        return "read the table back and look for the nonce before anything else is done"


class DamagedTable(CommitError):
    """The table breaks one of its own invariants: somebody should look now."""

    def __init__(self, table: str, detail: str) -> None:
        super().__init__(table, detail)
        self.table, self.detail = table, detail

    def fact(self) -> str:
        """Name the table and the damage."""
        return f"{self.table} is damaged: {self.detail}"

    @property
    def hint(self) -> str | None:
        """Not to make it worse, and how to come back."""
        return (
            "run nothing that writes to it; restore its folder from a copy, or rebuild the collection from its topic "
            "under a new name"
        )
