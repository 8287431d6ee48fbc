"""Which events may be read, and which times are covered: checked against an oracle that knows the whole history."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelake.protocol.antichain import Antichain
from tidelake.protocol.ledger.ledger import Ledger
from tidelake.protocol.message import Progress
from tidelake.protocol.transactions import (
    Begin,
    Blocked,
    End,
    NotATransaction,
    Snapshot,
    commit_ranges,
    ends_of,
    find_abandoned,
    first_uncovered,
    is_cut,
    read_mark,
    sort_ends,
    statement,
)


@dataclass
class _Event:
    transaction: str | None
    after: int
    time: int
    """The oracle's knowledge: the commit position of the event's transaction, or the log position of its snapshot."""
    order: int = 0
    ends_snapshot: bool = False
    begins_snapshot: bool = False


@dataclass
class _History:
    """A connector's messages, in the order in which it wrote them: events by partition, and ENDs; some come twice."""

    partitions: list[list[_Event]] = field(default_factory=lambda: [[], []])
    ends: list[End] = field(default_factory=list)
    abandoned: list[int] = field(default_factory=list)
    """The log positions of the snapshots during which the connector was killed."""
    snapshot: int | None = None
    """The log position of the snapshot that the connector finished."""
    moments: list[tuple[int, int, int]] = field(default_factory=list)
    """The lengths of both partitions and of the topic of transactions after each message."""

    def note(self) -> None:
        self.moments.append((len(self.partitions[0]), len(self.partitions[1]), len(self.ends)))


@st.composite
def _histories(draw: st.DrawFn) -> _History:
    history, lsn, last = _History(), 10, -1
    history.note()
    attempts, marks_first = draw(st.integers(0, 3)), draw(st.booleans())
    for attempt in range(1, attempts + 1):
        lsn += draw(st.integers(1, 5))
        rows = draw(st.lists(st.integers(0, 1), min_size=1, max_size=4))
        if attempt < attempts:
            rows = rows[: draw(st.integers(1, len(rows)))]
            history.abandoned.append(lsn)
        else:
            history.snapshot = lsn
        for number, partition in enumerate(rows):
            ends = attempt == attempts and number == len(rows) - 1
            history.partitions[partition].append(_Event(None, -1, lsn, 0, ends, marks_first and number == 0))
            history.note()
    transactions: list[tuple[str, int, list[int]]] = []
    for _ in range(draw(st.integers(0, 8))):
        lsn += draw(st.integers(1, 5))
        events = draw(st.lists(st.integers(0, 1), max_size=3))
        transactions.append((str(draw(st.integers(1, 6))), lsn, events))
    place = 0
    while place < len(transactions):
        transaction, end, events = transactions[place]
        last = transactions[place - 1][1] if place else -1
        dies = draw(st.integers(0, 4)) == 0
        written = events[: draw(st.integers(0, len(events)))] if dies else events
        for order, partition in enumerate(written, start=1):
            history.partitions[partition].append(_Event(transaction, last, end, order))
            history.note()
        if dies:  # the connector is killed during this transaction, and then repeats it, perhaps with earlier ones
            place -= draw(st.integers(0, min(3, place)))
            continue
        history.ends.append(End(transaction, end, len(events), len(events), None, len(history.ends)))
        history.note()
        place += 1
    return history


