"""The first messages of a topic, read without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from tidelake.settings.kafka import KafkaSettings
from tidelake.settings.object_store import FolderPlace
from tidelake.topic.files import FileTopic

SAMPLES_MAX = 1_000
"""Maximum number of messages that are read, spread evenly over the partitions; in Kafka, each share is rounded up."""


@dataclass(frozen=True)
class Sample:
    """The bytes of one message."""

    key: bytes | None
    value: bytes | None


def samples_of_files(folder: FolderPlace) -> list[Sample]:
    """Return the first messages of a file topic.

    Raises:
        FolderMissing, MalformedTopic, StoreUnreadable: the topic cannot be read.
    """
    topic = FileTopic(folder)
    offsets, gaps = topic.plan({}, SAMPLES_MAX)
    if not offsets.intervals and gaps:  # the first messages are missing
        offsets, _ = topic.plan({gap.partition: gap.to_offset for gap in gaps}, SAMPLES_MAX)
    tables = topic.batches(offsets, ["partition", "offset", "key", "value"])
    return [
        Sample(key, value)
        for table in tables
        for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)
    ]


def samples_of_kafka(settings: KafkaSettings, topic: str) -> list[Sample]:
    """Return the first messages of a Kafka topic.

    Raises:
        TopicMissing: the topic does not exist.
        TopicUnreachable: the brokers do not answer.
    """
    from tidelake.topic.cluster import KafkaCluster
    from tidelake.topic.consuming import consume

    cluster = KafkaCluster(settings)
    intervals = {place: ends for place, ends in cluster.topic(topic).offsets.items() if ends[0] < ends[1]}
    share = -(-SAMPLES_MAX // max(1, len(intervals)))

    def messages() -> Iterator[Sample]:
        for partition, interval in intervals.items():
            for message in islice(consume(cluster, topic, partition, interval), share):
                yield Sample(message.key(), message.value())

    return list(messages())
