"""Seal: compares what was announced with what is stored, and moves upper in a commit that almost never adds rows.

The steps of a seal: count the rows at or after upper, compare the counts with what was announced, remove the effect of
copies and discarded statements, record the proof, commit. Arrow or Spark counts; the pure `Ledger` compares.
"""

from __future__ import annotations

import time as clock
from dataclasses import replace

from pyspark.sql import SparkSession

from tidelake.plugins.envelope import form_of
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.order import INT64_MAX
from tidelake.seal.changes import Changes, cancel, cancel_repeated, leave_out
from tidelake.seal.comparison import Comparison, compare
from tidelake.seal.counts import OpenCounts
from tidelake.seal.cut_transactions import cut_transactions
from tidelake.seal.open_rows import OpenRows
from tidelake.seal.pending import Pending
from tidelake.seal.proof import record_contradictions, record_proof
from tidelake.seal.report import SealReport
from tidelake.seal.retention import Written, due_cutoff, note_departure, write_departures
from tidelake.seal.retention_tick import remove_old_rows
from tidelake.seal.rulings import Rulings
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.reclock import ReclockSettings
from tidelake.settings.row_retention import RowRetention
from tidelake.settings.transactions import TransactionSettings
from tidelake.store.commit import OpenTable, maintain
from tidelake.store.entry import Collection
from tidelake.store.failpoints import reach
from tidelake.store.late_notes import note_late_counts
from tidelake.store.retry import ATTEMPTS_MAX, LostRace, retry_commit, retry_work
from tidelake.store.state import CLOSED, SEALED_AT_MS, UPPER


def seal(spark: SparkSession, collection: Collection, settings: CollectionSettings | None = None) -> SealReport:
    """Move upper as far as the proof reaches; leave it where it is if the proof reaches no further.

    Args:
        spark: the session.
        collection: the collection.
        settings: its settings, which say how long rows are kept, and whether its connector captures everything that
            PostgreSQL publishes. Without settings, all rows stay, and the connector is assumed to capture everything.

    Raises:
        Conflict: every attempt failed because of other writers; nothing was sealed.
        Fenced: the epoch was raised in the meantime.
    """
    rule = None if settings is None else settings.keep_rows
    sees_cuts = not isinstance(settings, TransactionSettings) or settings.captures_publication
    if collection.entry.mints_times:
        report = _nothing_to_seal(collection)
        if rule is not None and isinstance(settings, ReclockSettings):
            remove_old_rows(spark, collection, rule, settings.clock_ahead_max_s, report)
        return report
    end: int | None = None

    def attempt() -> SealReport:
        nonlocal end
        current = _Seal(spark, collection, end, rule, sees_cuts)
        try:
            return current.run()
        except LostRace:
            end = current.earlier_end()
            raise

    return retry_work(attempt, collection.paths.updates, f"{ATTEMPTS_MAX} attempts to seal failed")


def _nothing_to_seal(collection: Collection) -> SealReport:
    """Report that ingest seals reclocked collections: a tick's binding of its time to offsets is the proof."""
    table = OpenTable(collection.paths.updates, may_be_stale=True)
    upper = table.value(UPPER) or 0
    return SealReport(upper, upper, sealed_by_ingest=True, version=table.version)


