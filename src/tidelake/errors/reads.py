"""Reads that cannot be answered, because of a column, a time, a query, or an engine."""

from __future__ import annotations

from collections.abc import Iterable

from tidelake.errors.base import InvalidUsage, Time, hint_for_name, show, show_frontier


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
    """An engine cannot do what is asked of it."""

    engine: str
    problem: str
    fix: str
    fact = "{engine} cannot read this: {problem}"
    hint = "{fix}"


class SinceError(InvalidUsage):
    """A read asks for a time that is not at or after `since`: its history was forgotten."""

    as_of: Time
    since: Iterable[Time]
    collection: str | None
    """None for a collection in memory, which has no name."""

    @property
    def fact(self) -> str:
        """The time, since, and the collection."""
        name = "" if self.collection is None else f" of '{self.collection}'"
        return f"time {show(self.as_of)} is not at or after since {show_frontier(self.since)}{name}"

    @property
    def hint(self) -> str:
        """The times that can be read instead."""
        return (
            "read at or after since" if self.since else "the collection is permanently unreadable: its since is empty"
        )


class UpperError(InvalidUsage):
    """A read asks for a time at or after `upper`: it is not definite yet."""

    as_of: Time
    upper: Iterable[Time]

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
            return "run ingest and seal; if upper stays at 0, `tidelake status` says what it is waiting for"
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
    hint = "read them separately, or give both the same `timeline` if their sources state the same times"


class CollectionLags(InvalidUsage):
    """One of several collections does not have the time at which all of them are to be read."""

    collection: str
    time: int
    upper: int
    others: Iterable[str]
    """The other collections that do not have the time either."""
    forgotten_by: str | None
    """A collection that has forgotten every time that the lagging one has; None if an earlier time can be read."""

    @property
    def fact(self) -> str:
        """The collection that lags most, its upper, and by how much it lags."""
        verb = "lags" if len(tuple(self.others)) == 1 else "lag"
        more = f"; {', '.join(self.others)} {verb}, too" if self.others else ""
        return (
            f"'{self.collection}' does not have time {show(self.time)} yet: its upper is {show(self.upper)}, so it "
            f"lags by {int(self.time) - int(self.upper) + 1:,}{more}"
        )

    @property
    def hint(self) -> str:
        """Whether another time can be read instead."""
        if int(self.upper) == 0:
            what = "wait until its first time is sealed"
        elif self.forgotten_by is not None:
            what = f"wait: '{self.forgotten_by}' has forgotten every time that '{self.collection}' has"
        else:
            what = "wait, or read at an earlier time"
        return f"{what}; `tidelake explain {self.collection}` says what the collection is waiting for"


class SnapshotTorn(InvalidUsage):
    """At this time, only some of several tables show a snapshot that the connector never finished."""

    time: int
    snapshot: int
    following: int
    collection: str
    fact = (
        "time {time} is after the snapshot at {snapshot}, which the connector abandoned before it had read "
        "'{collection}'; the next snapshot is at {following}"
    )
    hint = "read at {following} or later, or before {snapshot}"


class CollectionForgot(InvalidUsage):
    """One of several collections has forgotten the time at which all of them are to be read."""

    collection: str
    time: int
    since: Iterable[Time]
    fact = "'{collection}' has forgotten time {time}: its since is {since:frontier}"
    hint = "read at a later time, or hold a time of each collection before it is forgotten"


class KeysInError(InvalidUsage):
    """A read would leave out keys whose newest record cannot be used."""

    collection: str
    as_of: int
    count: int
    keys: Iterable[str]
    """The first of these keys, each as JSON."""
    hint = "a later good value or a delete clears the error; read the other keys with --skip-errors"

    @property
    def fact(self) -> str:
        """The number of keys, and the first of them."""
        keys = "1 key" if self.count == 1 else f"{self.count} keys"
        are = "is" if self.count == 1 else "are"
        others = f" and {rest} more" if (rest := self.count - len(tuple(self.keys))) > 0 else ""
        return f"{keys} of '{self.collection}' {are} in error: {', '.join(self.keys)}{others} (AS OF {self.as_of})"


class RowsClosed(InvalidUsage):
    """A call asks for rows that can no longer be read: those of an earlier batch, or of an answer that was closed."""

    collection: str
    fact = "the rows of '{collection}' can no longer be read: the next batch was requested, or they were closed"
    hint = "read the rows of a batch before you request the next one; to read these again, ask for their times again"


class NotReclocked(InvalidUsage):
    """The collection mints no times, so it has no bindings."""

    collection: str
    fact = "the times of '{collection}' are stated by its topic"
    hint = "only collections with `framing: reclock` mint times"


class BagRefused(InvalidUsage):
    """A table that repeats rows cannot show a row as often as it occurs; the table stays as it was."""

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
    """The contents of a collection cannot be expressed as a query over its stored rows."""

    collection: str
    reason: str
    fact = "there is no view of '{collection}': {reason}"
    hint = "use the published table, which `tidelake path {collection}` names"


class NotPublished(InvalidUsage):
    """The contents of a collection were never published as a table for other engines."""

    collection: str
    fact = "'{collection}' is not published yet"
    hint = "run `tidelake current {collection}` once something is sealed; until then, use `tidelake read {collection}`"
