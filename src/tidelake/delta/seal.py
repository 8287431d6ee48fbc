"""Seal: from what was announced and what is stored to a new upper, in a commit that is almost always without data.

Only rows at or after upper are looked at. The pure `Ledger` decides; Arrow counts, or Spark. What becomes of copies and
of discarded statements goes into the same commit; see `seal_changes`.
"""

from __future__ import annotations

import time as clock
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tidelake.antichain import Antichain
from tidelake.delta.catalog import Collection
from tidelake.delta.commit import OpenTable, maintain
from tidelake.delta.envelopes import DETAIL_OF_REASON, refusals_of
from tidelake.delta.evidence import note_late_counts
from tidelake.delta.files import discard_run, read_rows, write_run
from tidelake.delta.layout import PROGRESS_SCHEMA, PROOFS_SCHEMA, QUARANTINE_SCHEMA, TIME, new_run
from tidelake.delta.open_rows import Counted, OpenRows
from tidelake.delta.runs import append_run
from tidelake.delta.seal_changes import Changes, cancel, leave_out
from tidelake.delta.status import read_proof_log
from tidelake.delta.stops import reach
from tidelake.delta.values import CLOSED, SEALED_AT_MS, UPPER
from tidelake.errors import TWO_VALUES, Conflict, ConflictingDiff, Contradiction, EnvelopeBreach
from tidelake.ledger import Ledger
from tidelake.message import Progress
from tidelake.order import INT64_MAX

_ATTEMPTS_MAX = 64


@dataclass
class SealReport:
    """What one seal found."""

    lower: int
    upper: int
    closed: bool = False
    times_sealed: int = 0
    copies_cancelled: int = 0
    decided: int = 0
    decided_times: list[tuple[int, str]] = field(default_factory=list)
    """The times that were sealed by decision, with the reason."""
    unsealed_rows: int = 0
    files_opened: int = 0
    contradictions: list[Contradiction] = field(default_factory=list)
    waiting_for: list[tuple[int, int | None, int]] = field(default_factory=list)
    """The first outstanding times: (time, announced or None where nothing covers it, counted)."""
    committed: bool = False
    version: int = -1
    sealed_by_ingest: bool = False
    """Whether each tick of ingest seals its own time, so that there is nothing to prove apart."""


def seal(spark: SparkSession, collection: Collection) -> SealReport:
    """Move upper as far as it is proven; do nothing where nothing new is proven.

    Raises:
        Conflict: other writers won every attempt; nothing was sealed.
        Fenced: the writer's epoch has moved.
    """
    if collection.entry.framing == "reclock":
        return _nothing_to_seal(collection)
    aim: int | None = None
    for _ in range(_ATTEMPTS_MAX):
        attempt = _Seal(spark, collection, aim)
        report = attempt.run()
        if report is not None:
            return report
        aim = attempt.nearer_aim()
    raise Conflict(str(collection.paths.updates), -1, f"{_ATTEMPTS_MAX} attempts to seal failed")


def _nothing_to_seal(collection: Collection) -> SealReport:
    """Re-clocked collections are sealed by the tick that reads: the binding of its time to its offsets is the proof."""
    table = OpenTable(collection.paths.updates)
    upper = table.value(UPPER) or 0
    return SealReport(upper, upper, sealed_by_ingest=True, version=table.version)