class _Seal:
    """One attempt, from one state of the table. If `end` is given, only times before `end` are counted and sealed."""

    def __init__(
        self,
        spark: SparkSession,
        collection: Collection,
        end: int | None,
        rule: RowRetention | None = None,
        sees_cuts: bool = True,
    ) -> None:
        self.spark, self.collection, self.paths = spark, collection, collection.paths
        self.table = OpenTable(self.paths.updates, may_be_stale=True)
        self.upper = self.table.value(UPPER) or 0
        self.end = end if end is not None and end > self.upper else None
        self.form = form_of(collection.entry, self.table)
        self.rulings = Rulings(collection.entry.decisions)
        self.report = SealReport(self.upper, self.upper, bool(self.table.value(CLOSED)))
        self.settled: list[int] = []
        """The times with updates that this seal proves, and those that a decision covers."""
        self.rule, self.sees_cuts = rule, sees_cuts
        self.left = Written([], None, {})
        """The rows that retention removes, at the last time that this seal proves."""
        self.overtaken = False
        """Whether an ingest has added rows at the first open time in the meantime."""

    def run(self) -> SealReport:
        """Count, compare, change, prove, commit.

        Raises:
            LostRace: another commit has changed the counted rows.
        """
        pending = Pending(self.collection)
        has_late = note_late_counts(self.collection, pending.rows, self.upper, self.report.closed)
        if self.report.closed:
            return self._finish(pending, prunes=has_late)
        rows = OpenRows(self.spark, self.collection, self.form, self.rulings, self.table, self.upper, self.end)
        files = rows.files()
        with rows.count(files) as counts:
            self.report.files_opened, self.report.unsealed_rows = len(files), counts.rows
            reach("seal.after_count")
            cut = cut_transactions(self.collection, self.table, self.upper) if self.sees_cuts else []
            comparison = compare(self.collection, self.form, self.rulings, pending, counts, self.upper, self.end, cut)
            self._claim(comparison, counts)
            if comparison.frontier == Antichain.of(self.upper):
                record_contradictions(self.collection, self.report, counts)
                return self._finish(pending, prunes=has_late)
            changes = self._change_rows(counts, INT64_MAX + 1 if self.report.closed else self.report.upper)
            reach("seal.after_compensation_write")
            record_proof(self.collection, self.report, self.rulings, pending.announced(), counts, self.settled)
            record_contradictions(self.collection, self.report, counts)
            reach("seal.after_proofs")
            self._commit(counts, changes)
        reach("seal.after_commit")
        self._finish(pending, prunes=True)
        reach("seal.after_prune")
        maintain(self.paths.updates)
        return self.report

    def _finish(self, pending: Pending, prunes: bool) -> SealReport:
        """If `prunes`, drop what pending statements announce for times before upper; return the report."""
        if prunes:
            pending.prune(self.report.upper, self.report.closed)
        return self.report

    def _claim(self, comparison: Comparison, counts: OpenCounts) -> None:
        """Report up to which time the comparison proves the stream complete."""
        report, frontier = self.report, comparison.frontier
        report.contradictions, report.waiting_for = comparison.contradictions, comparison.waiting_for
        times = {*counts.by_time, *(time for time in self.rulings.reasons if time >= self.upper)}
        self._settle(sorted(time for time in times if not frontier.less_equal(time)), counts)
        report.closed = frontier.is_empty
        if frontier.is_empty:
            # Every int64 time is sealed; this number only says where the last update was.
            report.upper = max([self.upper, *(min(time + 1, INT64_MAX) for time in self.settled)])
        else:
            report.upper = int(str(frontier.elements[0]))

    def _settle(self, times: list[int], counts: OpenCounts) -> None:
        """Record these times as proven by this seal."""
        self.settled = times
        report, reasons = self.report, self.rulings.reasons
        report.times_sealed = len(times)
        report.copies_cancelled = sum(counts.by_time[time].copies for time in times if time in counts.by_time)
        report.decided_times = [(time, reasons[time]) for time in times if time in reasons]
        report.decided = len(report.decided_times)

    def _change_rows(self, counts: OpenCounts, end: int) -> Changes:
        """Write the changes for copies and discarded statements at times before `end`, and the removal of old rows."""
        changes = self._change_statements(counts, end)
        if self.rule is None or not self.upper or self.report.upper <= self.upper:
            return changes
        cutoff_ms, last = due_cutoff(self.collection, self.table, self.rule), self.report.upper - 1
        if cutoff_ms is None:
            return changes
        self.left = write_departures(self.spark, self.collection, self.table, self.rule, cutoff_ms, self.upper, last)
        if self.left.departure is not None:
            note_departure(self.collection, self.left.departure)
        return replace(changes, added=[*changes.added, *self.left.files])

    def _change_statements(self, counts: OpenCounts, end: int) -> Changes:
        discards = self.rulings.discards_within(self.upper, end)
        if self.collection.entry.counts_positions and self.form.cancels_copies:
            times = [time for time, count in counts.by_time.items() if count.copies and time < end]
            times = sorted(set(times).intersection(self.settled))
            left = leave_out(self.spark, self.collection, self.table, discards)
            return cancel_repeated(self.spark, self.collection, self.table, times, discards).joined(left)
        if not self.form.cancels_copies:
            return leave_out(self.spark, self.collection, self.table, discards)
        if not self.report.copies_cancelled:
            return Changes()
        return cancel(self.table, self.collection.updates_schema(), counts, end)

    def _commit(self, counts: OpenCounts, changes: Changes) -> None:
        """Commit. After a conflict, commit again, but seal only the times before the rows that others have added."""
        counted_files = {file.path for file in self.table.files()}
        now_ms = int(clock.time() * 1000)

        def commit(table: OpenTable) -> None:
            values = {
                UPPER: self.report.upper,
                CLOSED: int(self.report.closed),
                SEALED_AT_MS: max(now_ms, table.value(SEALED_AT_MS) or 0),  # a clock may run backwards, a value may not
                **self.left.values,
            }
            done = table.commit(values, changes.added, changes.removed, epoch=self.collection.entry.epoch)
            self.report.committed, self.report.version, self.report.left = True, done.version, self.left.departure

        def check_still_valid(table: OpenTable) -> None:
            nonlocal changes
            files = table.files()
            # Only ingest adds rows: a merge copies the unsealed rows of the runs that it replaces, unchanged.
            added = [file for file in files if file.path not in counted_files and file.run.startswith("ingest")]
            low = min((self.upper if file.time_min is None else file.time_min for file in added), default=INT64_MAX)
            self.overtaken = low <= self.upper
            merged = not {file.run for file in files}.issuperset(changes.removed)
            if table.value(UPPER) != self.upper or table.value(CLOSED) or self.overtaken or merged:
                changes.discard(self.paths.updates)
                reach("seal.after_overtaken")
                raise LostRace
            if added and (self.report.closed or low < self.report.upper):
                changes = self._claim_less(low, counts, changes)
                reach("seal.after_claiming_less")
            reach("seal.after_conflict")

        failure = f"{ATTEMPTS_MAX} attempts to commit a seal failed"
        retry_commit(self.table, commit, failure, after_conflict=check_still_valid)

    def _claim_less(self, upper: int, counts: OpenCounts, changes: Changes) -> Changes:
        """Seal only the times before `upper`, to which nothing has been added; the next seal proves the rest.

        Counting everything again would never end while an ingest commits faster than a seal can count. The proofs of
        later times stay: they are facts, and readers use only the proofs before upper.
        """
        self.report.upper, self.report.closed = upper, False
        self._settle([time for time in self.settled if time < upper], counts)
        changes.discard(self.paths.updates)
        self.left = Written([], None, {})
        return self._change_rows(counts, upper)

    def earlier_end(self) -> int | None:
        """Return an earlier end if an ingest has added rows at the first open time; otherwise None, for no limit.

        Half of the times that this attempt could seal are before this end. If the next attempt kept the end of this
        one, an ingest that is faster than a count would overtake it as well, and so on.
        """
        if not self.overtaken or not self.settled:
            return None
        if len(self.settled) > 1:
            return self.settled[len(self.settled) // 2]
        return self.settled[0] + 1 if self.settled[0] < INT64_MAX else None
