"""One tick of a raw collection: a bounded range of offsets becomes one minted time, bound and committed as a whole.

First the run, the quarantine and the binding are written; then one commit names the run, the offsets behind it and the
new upper. Whatever a tick has written before that commit counts for nothing without it.
"""

from __future__ import annotations

import time as clock
from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.configuration import CollectionSettings
from tidelake.delta.bindings import append_binding, known_offsets, minted_time
from tidelake.delta.catalog import Collection
from tidelake.delta.commit import OpenTable, maintain
from tidelake.delta.evolution import evolve, open_newest
from tidelake.delta.files import RunFile, discard_run, discard_runs, read_rows
from tidelake.delta.layout import QUARANTINE_SCHEMA, new_run
from tidelake.delta.message_schemas import with_message_schemas
from tidelake.delta.observed import Observed
from tidelake.delta.position import plan_next, values_behind
from tidelake.delta.raw_debezium_tick import ChangeTick
from tidelake.delta.raw_envelopes import RAW_ENVELOPES
from tidelake.delta.registry import with_schema_ids
from tidelake.delta.runs import append_run, write_frame
from tidelake.delta.stops import reach
from tidelake.delta.tick import TickReport
from tidelake.delta.topic import OffsetRange, Topic
from tidelake.delta.types import updates_schema
from tidelake.delta.values import CLOSED, HAS_ERRORS, SEALED_AT_MS, UPPER
from tidelake.errors import Conflict, TopicGap
from tidelake.framing.reclock import Binding, Place, mint_time
from tidelake.settled import settled

_ATTEMPTS_MAX = 64
_MESSAGES_PER_TASK_MIN = 2_000


def raw_tick(
    spark: SparkSession, collection: Collection, settings: CollectionSettings, topics: Sequence[Topic]
) -> TickReport | None:
    """Read the next bounded range of all topics and commit it; None when there is nothing new and no gap.

    Raises:
        Fenced: the writer's epoch has moved.
        Indeterminate: it cannot be said whether the commit is there; the next tick finds out from the offsets.
    """
    for _ in range(_ATTEMPTS_MAX):
        start_ms = int(clock.time() * 1000)
        collection, table = _opened(collection, settings)
        known = known_offsets(table, {one.name for one in topics})
        ranges, gaps = _plan(table, collection, topics, settings.messages_per_tick_max)
        if not ranges:
            return TickReport(gaps=gaps) if gaps else None
        # Only now, with the end offsets known, does the registry know every id before them.
        entry = collection.entry
        now = settled(settings, entry.value_schema, entry.record_schema)
        looked_up = with_schema_ids(now, entry.added)
        if now.evolution == "additive" and now.format == "json":
            looked_up = with_message_schemas(now, entry.added, _messages(spark, topics, ranges))
        if looked_up.record_schema != entry.record_schema:
            evolve(collection, looked_up)
            continue
        tick = _RawTick(spark, collection, looked_up, table, known, start_ms)
        report = tick.run([(topic, ranges[topic.name]) for topic in topics if topic.name in ranges])
        if report is not None:
            report.gaps = gaps
            maintain(collection.paths.updates)
            return report
    raise Conflict(str(collection.paths.updates), -1, f"{_ATTEMPTS_MAX} ticks in a row lost their offsets to others")


def _messages(spark: SparkSession, topics: Sequence[Topic], ranges: Mapping[str, OffsetRange]) -> DataFrame:
    """The records of the ranges of all topics.

    Out: the raw columns, topic string.
    """
    parts = [
        topic.read(spark, ranges[topic.name]).withColumn("topic", F.lit(topic.name))
        for topic in topics
        if topic.name in ranges
    ]
    return reduce(DataFrame.unionByName, parts)


def _opened(collection: Collection, settings: CollectionSettings) -> tuple[Collection, OpenTable]:
    """A collection as it is now, and its table."""
    if settings.evolution == "additive":
        return open_newest(collection)
    return collection, OpenTable(collection.paths.updates)


