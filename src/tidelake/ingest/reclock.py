"""A tick of a reclocked collection: a bounded range of offsets gets one minted time and one commit.

The tick writes the run, the quarantine and the binding; then one commit adds the run, the next offsets and the new
upper. Without that commit, nothing that the tick wrote is valid.
"""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.catalog.evolution import evolve, open_newest
from tidelake.errors import FILE_FROM_COPY, ClockAhead, NotRewritable
from tidelake.ingest.position import NAME_TOPIC_AGAIN, plan_topics, range_read_by, values_after
from tidelake.ingest.source_schemas import resolve_records
from tidelake.plugins.envelope import Envelope, RecordBatch, WrittenRecords
from tidelake.plugins.tick import PastTick, Tick, TickReport
from tidelake.protocol.binding import Binding, Place, is_ahead, is_idle_due, mint_time
from tidelake.settings.reclock import ReclockSettings
from tidelake.spark.observation import Observed
from tidelake.storage.notices import warn
from tidelake.store.bindings import append_binding, known_offsets, minted_time
from tidelake.store.commit import OpenTable, maintain
from tidelake.store.entry import Collection
from tidelake.store.failpoints import reach
from tidelake.store.files import RunFile, discard_runs, read_rows
from tidelake.store.layout import QUARANTINE_SCHEMA
from tidelake.store.retry import ATTEMPTS_MAX, LostRace, retry_commit
from tidelake.store.runs import append_run, write_frame
from tidelake.store.state import CLOSED, HAS_QUARANTINE, IDLE_LOWER, IDLE_UPPER, SEALED_AT_MS, UPPER, idle_lower
from tidelake.topic.topic import Topic

MESSAGES_PER_TASK_MIN = 2_000


def _open(collection: Collection, settings: ReclockSettings) -> tuple[Collection, OpenTable]:
    """Open the current version of a collection, and its table."""
    if settings.evolves:
        return open_newest(collection)
    return collection, OpenTable(collection.paths.updates, may_be_stale=True)


def unusable_rows(decoded: DataFrame, times: Column) -> DataFrame:
    """Return the rows for the quarantine; `times` are the times that a record holds back, or null if they are unknown.

    In:  the result of `Records.decoded`.
    Out: the columns of `QUARANTINE_SCHEMA`, one row for each record with a reason.
    """
    # The optimizer does not push filters below an observation. Without this observation, each use of the result
    # would decode the records again.
    seen = Observed(decoded, F.count(F.lit(1)).alias("records"))
    return seen.frame.where(F.col("_reason").isNotNull()).select(
        "topic",
        "partition",
        "offset",
        "timestamp_ms",
        F.col("_reason").alias("reason"),
        F.col("_detail").alias("detail"),
        times.alias("times"),
        "key",
        "value",
    )


