"""Every error of Tidelake, in one tree. Errors are grouped by who has to act.

| family | what happened | who acts |
|---|---|---|
| `ProtocolError` | what a source states contradicts itself | whoever writes the stream |
| `CodecError` | bytes cannot be decoded | nobody: they are quarantined |
| `SourceError` | a topic or a registry is unreachable or broken | whoever runs it; what was read stays valid |
| `InvalidUsage` | the caller broke a rule; nothing was changed | the caller |
| `CapabilityError` | a right is unknown or gone | its holder |
| `CommitError` | a commit did not happen, or perhaps did | the writer: retry, stop, or read back |
| `DamagedTable` | a table breaks its own invariants | a person, now |
| `StoreUnreadable` | a file of the store cannot be read | whoever runs the store |
| `ClockAhead` | the clock of this machine is ahead; nothing was written | whoever runs the machine |
| `StepFailed` | an engine failed, such as Spark | whoever reads the log |

A class is a row of a table: fields, a `fact` and a `hint`. Annotations declare the fields; the constructor accepts them
in that order and keeps them as attributes and as `args`, so that an error can be pickled from an executor to the
driver. `fact` and `hint` are format strings over the attributes, with three format specs in addition to Python's:
`{time:line}` shows any value on at most one line, `{upper:frontier}` a frontier, `{names:list}` a list or `none`. If a
format string is not enough, a property takes its place.

>>> error = OverCount(7, 1, 2)
>>> error.fact, error.args
('time 7 has more distinct updates than announced: 2 instead of 1', (7, 1, 2))
"""

from __future__ import annotations

from collections.abc import Iterable
from string import Formatter
from typing import Any, ClassVar, dataclass_transform

_Time = int | tuple[int, ...]
"""A time as in `protocol.order`; this file imports no other package of Tidelake."""

SHOWN_CHARACTERS_MAX = 120
NAMES_LISTED_MAX = 12
"""Maximum number of names that a hint lists."""


def show(value: object) -> str:
    """Write any value for a person, on at most one line; never raises.

    >>> show("a" * 500)[-6:], show([1, 2])
    ('aaa...', '[1, 2]')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, a list nested thousands deep
        return f"<{type(value).__name__} too big to show>"
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 3] + "..."


def hint_for_name(name: str, names: Iterable[str], reference: str = "") -> str:
    """Return the hint about an unknown name: the nearest name, and all names if there are few.

    Args:
        name: what somebody wrote.
        names: what is known.
        reference: says where all names are described, as a sentence without the final period.

    >>> hint_for_name("ordres", ["orders", "visits"]), hint_for_name("x", ["a", "b"])
    ("did you mean 'orders'? Use one of: orders, visits", 'use one of: a, b')
    >>> many = [f"key_{number}" for number in range(30)]
    >>> hint_for_name("kye_7", many, "the reference describes every key")
    "did you mean 'key_7'? The reference describes every key"
    """
    from difflib import get_close_matches  # imported late: only errors need it

    known = sorted(names)
    sentences = []
    if nearest := get_close_matches(name[:SHOWN_CHARACTERS_MAX], known, n=1):
        sentences.append(f"did you mean '{nearest[0]}'?")
    if len(known) <= NAMES_LISTED_MAX:
        sentences.append(f"use one of: {', '.join(known) or 'none'}")
    elif reference:
        sentences.append(reference)
    elif not nearest:
        sentences.append(f"there are {len(known):,} names, such as {', '.join(known[:3])}")
    return " ".join(text if at == 0 else text[:1].upper() + text[1:] for at, text in enumerate(sentences))


def show_frontier(elements: Iterable[_Time]) -> str:
    """Write a frontier as its elements in brackets; `[]` is the closed frontier."""
    return "[" + ", ".join(show(element) for element in elements) + "]"


class _AttributeFormatter(Formatter):
    """Fills in the attributes of an error."""

    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        return getattr(kwargs["error"], str(key))

    def format_field(self, value: Any, format_spec: str) -> str:
        match format_spec:
            case "line":
                return show(value)
            case "frontier":
                return show_frontier(value)
            case "list":
                return ", ".join(map(str, value)) or "none"
            case _:
                return str(format(value, format_spec))


class _Template:
    """A format string: on an error it gives the filled-in text; on the class, the format string itself."""

    def __init__(self, template: str) -> None:
        self.template = template

    def __get__(self, error: TidelakeError | None, owner: type) -> str:
        return self.template if error is None else _AttributeFormatter().vformat(self.template, (), {"error": error})


@dataclass_transform(eq_default=False)
class TidelakeError(Exception):
    """The root: a fact in lower case, then what to do about it after `hint:`."""

    _types: ClassVar[dict[str, str]] = {}
    """The fields, in order, each with its annotation."""

    def __init_subclass__(cls) -> None:
        """Read the fields of each subclass, a row of the table; dataclasses would make every import slower."""
        own = {name: kind for name, kind in cls.__annotations__.items() if not kind.startswith("ClassVar")}
        cls._types = cls._types | own
        for name in ("fact", "hint"):
            if isinstance(template := vars(cls).get(name), str):
                setattr(cls, name, _Template(template))

    def __init__(self, *values: Any, **named: Any) -> None:
        """Keep the fields as attributes and as `args`; a field declared as an iterable is kept as a tuple."""
        fields = dict(zip(self._types, values, strict=False))
        if len(values) > len(fields) or fields.keys() & named or fields.keys() | named != self._types.keys():
            raise TypeError(f"{type(self).__name__} takes {list(self._types)}, not {values} and {named}")
        for name, kind in self._types.items():
            value = fields[name] if name in fields else named[name]
            setattr(self, name, tuple(value) if kind.startswith("Iterable") else value)
        self.args = tuple(getattr(self, name) for name in self._types)

    @classmethod
    def fields(cls) -> dict[str, str]:
        """Return the names of the fields, in order, each with its annotation."""
        return dict(cls._types)

    @property
    def fact(self) -> str:
        """What is wrong, with its values, in one lower-case sentence."""
        return ", ".join(show(value) for value in self.args)

    @property
    def hint(self) -> str | None:
        """What a person can do about it; None if there is nothing general to say."""
        return None

    def __str__(self) -> str:
        return self.fact if self.hint is None else f"{self.fact}\nhint: {self.hint}"


# --- the source contradicts itself, or breaks the protocol ---------------------------------------------------------


class ProtocolError(TidelakeError):
    """A source's statements break the protocol."""


