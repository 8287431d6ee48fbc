"""Kafka topics: the offsets to read next, the gaps, and a bounded range of messages as a DataFrame.

Only a collection's own commits say how far it has read. An offset between the first and the end may have no record:
compaction removed the record, its transaction was aborted, or the offset marks the end of a transaction. Such offsets
are not a gap: every read skips them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tidelake.errors import TopicChanged, TopicGap
from tidelake.protocol.intervals import Interval
from tidelake.store.decision import AcceptTopic
from tidelake.topic.cluster import KafkaCluster, TopicFacts, java_settings
from tidelake.topic.consuming import consume
from tidelake.topic.topic import RAW_SCHEMA, OffsetRange, Record, bounded, by_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelake.store.decision import Decision

_EXPIRED = "the brokers have deleted them"
_SHRANK = "the partition ends before the next offset to read"
_REMOVED = "the partition no longer exists"
_GROUP_PREFIX = "tidelake"

_MESSAGES_PER_TASK_MIN = 2_000


class KafkaTopic:
    """A topic of a cluster."""

    def __init__(self, cluster: KafkaCluster, topic: str, decisions: Sequence[Decision] = ()) -> None:
        """Set up the topic without a request to the brokers.

        Each decision to accept a recreated or truncated topic gives the topic a new name in the collection's tables,
        such as `orders#1`, because its offsets now identify different records.
        """
        accepted = [decision for decision in decisions if isinstance(decision, AcceptTopic) and decision.topic == topic]
        self.cluster, self.topic = cluster, topic
        self.name = f"{topic}#{len(accepted)}" if accepted else topic
        self.identity = accepted[-1].identity or None if accepted else None
        self._starts = accepted[-1].starts if accepted else {}

    def check_exists(self) -> None:
        """Refuse a topic that does not exist; raises the same errors as `end_offsets`."""
        self.cluster.topic(self.topic)

    def end_offsets(self) -> dict[int, int]:
        """Return the offset after the last committed record, by partition.

        Raises:
            TopicMissing: the topic does not exist.
            TopicUnreachable: the brokers do not answer, or refuse access.
        """
        return {partition: end for partition, (_, end) in self.cluster.topic(self.topic).offsets.items()}

    def plan(
        self,
        next_offsets: Mapping[int, int],
        messages_max: int,
        accepted: Iterable[tuple[int, int, int]] = (),
    ) -> tuple[OffsetRange, list[TopicGap]]:
        """Return the next range to read, at most `messages_max` offsets, and the gaps that stop it.

        A partition that has not been read starts at offset 0, or at the offset that a decision gives.

        Args:
            next_offsets: by partition, the first offset that has not been read.
            messages_max: maximum size of the whole range, at least 1.
            accepted: (partition, start, end) of accepted gaps; messages in them that still exist are read.

        Raises:
            TopicMissing: the topic does not exist.
            TopicUnreachable: the brokers do not answer, or refuse access.
        """
        facts = self.cluster.topic(self.topic)
        accepted_by_partition = by_partition(accepted)
        intervals: dict[int, Interval] = {}
        gaps: list[TopicGap] = []
        for partition in sorted({*facts.offsets, *next_offsets}):
            start = next_offsets.get(partition, self._starts.get(partition, 0))
            here = self._next_interval(partition, start, facts, accepted_by_partition.get(partition, []))
            if isinstance(here, TopicGap):
                gaps.append(here)
            elif here[0] < here[1]:
                intervals[partition] = here
        return OffsetRange(bounded(intervals, messages_max), identity=facts.identity), gaps

    def range_of(self, intervals: Mapping[int, Interval]) -> OffsetRange:
        """See `Topic.range_of`."""
        return OffsetRange(dict(intervals))

    def read(self, spark: SparkSession, offsets: OffsetRange) -> DataFrame:
        """Return the messages of a range, without those of aborted transactions.

        Out: the columns of `RAW_SCHEMA`; all but partition and offset may be null.
        Raises, when it is evaluated: Spark's own error if the brokers have deleted part of the range in the meantime.
        """
        from pyspark.sql import functions as F  # imported late: `status` reads topics without Spark

        if not offsets.intervals:
            return spark.createDataFrame([], schema=RAW_SCHEMA)
        starts = {str(partition): start for partition, (start, _) in offsets.intervals.items()}
        ends = {str(partition): end for partition, (_, end) in offsets.intervals.items()}
        reader = spark.read.format("kafka").options(
            assign=json.dumps({self.topic: sorted(offsets.intervals)}),
            startingOffsets=json.dumps({self.topic: starts}),
            endingOffsets=json.dumps({self.topic: ends}),
            failOnDataLoss="true",
            includeHeaders="true",
            groupIdPrefix=_GROUP_PREFIX,
            minPartitions=str(_tasks_for(spark, offsets)),
        )
        for name, value in {**java_settings(self.cluster.settings), "isolation.level": "read_committed"}.items():
            reader = reader.option(f"kafka.{name}", value)
        return reader.load().select(
            "partition", "offset", F.unix_millis("timestamp").alias("timestamp_ms"), "key", "value", "headers"
        )

    def batches(self, offsets: OffsetRange, columns: Sequence[str]) -> None:
        """Return None: only Spark reads ranges from brokers."""

    def record_at(self, partition: int, offset: int) -> Record | None:
        """See `Topic.record_at`. An offset may have no record: see the top of this file.

        Raises:
            TopicMissing: the topic does not exist.
            TopicUnreachable: the brokers do not answer, or refuse access.
        """
        first, end = self.cluster.topic(self.topic).offsets.get(partition, (0, 0))
        if not first <= offset < end:
            return None
        for message in consume(self.cluster, self.topic, partition, (offset, offset + 1)):
            kind, stamp = message.timestamp()
            return Record(int(stamp) if kind else None, message.key(), message.value())
        return None

    def current_identity(self) -> int | None:
        """See `Topic.current_identity`; raises what `record_at` raises."""
        return self.cluster.topic(self.topic).identity

    def show_offsets(self, collection: str, offsets: Mapping[int, int]) -> None:
        """Commit the offsets for a consumer group, if the settings name one, for monitoring. They are never read back.

        Raises:
            TopicUnreachable: the offsets could not be stored.
        """
        group = self.cluster.settings.monitoring_group
        if group is not None and offsets:
            self.cluster.publish_offsets(self.topic, f"{group}.{collection}", offsets)

    def _next_interval(
        self, partition: int, start: int, facts: TopicFacts, accepted_here: list[Interval]
    ) -> Interval | TopicGap:
        """Return a partition's next readable interval, or the gap that stops reading.

        The interval may be empty. It begins at `start`; if that offset is in an accepted gap and no longer exists, it
        begins at the first remaining offset or at the end of the gap, whichever comes first.
        """
        first, end = facts.offsets.get(partition, (0, 0))
        if end < start:
            why = _SHRANK if partition in facts.offsets else _REMOVED
            return TopicChanged(self.name, partition, end, start, why)
        for low, high in sorted(accepted_here):
            if low <= start < high:
                start = max(start, min(high, first))
        if start < first:
            return TopicGap(self.name, partition, start, first, _EXPIRED)
        return start, max(start, end)


def _tasks_for(spark: SparkSession, offsets: OffsetRange) -> int:
    """Return the number of tasks for a range. Several tasks may share a long partition."""
    tasks = min(spark.sparkContext.defaultParallelism, offsets.messages // _MESSAGES_PER_TASK_MIN)
    return max(1, tasks)
