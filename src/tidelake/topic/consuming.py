"""Consumes records of a Kafka topic without a JVM."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tidelake.errors import TopicUnreachable
from tidelake.protocol.intervals import Interval
from tidelake.topic.cluster import KafkaCluster, librdkafka_settings

_POLL_S = 1.0


def consume(cluster: KafkaCluster, name: str, partition: int, interval: Interval) -> Iterator[Message]:
    """Yield the committed records that the partition has in an interval, in order. No offset is stored.

    Raises:
        TopicUnreachable: the brokers do not answer, or no longer have the first offset.
    """
    settings = {
        **librdkafka_settings(cluster.settings),
        "group.id": "tidelake-recording",  # the client requires a name; nothing is ever stored under it
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "log_level": 0,
    }
    consumer, (start, end) = Consumer(settings), interval
    silent_s = 0.0
    try:
        consumer.assign([TopicPartition(name, partition, start)])
        while True:
            message = consumer.poll(_POLL_S)
            silent_s = silent_s + _POLL_S if message is None else 0.0
            if silent_s > cluster.settings.request_timeout_s:
                raise TopicUnreachable(name, cluster.settings.bootstrap_servers, f"no answer for {silent_s:.0f} s")
            if message is None:
                continue
            problem = message.error()
            if problem is not None and problem.code() != KafkaError._PARTITION_EOF:
                raise TopicUnreachable(name, cluster.settings.bootstrap_servers, problem.str())
            if problem is not None or message.offset() >= end:
                return
            yield message
            if message.offset() == end - 1:
                return
    finally:
        consumer.close()
