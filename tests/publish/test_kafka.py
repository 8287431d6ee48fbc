"""Publishing to a real broker, in bare Avro and with the ids of a real registry."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.publish import Asked, publish_collection, stop_publishing
from tests.lakes.kafka_lake import KafkaLake
from tests.lakes.lake import NAME, Lake, progress, updates
from tests.lakes.round_trip import check_equal, published_of
from tests.services.kafka import Broker, Record
from tests.services.registry import Registry
from tidelake.errors import PublishedTopicForeign, PublishedTopicNotEmpty, PublishedTopicRecreated, TopicMissing
from tidelake.publish.publishing import PublishReport
from tidelake.schema.avro import cdcv2_schema
from tidelake.topic.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.services, pytest.mark.spark]


def kafka_and_files(root: Path, spark: SparkSession, broker: Broker, registry: Registry) -> Lake:
    """A lake whose topic is a folder, and whose settings name a cluster and a registry."""
    servers = {"kafka": {"bootstrap_servers": broker.bootstrap_servers}}
    return Lake(root, spark, lake=servers | {"registry": {"url": registry.url, "cache": "cache"}})


def publish(lake: Lake, topic: str, confluent: bool = False) -> PublishReport:
    return publish_collection(lake.spark, lake.settings, NAME, Asked(topic, kafka=True, confluent=confluent))


@pytest.mark.sweep
@pytest.mark.parametrize("confluent", [False, True], ids=["bare", "confluent"])
def test_a_topic_published_to_a_broker_gives_the_same_contents_in_another_lake(
    tmp_path: Path, spark: SparkSession, broker: Broker, registry: Registry, confluent: bool
) -> None:
    lake = kafka_and_files(tmp_path / "one", spark, broker, registry)
    topic = broker.create_topic(partitions=2)
    lake.send(updates((1, 0, 1), ((2, 20), 1, 2), (3, 1, 1)), progress([0], [3], {0: 1, 1: 2}))
    lake.run()
    assert publish(lake, topic, confluent).frontier == 3
    lake.send(updates((1, 4, -1)), progress([3], [6], {4: 1}))
    lake.run()
    assert publish(lake, topic, confluent).frontier == 6
    ends = broker.ends(topic)
    assert publish(lake, topic, confluent).statements == 0
    assert broker.ends(topic) == ends, "what the topic states was stated again"
    record = published_of(lake).record_schema
    block = {"family": "plain", "schema": record}
    other = KafkaLake(tmp_path / "other", spark, broker, block, topic=topic)
    if confluent:
        other.document["registry"] = {"url": registry.url, "cache": "cache"}
        other.document["collections"][NAME]["encoding"] = "confluent"
        other.settings = other.written()
        known = SchemaRegistry(lake.settings.registry).schemas_of(f"{topic}-value")  # type: ignore[arg-type]
        assert known == {published_of(lake).schema_id: cdcv2_schema(record)}
    other.run()
    assert other.quarantined() == []
    check_equal(lake, other, range(6))


def test_a_broker_topic_that_is_not_what_was_published_is_refused(
    tmp_path: Path, spark: SparkSession, broker: Broker, registry: Registry
) -> None:
    lake = kafka_and_files(tmp_path, spark, broker, registry)
    topic = broker.create_topic()
    lake.send(updates((1, 0, 1)), progress([0], [2], {0: 1}))
    lake.run()
    with pytest.raises(TopicMissing):
        publish(lake, "no_such_topic")
    assert publish(lake, topic).frontier == 2
    end = broker.ends(topic)[0][1]
    broker.drop_before(topic, {0: end - 1})
    assert publish(lake, topic).cut == {0: end - 1}
    broker.produce(topic, [Record(b"\x00\x00", None, 0)])
    with pytest.raises(PublishedTopicForeign) as refused:
        publish(lake, topic)
    assert refused.value.offset == end
    broker.delete_topic(topic)
    broker.create_topic(topic)
    with pytest.raises(PublishedTopicRecreated, match=f"--to {topic} --kafka --stop"):
        publish(lake, topic)
    stop_publishing(lake.settings, NAME, Asked(topic, kafka=True))
    broker.produce(topic, [Record(b"\x00\x00", None, 0)])
    with pytest.raises(PublishedTopicNotEmpty):
        publish(lake, topic)
