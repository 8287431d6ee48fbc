"""Topics of a real broker: reading, missing offsets, and authentication."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.services.kafka import MECHANISMS, PASSWORD, USER, WAIT_S, Broker, Record
from tidelake.errors import ConfigurationError, TopicChanged, TopicGap, TopicMissing, TopicUnreachable
from tidelake.settings.kafka import KafkaSettings
from tidelake.settings.secret import Secret
from tidelake.store.decision import AcceptTopic
from tidelake.topic.cluster import KafkaCluster
from tidelake.topic.kafka import KafkaTopic

pytestmark = [pytest.mark.services, pytest.mark.spark]


def topic_of(broker: Broker, name: str) -> KafkaTopic:
    return KafkaTopic(KafkaCluster(KafkaSettings(bootstrap_servers=broker.bootstrap_servers)), name)


def facts(gaps: list[TopicGap]) -> list[tuple[int, int, int, str]]:
    return [(gap.partition, gap.from_offset, gap.to_offset, gap.why) for gap in gaps]


@pytest.fixture
def secure(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    monkeypatch.setenv("TESTS_KAFKA_PASSWORD", PASSWORD)
    return KafkaSettings(
        bootstrap_servers=broker.secure_bootstrap_servers,
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username=USER,
        sasl_password=Secret(env="TESTS_KAFKA_PASSWORD"),
        ssl_ca_file=broker.certificate,
        request_timeout_s=20,
    )


def test_messages_in_a_range_are_read_with_their_headers_and_nothing_beyond_the_range(
    spark: SparkSession, broker: Broker
) -> None:
    name = broker.create_topic(partitions=2)
    records = [
        Record(b"a", b"k", 0, (("h", b"1"), ("h", None)), 1_000),
        Record(None, b"k", 0, timestamp_ms=2_000),
        Record(b"", None, 1, timestamp_ms=3_000),
        Record(b"beyond", None, 1),
    ]
    broker.produce(name, records)
    topic = topic_of(broker, name)
    assert topic.end_offsets() == {0: 2, 1: 2}
    offsets, gaps = topic.plan({1: 0}, 3)
    assert (dict(offsets.intervals), gaps, offsets.messages) == ({0: (0, 2), 1: (0, 1)}, [], 3)
    rows = topic.read(spark, offsets).orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset, row.timestamp_ms, row.key, row.value) for row in rows] == [
        (0, 0, 1_000, b"k", b"a"),
        (0, 1, 2_000, b"k", None),
        (1, 0, 3_000, None, b""),
    ]
    assert [tuple(header) for header in rows[0].headers] == [("h", b"1"), ("h", None)]
    assert topic.plan({0: 2, 1: 2}, 10)[0].intervals == {}


def test_offsets_lost_by_retention_are_a_gap_with_its_exact_range(broker: Broker) -> None:
    name = broker.create_topic(partitions=2)
    broker.produce(name, [Record(b"x", None, partition) for partition in (0, 1) for _ in range(9)])
    broker.drop_before(name, {1: 6})
    topic = topic_of(broker, name)
    assert facts(topic.plan({}, 100)[1]) == [(1, 0, 6, "the brokers have deleted them")]
    offsets, gaps = topic.plan({1: 2}, 100)
    assert offsets.intervals == {0: (0, 9)}
    assert [str(gap).split("\n")[0] for gap in gaps] == [
        f"topic '{name}', partition 1: offsets 2 to 5 are missing: the brokers have deleted them"
    ]
    assert facts(topic.plan({1: 2}, 100, [(1, 2, 5)])[1]) == [(1, 5, 6, "the brokers have deleted them")]
    offsets, gaps = topic.plan({1: 2}, 100, [(1, 2, 4), (1, 4, 8)])
    assert (offsets.intervals, gaps) == ({0: (0, 9), 1: (6, 9)}, [])


def test_a_topic_that_ends_before_the_next_offset_has_a_gap_and_reading_can_continue_at_its_end(broker: Broker) -> None:
    name = broker.create_topic()
    broker.produce(name, [Record(b"x")] * 3)
    broker.drop_before(name, {0: 2})
    topic = topic_of(broker, name)
    offsets, gaps = topic.plan({0: 7}, 100)
    assert offsets.intervals == {}
    assert facts(gaps) == [(0, 3, 7, "the partition ends before the next offset to read")]
    assert isinstance(gaps[0], TopicChanged)
    assert "was read up to offset 7, but its messages from offset 3 on are gone: the partition ends" in str(gaps[0])
    assert facts(topic.plan({0: 3, 1: 5}, 100)[1]) == [(1, 0, 5, "the partition no longer exists")]
    broker.produce(name, [Record(b"x")])
    decision = AcceptTopic(topic=name, identity=offsets.identity or 0, starts={0: 3}, reason="tested")
    again = KafkaTopic(topic.cluster, name, [decision])
    offsets, gaps = again.plan({}, 100)
    assert (again.name, again.identity, offsets.intervals, gaps) == (f"{name}#1", offsets.identity, {0: (3, 4)}, [])


def test_offsets_that_transactions_leave_without_messages_are_not_gaps(spark: SparkSession, broker: Broker) -> None:
    name = broker.create_topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(WAIT_S)
    for value, end in ((b"kept", producer.commit_transaction), (b"aborted", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(name, value, partition=0)
        producer.flush(WAIT_S)
        end(WAIT_S)
    producer.begin_transaction()
    producer.produce(name, b"open", partition=0)
    producer.flush(WAIT_S)
    topic = topic_of(broker, name)
    assert topic.end_offsets() == {0: 4}  # the open transaction begins there
    offsets, gaps = topic.plan({}, 100)
    assert (offsets.intervals, gaps) == ({0: (0, 4)}, [])
    assert [row.value for row in topic.read(spark, offsets).collect()] == [b"kept"]
    producer.commit_transaction(WAIT_S)
    # The coordinator answers before the partition has its marker: the message may become visible a moment later.
    end = time.monotonic() + WAIT_S
    while topic.end_offsets() == {0: 4}:
        assert time.monotonic() < end, "the committed transaction never became visible"
    offsets, _ = topic.plan({0: 4}, 100)
    assert [row.value for row in topic.read(spark, offsets).collect()] == [b"open"]


def test_clients_and_spark_connect_with_tls_and_each_mechanism_and_show_no_secret(
    spark: SparkSession, broker: Broker, secure: KafkaSettings
) -> None:
    name = broker.create_topic()
    broker.produce(name, [Record(b"secret")])
    for mechanism in MECHANISMS:
        topic = KafkaTopic(KafkaCluster(secure.model_copy(update={"sasl_mechanism": mechanism})), name)
        offsets, _ = topic.plan({}, 10)
        frame = topic.read(spark, offsets)
        assert [row.value for row in frame.collect()] == [b"secret"], mechanism
        shown = frame._jdf.queryExecution().toString() + repr(secure) + secure.model_dump_json()
        assert PASSWORD not in shown
        assert "no \\" not in shown


def test_a_refused_login_is_reported_without_the_secret(
    broker: Broker, secure: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = broker.create_topic()
    impatient = secure.model_copy(update={"request_timeout_s": 6})
    monkeypatch.setenv("TESTS_KAFKA_PASSWORD", "a wrong one")
    with pytest.raises(TopicUnreachable, match=r"(?s)Authentication failed") as caught:
        KafkaTopic(KafkaCluster(impatient), name).end_offsets()
    assert "a wrong one" not in str(caught.value)
    monkeypatch.delenv("TESTS_KAFKA_PASSWORD")
    with pytest.raises(
        ConfigurationError, match=r"TESTS_KAFKA_PASSWORD: is not set, but kafka\.sasl_password is read from it"
    ):
        KafkaTopic(KafkaCluster(secure), name).end_offsets()


def test_the_error_names_a_missing_topic_or_broker(broker: Broker) -> None:
    with pytest.raises(TopicMissing, match="has no topic 'nowhere'"):
        topic_of(broker, "nowhere").end_offsets()
    nothing = KafkaSettings(bootstrap_servers="127.0.0.1:1", security_protocol="SSL", ssl_ca_file=Path("/nowhere/ca"))
    with pytest.raises(ConfigurationError, match=r"kafka: .*ssl\.ca\.location"):
        KafkaTopic(KafkaCluster(nothing), "orders").end_offsets()
    nobody = KafkaSettings(bootstrap_servers="127.0.0.1:1", request_timeout_s=1)
    with pytest.raises(TopicUnreachable, match=r"127\.0\.0\.1:1.*refused"):
        KafkaTopic(KafkaCluster(nobody), "orders").end_offsets()