def _plan(
    table: OpenTable, collection: Collection, topics: Sequence[Topic], messages_max: int
) -> tuple[dict[str, OffsetRange], list[TopicGap]]:
    """What to read of each topic that has something new, at most so many messages in all, and the gaps of all."""
    ranges: dict[str, OffsetRange] = {}
    gaps: list[TopicGap] = []
    left = messages_max
    for index, topic in enumerate(topics):
        share = max(1, -(-left // (len(topics) - index)))
        planned, met = plan_next(topic, table, collection, share)
        gaps += met
        if planned.intervals:
            ranges[topic.name] = planned
            left -= planned.messages
    return ranges, gaps


def unusable_rows(decoded: DataFrame) -> DataFrame:
    """The rows of the quarantine.

    In:  what `_RawTick._decoded` gives.
    Out: the columns of `QUARANTINE_SCHEMA`, one row for each record with a reason.
    """
    # The optimizer pushes no filter below what is observed; else a record would be decoded again for each use of it.
    seen = Observed(decoded, F.count(F.lit(1)).alias("records"))
    return seen.frame.where(F.col("_reason").isNotNull()).select(
        "topic",
        "partition",
        "offset",
        "timestamp_ms",
        F.col("_reason").alias("reason"),
        F.col("_detail").alias("detail"),
        F.lit(None).cast("array<bigint>").alias("times"),
        "key",
        "value",
    )


class _RawTick:
    """The steps of one tick, all from one state of the table."""

    def __init__(
        self,
        spark: SparkSession,
        collection: Collection,
        settings: CollectionSettings,
        table: OpenTable,
        known: Mapping[Place, int],
        start_ms: int,
    ) -> None:
        self.spark, self.collection, self.settings, self.table = spark, collection, settings, table
        self.known, self.start_ms = known, start_ms
        self.lower = table.value(UPPER) or 0
        self.time = mint_time(self.lower, start_ms, minted_time(collection.paths.bindings))
        self.schema = updates_schema(collection.entry.record_schema, collection.entry.positioned)
        self.report = TickReport()
        self.records = 0
        """How many were there: in Kafka an offset may have none."""
        self.values: dict[str, int] = {}
        """What else the commit has to keep."""
        self.changes: ChangeTick | None = None

    def run(self, ranges: Sequence[tuple[Topic, OffsetRange]]) -> TickReport | None:
        """Do it; None when another tick took the same offsets, or the time."""
        self.report.messages = sum(offsets.messages for _, offsets in ranges)
        reach("raw.before_write")
        files = self._write_rows(ranges)
        reach("raw.after_write")
        if self.report.quarantined:
            self._quarantine(ranges)
        reach("raw.after_quarantine")
        binding = self._binding(ranges)
        if not append_binding(self.collection.paths.bindings, binding, self.collection.entry.epoch):
            discard_runs(self.table.path, files)
            reach("raw.after_lost_time")
            return None
        reach("raw.after_binding")
        if not self._commit(ranges, files):
            return None
        reach("raw.after_commit")
        return self.report

    def _decoded(self, ranges: Sequence[tuple[Topic, OffsetRange]]) -> DataFrame:
        """The records of all topics, decoded.

        Out: the raw columns, topic, _reason, _detail, _error; see `RawEnvelope.read`.
        """
        if self.changes is not None:
            return self.changes.changes()
        return RAW_ENVELOPES[self.settings.envelope].read(self._raw(ranges), self.settings)

    def _raw(self, ranges: Sequence[tuple[Topic, OffsetRange]]) -> DataFrame:
        """The records of all topics.

        Out: the raw columns, topic string.
        """
        raw = _messages(self.spark, [topic for topic, _ in ranges], {topic.name: offsets for topic, offsets in ranges})
        tasks = min(self.spark.sparkContext.defaultParallelism, self.report.messages // _MESSAGES_PER_TASK_MIN)
        return raw.coalesce(max(1, tasks))

    def _write_rows(self, ranges: Sequence[tuple[Topic, OffsetRange]]) -> list[RunFile]:
        if self.settings.envelope == "debezium":
            return self._write_changes(ranges)
        is_bad = F.col("_reason").isNotNull()
        seen = Observed(
            self._decoded(ranges),
            F.count(F.lit(1)).alias("records"),
            F.count_if(is_bad).alias("quarantined"),
            F.count_if(~is_bad & F.col("_error").isNotNull()).alias("errors"),
        )
        rows = RAW_ENVELOPES[self.settings.envelope].rows(seen.frame, self.settings, self.time)
        run = new_run("ingest")
        files = write_frame(rows, self.table.path, run, self.schema)
        if not files:
            discard_run(self.table.path, run)
        counted = seen.values()
        self.records = counted["records"]
        self.report.quarantined, self.report.values_in_error = counted["quarantined"], counted["errors"]
        if counted["errors"]:
            self.values[HAS_ERRORS] = 1
        self.report.updates_read = self.report.updates_stored = sum(file.rows for file in files)
        self.report.bytes_stored = sum(file.bytes for file in files)
        return files

    def _write_changes(self, ranges: Sequence[tuple[Topic, OffsetRange]]) -> list[RunFile]:
        topics = [topic for topic, _ in ranges]
        self.changes = ChangeTick(
            self.spark,
            self.collection,
            self.settings,
            self.table,
            self.time,
            self._raw(ranges),
            topics,
            self._ends(ranges),
        )
        written = self.changes.write()
        self.values, self.records = written.values, written.records
        self.report.null_records, self.report.quarantined = written.tombstones, written.quarantined
        self.report.values_in_error = written.errors
        self.report.updates_read = self.report.updates_stored = sum(file.rows for file in written.files)
        self.report.bytes_stored = sum(file.bytes for file in written.files)
        return written.files

    def _quarantine(self, ranges: Sequence[tuple[Topic, OffsetRange]]) -> None:
        """Put what cannot be used aside, whole and with its place; a repeated tick writes the same rows again."""
        rows = unusable_rows(self._decoded(ranges)).coalesce(1)
        path = self.collection.paths.quarantine
        files = write_frame(rows, path, new_run("quarantine"), QUARANTINE_SCHEMA)
        append_run(path, files, self.collection.entry.epoch)
        for one in read_rows(path, files, QUARANTINE_SCHEMA)["reason"].value_counts().to_pylist():
            self.report.reasons[one["values"]] = self.report.reasons.get(one["values"], 0) + one["counts"]

    def _ends(self, ranges: Sequence[tuple[Topic, OffsetRange]]) -> dict[Place, int]:
        """By place, the next offset after the tick."""
        return {
            **self.known,
            **{
                (topic.name, partition): end
                for topic, offsets in ranges
                for partition, (_, end) in offsets.intervals.items()
            },
        }

    def _binding(self, ranges: Sequence[tuple[Topic, OffsetRange]]) -> Binding:
        return Binding(
            self.time,
            self.lower,
            self.known,
            self._ends(ranges),
            self.records,
            self.report.updates_stored,
            self.report.quarantined,
            self.start_ms,
        )

    def _commit(self, ranges: Sequence[tuple[Topic, OffsetRange]], files: Sequence[RunFile]) -> bool:
        """Commit the run, the offsets and upper; False when another tick came first."""
        table = self.table
        for _ in range(_ATTEMPTS_MAX):
            values: dict[str, int] = {}
            for topic, offsets in ranges:
                values |= values_behind(table, topic.name, offsets)
            sealed_at_ms = max(int(clock.time() * 1000), table.value(SEALED_AT_MS) or 0)
            values |= {UPPER: self.time + 1, CLOSED: 0, SEALED_AT_MS: sealed_at_ms} | self.values
            try:
                done = table.commit(values, files, epoch=self.collection.entry.epoch)
            except Conflict:
                table = OpenTable(self.table.path)
                # Only a tick moves upper, and every tick does; of new columns its files know nothing.
                if (table.value(UPPER) or 0) != self.lower or table.schema() != self.table.schema():
                    discard_runs(self.table.path, files)
                    reach("raw.after_lost_offsets")
                    return False
                reach("raw.after_conflict")
                continue
            self.report.version = done.version
            return True
        raise Conflict(str(self.table.path), table.version, f"{_ATTEMPTS_MAX} attempts to commit a tick failed")