class _Seal:
    """One attempt, from one state of the table; it counts, and seals, only times before `aim` where there is one."""

    def __init__(self, spark: SparkSession, collection: Collection, aim: int | None) -> None:
        self.spark, self.collection, self.paths = spark, collection, collection.paths
        self.table = OpenTable(self.paths.updates)
        self.upper = self.table.value(UPPER) or 0
        self.report = SealReport(self.upper, self.upper, bool(self.table.value(CLOSED)))
        self.aim = aim if aim is not None and aim > self.upper else None
        self.settled: list[int] = []
        self.overtaken = False
        self.rows = OpenRows(spark, collection, self.table, self.upper, self.aim)
        self.form = self.rows.form
        self.evidence: dict[int, str] = {}

    def run(self) -> SealReport | None:
        """Count, compare, commit; None when another commit has changed what was counted."""
        progress_table = OpenTable(self.paths.progress)
        pending = read_rows(self.paths.progress, progress_table.files(), PROGRESS_SCHEMA)
        late = note_late_counts(self.collection, pending, self.upper, self.report.closed)
        if self.report.closed:
            if late:
                self._prune(progress_table, pending)
            return self.report
        files = self.rows.files()
        self.report.files_opened = len(files)
        try:
            counted = self.rows.count(files)
            self.report.unsealed_rows = self.rows.number
            self.evidence = {time: one.evidence for time, one in counted.items() if one.evidence is not None}
            reach("seal.after_count")
            ledger, frontier = self._compare(pending, counted)
            if self.aim is not None:  # nothing was counted from there on
                frontier = frontier.meet(Antichain.of(self.aim))
            self.settled = settled = self._settled(frontier, counted)
            self._report(ledger, frontier, counted, settled)
            if frontier == Antichain.of(self.upper):
                self._record_blocked()
                if late:
                    self._prune(progress_table, pending)
                return self.report
            changes = self._change_rows(INT64_MAX + 1 if self.report.closed else self.report.upper)
            reach("seal.after_compensation_write")
            self._record_proof(pending, counted, settled)
            reach("seal.after_proofs")
            if not self._commit(counted, changes):
                return None
        finally:
            self.rows.release()
        reach("seal.after_commit")
        self._prune(progress_table, pending)
        reach("seal.after_prune")
        maintain(self.paths.updates)
        return self.report

    # --- compare ---------------------------------------------------------------------------------------------------

    def _compare(self, pending: pa.Table, counted: dict[int, Counted]) -> tuple[Ledger, Antichain]:
        ledger = Ledger(Antichain.of(self.upper))
        for statement in _statements(pending):
            ledger.announce(statement)
        ledger.count_all((time, one.distinct) for time, one in counted.items())
        for time, one in counted.items():
            if one.conflict is not None:
                ledger.contradict(ConflictingDiff(time, *one.conflict))
        decided = self._decided_counts()
        announced = {} if self.form.breaches_stay else _announced(pending) | decided
        for time, one in counted.items():
            if not self.form.breaches_stay and announced.get(time) != one.distinct:
                continue
            # Two values of one key have no order: only a discard tells which one counts.
            if one.doubled:
                ledger.contradict(
                    EnvelopeBreach(time, f"{TWO_VALUES}: {one.doubled}; discard one of each, and count the rest")
                )
            elif one.large and time not in decided:
                ledger.contradict(EnvelopeBreach(time, "what is stated of a key has no other diff than +1 and -1"))
        for time, reason in self._refused().items():
            if time not in decided:
                ledger.contradict(
                    EnvelopeBreach(time, f"{DETAIL_OF_REASON[reason]}; the statement is in the quarantine")
                )
        for time, count in decided.items():
            if time >= self.upper:
                ledger.decide(time, count)
        self.outstanding = ledger.outstanding()
        return ledger, ledger.advance()

    def _decided_counts(self) -> dict[int, int]:
        """By time, how many distinct updates an operator says there are; the newest decision stands."""
        return {
            one.time: one.count
            for one in self.collection.entry.decisions
            if one.time is not None and one.count is not None
        }

    def _decided_times(self) -> set[int]:
        """The times that somebody decided about."""
        return {one.time for one in self.collection.entry.decisions if one.time is not None}

    def _refused(self) -> dict[int, str]:
        """The open times of statements that the envelope refused, and why."""
        if not refusals_of(self.collection.entry.envelope):
            return {}
        table = OpenTable(self.paths.quarantine)
        rows = read_rows(self.paths.quarantine, table.files(), QUARANTINE_SCHEMA, ["reason", "times"])
        return {
            time: reason
            for reason, times in zip(rows["reason"].to_pylist(), rows["times"].to_pylist(), strict=True)
            if reason in DETAIL_OF_REASON
            for time in times or []
            if time >= self.upper
        }

    def _settled(self, frontier: Antichain, counted: dict[int, Counted]) -> list[int]:
        """The times that this seal proves to hold updates, or for which somebody decided."""
        decided = self._decided_times()
        times = {time for time in counted if not frontier.less_equal(time)}
        times |= {time for time in decided if time >= self.upper and not frontier.less_equal(time)}
        return sorted(times)

    def _report(self, ledger: Ledger, frontier: Antichain, counted: dict[int, Counted], settled: list[int]) -> None:
        report = self.report
        report.contradictions = [error for errors in ledger.contradictions().values() for error in errors]
        # Beyond the aim nothing was counted, so nothing can be said of what is missing there.
        known = [one for one in self.outstanding if self.aim is None or int(str(one[0])) < self.aim]
        report.waiting_for = [(int(str(time)), announced, found) for time, announced, found in known[:20]]
        report.times_sealed = len(settled)
        report.copies_cancelled = sum(counted[time].copies for time in settled if time in counted)
        report.closed = frontier.is_empty
        if frontier.is_empty:
            # Every int64 time is sealed; the number only says where the last update was.
            report.upper = max([self.upper, *(min(time + 1, INT64_MAX) for time in settled)])
        else:
            report.upper = int(str(frontier.elements[0]))

    # --- write -----------------------------------------------------------------------------------------------------

    def _change_rows(self, before: int) -> Changes:
        """What becomes of copies and discarded statements at the times before `before`."""
        if not self.form.cancels_copies:
            discards = [one for one in self.rows.discards if one.time is not None and self.upper <= one.time < before]
            return leave_out(self.spark, self.collection, self.table, discards)
        if not self.report.copies_cancelled:
            return Changes()
        return cancel(self.paths.updates, self.rows.schema, self.rows.surplus, before)

    def _record_proof(self, pending: pa.Table, counted: dict[int, Counted], settled: list[int]) -> None:
        """Append what was compared. A seal that stops after this proves the same again: facts do not change."""
        announced = _announced(pending)
        reasons = {one.time: one.reason for one in self.collection.entry.decisions if one.time is not None}
        decided_counts = self._decided_counts()
        nothing = Counted(0)
        rows = []
        for time in settled:
            found = counted.get(time, nothing)
            expected = decided_counts.get(time)
            rows.append(
                self._proof_row("sealed")
                | {
                    TIME: time,
                    "announced": announced.get(time, 0) if expected is None else expected,
                    "counted": found.distinct,
                    "copies": found.copies,
                    "decision": reasons.get(time),
                }
            )
        self.report.decided_times = [(row[TIME], row["decision"]) for row in rows if row["decision"] is not None]
        self.report.decided = len(self.report.decided_times)
        append_run(
            self.paths.proofs,
            write_run(self.paths.proofs, new_run("proof"), _proof_table(rows)),
            self.collection.entry.epoch,
        )
        self._record_blocked()

    def _record_blocked(self) -> None:
        """Note each contradiction once, so that `status` can show it without a JVM."""
        if not self.report.contradictions:
            return
        noted = {(one["time"], one["detail"]) for one in read_proof_log(self.collection).blocked}
        rows = []
        for error in self.report.contradictions:
            shows = isinstance(error, ConflictingDiff | EnvelopeBreach)
            evidence = self.evidence.get(int(str(error.time))) if shows else None
            detail = f"{error.kind}: {error.fact()}" + (f"; its data: {evidence}" if evidence else "")
            if (error.time, detail) not in noted:
                rows.append(self._proof_row("blocked") | {TIME: error.time, "detail": detail})
        if rows:
            files = write_run(self.paths.proofs, new_run("blocked"), _proof_table(rows))
            append_run(self.paths.proofs, files, self.collection.entry.epoch)
            reach("seal.after_blocked")

    def _proof_row(self, kind: str) -> dict[str, Any]:
        return {
            "lower": self.report.lower,
            "upper": self.report.upper,
            "closed": self.report.closed,
            "kind": kind,
            "at_ms": int(clock.time() * 1000),
        }

    def nearer_aim(self) -> int | None:
        """Where to aim after an ingest has added to the first open time: at half as many times, for half the work.

        An ingest that is quicker than this count would otherwise overtake it again, and the next one as well.
        """
        if not self.overtaken or not self.settled:
            return None
        if len(self.settled) > 1:
            return self.settled[len(self.settled) // 2]
        return self.settled[0] + 1 if self.settled[0] < INT64_MAX else None

    def _commit(self, counted: dict[int, Counted], changes: Changes) -> bool:
        """Commit; after a conflict again, for the times before what others have added to what was counted."""
        known = {file.path for file in self.table.files()}
        table = self.table
        now_ms = int(clock.time() * 1000)
        for _ in range(_ATTEMPTS_MAX):
            values = {
                UPPER: self.report.upper,
                CLOSED: int(self.report.closed),
                SEALED_AT_MS: max(now_ms, table.value(SEALED_AT_MS) or 0),  # a clock may go back, a value may not
            }
            try:
                done = table.commit(values, changes.added, changes.removed, epoch=self.collection.entry.epoch)
            except Conflict:
                table = OpenTable(self.paths.updates)
                # Merges only take runs with sealed rows and carry unsealed ones over as they are: just ingest adds any.
                added = [file for file in table.files() if file.path not in known and file.run.startswith("ingest")]
                low = min((self.upper if one.time_min is None else one.time_min for one in added), default=INT64_MAX)
                self.overtaken = low <= self.upper
                merged = not {file.run for file in table.files()}.issuperset(changes.removed)
                if table.value(UPPER) != self.upper or table.value(CLOSED) or self.overtaken or merged:
                    changes.discard(self.paths.updates)
                    reach("seal.after_overtaken")
                    return False
                if added and (self.report.closed or low < self.report.upper):
                    changes = self._claim_less(low, counted, changes)
                    reach("seal.after_claiming_less")
                reach("seal.after_conflict")
                continue
            self.report.committed, self.report.version = True, done.version
            return True
        raise Conflict(str(self.paths.updates), table.version, f"{_ATTEMPTS_MAX} attempts to commit a seal failed")

    def _claim_less(self, upper: int, counted: dict[int, Counted], changes: Changes) -> Changes:
        """Seal only what lies before `upper`, where nobody has added anything; the next seal proves the rest.

        Counting everything anew instead would never end beside an ingest that is quicker than a count. The proofs of
        later times stay: they are facts, and readers take those before upper.
        """
        self.settled = [time for time in self.settled if time < upper]
        report = self.report
        report.upper, report.closed, report.times_sealed = upper, False, len(self.settled)
        report.copies_cancelled = sum(counted[time].copies for time in self.settled if time in counted)
        report.decided_times = [(time, reason) for time, reason in report.decided_times if time < upper]
        report.decided = len(report.decided_times)
        changes.discard(self.paths.updates)
        return self._change_rows(upper)

    def _prune(self, table: OpenTable, pending: pa.Table) -> None:
        """Replace the pending statements by what they still say at or after upper."""
        kept: dict[Any, dict[str, Any]] = {}
        begun = False  # what reaches below upper would be compared with the proofs again by every seal
        for row in pending.to_pylist():
            begun = begun or (bool(row["lower"]) and min(row["lower"]) < self.report.upper)
            ends_before = row["upper"] and min(row["upper"]) <= self.report.upper
            if self.report.closed or ends_before or not row["lower"]:
                continue
            counts = [
                (time, count)
                for time, count in zip(row["count_times"], row["count_values"], strict=True)
                if time >= self.report.upper and count
            ]
            row["lower"] = [max(min(row["lower"]), self.report.upper)]
            row["count_times"], row["count_values"] = [one[0] for one in counts], [one[1] for one in counts]
            key = (row["lower"][0], tuple(row["upper"]), tuple(sorted(counts)))
            kept.setdefault(key, row)
        runs = sorted({file.run for file in table.files()})
        if not runs or (len(runs) == 1 and len(kept) == pending.num_rows and not begun):
            return
        rows = pa.Table.from_pylist(list(kept.values()), schema=PROGRESS_SCHEMA)
        run = new_run("pending")
        files = write_run(self.paths.progress, run, rows)
        try:
            table.commit({}, files, runs, epoch=self.collection.entry.epoch)
        except Conflict:  # an ingest has just appended; the next seal prunes
            discard_run(self.paths.progress, run)
            return
        maintain(self.paths.progress)


def _statements(pending: pa.Table) -> Iterable[Progress]:
    columns = (pending[name].to_pylist() for name in ("lower", "upper", "count_times", "count_values"))
    for lower, upper, times, counts in zip(*columns, strict=True):
        yield Progress(lower, upper, list(zip(times, counts, strict=True)))


def _announced(pending: pa.Table) -> dict[int, int]:
    """What statements say of each time they name, read from them and not from the ledger."""
    announced: dict[int, int] = {}
    for times, counts in zip(pending["count_times"].to_pylist(), pending["count_values"].to_pylist(), strict=True):
        announced.update(zip(times, counts, strict=True))
    return announced


def _proof_table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=PROOFS_SCHEMA)