class _Reader:
    """A model of a table's ticks, without tables: it reads prefixes of the topics, and feeds a ledger."""

    def __init__(self) -> None:
        self.read, self.marks, self.stated, self.last = [0, 0], 0, 0, -1
        self.ends: dict[int, End] = {}
        self.stored: set[tuple[int, int]] = set()
        self.snapshots: dict[int, Snapshot] = {}
        self.ledger = Ledger(Antichain.of(0))

    def tick(
        self, history: _History, ends: tuple[int, int, int], messages_max: int, later: tuple[int, int, int]
    ) -> None:
        found = sort_ends(
            history.ends[self.marks : ends[2]], self.last, {lsn: end.id for lsn, end in self.ends.items()}
        )
        assert found.went_back is None
        self.marks = max(self.marks, ends[2])
        self.ends |= {end.lsn: end for end in found.new}
        self.last = max(self.ends, default=-1)
        ranges = commit_ranges((end.id, end.lsn) for end in self.ends.values())
        blocked, positions = [], {}
        for partition, events in enumerate(history.partitions):
            bound = min(later[partition], self.read[partition] + messages_max)  # the topics' ends are looked up again
            here: list[int] = []
            while self.read[partition] < bound:
                event = events[self.read[partition]]
                times = [lsn for id, lower, lsn in ranges if id == event.transaction and lower <= event.after < lsn]
                assert len(times) <= 1
                if event.transaction is not None and not times:
                    blocked.append(Blocked(partition, self.read[partition], "", event.transaction, event.after))
                    break
                self.read[partition] += 1
                self._store(event, times)
                here += [] if event.transaction is None else [event.after]
            positions[partition] = max(here, default=None)
        snapshots = sorted(self.snapshots.values(), key=lambda snapshot: snapshot.lsn)
        due = later if any(snapshot.lsn >= self.stated for snapshot in snapshots) else ends
        waiting = {place.partition for place in blocked}
        behind = [
            Blocked(partition, self.read[partition], "", None, positions[partition])
            for partition in positions
            if self.read[partition] < due[partition] and partition not in waiting
        ]
        has_nothing_new = self.marks >= later[2] and all(self.read[each] >= later[each] for each in (0, 1))
        if not behind and not blocked and has_nothing_new:
            snapshots = find_abandoned(snapshots, list(self.ends))
            self.snapshots = {snapshot.lsn: snapshot for snapshot in snapshots}
        end = first_uncovered(self.stated, self.last, snapshots, [*blocked, *behind], list(self.ends))
        counts = [(lsn, end.events) for lsn, end in self.ends.items()]
        progress = statement(self.stated, end, counts, snapshots)
        if progress is not None:
            self.ledger.announce(progress)
        for snapshot in snapshots:
            if self.stated <= snapshot.lsn < end and not snapshot.is_abandoned:
                self.ledger.count(snapshot.lsn, snapshot.rows)
        self.stated = end
        self.ledger.advance()

    def _store(self, event: _Event, times: list[int]) -> None:
        if event.transaction is None:
            assert event.time >= self.stated
            row = Snapshot(event.time, 1, event.ends_snapshot, event.begins_snapshot)
            self.snapshots[event.time] = self.snapshots[event.time].joined(row) if event.time in self.snapshots else row
            return
        assert times == [event.time]
        if (event.time, event.order) not in self.stored:
            self.stored.add((event.time, event.order))
            self.ledger.count(event.time, 1)


@settings(max_examples=300, deadline=None)
@given(_histories(), st.data())
def test_no_time_is_sealed_before_all_of_its_events_are_read(history: _History, data: st.DataObject) -> None:
    reader = _Reader()
    all_events = {
        (event.time, event.order) for events in history.partitions for event in events if event.transaction is not None
    }
    events = [event for events in history.partitions for event in events]
    rows_of_snapshot = sum(event.transaction is None and event.time == history.snapshot for event in events)
    moments = sorted(data.draw(st.lists(st.integers(0, len(history.moments) - 1), max_size=6)))
    steps = [(history.moments[moment], data.draw(st.integers(1, 5))) for moment in moments]
    steps += [(history.moments[-1], 100), (history.moments[-1], 100)]
    steps += [(history.moments[-1], 100)]
    for (ends, messages_max), (later, _) in pairwise(steps):
        reader.tick(history, ends, messages_max, later)
        frontier = reader.ledger.frontier
        sealed = {place for place in all_events if not frontier.less_equal(place[0])}
        assert sealed <= reader.stored
        if history.snapshot is not None and not frontier.less_equal(history.snapshot):
            snapshot = reader.snapshots[history.snapshot]
            assert snapshot.rows == rows_of_snapshot and not snapshot.is_abandoned
        for lsn in history.abandoned:
            assert frontier.less_equal(lsn) or reader.snapshots[lsn].is_abandoned
    assert not reader.ledger.contradictions()
    newest = max((end.lsn for end in history.ends), default=-1)
    assert reader.ledger.frontier == Antichain.of(max(newest, -1 if history.snapshot is None else history.snapshot) + 1)


@st.composite
def _interleaved(draw: st.DrawFn) -> list[tuple[str, int | None]]:
    """Draw a log: the records in order, each with its transaction, and with 1 for a commit or None for a change."""
    names = [str(number) for number in range(draw(st.integers(1, 4)))]
    records: list[tuple[str, int | None]] = []
    for name in draw(st.lists(st.sampled_from(names), min_size=len(names), max_size=12)):
        records.append((name, None))
    written = sorted({name for name, _ in records}, key=lambda name: draw(st.integers()))
    for name in written:
        last = max(place for place, record in enumerate(records) if record[0] == name)
        records.insert(draw(st.integers(last + 1, len(records))), (name, 1))
    return records


