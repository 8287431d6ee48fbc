"""Collections on a real broker: nothing is lost, repeated or misread."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import NewPartitions
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.lakes.bad_input import BEYOND, NESTED, check_extremes, check_refused, failing_checks, status_of
from tests.lakes.kafka_lake import MESSAGE_BYTES_MAX, RAW, KafkaLake, visit
from tests.lakes.lake import NAME, RECORD, Lake, progress, updates
from tests.lakes.raw_lake import RawLake
from tests.lakes.upserts import ITEM, gone, item, prices
from tests.services.kafka import WAIT_S, Broker, Record
from tidelake.cli.app import app
from tidelake.errors import TopicChanged, TopicGap, TopicMissing, TopicUnreachable
from tidelake.read.snapshot import snapshot
from tidelake.settings.kafka import KafkaSettings
from tidelake.store.bindings import read_bindings
from tidelake.store.quarantine import quarantine_rows
from tidelake.topic.cluster import KafkaCluster

pytestmark = [pytest.mark.services, pytest.mark.spark]

HEADER = b"\x00" + (7).to_bytes(4, "big")
TIME_BEYOND_INT64 = b"\x00\x02\x00\x00" + BEYOND + b"\x02\x00"
DIFF_BEYOND_INT64 = b"\x00\x02\x00\x00\x02" + BEYOND + b"\x00"


def bad_input() -> list[bytes | None]:
    """Every bad message in the table of bad input, mixed with good messages, in Confluent framing."""
    framed = [
        updates((1, 1, 1), (1, 1, 1), ((2, 20), 3, 1), ((2, 20), 3, 2)),
        updates((4, 5, 1), (5, -1, 1), (6, 1, 0)),
        progress([0], [9], {1: 1, 3: 1, 5: 1}),
        progress([5], [6], {5: 2}),
        progress([7], [3]),
        TIME_BEYOND_INT64,
        DIFF_BEYOND_INT64,
        updates(*((100 + row_id, 2, 1) for row_id in range(1000))),
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
        *(HEADER + message for message in framed),
        HEADER + framed[0],
    ]


def outcome(lake: Lake) -> dict[str, Any]:
    """Everything users can see of a collection, except what differs between two lakes: names, clock readings, sizes."""
    status = status_of(lake).as_json()
    quarantined = quarantine_rows(lake.collection)
    upper = lake.table.value("upper")
    assert upper is not None
    rows = snapshot(lake.spark, lake.collection, upper - 1).contents.collect()
    return {
        "status": {name: value for name, value in status.items() if name not in ("lag_s", "upper_age_s", "bytes")},
        "quarantine": [
            (row["partition"], row["offset"], row["reason"], row["times"], row["value"]) for row in quarantined
        ],
        "rows": sorted(map(repr, rows)),
        "checks": failing_checks(lake),
    }


@pytest.mark.sweep
def test_each_bad_input_has_the_same_outcome_as_from_files(tmp_path: Path, spark: SparkSession, broker: Broker) -> None:
    confluent: dict[str, Any] = {"encoding": "confluent", "schema_ids": {7: RECORD}}
    files = Lake(tmp_path / "files", spark, **confluent)
    kafka = KafkaLake(tmp_path / "kafka", spark, broker, {"family": "plain", "schema": RECORD, **confluent})
    for lake in (files, kafka):
        lake.send(*bad_input())
        assert lake.run().upper == 2
    expected = outcome(files)
    assert outcome(kafka) == expected
    assert expected["status"]["quarantine_reasons"] == {
        "undecodable": 5,
        "wrong_magic_byte": 2,
        "unknown_schema_id": 1,
        "bytes_left_over": 1,
        "zero_diff": 1,
        "bad_interval": 1,
    }
    assert [contradiction["time"] for contradiction in expected["status"]["contradictions"]] == [2, 3, 5]
    assert expected["checks"] == {"nothing_is_contradicted", "quarantine_is_explained"}

    for lake in (files, kafka):
        lake.decide(time=2, count=1000)
        lake.decide(time=3, discard={"data": {"id": 2, "price": 20}, "diff": 2})
        lake.decide(time=5, count=0)
        assert lake.seal().upper == 9
    expected = outcome(files)
    assert outcome(kafka) == expected
    rows = [(1, None), (2, 20), *((100 + row_id, None) for row_id in range(1000))]
    assert expected["rows"] == sorted(f"Row(id={id}, price={price}, _diff=1)" for id, price in rows)
    assert expected["status"]["contradictions"] == []
    assert expected["checks"] == {"quarantine_is_explained"}


@pytest.mark.sweep
def test_extreme_values_from_a_broker_are_stored_and_numbers_beyond_int64_are_quarantined(
    tmp_path: Path, spark: SparkSession, broker: Broker
) -> None:
    settings = {"max.message.bytes": str(MESSAGE_BYTES_MAX)}
    check_extremes(KafkaLake(tmp_path, spark, broker, {"family": "plain", "schema": NESTED}, topic_settings=settings))


def test_if_the_topic_is_missing_a_new_collection_is_refused_and_an_existing_one_stops(
    tmp_path: Path,
    spark: SparkSession,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake = KafkaLake(tmp_path, spark, broker)
    broker.delete_topic(lake.name)
    for name in (lake.name, "not a topic name"):
        text = lake.file.read_text(encoding="utf-8").replace(lake.name, name)
        missing = f"{lake.file}: collections.prices.topic: Kafka at {broker.bootstrap_servers} has no topic '{name}'"
        check_refused(tmp_path, spark, monkeypatch, capsys, text, missing)
    broker.create_topic(lake.name)
    lake.send(updates((1, 1, 1)), progress([0], [2], {1: 1}))
    assert lake.run().upper == 2
    broker.delete_topic(lake.name)
    with pytest.raises(TopicMissing, match=f"has no topic '{lake.name}'\nhint: create it"):
        lake.ingest()
    assert lake.seal().upper == 2
    assert f"has no topic '{lake.name}'" in (status_of(lake).topic_problem or "")
    assert lake.contents(1) == {(1, None): 1}


def test_a_new_collection_is_not_created_while_its_brokers_are_unreachable(
    tmp_path: Path, spark: SparkSession, broker: Broker
) -> None:
    unreachable = {"bootstrap_servers": "127.0.0.1:1", "request_timeout_s": 1}
    lake = KafkaLake(tmp_path, spark, broker, kafka=unreachable)
    for job in (lake.ingest, lake.seal):
        with pytest.raises(TopicUnreachable, match=r"cannot be read from 127\.0\.0\.1:1"):
            job()
    assert not lake.store_folder.exists()


def resolve(lake: Lake, kind: str, *options: str) -> None:
    words = ["resolve", kind, NAME, "--reason", "tested", "--config", str(lake.file), *options]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output


def test_expired_messages_and_a_recreated_topic_stop_ingest_until_they_are_accepted(
    tmp_path: Path, spark: SparkSession, broker: Broker
) -> None:
    lake = KafkaLake(tmp_path, spark, broker, kafka={"monitoring_group": "tests"})
    lost = rf"'{lake.name}', partition 0: offsets %s are missing: the brokers have"
    lake.send(b"lost", b"lost")
    broker.drop_before(lake.name, {0: 2})
    with pytest.raises(TopicGap, match=lost % "0 to 1"):
        lake.ingest()
    status = status_of(lake)
    assert (status.lag_messages, len(status.topic_gaps)) == (2, 1)
    assert "offsets 0 to 1 are missing" in status.topic_gaps[0] and "resolve gap" in status.topic_gaps[0]
    shown = CliRunner().invoke(app, ["status", "--config", str(lake.file)])
    assert "a gap in the topic" in shown.output and "offsets 0 to 1 are missing" in " ".join(shown.output.split())
    resolve(lake, "gap", "--offsets", f"{lake.name}:0:0-2")
    assert lake.ingest().messages == status_of(lake).lag_messages == 0
    assert status_of(lake).topic_gaps == []

    lake.send(updates((1, 1, 1)), progress([0], [2], {1: 1}))
    assert status_of(lake).lag_messages == 2
    assert lake.run().upper == 2
    lake.send(b"lost", b"lost", b"lost", updates((2, 2, 1)), progress([2], [3], {2: 1}))
    broker.drop_before(lake.name, {0: 7})
    with pytest.raises(TopicGap, match=lost % "4 to 6") as gap:
        lake.ingest()
    assert f"resolve gap NAME --offsets {lake.name}:0:4-7" in str(gap.value)
    resolve(lake, "gap", "--offsets", f"{lake.name}:0:4-7")
    assert lake.run().upper == 3

    broker.delete_topic(lake.name)
    broker.create_topic(lake.name, partitions=2)
    lake.send(*[updates((3, 3, 1))] * 3, b"nonsense")
    with pytest.raises(
        TopicChanged, match=rf"'{lake.name}', partition 0, was read up to offset 9.*recreated"
    ) as changed:
        lake.ingest()
    assert f"resolve topic NAME --topic {lake.name}" in str(changed.value)
    assert status_of(lake).state == "topic was recreated or cut"
    resolve(lake, "topic", "--topic", lake.name)
    assert lake.ingest().messages == 4
    cluster = KafkaCluster(KafkaSettings(bootstrap_servers=broker.bootstrap_servers))
    cluster.publish_offsets(lake.name, f"tests.{NAME}", {0: 1, 1: 99})
    assert shown_offsets(broker, f"tests.{NAME}") == {(lake.name, 0): 1, (lake.name, 1): 99}
    assert lake.ingest().messages == 0

    lake.send(progress([3], [4], {3: 1}), partition=1)
    broker.admin.create_partitions([NewPartitions(lake.name, 3)])[lake.name].result(WAIT_S)
    broker.wait_for_topic(lake.name, 3)
    lake.send(updates((4, 4, 1)), progress([4], [5], {4: 1}), partition=2)
    assert lake.ingest().partitions_added == [f"{lake.name}#1:1", f"{lake.name}#1:2"]
    assert lake.seal().upper == 5
    assert lake.contents(4) == {(row_id, None): 1 for row_id in (1, 2, 3, 4)}
    assert shown_offsets(broker, f"tests.{NAME}") == {(lake.name, 0): 4, (lake.name, 1): 1, (lake.name, 2): 2}
    assert [(row["topic"], row["offset"]) for row in quarantine_rows(lake.collection)] == [(f"{lake.name}#1", 3)]


@pytest.mark.sweep
def test_a_topic_shortened_by_a_restore_stops_ingest_until_accepted_and_is_then_read_from_its_end(
    tmp_path: Path, spark: SparkSession, broker: Broker
) -> None:
    lake = KafkaLake(tmp_path, spark, broker)
    lake.send(updates((1, 1, 1)), progress([0], [2], {1: 1}), b"a", b"b", b"c")
    assert lake.run().upper == 2
    broker.server.stop()
    shutil.rmtree(broker.folder / "logs" / f"{lake.name}-0")
    broker.start()
    broker.wait_for_topic(lake.name, 1)
    lake.send(updates((9, 2, 1)), b"not read")
    read = f"'{lake.name}', partition 0, was read up to offset 5"
    shorter = f"{read}, but its messages from offset 2 on are gone: the partition ends before"
    with pytest.raises(TopicChanged, match=shorter):
        lake.ingest()
    resolve(lake, "topic", "--topic", lake.name)
    assert lake.ingest().messages == 0
    lake.send(updates((2, 2, 1)), progress([2], [3], {2: 1}))
    assert lake.ingest().messages == 2
    assert lake.seal().upper == 3
    assert lake.contents(2) == {(1, None): 1, (2, None): 1}
    assert lake.ingest().messages == 0


def shown_offsets(broker: Broker, group: str) -> dict[tuple[str, int], int]:
    """The offsets of a consumer group, as monitoring sees them."""
    (future,) = broker.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(place.topic, place.partition): place.offset for place in future.result(WAIT_S).topic_partitions}


@pytest.mark.sweep
def test_times_of_a_reclocked_kafka_topic_are_bound_to_offsets_and_a_recreated_topic_is_read_from_its_beginning(
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
    assert first.ends == {(lake.name, 0): 2, (lake.name, 1): 2}  # transaction markers have offsets, too
    assert first.records == 2
    lake.send(visit(3), b"nonsense")
    broker.drop_before(lake.name, {0: 3})
    with pytest.raises(TopicGap, match="offset 2 is missing"):
        lake.ingest()
    resolve(lake, "gap", "--offsets", f"{lake.name}:0:2-3")
    assert lake.ingest().quarantined == 1

    broker.delete_topic(lake.name)
    broker.create_topic(lake.name)
    lake.send(visit(4))
    with pytest.raises(TopicChanged):
        lake.ingest()
    resolve(lake, "topic", "--topic", lake.name)
    assert lake.ingest().messages == 1
    assert lake.ingest().messages == 0
    last = read_bindings(lake.collection, lake.table)[-1]
    assert last.ends == {(f"{lake.name}#1", 0): 1}
    rows = {row["id"]: row for row in snapshot(spark, lake.collection, last.time).contents.collect()}
    assert set(rows) == {1, 2, 4}
    assert [tuple(header) for header in rows[1]["kafka_headers"]] == [("h", b"1"), ("h", None)]
    assert (rows[2]["kafka_partition"], rows[2]["kafka_offset"]) == (1, 0)
    assert not lake.validate(full=True).damaged


def wrapped(record: dict[str, Any]) -> dict[str, Any]:
    """A record as Kafka Connect's JSON converter writes it, with a schema around its key and its value."""
    return {
        name: None if part is None else {"schema": {"type": "struct"}, "payload": part} for name, part in record.items()
    }


