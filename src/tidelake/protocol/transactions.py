"""Transactions of a source database: what their ends announce for a table, and which times are covered.

The time of a transaction is its commit position, which only its END states. A table's events wait until the END of
their transaction has been read. The counts that the ENDs announce become one progress statement, which covers no
time at which something may still be missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from tidelake.protocol.message import Progress
from tidelake.protocol.order import INT64_MAX

_ID = re.compile(r"([0-9]{1,20}):([0-9]{1,19})", re.ASCII)


@dataclass(frozen=True)
class End:
    """The end of a transaction.

    Args:
        id: the id that the database gave the transaction; ids repeat after about four billion transactions.
        lsn: the commit position, which is the transaction's time.
        events: the number of events in the collection's table.
        events_in_all: the number of events in all tables.
        ended_at_ms: when the transaction ended, in milliseconds since 1970.
        offset: the END's offset in the topic of transactions.
        begins_at: where the transaction's first change is in the log, as its BEGIN states; None if no BEGIN, or more
            than one, came directly before the END.
    """

    id: str
    lsn: int
    events: int
    events_in_all: int
    ended_at_ms: int | None
    offset: int
    begins_at: int | None = None

    def contradicts(self, events: int, events_in_all: int) -> bool:
        """Return whether this END, a repeated one, contradicts the first END of its transaction.

        A connector that was killed after it had sent an END can resume within the transaction: after another BEGIN, it
        sends the rest, and an END that counts only the rest. The first END counts everything.

        Args:
            events: the number of events in the collection's table, as the first END states it.
            events_in_all: the number of events in all tables, as the first END states it.

        >>> rest = End("7", 50, 0, 1, None, 9, begins_at=44)
        >>> [end.contradicts(2, 3) for end in (rest, replace(rest, begins_at=None), replace(rest, events=4))]
        [False, True, True]
        """
        counts_the_rest = self.begins_at is not None and self.events_in_all < events_in_all
        return self.events > events or (self.events < events and not counts_the_rest)


@dataclass(frozen=True)
class Begin:
    """The beginning of a transaction.

    Args:
        id: the id that the database gave the transaction.
        lsn: the position of its first change in the log, whether or not the connector sent an event for it.
    """

    id: str
    lsn: int


class NotATransaction(ValueError):
    """A message of the topic of transactions is neither a BEGIN nor a usable END; the text says why."""


def payload_of(value: bytes | None) -> Any:
    """Return a message's JSON value, without the schema that may wrap it.

    Raises:
        NotATransaction: it is not JSON.

    >>> payload_of(b'{"schema": null, "payload": {"status": "END"}}')
    {'status': 'END'}
    """
    try:
        message = json.loads(value or b"")
    except (ValueError, RecursionError) as error:
        raise NotATransaction("it is not JSON") from error
    return message["payload"] if isinstance(message, dict) and "payload" in message else message


def read_mark(message: Any, table: str, offset: int) -> Begin | End:
    """Read a message of the topic of transactions.

    Args:
        message: the JSON value, without an embedded schema.
        table: the table's name in `data_collections`.
        offset: the message's offset.

    Raises:
        NotATransaction: the message is neither a BEGIN nor a usable END.

    >>> counts = [{"data_collection": "public.orders", "event_count": 2}]
    >>> end = {"status": "END", "id": "753:8040", "event_count": 2, "data_collections": counts, "ts_ms": 7}
    >>> read_mark(end, "public.orders", 1)
    End(id='753', lsn=8040, events=2, events_in_all=2, ended_at_ms=7, offset=1, begins_at=None)
    >>> read_mark({"status": "BEGIN", "id": "753:8000"}, "public.orders", 0)
    Begin(id='753', lsn=8000)
    """
    if not isinstance(message, Mapping) or message.get("status") not in ("BEGIN", "END"):
        raise NotATransaction("its status is neither BEGIN nor END")
    match = _ID.fullmatch(str(message.get("id")))
    if match is None or int(match[2]) >= INT64_MAX:
        raise NotATransaction(
            f"its id is {message.get('id')!r}, not TRANSACTION:LSN as PostgreSQL's connector writes it"
        )
    if message["status"] == "BEGIN":
        return Begin(match[1], int(match[2]))
    counts: dict[str, int] = {}
    for part in message.get("data_collections") or ():
        name, count = (part.get("data_collection"), part.get("event_count")) if isinstance(part, Mapping) else (0, 0)
        if not isinstance(name, str) or type(count) is not int or count < 0 or name in counts:
            raise NotATransaction(f"its data_collections have an invalid or repeated entry: {part!r}")
        counts[name] = count
    in_all = message.get("event_count")
    if type(in_all) is not int or in_all != sum(counts.values()):
        raise NotATransaction(f"its event_count is {in_all!r}, but its tables' counts add up to {sum(counts.values())}")
    stamp = message.get("ts_ms")
    ended_at_ms = stamp if type(stamp) is int else None
    return End(match[1], int(match[2]), counts.get(table, 0), in_all, ended_at_ms, offset)


def ends_of(marks: Iterable[Begin | End], begun: Begin | None = None) -> list[End]:
    """Return the ENDs, each with the position of its BEGIN.

    The connector writes a transaction's BEGIN directly before its END. If it was killed in between, it writes the BEGIN
    again; what it had sent before is then unknown, so the END is left without a position.

    Args:
        marks: the messages of the topic of transactions, in the order of their offsets.
        begun: the message before them, if it is a BEGIN.

    >>> end, other = (End(id, lsn, 1, 1, None, lsn) for id, lsn in (("7", 50), ("9", 60)))
    >>> [end.begins_at for end in ends_of([end, Begin("8", 48), other], Begin("7", 44))]
    [44, None]
    >>> [end.begins_at for end in ends_of([Begin("7", 44), Begin("7", 44), end])]
    [None]
    """
    ends, is_repeated = [], False
    for mark in marks:
        is_same = begun is not None and begun.id == mark.id
        if isinstance(mark, End):
            ends.append(replace(mark, begins_at=begun.lsn) if begun and is_same and not is_repeated else mark)
            begun, is_repeated = None, False
        else:
            begun, is_repeated = mark, is_same
    return ends


def is_cut(begins_at: int | None, after: int | None, first: int | None) -> bool:
    """Return whether a connector might have skipped the first changes of a transaction.

    A connector that was restarted after the END at `after` can skip changes of a transaction that was still open: those
    up to and including the change that directly follows this END in the log. Such a transaction begins at or before
    `after`, but every change of it that was sent is after `after`.

    Args:
        begins_at: where the transaction's first change is in the log, as its BEGIN states; None if that is unknown.
        after: the commit position of the previous transaction; None if that is unknown.
        first: the log position of the first change that was sent; None if none was sent.

    >>> [is_cut(40, 44, first) for first in (40, 44, 47, None)]
    [False, False, True, True]
    >>> is_cut(45, 44, 47), is_cut(None, 44, 47)
    (False, False)
    """
    return begins_at is not None and after is not None and begins_at <= after and (first is None or first > after)


@dataclass(frozen=True)
class Cut:
    """A transaction whose first changes the connector might not have sent.

    Args:
        lsn: its commit position.
        id: the id that the database gave it.
        begins_at: where its first change is in the log, as its BEGIN states.
        topic: the topic of its first event or, if it has none, of its END.
        partition: the partition of that event or END.
        offset: the offset of that event or END.
        first: where its first event is in the log; None if it has none.
    """

    lsn: int
    id: str
    begins_at: int
    topic: str
    partition: int
    offset: int
    first: int | None


def transaction_of(text: str | None) -> str | None:
    """Return the id of a transaction, without the position that follows it; None if there is none.

    >>> transaction_of("753:8040"), transaction_of(None)
    ('753', None)
    """
    return None if text is None else text.partition(":")[0]


def is_by_signal(source: Any) -> bool:
    """Return whether a row, judging by its `source`, is part of a snapshot that a signal asked for.

    Such a snapshot is taken later than the log position that its rows state. An incremental snapshot says what it
    is. In a blocking snapshot, `sequence` also has the commit position that the connector has reached, because it has
    followed changes before.

    >>> is_by_signal({"snapshot": "true", "sequence": '[null,"30"]'}), is_by_signal({"snapshot": "incremental"})
    (False, True)
    >>> is_by_signal({"snapshot": "first", "sequence": '["24","30"]'})
    True
    """
    if not isinstance(source, Mapping):
        return False
    return source.get("snapshot") == "incremental" or str(source.get("sequence")).startswith('["')


@dataclass(frozen=True)
class Sorted:
    """The ENDs of a range of the topic of transactions, by what they mean for a table."""

    new: Sequence[End]
    """ENDs in the order of their commits; each commit is after all that were read earlier."""
    repeated: Sequence[End]
    """ENDs that the connector has sent again; they may contradict the first ones."""
    went_back: End | None = None
    """The END of an unknown transaction whose commit is at or before one that was read. Neither this END nor any that
    follows it in the topic is used."""


def sort_ends(ends: Iterable[End], last: int, known: Mapping[int, str], parked: Set[str] = frozenset()) -> Sorted:
    """Sort ENDs, in the order of their offsets, into new and repeated ones.

    Args:
        ends: the ENDs.
        last: the greatest commit position that was already read; -1 if there is none.
        known: the ids of the transactions that were already read, by commit position; only the positions of `ends`
            are looked up.
        parked: the ids of the transactions that decisions have parked. A later END of such a transaction changes
            nothing.

    >>> first, second = (End(str(lsn), lsn, 1, 1, None, lsn) for lsn in (5, 9))
    >>> sorted = sort_ends([first, second, first], -1, {})
    >>> [end.lsn for end in sorted.new], [end.lsn for end in sorted.repeated], sorted.went_back
    ([5, 9], [5], None)
    """
    known, new, repeated = dict(known), [], []
    for end in ends:
        if end.lsn > last:
            new.append(end)
            last = end.lsn
        elif known.get(end.lsn) == end.id or end.id in parked:
            repeated.append(end)
        else:
            return Sorted(new, repeated, end)
        known[end.lsn] = end.id
    return Sorted(new, repeated)


def commit_ranges(ends: Iterable[tuple[str, int]]) -> list[tuple[str, int, int]]:
    """Return `(id, lower, lsn)` for each transaction.

    Ids repeat. An event states the id of its transaction, and the previous commit position: it belongs to the
    transaction with that id whose range `[lower, lsn)` contains this position. The ranges of one id are disjoint.

    Args:
        ends: the id and commit position of each transaction; a pair may be repeated.

    >>> commit_ranges([("7", 50), ("8", 60), ("7", 90)])
    [('7', -1, 50), ('7', 50, 90), ('8', -1, 60)]
    """
    ranges: list[tuple[str, int, int]] = []
    for transaction, lsn in sorted(set(ends)):
        is_same = bool(ranges) and ranges[-1][0] == transaction
        ranges.append((transaction, ranges[-1][2] if is_same else -1, lsn))
    return ranges


@dataclass(frozen=True)
class Blocked:
    """In one partition, the first event that cannot be read yet, or that a tick leaves for the next tick."""

    partition: int
    offset: int
    reason: str
    transaction: str | None
    after: int | None
    """A commit position before that of the event's transaction; None if none is known."""
    at_ms: int | None = None
    """When the connector processed the event."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of the table: its log position, how many of its rows were read, and whether it has ended."""

    lsn: int
    rows: int
    is_ended: bool
    is_first_marked: bool = False
    """Whether its first row is marked. If so, the connector also marks the last row, unless there is only one row."""
    is_abandoned: bool = False
    """Whether the connector began another snapshot instead of ending this one, whose rows then mean nothing."""

    @property
    def needs_end(self) -> bool:
        """Whether only its last row can show that it has ended; if not, a later commit can show this as well."""
        return self.is_first_marked and self.rows > 1

    def joined(self, other: Snapshot) -> Snapshot:
        """Add the rows of this snapshot that were read elsewhere.

        >>> Snapshot(30, 4, False, True).joined(Snapshot(30, 2, True))
        Snapshot(lsn=30, rows=6, is_ended=True, is_first_marked=True, is_abandoned=False)
        """
        return Snapshot(
            self.lsn,
            self.rows + other.rows,
            self.is_ended or other.is_ended,
            self.is_first_marked or other.is_first_marked,
            self.is_abandoned or other.is_abandoned,
        )

    def is_ended_by(self, commits: Iterable[int], before: int) -> bool:
        """Return whether its last row, or one of these commits before `before`, shows that it has ended."""
        return self.is_ended or (not self.needs_end and any(self.lsn <= lsn < before for lsn in commits))

    def decided(self, count: int | None) -> Snapshot:
        """Return the snapshot after any decision about its count: 0 abandons the snapshot, any other count ends it."""
        if count is None or self.is_abandoned:
            return self
        return replace(self, is_ended=True) if count else replace(self, is_abandoned=True)


