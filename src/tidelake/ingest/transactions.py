"""A tick of a table with transactions: it reads the ENDs first, then the events of the transactions that have ended.

An event does not state the commit position of its transaction; the END does. So each partition is read up to the first
event of a transaction whose END has not been read. The counts that the ENDs announce for the table become one progress
statement, which seal compares with the events. The pure rules are in `tidelake.protocol.transactions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.errors import (
    FILE_FROM_COPY,
    EventBlocked,
    NotRewritable,
    SnapshotBySignal,
    SnapshotRepeated,
    SnapshotUnfinished,
)
from tidelake.ingest.ends import (
    append_statements,
    append_transactions,
    contradicting_statements,
    quarantine_malformed,
    read_ends,
)
from tidelake.ingest.position import NAME_TOPIC_AGAIN, plan_next, range_read_by, values_after
from tidelake.ingest.reclock import MESSAGES_PER_TASK_MIN, RecordTick
from tidelake.ingest.snapshots import rewrite_without, write_barriers
from tidelake.ingest.transaction_records import END_TIME, NO_SNAPSHOT, TransactionRecords
from tidelake.plugins.envelope import Envelope, RecordBatch, WrittenRecords
from tidelake.plugins.tick import PastTick
from tidelake.protocol.order import INT64_MAX
from tidelake.protocol.transactions import (
    Blocked,
    Cut,
    Snapshot,
    Sorted,
    commit_ranges,
    find_abandoned,
    first_uncovered,
    is_cut,
    statement,
)
from tidelake.settings.transactions import TransactionSettings
from tidelake.spark.fixed_plan import with_fixed_plans
from tidelake.store.commit import OpenTable
from tidelake.store.cuts import note_cuts
from tidelake.store.decision import AcceptGap, counts_in, parked_in
from tidelake.store.entry import Collection
from tidelake.store.failpoints import reach
from tidelake.store.files import RunFile, discard_runs
from tidelake.store.retry import ATTEMPTS_MAX, LostRace, retry_commit
from tidelake.store.runs import append_run, write_frame
from tidelake.store.state import HAS_BARRIERS, HAS_LATE, HAS_QUARANTINE, UPPER, next_offsets, topic_identity_value
from tidelake.store.table_schema import late_schema
from tidelake.store.transactions import (
    LAST,
    STATED,
    Transaction,
    abandoned_in,
    end_rows,
    read_snapshots,
    read_transactions,
    snapshot_row,
    snapshot_values,
)
from tidelake.topic.topic import OffsetRange, Topic

_ENDS = pa.schema([("id", pa.string()), ("lower", pa.int64()), ("lsn", pa.int64()), ("begins_at", pa.int64())])


class TransactionTick(RecordTick):
    """The steps of a tick of a table with transactions."""

    settings: TransactionSettings

    def __init__(
        self,
        spark: SparkSession,
        collection: Collection,
        settings: TransactionSettings,
        topics: Sequence[Topic],
        envelope: Envelope,
    ) -> None:
        super().__init__(with_fixed_plans(spark), collection, settings, topics[:-1], envelope)
        self.events, self.marks = topics[0], topics[-1]
        self.stated, self.last = self.table.value(STATED) or 0, (self.table.value(LAST) or 0) - 1
        self.parked = parked_in(self.collection.entry.decisions)
        self.read_marks = OffsetRange({})
        self.sorted = Sorted([], [])
        self.malformed: list[dict[str, Any]] = []
        self.blocked: list[Blocked] = []
        self.snapshots: list[Snapshot] = []
        self.scanned: Mapping[int, Snapshot] = {}
        self.unsealed: Sequence[Transaction] = ()
        """The transactions at or after upper whose ENDs were read before this tick."""
        self.ended: Sequence[Transaction] = ()
        """`unsealed`, and earlier transactions if their events may be repeated."""
        self.written = WrittenRecords([])
        self.records: TransactionRecords | None = None  # type: ignore[assignment]  # None if the tick reads only ENDs
        self.files: list[RunFile] = []
        self.removed: Sequence[str] = ()
        self.abandoned: Set[int] = {
            snapshot.lsn for snapshot in read_snapshots(self.table, self.stated) if snapshot.is_abandoned
        }
        """The log positions of abandoned snapshots that no statement covers yet: their rows are not stored."""
        self.newly_abandoned: Set[int] = frozenset()
        """The snapshots that this tick has found to be abandoned; it removes the rows that earlier ticks stored."""

    # --- plan --------------------------------------------------------------------------------------------------------

    def plan(self) -> bool:
        """Read the ENDs, and bound the range of the table; see `Tick.plan`.

        Raises:
            TransactionTopicDivided: the topic of transactions has more than one partition.
            ConfigurationError: the events are from another connector, or from another table.
        """
        self._read_ends()
        self.ended = self.unsealed = read_transactions(self.collection, self.lower)
        # The end offsets of the table's topic are looked up only after the ENDs were read. So if a row of a snapshot
        # was written before one of these ENDs, the end offsets cover it.
        topic_ends = self.events.end_offsets()
        planned, gaps = plan_next(self.events, self.table, self.collection, self.settings.messages_per_tick_max)
        self.report.gaps += gaps
        self.ranges = [(self.events, planned)] if planned.intervals else []
        if self.ranges:
            self._read_events(planned)
        self._merge_snapshots()
        if self.snapshots:  # a snapshot's last row may have been read, but not all earlier rows in other partitions
            topic_ends = self.events.end_offsets()
        self._state(topic_ends)
        if not self.newly_abandoned.isdisjoint(self.scanned) and self.ranges:
            self._write_events()  # without the rows of a snapshot that turned out to be abandoned
        self.report.messages = self.read_marks.messages + sum(offsets.messages for _, offsets in self.ranges)
        # A decision, or a second look, may allow a statement about messages that were read earlier.
        return bool(self.report.messages) or self.end > self.stated

    def commit_idle(self) -> bool:
        """Commit nothing; see `Tick.commit_idle`."""
        return False

    def _read_ends(self) -> None:
        """Read the new ENDs; see `read_ends`."""
        ends = read_ends(self.spark, self.collection, self.settings, self.marks, self.table, self.last)
        self.read_marks, self.sorted, self.malformed = ends.offsets, ends.sorted, ends.malformed
        self.report.gaps += ends.gaps

    def _newest_lsn(self) -> int:
        return self.sorted.new[-1].lsn if self.sorted.new else self.last

    def _read_events(self, planned: OffsetRange) -> None:
        """Write the events of the range as an uncommitted run: each partition up to its first waiting event."""
        super().read()
        reach("ingest.before_write")
        self._write_events()
        assert self.records is not None
        names = {place.transaction for place in self.records.blocked} - {None}
        oldest = min((place.after or -1 for place in self.records.blocked if place.transaction), default=self.lower)
        if oldest < self.lower:
            # If the transaction of a waiting event is already sealed, the event is a repeated one.
            known = read_transactions(self.collection, oldest)
            if not names.isdisjoint(transaction.id for transaction in known if transaction.time < self.lower):
                self.ended = known
                self._write_events()
        self.blocked, self.scanned = self.records.blocked, self.records.snapshots
        firsts = {place.partition: place.offset for place in self.blocked}
        intervals = {
            partition: (start, min(end, firsts.get(partition, end)))
            for partition, (start, end) in planned.intervals.items()
        }
        intervals = {partition: (start, end) for partition, (start, end) in intervals.items() if start < end}
        bounded = self.events.range_of(intervals) if intervals else None
        self.ranges = []
        if bounded is not None:
            identified = OffsetRange(
                bounded.intervals, bounded.parquet, bounded.json_lines, planned.identity, bounded.whole_files
            )
            self.ranges = [(self.events, identified)]
        for place in self.blocked:
            at = self.events.name, place.partition, place.offset
            if place.reason == NO_SNAPSHOT:
                end = planned.intervals[place.partition][1]
                self.report.gaps.append(SnapshotBySignal(*at, end, place.reason))
            elif place.reason:
                self.report.gaps.append(EventBlocked(*at, place.offset + 1, place.reason))

    def _write_events(self) -> None:
        """Write the events of the planned range as an uncommitted run, which replaces an earlier one."""
        discard_runs(self.table.path, self.written.files)
        ((topic, offsets),) = self.ranges
        tasks = min(self.spark.sparkContext.defaultParallelism, offsets.messages // MESSAGES_PER_TASK_MIN)
        batch = RecordBatch(
            self.spark,
            self.collection,
            self.settings,
            self.schemas,
            self.table,
            0,
            self._messages().coalesce(max(1, tasks)),
            [topic],
            self.ends(),
        )
        decisions = self.collection.entry.decisions
        self.records = TransactionRecords(
            batch,
            ends=self._ends_frame(),
            upper=self.lower,
            parked=self.parked,
            accepted=[decision.offsets for decision in decisions if isinstance(decision, AcceptGap)],
            abandoned=sorted(self.abandoned),
            partitions=sorted(offsets.intervals),
        )
        self.written = self.records.write()

    def _ends_frame(self) -> DataFrame:
        """Return the transactions whose ENDs were read, as `with_ends` needs them."""
        pairs = [(transaction.id, transaction.time) for transaction in self.ended if transaction.id is not None]
        pairs += [(end.id, end.lsn) for end in self.sorted.new]
        names = _ENDS.names
        begins = {found.time: found.begins_at for found in self.ended if not found.is_snapshot}
        begins |= {end.lsn: end.begins_at for end in self.sorted.new}
        rows = [dict(zip(names, (*row, begins.get(row[-1])), strict=True)) for row in commit_ranges(pairs)]
        return self.spark.createDataFrame(pa.Table.from_pylist(rows, schema=_ENDS))

    def _merge_snapshots(self) -> None:
        """Add the snapshot rows of the range to those that earlier ticks read from the same snapshots."""
        merged = {snapshot.lsn: snapshot for snapshot in read_snapshots(self.table, self.stated)}
        for lsn, here in self.scanned.items():
            if lsn < self.stated:  # its rows are late
                continue
            merged[lsn] = merged[lsn].joined(here) if lsn in merged else here
        self.snapshots = [merged[lsn] for lsn in sorted(merged)]

    def _state(self, topic_ends: Mapping[int, int]) -> None:
        """Determine up to which time this tick makes a statement, and what the statement announces."""
        read = next_offsets(self.table, self.events.name)
        read |= {partition: end for _, offsets in self.ranges for partition, (_, end) in offsets.intervals.items()}
        waiting = {place.partition for place in self.blocked}
        behind = [each for each, end in topic_ends.items() if read.get(each, 0) < end and each not in waiting]
        after = {} if self.records is None else self.records.before_rest
        unread = [Blocked(each, read.get(each, 0), "", None, after.get(each)) for each in behind]
        known = [found for found in self.unsealed if found.time >= self.stated and not found.is_snapshot]
        ends = [(transaction.time, transaction.events) for transaction in known]
        ends += [(end.lsn, end.events) for end in self.sorted.new]
        if self.snapshots:
            self._judge_snapshots([lsn for lsn, _ in ends], read, not behind and not waiting)
        commits, last = [lsn for lsn, _ in ends], self._newest_lsn()
        self.end = first_uncovered(self.stated, last, self.snapshots, [*self.blocked, *unread], commits)
        self.first_event = min((lsn for lsn, events in ends if events), default=INT64_MAX)
        if not self.collection.entry.key:
            self._stop_at_repeated_snapshot()
        self.statement = statement(self.stated, self.end, ends, self.snapshots)
        self.stated_snapshots = [
            snapshot for snapshot in self.snapshots if snapshot.lsn < self.end and not snapshot.is_abandoned
        ]

    def _stop_at_repeated_snapshot(self) -> None:
        """State nothing at or after a repeated snapshot: without a key, it does not show which rows are gone."""
        for snapshot in self.snapshots:
            has_earlier = any(file.reach[0] < snapshot.lsn for file in self.table.files())
            if not snapshot.is_abandoned and (has_earlier or self.first_event < snapshot.lsn):
                self.end = max(self.stated, min(self.end, snapshot.lsn))
                self.report.gaps.append(SnapshotRepeated(self.events.name, 0, 0, 0, "", snapshot.lsn, snapshot.rows))
                return

    def _judge_snapshots(self, commits: Sequence[int], read: Mapping[int, int], is_through: bool) -> None:
        """Find the snapshots that the connector has abandoned, and those that it has neither ended nor repeated.

        Args:
            commits: the commit positions that were read and that no earlier statement covers.
            read: by partition, the next offset of the table's topic after this tick.
            is_through: whether each partition was read to the end that it had after the ENDs were read.
        """
        known = {snapshot.lsn for snapshot in self.snapshots if snapshot.is_abandoned}
        counts = {time: decision.count for time, decision in counts_in(self.collection.entry.decisions).items()}
        self.snapshots = [snapshot.decided(counts.get(snapshot.lsn)) for snapshot in self.snapshots]
        # Since this process read the decisions, a new decision may have accepted a snapshot, and seal may have sealed
        # its time.
        abandoned = [
            before if before.lsn < self.lower else after
            for before, after in zip(self.snapshots, find_abandoned(self.snapshots, commits), strict=True)
        ]
        if abandoned != self.snapshots and is_through and self._has_nothing_new(read):
            self.snapshots = abandoned
        self.abandoned = {snapshot.lsn for snapshot in self.snapshots if snapshot.is_abandoned}
        self.newly_abandoned = {lsn for lsn in self.abandoned - known if lsn >= self.lower}
        newest = self.snapshots[-1]
        is_open = newest.needs_end and not newest.is_ended and not newest.is_abandoned
        if is_through and is_open and newest.lsn <= self._newest_lsn():
            self.report.gaps.append(SnapshotUnfinished(self.events.name, 0, 0, 0, "", newest.lsn, newest.rows))

    def _has_nothing_new(self, read: Mapping[int, int]) -> bool:
        """Return whether both topics still end where this tick stopped, now that it has read all rows.

        If not, the last row of a snapshot, or the END that ends it, may have been written in the meantime.
        """
        marks = next_offsets(self.table, self.marks.name)
        marks |= {partition: end for partition, (_, end) in self.read_marks.intervals.items()}
        topics = ((self.marks, marks), (self.events, read))
        return all(
            at.get(partition, 0) >= end for topic, at in topics for partition, end in topic.end_offsets().items()
        )

    # --- read, decode, write -----------------------------------------------------------------------------------------

    def mint(self) -> int:
        """Return 0: no time is minted, because the source states the times."""
        return 0

    def read(self) -> None:
        """Do nothing: the plan of a tick depends on the events, so `plan` has already read them."""

    def decode(self) -> None:
        """Do nothing; see `read`."""

    def write(self) -> None:
        """Write the quarantine, the transactions, the statements and the late events; `plan` has written the rows."""
        first = min([self.first_event, *(snapshot.lsn for snapshot in self.stated_snapshots)])
        erasing = [snapshot.lsn for snapshot in self.stated_snapshots if self.stated > 0 or snapshot.lsn > first]
        self.files = list(self.written.files) + write_barriers(self.collection, self.table, erasing)
        self.has_barriers = len(self.files) > len(self.written.files)
        removing = rewrite_without(self.spark, self.collection, self.table, sorted(self.newly_abandoned))
        self.removed, self.files = removing.removed, [*self.files, *removing.added]
        self.report.null_records, self.report.quarantined = self.written.tombstones, self.written.quarantined
        self.report.values_in_error = self.written.errors
        self.report.updates_stored = sum(file.rows for file in self.files)
        self.report.bytes_stored = sum(file.bytes for file in self.files)
        reach("ingest.after_write")
        if self.report.quarantined:
            self._quarantine()
        if self.malformed:
            self.report.count_reasons(quarantine_malformed(self.collection, self.marks.name, self.malformed))
            self.report.quarantined += len(self.malformed)
        reach("ingest.after_quarantine")
        identity = self.read_marks.identity or self.table.value(topic_identity_value(self.marks.name))
        note_cuts(self.collection, self.marks.name, identity, self._find_cuts())
        self._append_transactions()
        self._append_progress()
        reach("ingest.after_progress")
        if self.records is not None and self.records.late:
            self._set_late_aside(self.records)
        self.report.updates_read = self.report.updates_stored + self.report.updates_late
        reach("ingest.after_late")

    def _find_cuts(self) -> list[Cut]:
        """Return the cut transactions (see `is_cut`) that have no event, or whose first event is in this table."""
        if not self.settings.captures_publication:
            return []
        cuts, after = [] if self.records is None else list(self.records.cuts), self.last
        for end in self.sorted.new:
            if end.begins_at is not None and not end.events_in_all and is_cut(end.begins_at, after, None):
                cuts.append(Cut(end.lsn, end.id, end.begins_at, self.marks.name, 0, end.offset, None))
            after = end.lsn
        return cuts

    def _append_transactions(self) -> None:
        rows = end_rows(self.sorted.new, self.marks.name)
        rows += [snapshot_row(snapshot, self.events.name) for snapshot in self.stated_snapshots]
        append_transactions(self.collection, rows)

    def _append_progress(self) -> None:
        """Append the statement of the tick, and those of repeated ENDs that contradict the first ones."""
        contradicting = contradicting_statements(self.collection, self.sorted)
        last = max((end for _, end in self.read_marks.intervals.values()), default=1) - 1
        statements = [*([] if self.statement is None else [(last, self.statement)]), *contradicting]
        if statements:
            self.report.progress_statements = len(statements)
            append_statements(self.collection, self.marks.name, statements)

    def _times_held_back(self) -> Column:
        """Return the time of an unusable event, in an array; null if the time is not known."""
        return F.when(F.col(END_TIME).isNotNull(), F.array(F.col(END_TIME)))

    def _set_late_aside(self, records: TransactionRecords) -> None:
        """Store the events of sealed transactions in `late/`, each with its place in the topic."""
        late, path = records.late_rows().coalesce(1), self.collection.paths.late
        schema = late_schema(self.collection.entry.record_schema)
        files = append_run(path, "late", lambda run: write_frame(late, path, run, schema), self.collection.entry.epoch)
        self.report.updates_late = sum(file.rows for file in files)

    def write_again(self, past: PastTick) -> list[RunFile]:
        """See `Tick.write_again`."""
        offsets = range_read_by(past, self.events, self.collection)
        if offsets is None:
            fact = "the tick that wrote the file read no events of the topic"
            raise NotRewritable(str(past.table.path), fact, NAME_TOPIC_AGAIN)
        self.table, self.lower, self.ranges = past.table, past.table.value(UPPER) or 0, [(self.events, offsets)]
        self.abandoned = abandoned_in(past.values)
        self._resolve()
        if past.table.schema() != self.collection.updates_schema():
            fact = "columns have been added to the table since the file was made"
            raise NotRewritable(str(past.table.path), fact, FILE_FROM_COPY)
        self.ended = read_transactions(self.collection)
        self._write_events()
        return self.written.files

    # --- commit ------------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit the run and the offsets; retry after a conflict, unless what was written may no longer be right."""
        before = self._state_of(self.table)

        def commit(table: OpenTable) -> None:
            values = dict(self.written.values)
            for topic, offsets in [*self.ranges, (self.marks, self.read_marks)]:
                values |= values_after(table, topic.name, offsets) if offsets.intervals else {}
            values |= {STATED: self.end, LAST: self._newest_lsn() + 1} | snapshot_values(self.snapshots)
            flags = {
                HAS_QUARANTINE: self.report.quarantined,
                HAS_LATE: self.report.updates_late,
                HAS_BARRIERS: self.has_barriers,
            }
            values |= {flag: 1 for flag, is_set in flags.items() if is_set}
            self.report.version = table.commit(
                values, self.files, self.removed, epoch=self.collection.entry.epoch
            ).version

        def check_still_valid(table: OpenTable) -> None:
            # If a seal has moved upper, some of the rows may be late now.
            is_live = {file.run for file in table.files()}.issuperset(self.removed)
            if self._state_of(table) != before or table.schema() != self.table.schema() or not is_live:
                discard_runs(self.table.path, self.files)
                reach("ingest.after_lost_offsets")
                raise LostRace
            reach("ingest.after_conflict")

        failure = f"{ATTEMPTS_MAX} attempts to commit a tick failed"
        retry_commit(self.table, commit, failure, after_conflict=check_still_valid)
        reach("ingest.after_commit")

    def _state_of(self, table: OpenTable) -> tuple[Any, ...]:
        """Return the offsets and times in the table on which the tick's rows and statements depend."""
        offsets = [next_offsets(table, topic.name) for topic in (self.events, self.marks)]
        return (*offsets, table.value(UPPER) or 0, table.value(STATED))
