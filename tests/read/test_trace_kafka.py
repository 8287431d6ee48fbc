"""`trace` on a real broker: a gap that retention made, a recreated topic, and brokers that do not answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tidelake
from tests.lakes.kafka_lake import KafkaLake
from tests.lakes.lake import NAME, progress, updates
from tests.services.kafka import Broker
from tidelake.decisions import AcceptGap, AcceptTopic, Offsets
from tidelake.errors import TopicChanged, TopicGap
from tidelake.read.fates import Fate

pytestmark = [pytest.mark.services, pytest.mark.spark]


@pytest.mark.sweep
def test_a_message_is_traced_through_retention_and_through_a_recreated_topic(
    tmp_path: Path, spark: SparkSession, broker: Broker
) -> None:
    lake = KafkaLake(tmp_path, spark, broker)
    prices = tidelake.open_lake(lake.file).collection(NAME)

    def traced(offset: int) -> list[Fate]:
        return prices.trace(lake.name, 0, offset)

    lake.send(updates((1, 1, 1)), progress([0], [2], {1: 1}), b"\x07 garbage")
    lake.run()
    (published,), (stated,), (bad,), (missing,) = map(traced, range(4))
    assert [statement.fate for statement in published.statements] == ["published"]
    assert [count.fate for count in stated.counts] == ["sealed"]
    assert (bad.kind, missing.kind, missing.facts["end_offset"]) == ("quarantined", "not_read", 3)
    assert published.topic == lake.name

    lake.send(updates((9, 9, 1)), updates((2, 2, 1)))
    broker.drop_before(lake.name, {0: 4})
    with pytest.raises(TopicGap):
        lake.ingest()
    assert [fate.needs_somebody for fate in traced(3)] == [True]
    prices.decide(AcceptGap(offsets=Offsets(lake.name, 0, 3, 4), reason="expired"))
    assert "the next ingest skips it, by decision: expired" in traced(3)[0].summary
    lake.ingest()
    assert [fate.kind for fate in (*traced(3), *traced(4))] == ["skipped", "updates"]
    (expired,) = traced(0)
    assert (expired.kind, expired.unknown) == (
        "read",
        "what it states: the topic no longer has a message at this offset",
    )

    broker.delete_topic(lake.name)
    broker.create_topic(lake.name)
    lake.send(updates((3, 3, 1)))
    with pytest.raises(TopicChanged):
        lake.ingest()
    (recreated,) = traced(0)
    assert recreated.unknown == "what it states: the topic has since been deleted and recreated"
    prices.decide(AcceptTopic(topic=lake.name, reason="recreated"))
    lake.ingest()
    earlier, now = traced(0)
    assert (earlier.topic, earlier.kind) == (lake.name, "read")
    assert earlier.unknown == "what it states: the topic has since been accepted again, and now has different messages"
    assert (now.topic, [statement.fate for statement in now.statements]) == (f"{lake.name}#1", ["stored"])
    (under_its_name,) = prices.trace(f"{lake.name}#1", 0, 0)
    assert under_its_name == now
    (gap,) = traced(3)
    assert gap.kind == "skipped"


@pytest.mark.sweep
def test_a_trace_uses_the_small_tables_if_brokers_do_not_answer(
    tmp_path: Path, spark: SparkSession, broker: Broker
) -> None:
    lake = KafkaLake(tmp_path, spark, broker)
    lake.send(updates((1, 1, 1)), b"\x07 garbage")
    lake.run()
    text = lake.file.read_text(encoding="utf-8").replace(broker.bootstrap_servers, "127.0.0.1:1")
    lake.file.write_text(text.replace("kafka:\n", "kafka:\n  request_timeout_s: 1\n"), encoding="utf-8")
    prices = tidelake.open_lake(lake.file).collection(NAME)
    (read,), (bad,), (unread,) = (prices.trace(lake.name, 0, offset) for offset in range(3))
    assert (read.kind, read.needs_somebody, bad.kind) == ("read", False, "quarantined")
    assert read.unknown is not None
    assert "the topic cannot be read" in read.unknown
    assert (unread.kind, unread.needs_somebody) == ("not_read", True)