def find_abandoned(snapshots: Sequence[Snapshot], commits: Sequence[int]) -> list[Snapshot]:
    """Mark the snapshots that were abandoned: the connector began the next one before they had ended.

    Args:
        snapshots: the snapshots, oldest first.
        commits: the commit positions that were read, at or after the oldest snapshot.

    >>> [each.is_abandoned for each in find_abandoned([Snapshot(30, 4, False), Snapshot(45, 9, True)], [50])]
    [True, False]
    >>> [each.is_abandoned for each in find_abandoned([Snapshot(30, 4, False), Snapshot(45, 9, True)], [40])]
    [False, False]
    """
    marked = []
    for place, snapshot in enumerate(snapshots):
        is_last = place + 1 == len(snapshots)
        is_abandoned = not is_last and not snapshot.is_ended_by(commits, snapshots[place + 1].lsn)
        marked.append(replace(snapshot, is_abandoned=True) if is_abandoned else snapshot)
    return marked


def first_uncovered(
    stated: int,
    last: int,
    snapshots: Iterable[Snapshot],
    blocked: Iterable[Blocked],
    commits: Sequence[int] = (),
) -> int:
    """Return the first time about which nothing can be stated yet; everything before it is covered.

    Args:
        stated: everything before this time was stated earlier.
        last: the greatest commit position that was read; -1 if there is none.
        snapshots: the snapshots at or after `stated`, oldest first; abandoned ones do not matter.
        blocked: the first unread event of each partition that was not read to its end; the ends were looked up after
            `last` was read. The event's transaction committed at an unknown position after `Blocked.after`.
        commits: the commit positions at or after `stated` that were read; they may show that a snapshot has ended.

    >>> first_uncovered(0, 50, [], [])
    51
    >>> [first_uncovered(0, 50, [], [Blocked(0, 7, "", "9", after)]) for after in (40, None)]
    [41, 0]
    >>> first_uncovered(0, -1, [Snapshot(30, 8, False)], [])
    0
    >>> first_uncovered(0, -1, [Snapshot(30, 8, True)], [])
    31
    >>> first_uncovered(0, 50, [Snapshot(30, 8, False, is_first_marked=True)], [])
    30
    >>> first_uncovered(0, 50, [Snapshot(30, 8, False), Snapshot(40, 8, True)], [])  # the first has no last row
    30
    """
    snapshots = [snapshot for snapshot in snapshots if not snapshot.is_abandoned]
    end = max([last, *(snapshot.lsn for snapshot in snapshots if snapshot.is_ended)]) + 1
    following = [*(snapshot.lsn for snapshot in snapshots[1:]), end]
    read = [*commits, last]
    unended = [
        snapshot.lsn
        for snapshot, before in zip(snapshots, following, strict=False)
        if not snapshot.is_ended_by(read, before)
    ]
    end = min([end, *unended, *(stated if place.after is None else place.after + 1 for place in blocked)])
    return max(stated, end)


def statement(stated: int, end: int, ends: Iterable[tuple[int, int]], snapshots: Iterable[Snapshot]) -> Progress | None:
    """Return the statement about the times at or after `stated` and before `end`; None if there is no such time.

    Args:
        stated: everything before this time was stated earlier.
        end: the result of `first_uncovered`.
        ends: commit position and number of events in the table, for each END that was read; a pair may be repeated.
        snapshots: the snapshots that were read; the rows of an abandoned one are not counted.

    >>> statement(0, 61, [(50, 2), (60, 0)], [Snapshot(30, 8, True)])
    Progress([0], [61], [(30, 8), (50, 2)])
    """
    if end <= stated:
        return None
    counts = {lsn: events for lsn, events in ends if events and stated <= lsn < end}
    for snapshot in snapshots:
        if snapshot.rows and not snapshot.is_abandoned and stated <= snapshot.lsn < end:
            counts[snapshot.lsn] = counts.get(snapshot.lsn, 0) + snapshot.rows
    return Progress([stated], [end], sorted(counts.items()))