@settings(max_examples=300, deadline=None)
@given(_interleaved(), st.integers(0, 5))
def test_a_transaction_is_cut_if_and_only_if_a_restarted_connector_skipped_its_first_change(
    records: list[tuple[str, int | None]], restart: int
) -> None:
    """A model of Debezium that is restarted after an END.

    The position of an END is that of the record after the commit. If that record is a change of the transaction that
    commits next, Debezium skips the changes of that transaction up to and including the record.
    """
    changes: dict[str, list[int]] = {}
    commits: list[tuple[str, int]] = []
    for place, (name, commit) in enumerate(records):
        if commit is None:
            changes.setdefault(name, []).append(place)
        else:
            commits.append((name, place + 1))
    for number, (name, end) in enumerate(commits):
        after = commits[number - 1][1] if number else -1
        sent = changes[name]
        # The connector resumes after the position of the previous END, where there is a change of this transaction.
        if number == restart and number and after in sent:
            sent = [place for place in sent if place > after]
        marks = ends_of([Begin(name, changes[name][0]), End(name, end, len(sent), len(sent), None, number)])
        first = min(sent, default=None)
        assert is_cut(marks[0].begins_at, after, first) == (sent != changes[name])


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"status": "COMMIT", "id": "7:1"}, "neither BEGIN nor END"),
        ({"status": "END", "id": "7"}, "not TRANSACTION:LSN"),
        ({"status": "END", "id": None}, "not TRANSACTION:LSN"),
        ({"status": "END", "id": "7:9", "event_count": 1, "data_collections": None}, "event_count is 1"),
        ({"status": "END", "id": "7:9", "event_count": 0, "data_collections": [7]}, "invalid or repeated entry: 7"),
        ("END", "neither BEGIN nor END"),
    ],
)
def test_a_message_that_is_not_a_transaction_is_refused_with_the_reason(message: object, why: str) -> None:
    with pytest.raises(NotATransaction, match=why):
        read_mark(message, "public.orders", 0)


def test_an_unknown_transaction_before_others_is_an_error_and_a_known_one_is_repeated() -> None:
    first, second = End("7", 50, 1, 1, None, 1), End("8", 60, 1, 1, None, 3)
    found = sort_ends([first, second], 60, {50: "7", 60: "8"})
    assert (list(found.new), list(found.repeated), found.went_back) == ([], [first, second], None)
    found = sort_ends([first, second], 60, {50: "9", 60: "8"})
    assert (list(found.repeated), found.went_back) == ([], first)


def test_a_lost_end_covers_nothing_after_the_previous_position() -> None:
    """The event states that its transaction follows position 40; ENDs after 40 do not cover it."""
    lost = Blocked(0, 7, "", "9", 40)
    assert first_uncovered(20, 90, [], [lost]) == 41
    assert first_uncovered(60, 90, [], [lost]) == 60


def test_a_snapshot_that_was_started_again_is_covered_only_with_its_second_attempt() -> None:
    first, second = Snapshot(30, 4, False), Snapshot(45, 9, False)

    def uncovered(last: int, *snapshots: Snapshot) -> int:
        return first_uncovered(0, last, find_abandoned(snapshots, [last]), [])

    assert uncovered(-1, first, second) == 0
    assert uncovered(-1, first, Snapshot(45, 9, True)) == 46
    assert uncovered(50, first, second) == 51


def test_no_commit_ends_a_snapshot_whose_last_row_would_be_marked() -> None:
    """If a commit ended it, an abandoned snapshot would count as complete when a later one found the table empty."""
    marked = Snapshot(30, 4, False, is_first_marked=True)
    assert first_uncovered(0, 50, [marked], []) == 30
    assert first_uncovered(0, 50, [Snapshot(30, 1, False, True)], []) == 51
    assert [each.is_abandoned for each in find_abandoned([marked, Snapshot(60, 2, True)], [50])] == [True, False]
    assert statement(0, 61, [(50, 1)], [replace(marked, is_abandoned=True), Snapshot(60, 2, True)]) == Progress(
        [0], [61], [(50, 1), (60, 2)]
    )
