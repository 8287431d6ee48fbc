"""Collections whose topics are in a real broker: nothing is lost, repeated or taken for something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import NewPartitions
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.delta.kafka_lake import RAW, KafkaLake, visit
from tests.delta.lake import NAME, RECORD, Lake, progress, updates
from tests.services.kafka import WAIT_S, Broker
from tidelake.cli import app
from tidelake.delta.bindings import read_bindings
from tidelake.delta.quarantine import quarantine_rows
from tidelake.delta.snapshot import snapshot
from tidelake.delta.status import read_status
from tidelake.delta.topic import open_topics
from tidelake.errors import TopicChanged, TopicGap

pytestmark = [pytest.mark.services, pytest.mark.spark]

HEADER = b"\x00" + (7).to_bytes(4, "big")
BEYOND_INT64 = b"\x00\x02\x00\x00" + b"\x80" * 9 + b"\x02" + b"\x02\x00"


def bad_input() -> list[bytes | None]:
    """Every bad message of the table of bad input, and good ones between them, in Confluent framing."""
    good = [
        updates((1, 1, 1), (1, 1, 1), ((2, 20), 3, 1), ((2, 20), 3, 2)),
        updates((4, 5, 1), (5, -1, 1), (6, 1, 0)),
        progress([0], [9], {1: 1, 3: 1, 5: 1}),
        progress([5], [6], {5: 2}),
        progress([7], [3]),
        BEYOND_INT64,
        updates(*((100 + one, 2, 1) for one in range(1000))),
    ]
    first = updates((1, 1, 1))
    return [
        HEADER + first[:-1],
        b"\x01" + HEADER[1:] + first,
        b"\x00\x00\x00\x00\x08" + first,
        HEADER + first + b"x",
        b"",
        b"\x00\x00",
        None,
        HEADER,
        *(HEADER + one for one in good),
        HEADER + good[0],
    ]


def outcome(lake: Lake) -> dict[str, Any]:
    """All that a person can see of a collection, but the names and clocks in which two lakes differ."""
    settings = lake.settings.collection(NAME)
    status = read_status(lake.collection, settings.family, open_topics(settings)).as_json()
    quarantined = quarantine_rows(lake.collection)
    rows = snapshot(lake.spark, lake.collection, lake.table.value("upper") - 1).contents.collect()
    return {
        "status": {name: value for name, value in status.items() if name not in ("lag_s", "bytes")},
        "quarantine": [
            (row["partition"], row["offset"], row["reason"], row["times"], row["value"]) for row in quarantined
        ],
        "rows": sorted(map(repr, rows)),
    }


def test_each_bad_input_has_the_outcome_that_it_has_in_files(
    tmp_path: Path, spark: SparkSession, broker: Broker
) -> None:
    confluent = {"encoding": "confluent", "schema_ids": {7: RECORD}}
    files = Lake(tmp_path / "files", spark, **confluent)
    kafka = KafkaLake(tmp_path / "kafka", spark, broker, {"family": "plain", "schema": RECORD, **confluent})
    for lake in (files, kafka):
        lake.send(*bad_input())
        assert lake.run().upper == 2
    expected = outcome(files)
    assert outcome(kafka) == expected
    assert expected["status"]["quarantine"] > 8
    assert len(expected["status"]["contradictions"]) == 3


def resolve(lake: Lake, *options: str) -> None:
    result = CliRunner().invoke(app, ["resolve", NAME, "--reason", "tested", "--config", str(lake.file), *options])
    assert result.exit_code == 0, result.output


def test_what_retention_took_and_a_topic_made_anew_stop_ingest_until_they_are_accepted(
    tmp_path: Path, spark: SparkSession, broker: Broker
) -> None:
    lake = KafkaLake(tmp_path, spark, broker, kafka={"monitoring_group": "tests"})
    lake.send(updates((1, 1, 1)), progress([0], [2], {1: 1}))
    assert lake.run().upper == 2
    lake.send(b"lost", b"lost", b"lost", updates((2, 2, 1)), progress([2], [3], {2: 1}))
    broker.drop_before(lake.name, {0: 5})
    with pytest.raises(
        TopicGap, match=rf"'{lake.name}', partition 0: offsets 2 to 5 are missing: the brokers have"
    ) as gap:
        lake.ingest()
    assert f"--accept-gap {lake.name}:0:2-5" in str(gap.value)
    resolve(lake, "--accept-gap", f"{lake.name}:0:2-5")
    assert lake.run().upper == 3

    broker.delete_topic(lake.name)
    broker.create_topic(lake.name, partitions=2)
    lake.send(*[updates((3, 3, 1))] * 3, b"nonsense")
    with pytest.raises(TopicChanged, match=rf"'{lake.name}', partition 0, was read up to offset 7.*made anew") as anew:
        lake.ingest()
    assert f"--accept-topic {lake.name}" in str(anew.value)
    resolve(lake, "--accept-topic", lake.name)
    assert lake.ingest().messages == 4
    assert lake.ingest().messages == 0

    lake.send(progress([3], [4], {3: 1}), partition=1)
    broker.admin.create_partitions([NewPartitions(lake.name, 3)])[lake.name].result(WAIT_S)
    broker.wait_for_topic(lake.name, 3)
    lake.send(updates((4, 4, 1)), progress([4], [5], {4: 1}), partition=2)
    assert lake.ingest().partitions_added == [f"{lake.name}#1:1", f"{lake.name}#1:2"]
    assert lake.seal().upper == 5
    assert lake.contents(4) == {(one, None): 1 for one in (1, 2, 3, 4)}
    assert shown_offsets(broker, f"tests.{NAME}") == {(lake.name, 0): 4, (lake.name, 1): 1, (lake.name, 2): 2}
    assert [(row["topic"], row["offset"]) for row in quarantine_rows(lake.collection)] == [(f"{lake.name}#1", 3)]


def shown_offsets(broker: Broker, group: str) -> dict[tuple[str, int], int]:
    """What monitoring sees of a consumer group."""
    (future,) = broker.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(one.topic, one.partition): one.offset for one in future.result(WAIT_S).topic_partitions}


def test_a_raw_topic_of_a_broker_is_bound_to_its_offsets_and_a_new_one_goes_on_from_its_beginning(
    tmp_path: Path, spark: SparkSession, broker: Broker
) -> None:
    lake = KafkaLake(tmp_path, spark, broker, {**RAW, "metadata": ["partition", "offset", "headers"]}, partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": lake.name, "log_level": 0})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(lake.name, visit(1, "a"), partition=0, headers=[("h", b"1"), ("h", None)])
    producer.produce(lake.name, visit(2), partition=1)
    producer.commit_transaction(WAIT_S)
    assert lake.ingest().updates_stored == 2
    (first,) = read_bindings(lake.collection, lake.table)
    assert first.ends == {(lake.name, 0): 2, (lake.name, 1): 2}  # the marks of the transaction have offsets, too
    assert first.records == 2
    lake.send(visit(3), b"nonsense")
    broker.drop_before(lake.name, {0: 3})
    with pytest.raises(TopicGap, match="offsets 2 to 3 are missing"):
        lake.ingest()
    resolve(lake, "--accept-gap", f"{lake.name}:0:2-3")
    assert lake.ingest().quarantined == 1

    broker.delete_topic(lake.name)
    broker.create_topic(lake.name)
    lake.send(visit(4))
    with pytest.raises(TopicChanged):
        lake.ingest()
    resolve(lake, "--accept-topic", lake.name)
    assert lake.ingest().messages == 1
    assert lake.ingest().messages == 0
    last = read_bindings(lake.collection, lake.table)[-1]
    assert last.ends == {(f"{lake.name}#1", 0): 1}
    rows = {row["id"]: row for row in snapshot(spark, lake.collection, last.time).contents.collect()}
    assert set(rows) == {1, 2, 4}
    assert [tuple(one) for one in rows[1]["kafka_headers"]] == [("h", b"1"), ("h", None)]
    assert (rows[2]["kafka_partition"], rows[2]["kafka_offset"]) == (1, 0)
    assert not lake.validate(full=True).damaged