class RecordTick(Tick):
    """The steps of a tick of a reclocked collection."""

    def __init__(
        self,
        spark: SparkSession,
        collection: Collection,
        settings: ReclockSettings,
        topics: Sequence[Topic],
        envelope: Envelope,
    ) -> None:
        self.spark, self.settings, self.topics, self.envelope = spark, settings, topics, envelope
        self.start_ms = int(clock.time() * 1000)
        self.collection, self.table = _open(collection, settings)
        self.lower = self.table.value(UPPER) or 0
        self.known = known_offsets(self.table, {topic.name for topic in topics})
        self.report = TickReport()

    @property
    def _is_shared(self) -> bool:
        """Whether the collection shares a timeline on which each run of the job has one time."""
        return self.settings.timeline is not None and self.run_ms is not None

    @property
    def _start_ms(self) -> int:
        """The start of the tick or, on a shared timeline, of the job's run: the time to mint."""
        return self.run_ms if self._is_shared and self.run_ms is not None else self.start_ms

    def plan(self) -> bool:
        """See `Tick.plan`."""
        self.ranges, self.report.gaps = plan_topics(
            self.table, self.collection, self.topics, self.settings.messages_per_tick_max
        )
        self.report.messages = sum(offsets.messages for _, offsets in self.ranges)
        return bool(self.ranges)

    def commit_idle(self) -> bool:
        """Move upper to the tick's start if no topic has new messages and the last minted time is old enough.

        On a shared timeline, each run of the job moves upper to its own start, so that no collection holds the others
        back.

        The tick's binding replaces those of the idle ticks just before it in the chain, so the chain does not grow.

        Raises:
            LostRace: another tick has moved upper.
            Fenced: the epoch was raised in the meantime.

        Cost: nothing if upper is recent enough; else a binding and a commit, without a Spark job.
        """
        start_ms, ahead_max_ms = self._start_ms, self.settings.clock_ahead_max_s * 1000
        if self._is_shared:
            interval_ms = 1
        # The first time is minted only for records: until then, nothing would contradict a wrong clock.
        elif not (interval_ms := self.settings.idle_upper_s * 1000) or not self.lower:
            return False
        if start_ms < self.lower - 1 + interval_ms:
            return False
        last = max(self.lower - 1, minted_time(self.collection.paths.bindings))
        is_due = is_idle_due(start_ms, last, interval_ms, ahead_max_ms)
        if is_due is None:
            ahead_s = (start_ms - last) // 1000
            name = self.collection.name
            warn("upper is waiting for a record that confirms the clock", collection=name, ahead_s=ahead_s)
        if not is_due:
            return False
        self.time, idle_from = start_ms, idle_lower(self.table)
        lower = self.lower if idle_from is None else idle_from
        self.written = WrittenRecords([], {IDLE_LOWER: lower, IDLE_UPPER: self.time + 1})
        self.files = self.written.files
        self._bind()
        self.commit()
        maintain(self.table.path)
        return True

    def read(self) -> None:
        """Mint the time of the range, and read its schemas. New columns go to the catalog, and the tick starts over.

        Raises:
            ClockAhead: the clock cannot be trusted.
            LostRace: the schemas add columns to the table.
        """
        self.time = self.mint()
        self._resolve()
        if self.schemas.table != self.collection.entry.record_schema:
            spec = self.settings.spec(self.schemas.values.record)
            evolve(self.collection, replace(spec, record_schema=self.schemas.table))
            raise LostRace

    def _resolve(self) -> None:
        # Schemas are registered before records are written with them. The end offsets are known by now, so the registry
        # has every schema id in the records before them.
        self.schemas = resolve_records(self.settings, self.collection.entry, self._messages)

    def write_again(self, past: PastTick) -> list[RunFile]:
        """See `Tick.write_again`."""
        ranges = [(topic, range_read_by(past, topic, self.collection)) for topic in self.topics]
        self.ranges = [(topic, offsets) for topic, offsets in ranges if offsets is not None]
        if not self.ranges:
            fact = "the settings no longer name the topic that the file was made from, or the topic has a new name"
            raise NotRewritable(str(past.table.path), fact, NAME_TOPIC_AGAIN)
        self.report.messages = sum(offsets.messages for _, offsets in self.ranges)
        self.table, self.lower = past.table, past.table.value(UPPER) or 0
        self.known = known_offsets(self.table, {topic.name for topic in self.topics})
        self.time = past.values[UPPER] - 1
        self._resolve()
        if past.table.schema() != self.collection.updates_schema():
            fact = "columns have been added to the table since the file was made"
            raise NotRewritable(str(past.table.path), fact, FILE_FROM_COPY)
        self.decode()
        return self.records.write().files

    def mint(self) -> int:
        """Mint the tick's time: at or after upper, and after every minted time.

        Raises:
            ClockAhead: the time is far ahead of the last minted time, and of every record of the range.

        Cost: the timestamps of the range are read only if the time is that far ahead of the last minted time.
        """
        minted = minted_time(self.collection.paths.bindings)
        time, last = mint_time(self.lower, self._start_ms, minted), max(self.lower - 1, minted)
        ahead_max_ms = self.settings.clock_ahead_max_s * 1000
        if is_ahead(time, last, None, ahead_max_ms):
            newest = self._newest_ms()
            if is_ahead(time, last, newest, ahead_max_ms):
                known = last if newest is None else max(last, newest)
                raise ClockAhead(self.collection.name, time, last, newest, (time - known) // 1000)
        return time

    def _newest_ms(self) -> int | None:
        """Return the newest timestamp of the range's records; None if no record has one."""
        stamp = F.col("timestamp_ms")  # Kafka writes -1 if there is none
        newest = self._messages().agg(F.max(F.when(stamp >= 0, stamp)).alias("_newest")).collect()[0]["_newest"]
        return None if newest is None else int(newest)

    def decode(self) -> None:
        """Have the envelope decode the records of all topics."""
        reach("raw.before_write")
        tasks = min(self.spark.sparkContext.defaultParallelism, self.report.messages // MESSAGES_PER_TASK_MIN)
        batch = RecordBatch(
            self.spark,
            self.collection,
            self.settings,
            self.schemas,
            self.table,
            self.time,
            self._messages().coalesce(max(1, tasks)),
            [topic for topic, _ in self.ranges],
            self.ends(),
        )
        self.records = self.envelope.records(batch)

    def write(self) -> None:
        """Write the rows, the quarantine and the binding, which is valid only once the tick is committed."""
        self.written = self.records.write()
        self.files = self.written.files
        self.report.null_records, self.report.quarantined = self.written.tombstones, self.written.quarantined
        self.report.values_in_error = self.written.errors
        self.report.updates_read = self.report.updates_stored = sum(file.rows for file in self.files)
        self.report.bytes_stored = sum(file.bytes for file in self.files)
        reach("raw.after_write")
        if self.report.quarantined:
            self._quarantine()
        reach("raw.after_quarantine")
        self._bind()

    def _bind(self) -> None:
        if not append_binding(self.collection.paths.bindings, self._binding(), self.collection.entry.epoch):
            discard_runs(self.table.path, self.files)
            reach("raw.after_lost_time")
            raise LostRace
        reach("raw.after_binding")

    def _messages(self) -> DataFrame:
        """Read the records of all topics' ranges.

        Out: the raw columns, topic string.
        """
        parts = [
            topic.read(self.spark, offsets).withColumn("topic", F.lit(topic.name)) for topic, offsets in self.ranges
        ]
        return reduce(DataFrame.unionByName, parts)

    def _quarantine(self) -> None:
        """Quarantine unusable records, each with its place in the topic. A repeated tick writes the same rows."""
        rows = unusable_rows(self.records.decoded(), self._times_held_back()).coalesce(1)
        path = self.collection.paths.quarantine
        files = append_run(
            path,
            "quarantine",
            lambda run: write_frame(rows, path, run, QUARANTINE_SCHEMA),
            self.collection.entry.epoch,
        )
        reasons = read_rows(path, files, QUARANTINE_SCHEMA)["reason"].value_counts()
        self.report.count_reasons({row["values"]: row["counts"] for row in reasons.to_pylist()})

    def _times_held_back(self) -> Column:
        """Return the times that an unusable record holds back: null, because the record itself states no time."""
        return F.lit(None).cast("array<bigint>")

    def ends(self) -> dict[Place, int]:
        """Return the next offset after the tick, by topic and partition."""
        return {
            **self.known,
            **{
                (topic.name, partition): end
                for topic, offsets in self.ranges
                for partition, (_, end) in offsets.intervals.items()
            },
        }

    def _binding(self) -> Binding:
        return Binding(
            self.time,
            self.written.values.get(IDLE_LOWER, self.lower),
            self.known,
            self.ends(),
            self.written.records,
            self.report.updates_stored,
            self.report.quarantined,
            self.start_ms,
        )

    def commit(self) -> None:
        """Commit the run, the offsets and upper; retry after a conflict, unless another tick came first."""

        def commit(table: OpenTable) -> None:
            values: dict[str, int] = {}
            for topic, offsets in self.ranges:
                values |= values_after(table, topic.name, offsets)
            sealed_at_ms = max(int(clock.time() * 1000), table.value(SEALED_AT_MS) or 0)
            values |= {UPPER: self.time + 1, CLOSED: 0, SEALED_AT_MS: sealed_at_ms} | self.written.values
            values |= {HAS_QUARANTINE: 1} if self.report.quarantined else {}
            self.report.version = table.commit(values, self.files, epoch=self.collection.entry.epoch).version

        def check_upper(table: OpenTable) -> None:
            # Only ticks move upper, and every tick moves it. New columns would be missing in this tick's files.
            if (table.value(UPPER) or 0) != self.lower or table.schema() != self.table.schema():
                discard_runs(self.table.path, self.files)
                reach("raw.after_lost_offsets")
                raise LostRace
            reach("raw.after_conflict")

        failure = f"{ATTEMPTS_MAX} attempts to commit a tick failed"
        retry_commit(self.table, commit, failure, after_conflict=check_upper)
        reach("raw.after_commit")
