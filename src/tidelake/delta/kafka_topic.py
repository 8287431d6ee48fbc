"""Kafka topics: which offsets a collection may read next, what is missing, and a bounded range of them as a frame.

Where a collection has read to is in its own commits and nowhere else. Offsets between the first and the end that have
no record (of compacted topics, of aborted transactions, of the marks that end one) are no gap: nobody can read them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tidelake.delta.kafka_client import KafkaCluster, TopicFacts, java_settings
from tidelake.delta.topic import RAW_SCHEMA, OffsetRange, bounded, by_partition
from tidelake.delta.topic_intervals import Interval
from tidelake.errors import TopicChanged, TopicGap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelake.delta.catalog import Decision

_EXPIRED = "the brokers have deleted them"
_SHRANK = "the partition ends before what was read already"
_REMOVED = "the partition is no longer there"
_GROUP_PREFIX = "tidelake"

_MESSAGES_PER_TASK_MIN = 2_000


class KafkaTopic:
    """One topic of a cluster."""

    def __init__(self, cluster: KafkaCluster, topic: str, decisions: Sequence[Decision] = ()) -> None:
        """Name the topic, and what was decided about it; nothing is asked yet.

        Each time that somebody has decided to go on with a topic that is not what it was, it gets another name in the
        collection's tables, `orders#1`: the same offset of it is another record than before.
        """
        accepted = [one.accept_topic for one in decisions if one.accept_topic and one.accept_topic[0] == topic]
        self.cluster, self.topic = cluster, topic
        self.name = f"{topic}#{len(accepted)}" if accepted else topic
        self.identity = accepted[-1][1] or None if accepted else None
        self._starts = accepted[-1][2] if accepted else {}

    def end_offsets(self) -> dict[int, int]:
        """For each partition the offset behind the last committed record.

        Raises:
            RuleBroken: there is no such topic.
            TopicUnreachable: the brokers do not answer, or do not let us in.
        """
        return {partition: end for partition, (_, end) in self.cluster.topic(self.topic).offsets.items()}

    def plan(
        self,
        next_offsets: Mapping[int, int],
        messages_max: int,
        accepted: Iterable[tuple[int, int, int]] = (),
    ) -> tuple[OffsetRange, list[TopicGap]]:
        """The next range to read, at most `messages_max` offsets, and the gaps that stop it.

        A partition that was not read yet is read from offset 0 on, or from where it was decided.

        Args:
            next_offsets: by partition, the first offset that was not read yet.
            messages_max: the bound of the whole range, at least 1.
            accepted: (partition, start, end) of gaps that an operator gave up: what is still there of them is read.

        Raises:
            RuleBroken: there is no such topic.
            TopicUnreachable: the brokers do not answer, or do not let us in.
        """
        facts = self.cluster.topic(self.topic)
        given_up = by_partition(accepted)
        intervals: dict[int, Interval] = {}
        gaps: list[TopicGap] = []
        for partition in sorted({*facts.offsets, *next_offsets}):
            start = next_offsets.get(partition, self._starts.get(partition, 0))
            here = self._next_interval(partition, start, facts, given_up.get(partition, []))
            if isinstance(here, TopicGap):
                gaps.append(here)
            elif here[0] < here[1]:
                intervals[partition] = here
        return OffsetRange(bounded(intervals, messages_max), identity=facts.identity), gaps

    def read(self, spark: SparkSession, offsets: OffsetRange) -> DataFrame:
        """The messages of a range, those of aborted transactions left out.

        Out: the columns of `RAW_SCHEMA`; all but partition and offset may be null.
        Raises, when it is read: Spark's own error where the brokers have deleted a part of it meanwhile.
        """
        from pyspark.sql import functions as F  # late: `status` reads topics without Spark

        if not offsets.intervals:
            return spark.createDataFrame([], schema=RAW_SCHEMA)
        starts = {str(one): start for one, (start, _) in offsets.intervals.items()}
        ends = {str(one): end for one, (_, end) in offsets.intervals.items()}
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
        """Nothing: Spark's own consumers read."""

    def show_offsets(self, collection: str, offsets: Mapping[int, int]) -> None:
        """Store the offsets as those of a consumer group, where settings name one; nothing of ours reads them.

        Raises:
            TopicUnreachable: they could not be stored.
        """
        group = self.cluster.settings.monitoring_group
        if group is not None and offsets:
            self.cluster.publish_offsets(self.topic, f"{group}.{collection}", offsets)

    def _next_interval(
        self, partition: int, start: int, facts: TopicFacts, given_up: list[Interval]
    ) -> Interval | TopicGap:
        """What can be read of a partition from `start` on, which may be nothing, or what is missing there."""
        first, end = facts.offsets.get(partition, (0, 0))
        if end < start:
            why = _SHRANK if partition in facts.offsets else _REMOVED
            return TopicChanged(self.name, partition, end, start, why)
        for low, high in sorted(given_up):
            if low <= start < high:
                start = max(start, min(high, first))
        if start < first:
            return TopicGap(self.name, partition, start, first, _EXPIRED)
        return start, max(start, end)


def _tasks_for(spark: SparkSession, offsets: OffsetRange) -> int:
    """How many tasks a range is worth, so that one long partition is read by several."""
    tasks = min(spark.sparkContext.defaultParallelism, offsets.messages // _MESSAGES_PER_TASK_MIN)
    return max(1, tasks)
