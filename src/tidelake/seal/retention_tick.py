"""Removes old rows of a reclocked collection in a tick that reads no records, and mints the time of their removal.

Like every tick, it writes its run and the binding of its time; then one commit adds the run and moves upper. If two
processes begin at the same upper, one of them loses and starts over.
"""

from __future__ import annotations

import time as clock

from pyspark.sql import SparkSession

from tidelake.protocol.binding import Binding, is_ahead, mint_time
from tidelake.seal.report import SealReport
from tidelake.seal.retention import Written, due_cutoff, note_departure, write_departures
from tidelake.settings.row_retention import RowRetention
from tidelake.storage.notices import warn
from tidelake.store.bindings import append_binding, minted_time, read_bindings
from tidelake.store.commit import OpenTable, maintain
from tidelake.store.entry import Collection
from tidelake.store.failpoints import reach
from tidelake.store.files import discard_runs
from tidelake.store.retry import ATTEMPTS_MAX, LostRace, retry_commit, retry_work
from tidelake.store.state import CLOSED, SEALED_AT_MS, UPPER


def remove_old_rows(
    spark: SparkSession, collection: Collection, rule: RowRetention, clock_ahead_max_s: int, report: SealReport
) -> None:
    """Remove the rows that are too old, if a pass is due.

    Args:
        spark: the session.
        collection: the collection.
        rule: the rule.
        clock_ahead_max_s: how far, in seconds, the clock may be ahead of the last minted time. If it is further ahead,
            nothing is removed until a record has confirmed it.
        report: receives what was done.

    Raises:
        Conflict: every attempt failed because of other writers; nothing was removed.
        Fenced: the epoch was raised in the meantime.
    """

    def attempt() -> None:
        table = OpenTable(collection.paths.updates, may_be_stale=True)
        cutoff_ms = due_cutoff(collection, table, rule) if table.value(UPPER) else None
        if cutoff_ms is not None:
            _Pass(spark, collection, table, clock_ahead_max_s, report).run(rule, cutoff_ms)

    retry_work(attempt, collection.paths.updates, f"{ATTEMPTS_MAX} attempts to remove old rows failed")


class _Pass:
    """One attempt, from one state of the table."""

    def __init__(
        self, spark: SparkSession, collection: Collection, table: OpenTable, ahead_max_s: int, report: SealReport
    ) -> None:
        self.spark, self.collection, self.table, self.ahead_max_s = spark, collection, table, ahead_max_s
        self.report, self.upper = report, table.value(UPPER) or 0
        self.start_ms = int(clock.time() * 1000)

    def run(self, rule: RowRetention, cutoff_ms: int) -> None:
        """Mint, write, bind, note, commit."""
        minted = minted_time(self.collection.paths.bindings)
        time, last = mint_time(self.upper, self.start_ms, minted), max(self.upper - 1, minted)
        if is_ahead(time, last, None, self.ahead_max_s * 1000):
            ahead_s = (time - last) // 1000
            name = self.collection.name
            warn(
                "the removal of old rows is waiting for a record that confirms the clock",
                collection=name,
                ahead_s=ahead_s,
            )
            return
        written = write_departures(self.spark, self.collection, self.table, rule, cutoff_ms, self.upper, time)
        if written.departure is not None:
            self._bind(time, written)
            note_departure(self.collection, written.departure)
        self._commit(written, time)
        reach("retention.after_commit")
        maintain(self.table.path)

    def _bind(self, time: int, written: Written) -> None:
        ends = read_bindings(self.collection, self.table, self.upper - 1)[-1].ends
        binding = Binding(time, self.upper, ends, ends, at_ms=self.start_ms)
        if not append_binding(self.collection.paths.bindings, binding, self.collection.entry.epoch):
            discard_runs(self.table.path, written.files)
            raise LostRace
        reach("retention.after_binding")

    def _commit(self, written: Written, time: int) -> None:
        departure = written.departure

        def commit(table: OpenTable) -> None:
            values = dict(written.values)
            if departure is not None:
                sealed_at_ms = max(int(clock.time() * 1000), table.value(SEALED_AT_MS) or 0)
                values |= {UPPER: time + 1, CLOSED: 0, SEALED_AT_MS: sealed_at_ms}
            done = table.commit(values, written.files, epoch=self.collection.entry.epoch)
            self.report.committed, self.report.version = True, done.version

        def check_still_valid(table: OpenTable) -> None:
            # If upper has moved, a tick or another pass was first; if there are new columns, the run lacks them.
            if (table.value(UPPER) or 0) != self.upper or table.schema() != self.table.schema():
                discard_runs(self.table.path, written.files)
                raise LostRace
            reach("retention.after_conflict")

        failure = f"{ATTEMPTS_MAX} attempts to commit the removal of old rows failed"
        retry_commit(self.table, commit, failure, after_conflict=check_still_valid)
        if departure is not None:
            self.report.left, self.report.upper, self.report.times_sealed = departure, time + 1, 0