class MalformedMessage(ProtocolError):
    """A message that breaks a rule regardless of other messages; no part of it counts."""

    problems: Iterable[tuple[str, object]]
    """`(kind, time)`, each once, in order of appearance; the time as it was received, or None. Never empty."""

    FACTS: ClassVar[dict[str, str]] = {
        "zero_diff": "an update has diff 0",
        "negative_time": "a time is negative",
        "bad_time": "a time is not an integer that fits in int64, or is not as wide as the others",
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
    """Two facts about one time cannot both be true; the time is not sealed until there is a decision."""

    kind: ClassVar[str] = "contradiction"
    time: _Time
    hint = (
        "earlier times are still sealed; settle this one with `tidelake resolve count NAME --time {time:line} "
        "--count N --reason …`, or discard a statement with `tidelake resolve discard`"
    )


class ConflictingDiff(Contradiction):
    """One `(data, time)` is stated with two diffs."""

    kind = "conflicting_diff"
    first: int
    second: int
    fact = "one update at time {time} is stated with diff {first} and with diff {second}"


class ConflictingCount(Contradiction):
    """Two statements announce different counts for one time; a count that a statement leaves out is 0."""

    kind = "conflicting_count"
    first: int
    second: int
    fact = "time {time} is announced with different counts: {first} and {second}"


class OverCount(Contradiction):
    """More distinct updates arrived at a time than any statement announces for it."""

    kind = "over_count"
    announced: int
    counted: int
    fact = "time {time} has more distinct updates than announced: {counted} instead of {announced}"


REPEATED = "repeated with different contents"
"""With transactions: what a breach says of events."""
TWO_VALUES = "keys with two values"
"""How the detail of an envelope breach begins if no count can settle it."""


class EnvelopeBreach(Contradiction):
    """The statements at a time are not allowed by the collection's envelope; the time waits."""

    kind = "envelope_breach"
    detail: str
    fact = "time {time} breaks the envelope: {detail}"


# --- bytes cannot be decoded ---------------------------------------------------------------------------------------


class CodecError(TidelakeError):
    """Bytes that are not a message: they are quarantined and stop nothing."""

    reason: str
    """A slug to group by: `undecodable`, `wrong_magic_byte`, `unknown_schema_id`, `bytes_left_over`."""
    detail: str
    fact = "{reason}: {detail}"


# --- a topic or a registry is unreachable or broken ----------------------------------------------------------------


class SourceError(TidelakeError):
    """A source of a collection cannot be read any further; nothing was skipped, and what was read stays valid."""


class TopicGap(SourceError):
    """Offsets of a topic that should exist do not; nothing was skipped."""

    topic: str
    partition: int
    from_offset: int
    to_offset: int
    """The first offset that exists again; equal to `from_offset` if the topic shrank."""
    why: str
    fact = "topic '{topic}', partition {partition}: offsets {from_offset} to {to_offset} are missing: {why}"
    hint = (
        "restore what is missing, or accept the gap: `tidelake resolve gap NAME --offsets "
        "{topic}:{partition}:{from_offset}-{to_offset} --reason …`; what was in it is then lost"
    )


class TopicChanged(TopicGap):
    """A topic was recreated, or ends before what was read: it was read up to `to_offset`, but ends at `from_offset`."""

    fact = (
        "topic '{topic}', partition {partition}, was read up to offset {to_offset}, but only {from_offset} of these "
        "offsets still exist: {why}"
    )
    hint = (
        "correct the topic or its name, or continue with the topic as it is: `tidelake resolve topic NAME --topic "
        "{name} --reason …`; what was not read before is then lost"
    )

    @property
    def name(self) -> str:
        """The topic's name in Kafka, without the number of the recreated topic."""
        return self.topic.partition("#")[0]


class EventBlocked(TopicGap):
    """An event cannot be assigned to a transaction; its partition is read to the event, and nothing was skipped."""

    fact = "topic '{topic}', partition {partition}: the event at offset {from_offset} {why}"
    hint = (
        "correct the connector, or continue without the event: `tidelake resolve gap NAME --offsets "
        "{topic}:{partition}:{from_offset} --reason …`; it then goes to the quarantine"
    )


class SnapshotUnfinished(TopicGap):
    """The connector stopped in the middle of a snapshot, and reads changes without having repeated it."""

    lsn: int
    rows: int
    fact = (
        "topic '{topic}': the snapshot at {lsn} has no last row among its {rows} rows, but later transactions were "
        "read: the connector abandoned it, and found no row of the table when it began another one, or began none"
    )
    hint = (
        "if the table was empty then, discard the snapshot: `tidelake resolve count NAME --time {lsn} --count 0 "
        "--reason …`; if the snapshot is complete, accept it with `--count {rows}`"
    )


class SnapshotRepeated(TopicGap):
    """A table without a key was read in another snapshot, which does not say which of its rows are gone."""

    lsn: int
    rows: int
    fact = (
        "topic '{topic}': the connector took another snapshot, at {lsn}, of a table without a key: its {rows} rows do "
        "not tell which of the rows that were read before are gone"
    )
    hint = (
        "read the topic into a new collection from the snapshot on; or go on without the snapshot, if no change was "
        "lost before it: `tidelake resolve count NAME --time {lsn} --count 0 --reason …`"
    )


class TransactionWentBack(TopicGap):
    """An END of an unknown transaction lies before ENDs that were read; the topic is read only up to it."""

    transaction: str
    lsn: int
    last: int
    fact = (
        "topic '{topic}', offset {from_offset}: transaction {transaction} ends at {lsn}, which is before {last}, where "
        "an earlier END was read"
    )
    why = "the log positions went back"
    hint = (
        "if the database was restored from a backup, its log positions begin again: read its topics into new "
        "collections"
    )


class TransactionTopicDivided(SourceError):
    """The topic of transactions has more than one partition, so the order of commits is lost."""

    topic: str
    partitions: int
    fact = "topic '{topic}' has {partitions} partitions, but transactions are in order only in a topic with one"
    hint = "recreate it with one partition: see docs/guides/transactions.md"


class TopicMissing(SourceError):
    """Kafka has no such topic."""

    servers: str
    topic: str
    fact = "Kafka at {servers} has no topic '{topic}'"
    hint = "create it, or correct its name"


class FolderMissing(SourceError):
    """A file topic has no folder."""

    topic: str
    folder: str
    fact = "the topic '{topic}' has no folder {folder}"

    @property
    def hint(self) -> str:
        """How to create the folder; in an object store, a folder exists if anything is in it."""
        if "://" in self.folder:
            return "write its first file, or an empty object whose name begins with `_`; or correct the topic's name"
        return "create it, or correct the topic's name"


class MalformedTopic(SourceError):
    """A file of a file topic is not in the expected format."""

    file: str
    problem: str
    fix: str
    fact = "{file} {problem}"
    hint = "{fix}"


class MalformedLine(SourceError):
    """A line of a file topic in JSON Lines is not a message."""

    file: str
    line: int
    problem: str
    fact = "{file}, line {line}: {problem}"
    hint = 'write one message per line: {{"offset": 0, "timestamp_ms": 0, "value_b64": "…"}}'


class RepeatedOffset(SourceError):
    """A file topic has two messages with the same offset."""

    topic: str
    partition: int
    offset: int
    where: str
    fact = "the offset {offset} of partition {partition} of the topic '{topic}' is {where}"
    hint = "an offset belongs to one message: remove the copy, or give the other message an offset of its own"


class TopicUnreachable(SourceError):
    """The brokers of a topic did not answer, or refused access; nothing was read, and nothing is lost."""

    topic: str
    servers: str
    detail: str
    fact = "the topic '{topic}' cannot be read from {servers}: {detail}"
    hint = (
        "check that the brokers are running and that the settings under `kafka:` are correct; the next run continues "
        "from here"
    )


class TopicUnwritable(SourceError):
    """The brokers of a topic did not accept a record; what they accepted before stays."""

    topic: str
    servers: str
    detail: str
    fact = "the topic '{topic}' cannot be written to at {servers}: {detail}"
    hint = (
        "check that the brokers are running and that the settings under `kafka:` are correct; records that were "
        "already played stay"
    )


class PublishedTopicError(SourceError):
    """A topic that a collection is published to is not what was published; nothing more is written to it."""

    collection: str
    topic: str


class PublishedTopicForeign(PublishedTopicError):
    """Somebody else wrote to the topic."""

    partition: int
    offset: int
    """The first such message."""
    messages: int
    """How many there are, among those that were not read before."""
    fact = (
        "'{topic}', to which '{collection}' is published, has messages of another writer: {messages}, the first at "
        "offset {offset} of partition {partition}"
    )
    hint = "stop the other writer, and publish to a new topic; readers of this one may have mixed both"


class PublishedTopicCut(PublishedTopicError):
    """Messages that no publisher has read back are missing from the topic."""

    partition: int
    from_offset: int
    to_offset: int
    fact = (
        "'{topic}', to which '{collection}' is published, has lost offsets {from_offset} to {to_offset} of partition "
        "{partition}, which were not read back yet"
    )
    hint = (
        "raise the retention of the topic, then publish to a new one; or state what was in them once more, for readers "
        "who have everything before it: `tidelake publish {collection} --to {topic} --accept-cut`"
    )


class PublishedTopicRecreated(PublishedTopicError):
    """The topic is not the one that was published to, or it was truncated: it lacks what was published before."""

    problem: str
    fact = "'{topic}', to which '{collection}' is published, {problem}"
    hint = (
        "publish to a new topic; or, if this one is empty, begin anew in it: `tidelake publish {collection} --to "
        "{topic} --stop`, then publish again"
    )


class PublishedTopicNotEmpty(PublishedTopicError):
    """The first publication needs an empty topic: a new reader believes everything that a topic states."""

    messages: int
    fact = "'{topic}' has {messages} messages already, but '{collection}' was never published to it"
    hint = "publish to a new topic"


class PublishedTopicContradicts(PublishedTopicError):
    """The topic states something else than the collection, or contradicts itself."""

    contradiction: str
    fact = "'{topic}', to which '{collection}' is published, contradicts it: {contradiction}"
    hint = "publish to a new topic; a store that was restored from an older copy may have read its sources differently"


class PublishedTopicBehind(PublishedTopicError):
    """The collection has forgotten what the topic still lacks."""

    frontier: int
    since: Iterable[_Time]
    fact = (
        "'{topic}' states everything before time {frontier}, but since of '{collection}' is {since:frontier}: what "
        "lies between was forgotten"
    )
    hint = "publish to a new topic, and do not release the hold of a published topic"


class RegistryUnreachable(SourceError):
    """The schema registry did not answer, or its answer is unusable; nothing was read, and nothing is lost."""

    url: str
    detail: str
    fact = "the schema registry at {url} cannot be queried: {detail}"
    hint = (
        "check that it is running and that the settings under `registry:` are correct; the next run continues from here"
    )


# --- the caller broke a rule ---------------------------------------------------------------------------------------


class InvalidUsage(TidelakeError):
    """The caller broke a rule of the interface; nothing was changed."""


class MixedTimes(InvalidUsage):
    """Two times of different widths were compared, or a value is not a time."""

    first: object
    second: object
    fact = "times {first:line} and {second:line} cannot be compared: their widths differ"


class ArgumentRefused(InvalidUsage):
    """An argument breaks its rule."""

    name: str
    value: object
    rule: str
    """A clause that follows the value: `but must be at least 1`."""
    fix: str
    fact = "{name} is {value:line}, {rule}"
    hint = "{fix}"


class SchemaRefused(InvalidUsage):
    """A record schema that a collection cannot hold."""

    column: str
    """The path of the column, with dots; empty for the record itself."""
    reason: str

    @property
    def fact(self) -> str:
        """The column and the reason."""
        return f"column {self.column!r} is refused: {self.reason}" if self.column else f"schema refused: {self.reason}"


class ConfigurationError(InvalidUsage):
    """A setting is invalid; nothing was started."""

    file: str
    field: str
    """The path of the setting, with dots, or a line number."""
    problem: str
    fix: str
    hint = "{fix}"

    @property
    def fact(self) -> str:
        """The place and the problem."""
        return ": ".join(part for part in (self.file, self.field, self.problem) if part)


class UnknownPlugin(InvalidUsage):
    """Settings or a store name a framing or an envelope that is not installed."""

    kind: str
    name: str
    group: str
    fact = "the {kind} '{name}' is not installed"
    hint = "install the package that provides it (entry point group `{group}`); for the built-in ones: make setup"


class NewerFormat(InvalidUsage):
    """A table has a format that only a later version of Tidelake knows."""

    table: str
    format: int
    known: int
    fact = "{table} has format {format}, which a later version of Tidelake wrote; this one knows formats up to {known}"
    hint = "use that version, or a later one; nothing was read or written"


class UnknownCollection(InvalidUsage):
    """The store has no collection of this name."""

    store: str
    collection: str
    fact = "the store {store} has no collection '{collection}'"
    hint = "run its ingest once, or correct the name"


class CollectionRenamed(InvalidUsage):
    """The collection has another name now."""

    collection: str
    name: str
    """Its name now."""
    fact = "the collection '{collection}' was renamed to '{name}'"
    hint = (
        "use the new name, also in the settings; for a new collection with the earlier name, keep both names in the "
        "settings"
    )


class NameTaken(InvalidUsage):
    """Another collection has the name."""

    store: str
    collection: str
    fact = "the store {store} already has a collection '{collection}'"
    hint = "choose another name, or rename or drop the other collection first; nothing was renamed"


class UnknownTopic(InvalidUsage):
    """No collection of the lake reads a topic of this name."""

    topic: str
    topics: Iterable[str]
    """The topics that collections read."""
    fact = "no collection reads the topic '{topic}'"

    @property
    def hint(self) -> str:
        """The nearest name, and all names."""
        from difflib import get_close_matches  # imported late: every command imports this file

        nearest = get_close_matches(self.topic, self.topics, n=1)
        start = f"did you mean '{nearest[0]}'? These" if nearest else "these"
        return f"{start} topics are read: {', '.join(self.topics) or 'none'}"


class UnknownColumn(InvalidUsage):
    """A read asks for a column that the collection does not have."""

    collection: str
    column: str
    columns: Iterable[str]
    fact = "'{collection}' has no column '{column}'"

    @property
    def hint(self) -> str:
        """The nearest column, or all columns."""
        return hint_for_name(self.column, self.columns)


class PredicateRefused(InvalidUsage):
    """The predicate of a read is invalid, depends on more than the columns, or fails."""

    predicate: str
    problem: str
    fix: str
    fact = "the predicate {predicate:line} {problem}"
    hint = "{fix}"


class QueryRefused(InvalidUsage):
    """SQL is invalid, reads more than the collections of a lake, depends on more than their rows, or fails."""

    query: str
    problem: str
    fix: str
    fact = "the query {query:line} {problem}"
    hint = "{fix}"


class EngineRefused(InvalidUsage):
    """An engine cannot do what it is asked for."""

    engine: str
    problem: str
    fix: str
    fact = "{engine} cannot read this: {problem}"
    hint = "{fix}"


class SinceError(InvalidUsage):
    """A read asks for a time that is not at or after `since`: its history was forgotten."""

    as_of: _Time
    since: Iterable[_Time]
    fact = "time {as_of} is not at or after since {since:frontier}"

    @property
    def hint(self) -> str:
        """What can be read instead."""
        return (
            "read at or after since" if self.since else "the collection is permanently unreadable: its since is empty"
        )


class UpperError(InvalidUsage):
    """A read asks for a time at or after `upper`: it is not definite yet."""

    as_of: _Time
    upper: Iterable[_Time]

    @property
    def fact(self) -> str:
        """The time and upper; before the first seal, no time can be read."""
        if tuple(self.upper) == (0,):
            return f"nothing is sealed yet, so time {show(self.as_of)} cannot be read: upper is [0]"
        return f"time {show(self.as_of)} is not before upper {show_frontier(self.upper)}"

    @property
    def hint(self) -> str:
        """When the time can be read."""
        if tuple(self.upper) == (0,):
            return "run ingest and seal; if upper stays at 0, `tidelake status` says what it waits for"
        return "wait until upper has passed this time, or read before upper"


class TimelinesDiffer(InvalidUsage):
    """Collections on different timelines are read together: no time means the same to both."""

    first: str
    first_timeline: str
    second: str
    second_timeline: str
    fact = (
        "'{first}' is on the timeline {first_timeline:line}, and '{second}' on {second_timeline:line}: no time means "
        "the same to both"
    )
    hint = "read them apart, or give both the same `timeline` if their sources state the same times"


class CollectionLags(InvalidUsage):
    """One of several collections does not have the time at which all of them are to be read."""

    collection: str
    time: int
    upper: int
    others: Iterable[str]
    """The other collections that do not have it either."""
    hint = "wait, or read at an earlier time; `tidelake explain` says what the collection waits for"

    @property
    def fact(self) -> str:
        """The collection that lags most, its upper, and by how much it lags."""
        more = f"; {', '.join(self.others)} lag, too" if self.others else ""
        return (
            f"'{self.collection}' does not have time {show(self.time)} yet: its upper is {show(self.upper)}, so it "
            f"lags by {int(self.time) - int(self.upper) + 1:,}{more}"
        )


class SnapshotTorn(InvalidUsage):
    """At this time, only some of several tables show a snapshot that the connector never finished."""

    time: int
    snapshot: int
    following: int
    collection: str
    fact = (
        "time {time} lies after the snapshot at {snapshot}, which the connector abandoned before it had read "
        "'{collection}'; the next snapshot is at {following}"
    )
    hint = "read at {following} or later, or before {snapshot}"


class CollectionForgot(InvalidUsage):
    """One of several collections has forgotten the time at which all of them are to be read."""

    collection: str
    time: int
    since: Iterable[_Time]
    fact = "'{collection}' has forgotten time {time}: its since is {since:frontier}"
    hint = "read at a later time, or hold a time of each collection before it is forgotten"


class KeysInError(InvalidUsage):
    """A read would leave out keys whose newest record could not be decoded."""

    collection: str
    as_of: int
    count: int
    keys: Iterable[str]
    """The first of them, each as JSON."""
    hint = "a later good value or a delete clears the error; read the other keys with --skip-errors"

    @property
    def fact(self) -> str:
        """The number of keys, and the first of them."""
        keys = "1 key" if self.count == 1 else f"{self.count} keys"
        are = "is" if self.count == 1 else "are"
        others = f" and {rest} more" if (rest := self.count - len(tuple(self.keys))) > 0 else ""
        return f"{keys} of '{self.collection}' {are} in error: {', '.join(self.keys)}{others} (AS OF {self.as_of})"


class SealedTime(InvalidUsage):
    """An update was appended at a time that is already sealed."""

    time: _Time
    upper: Iterable[_Time]
    fact = "time {time} is before upper {upper:frontier}, so it is already sealed"


class FrontierRegression(InvalidUsage):
    """A frontier would move backwards."""

    role: str
    """Which frontier: `since`, `upper`, `frontier`."""
    current: Iterable[_Time]
    asked: Iterable[_Time]
    fact = "{role} is {current:frontier} and cannot move back to {asked:frontier}"


class EncodingRefused(InvalidUsage):
    """The values of a message do not fit its schema."""

    problem: str
    fact = "the message does not fit its schema: {problem}"


class DataRefused(InvalidUsage):
    """Data that somebody typed in does not fit the collection's schema."""

    problem: str
    fact = "the data does not fit the collection's schema: {problem}"
    hint = "give every column as JSON, as `tidelake read --json` prints it"


class LakeReadOnly(InvalidUsage):
    """Something would be written to the store of a lake that was opened read-only; nothing was written."""

    store: str
    """What would be written or deleted."""
    fact = "the lake was opened read-only, so {store} cannot be written"
    hint = "open the lake without `read_only`, on its own store and not on a copy"


class SparkLacksStore(InvalidUsage):
    """A Spark session was started without the jars that read and write the store."""

    store: str
    detail: str
    fact = "this Spark session cannot read {store}: {detail}"
    hint = (
        "a JVM takes jars only when it starts: in a new process, call `start_session(jar_sets=['s3'])` before it opens "
        "a lake (lakes on a disk can use this session, too); or give spark-submit the jars in `.jars/s3`, which "
        "`python -m tidelake.spark.jars --set s3` fetches"
    )


class NotReclocked(InvalidUsage):
    """The collection mints no times, so it has no bindings."""

    collection: str
    fact = "the times of '{collection}' are stated by its topic"
    hint = "only collections with `framing: reclock` mint times"


class BagRefused(InvalidUsage):
    """A table that repeats rows cannot show a row as often as it occurs; it stays as it was."""

    collection: str
    as_of: int
    row: str
    """The row, as JSON."""
    times: int
    """How many times it occurs; negative if more were removed than there are."""
    copies_max: int
    fact = (
        "'{collection}' has the setting `bag`, but AS OF {as_of} the row {row} occurs {times} times; it must occur at "
        "least 0 and at most {copies_max} times"
    )
    hint = "leave `bag` out, so that the column `_diff` says how often a row occurs, or have the source correct it"


class NoView(InvalidUsage):
    """The contents of a collection cannot be stated as a query over its stored rows."""

    collection: str
    reason: str
    fact = "there is no view of '{collection}': {reason}"
    hint = "use the published table, which `tidelake path {collection}` names"


class NotPublished(InvalidUsage):
    """The contents of a collection were never published as a table for other engines."""

    collection: str
    fact = "'{collection}' is not published yet"
    hint = "run `tidelake current {collection}` once something is sealed; until then, use `tidelake read {collection}`"


class PublishedTopicUnknown(InvalidUsage):
    """The collection is not published to the topic, or not any more."""

    collection: str
    topic: str
    fact = "'{collection}' is not published to '{topic}'"
    hint = "`tidelake holds {collection}` shows the topics that it is published to"


class NoCheckout(InvalidUsage):
    """Neither a wheel nor a checkout provides the jobs."""

    folder: str
    fact = "there is no folder `jobs` in {folder}"
    hint = "install Tidelake from its wheel, or from its checkout: make setup"


class Refusal(InvalidUsage):
    """A refused request; the code that raises the error writes its text. Each subclass is one kind of request."""

    problem: str
    """The fact, in lower case, with its values."""
    fix: str
    fact = "{problem}"
    hint = "{fix}"


class OptionRefused(Refusal):
    """Options of the command line are missing, cannot be read, or cannot be combined."""


class DecisionRefused(Refusal):
    """A decision that cannot be read, or that does not apply to what waits for a decision."""


class StatementRefused(Refusal):
    """A statement that is not an update: JSON with data and a diff."""


class GeneratorRefused(Refusal):
    """A stream that the generator cannot write with these options, or into this folder."""


class CopyRefused(Refusal):
    """A topic that cannot be recorded into this folder, or a recording that cannot be played into this topic."""


class CommitRefused(Refusal):
    """A commit that is not allowed: the code that prepared it is wrong, not its data."""


# --- a right is gone -----------------------------------------------------------------------------------------------


class CapabilityError(TidelakeError):
    """A capability is unknown, expired, dropped, or somebody else's."""

    capability_id: str
    detail: str
    fact = "capability {capability_id!r}: {detail}"
    hint = "acquire a new capability; its since may be later than the one that was lost"


class CapabilityExpired(CapabilityError):
    """The lease of a capability has ended: its id is never valid again, and its history may be forgotten."""

    hint = (
        "acquire a new capability, whose since may be later than the one that was lost; a longer lease, or a call "
        "within each lease, keeps it alive"
    )


class CapabilityDropped(CapabilityError):
    """The capability was dropped before: its id is never valid again."""

    hint = "acquire a new capability, whose since may be later; drop a capability only once, after its last use"


class CapabilityTaken(CapabilityError):
    """Two bearers used one token: the first of them has the capability now, with its own token."""

    hint = "use a token in one place only, or clone the capability for each reader"


class CapabilityForeign(CapabilityError):
    """The token belongs to a capability of another collection."""

    hint = "use the token with the collection that it was acquired from"


class CapabilityUnknown(CapabilityError):
    """The collection has no such capability, and none that ended lately."""

    hint = "check that the token is whole; otherwise acquire a new capability, whose since may be later"


class SubscriptionLapsed(CapabilityError):
    """A subscription made no call for longer than its lease, and compaction has forgotten the time that it was at."""

    hint = "subscribe again with a snapshot, which replaces what was delivered so far; a longer lease prevents this"


# --- a commit did not happen, or perhaps did -----------------------------------------------------------------------


class CommitError(TidelakeError):
    """A commit to a table did not succeed, or its outcome is unknown."""


class Conflict(CommitError):
    """Somebody else committed this version first; nothing was written."""

    table: str
    version: int
    detail: str
    fact = "version {version} of {table} was not committed: {detail}"
    hint = "load the table again and retry from its current state"


class RunSwept(Conflict):
    """A run began before a sweep that may delete it; nothing was written."""

    hint = "load the table again and write the rows into a new run"


class Fenced(CommitError):
    """Another writer took over: this writer can commit nothing more."""

    table: str
    expected_epoch: int
    found_epoch: int
    fact = "the writer of {table} with epoch {expected_epoch} was fenced by epoch {found_epoch}"
    hint = "stop this writer: the other one continues from the stored offsets"


class WriterFenced(CommitError):
    """The collection was given to another writer by name: this writer stays out, even after a restart."""

    collection: str
    writer: str | None
    """The name of this writer in its settings."""
    admitted: str

    @property
    def fact(self) -> str:
        """Who may write, and who asked to."""
        this = "has no name" if self.writer is None else f"is '{self.writer}'"
        return f"'{self.collection}' is fenced: only the writer '{self.admitted}' may write to it, and this one {this}"

    @property
    def hint(self) -> str:
        """How this writer can be admitted."""
        name = "set `writer:` in its settings, then " if self.writer is None else ""
        return (
            f"stop this writer; to let it in instead, {name}run "
            f"`tidelake fence {self.collection} --writer {self.writer or 'NAME'}`, which keeps out '{self.admitted}'"
        )


class Indeterminate(CommitError):
    """The commit may have been written."""

    table: str
    version: int
    nonce: str
    detail: str
    fact = "version {version} of {table} may or may not have been written; its nonce is {nonce}: {detail}"
    hint = "read the table back and look for the nonce before you do anything else"


# --- a person should look ------------------------------------------------------------------------------------------


class DamagedTable(TidelakeError):
    """The table breaks one of its own invariants: a person should look at it now."""

    table: str
    detail: str
    fact = "{table} is damaged: {detail}"
    hint = (
        "run nothing that writes to it; restore its folder from a copy, or rebuild the collection from its topic "
        "under a new name"
    )


class DamagedPublication(DamagedTable):
    """The log of a published table cannot be read; the collection itself is not affected."""

    hint = "move the table's folder elsewhere: the next run of `current` publishes the contents anew"


class DamagedFiles(DamagedTable):
    """Data files are missing or damaged: until they are restored, nothing is written to the collection."""

    hint = (
        "`tidelake repair COLLECTION` says what can be restored, and --apply restores it; restore everything else from "
        "a copy of the store. If a validation found the damage, the collection counts as damaged until a full "
        "validation passes"
    )


class NotRewritable(DamagedTable):
    """A damaged file cannot be recreated from its topic."""

    fact = "the file cannot be recreated from its topic: {detail}"
    hint = "restore the file from a copy of the store, or rebuild the collection from its topic under a new name"


class DamagedLog(DamagedTable):
    """A table's log is not what was acknowledged; a copy of each acknowledged entry may restore it."""

    hint = (
        "run nothing that writes to it; `tidelake repair COLLECTION` shows what can be restored from acknowledged "
        "copies, and --apply restores it"
    )


class StoreUnreadable(TidelakeError):
    """A file of a store cannot be read, so its contents are unknown."""

    detail: str
    fact = "the store cannot be read: {detail}"
    hint = (
        "fix the problem with the file, or restore the store's folder from a copy; run nothing that writes until then"
    )


class StoreUnreachable(StoreUnreadable):
    """An object store did not answer in time, or answered with an error of its own, each time it was asked."""

    store: str
    """The URI of the object or the folder."""
    fact = "the object store does not serve {store}: {detail}"
    hint = (
        "nothing is lost, and the next run continues from here; check the network, and `endpoint` and `allow_http` in "
        "the `s3:` block"
    )


class BucketMissing(StoreUnreadable):
    """The object store has no bucket of this name."""

    store: str
    fact = "the bucket of {store} does not exist: {detail}"
    hint = "create the bucket, or correct the URI, or `endpoint` in the `s3:` block"


class StoreAccessDenied(StoreUnreadable):
    """An object store refuses a request because of its credentials."""

    store: str
    access: str
    """What was refused: `read`, `write`, `list` or `delete`."""
    fact = "the object store does not let these credentials {access} {store}: {detail}"
    hint = (
        "give the credentials this right, or renew them if they have expired; a wrong clock of this machine also makes "
        "requests invalid. Nothing is lost, and the next run continues from here"
    )


class WrongRegion(StoreUnreadable):
    """A bucket is in a different region than requests are sent to."""

    store: str
    fact = "the bucket of {store} is in a different region: {detail}"
    hint = "set `region` in the `s3:` block, or AWS_REGION, to the region of the bucket"


class ConditionalWritesMissing(StoreUnreadable):
    """A bucket lets two writers create one object, so no commit to it would be safe; nothing was committed."""

    store: str
    fact = "{store} has no conditional writes: {detail}"
    hint = "use a service and a version that supports `If-None-Match: *` for puts; docs/guides/s3.md has a list"


class ClockAhead(TidelakeError):
    """A tick would mint a time that neither the last minted time nor a record supports; nothing was written."""

    collection: str
    time: int
    last: int
    newest: object
    """The newest timestamp of the tick's records, or None if they have none."""
    ahead_s: int
    hint = (
        "correct this machine's clock; if it is right, set `clock_ahead_max_s` of '{collection}' to more than "
        "{ahead_s}, and set it back after the next ingest"
    )

    @property
    def fact(self) -> str:
        """The time, and what it is compared with."""
        newest = (
            "and none of the records to read has a timestamp"
            if self.newest is None
            else f"and the newest timestamp of the records to read is {self.newest}"
        )
        return (
            f"the clock would mint time {self.time} for '{self.collection}', {self.ahead_s} s after the latest known "
            f"time: the last minted time is {self.last}, {newest}"
        )


class StepFailed(TidelakeError):
    """An engine failed with an error that Tidelake does not know; the collection's step stopped there."""

    step: str
    collection: str
    kind: str
    """The engine's own error."""
    detail: str
    fact = "{step} of '{collection}' failed: {kind}: {detail}"
    hint = "nothing was committed by the step that failed; the full error is in the log"


class TookTooLong(StepFailed):
    """The work on a collection took longer than `collection_limit_s`; the other collections did not wait for it."""

    fact = "{step} of '{collection}' was cancelled: the collection was not done after {detail}"
    hint = (
        "what was committed stays, and the next run continues from there; if the work is only long, raise "
        "`collection_limit_s`"
    )


class BlockingCheckFailed(StepFailed):
    """A blocking check has failed in a full validation: nothing may be built on the collection until it passes."""

    fact = "blocking checks of '{collection}' failed: {detail}"
    hint = "correct the data at its source, or the expectation; then run `tidelake validate {collection} --full` again"