def as_bytes(part: Any) -> bytes | None:
    """A key or a value as a broker gets it; a string is not changed."""
    return None if part is None else (part if isinstance(part, str) else json.dumps(part)).encode()


@pytest.mark.sweep
def test_upserts_from_a_broker_and_from_files_give_equal_tables(
    tmp_path: Path, spark: SparkSession, broker: Broker
) -> None:
    first, second = broker.create_topic(partitions=2), broker.create_topic()
    more = {"envelope": "upsert", "key": "id", "schema": ITEM, "topic": [first, second], "messages_per_tick_max": 10}
    files = RawLake(tmp_path / "files", spark, **more)
    kafka = KafkaLake(tmp_path / "kafka", spark, broker, {**RAW, **more})
    dear = {"key": {"id": 7}, "value": {"id": 7, "price": "dear"}}
    other, cut = {"key": {"id": 8}, "value": {"id": 5}}, {"key": {"id": 4}, "value": "{"}
    history: dict[tuple[str, int], list[dict[str, Any]]] = {
        (first, 0): [item(1, 10), item(1, 11), gone(9), {"key": None, "value": {"id": 4}}, item(7, 70)],
        (first, 1): [dear, wrapped(item(11, 110)), wrapped(item(12, 120)), wrapped(gone(12)), wrapped(item(1, 12))],
        (second, 0): [item(2, 20), other, {"key": {"id": "x"}, "value": None}, cut, wrapped(gone(2))],
    }
    for (topic, partition), records in history.items():
        files.put(*records, topic=topic, partition=partition)
        broker.produce(
            topic, [Record(as_bytes(record["value"]), as_bytes(record["key"]), partition) for record in records]
        )
    for lake in (files, kafka):
        assert lake.ingest().ticks == 2
        times = read_bindings(lake.collection, lake.table)
        assert times[0].ends == {(first, 0): 3, (first, 1): 2, (second, 0): 5}
        assert times[-1].ends == {(first, 0): 5, (first, 1): 5, (second, 0): 5}
        shown = [snapshot(spark, lake.collection, at.time, skip_errors=True).contents.collect() for at in times]
        assert [prices([row.asDict() for row in rows]) for rows in shown] == [
            {1: 11, 11: 110},
            {1: 12, 7: 70, 11: 110},
        ]
        assert [(row["topic"], row["offset"], row["reason"]) for row in quarantine_rows(lake.collection)] == sorted(
            [(first, 3, "null_key"), (second, 2, "wrong_type")]
        )
        assert status_of(lake).keys_in_error_first == [
            f'{{"id":4}}: the value cannot be used: undecodable ({second}:0:3)',
            f'{{"id":8}}: the value names a different key than its record ({second}:0:1)',
        ]
