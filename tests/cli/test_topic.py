"""Topics copied between a broker and files: every record stays unchanged and keeps its offset."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from typer.testing import CliRunner

from tests.services.kafka import WAIT_S, Broker, Record
from tests.services.object_store import ObjectStore
from tests.sweeps import swept
from tidelake.cli.app import app
from tidelake.errors import CopyRefused, TidelakeError
from tidelake.topic.files import FileTopic

pytestmark = pytest.mark.services

RECORDS = [
    Record(b'{"id": 1,  "a":1.10}', b'{"id":1}', 0, (("h", b"\xff"), ("h", None), ("g", b"{}")), 1_000),
    Record(None, b"key", 0, (), 2_000),
    Record(b"", b"", 1, (), 3_000),
    Record(b"\x00\x01\xff", None, 1, (), 4_000),
    Record(b'{"a":1,"a":2}', b'"text"', 1, (), 5_000),
    Record('{"a":\n "\u2028 ü"}'.encode(), b"{broken}", 1, (), 6_000),
]


@pytest.fixture
def config(tmp_path: Path, broker: Broker) -> Path:
    file = tmp_path / "collections.yaml"
    file.write_text(yaml.safe_dump({"kafka": {"bootstrap_servers": broker.bootstrap_servers}}), encoding="utf-8")
    return file


def call(config: Path, *arguments: str) -> dict[str, object]:
    result = CliRunner().invoke(app, ["topic", *arguments, "--config", str(config), "--json"])
    if isinstance(result.exception, TidelakeError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.output))


@pytest.mark.parametrize("form", swept(["parquet", "jsonl"], ["parquet"]))
def test_a_topic_restored_from_files_is_unchanged(tmp_path: Path, broker: Broker, config: Path, form: str) -> None:
    first, second = broker.create_topic(partitions=2), broker.create_topic(partitions=2)
    broker.produce(first, RECORDS)
    folder = tmp_path / "topics" / first
    assert call(config, "record", first, str(folder), "--format", form)["messages"] == len(RECORDS)
    assert FileTopic(folder).end_offsets() == {0: 2, 1: 4}
    assert call(config, "play", str(folder), second)["offsets"] == {"0": [0, 2], "1": [0, 4]}
    assert broker.consume(second) == broker.consume(first)
    assert call(config, "play", str(folder), second)["messages"] == 0
    if form == "jsonl":
        assert '"value": {"id": 1,  "a":1.10}' in (folder / "0.jsonl").read_text(encoding="utf-8")
        with pytest.raises(TidelakeError, match="its files never change"):
            call(config, "record", first, str(folder), "--format", form)
        return
    broker.produce(first, [Record(b"more", None, 1)])
    killed, at_work = folder / "_unfinished-0", folder / "_unfinished-1"
    for left in (killed, at_work):
        left.write_bytes(b"PAR1")
    os.utime(killed, (0, 0))
    assert call(config, "record", first, str(folder)) == {"messages": 1, "offsets": {"1": [4, 5]}}
    assert (killed.exists(), at_work.exists()) == (False, True), "the leftovers of a killed recording are deleted"
    assert call(config, "play", str(folder), second)["messages"] == 1
    assert broker.consume(second)[1][-1][1].value == b"more"
    broker.delete_topic(first)
    broker.create_topic(first, partitions=2)
    with pytest.raises(TidelakeError, match="an earlier topic"):
        call(config, "record", first, str(folder))


def test_a_record_that_is_too_long_for_a_line_is_reported_and_not_recorded(
    tmp_path: Path, broker: Broker, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, folder = broker.create_topic(partitions=1), tmp_path / "recorded"
    broker.produce(topic, [Record(b"short", None, 0), Record(b"long" * 100, None, 0)])
    monkeypatch.setattr("tidelake.topic.recording.LINE_BYTES_MAX", 200)
    with pytest.raises(CopyRefused, match=r"offset 1 of partition 0 needs a line of \d+ bytes, more than 200"):
        call(config, "record", topic, str(folder), "--format", "jsonl")
    assert list(folder.glob("*.jsonl")) == []
    assert call(config, "record", topic, str(folder))["messages"] == 2


def test_a_record_that_the_topic_refuses_is_reported_and_no_later_record_takes_its_offset(
    tmp_path: Path, broker: Broker, config: Path
) -> None:
    bytes_max = {"max.message.bytes": "2097152"}
    first, second = broker.create_topic(settings=bytes_max), broker.create_topic()
    broker.produce(first, [Record(b"a"), Record(b"x" * 2**20, b"k"), Record(b"b")], message_max_bytes=2**21)
    folder = tmp_path / "topics" / first
    assert call(config, "record", first, str(folder))["messages"] == 3
    refused = f"the record at offset 1 of partition 0, with 1048576 bytes, is larger than the topic '{second}' accepts"
    with pytest.raises(CopyRefused, match=f"{refused}\nhint: raise the topic's `max.message.bytes`"):
        call(config, "play", str(folder), second)
    assert [record.value for _, record in broker.consume(second)[0]] == [b"a"]
    resource = ConfigResource(ConfigResource.Type.TOPIC, second)
    for name, value in bytes_max.items():
        resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    broker.admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
    assert call(config, "play", str(folder), second) == {"messages": 2, "offsets": {"0": [1, 3]}}
    assert broker.consume(second) == broker.consume(first)


def test_offsets_without_a_record_are_not_a_gap_in_a_recording_and_records_are_renumbered_only_on_request(
    tmp_path: Path, broker: Broker, config: Path
) -> None:
    first, second = broker.create_topic(), broker.create_topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": first, "log_level": 0})
    producer.init_transactions(WAIT_S)
    for value in (b"a", b"b"):
        producer.begin_transaction()
        producer.produce(first, value, partition=0)
        producer.commit_transaction(WAIT_S)
    folder = tmp_path / "topics" / first
    assert call(config, "record", first, str(folder)) == {"messages": 2, "offsets": {"0": [0, 4]}}
    offsets, gaps = FileTopic(folder).plan({}, 100)
    assert (offsets.intervals, gaps) == ({0: (0, 4)}, [])
    with pytest.raises(TidelakeError, match="offset 1 of partition 0 has no record"):
        call(config, "record", first, str(tmp_path / "lines"), "--format", "jsonl")
    with pytest.raises(TidelakeError, match="the record at offset 2 of partition 0 would get the offset 1"):
        call(config, "play", str(folder), second)
    third = broker.create_topic()
    assert call(config, "play", str(folder), third, "--renumber")["messages"] == 2
    assert [(offset, record.value) for offset, record in broker.consume(third)[0]] == [(0, b"a"), (1, b"b")]
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "1.jsonl").write_text('{"offset": 0, "value": "x"}\n', encoding="utf-8")
    with pytest.raises(TidelakeError, match="has no partition 1"):
        call(config, "play", str(tmp_path / "two"), third)


@pytest.mark.sweep
def test_a_recording_in_s3_is_continued_and_played(broker: Broker, config: Path, object_store: ObjectStore) -> None:
    first, second = broker.create_topic(partitions=2), broker.create_topic(partitions=2)
    broker.produce(first, RECORDS)
    place = f"s3://{object_store.create_bucket()}/recorded/{first}"
    assert call(config, "record", first, place)["messages"] == len(RECORDS)
    broker.produce(first, [Record(b"more", None, 1)])
    assert call(config, "record", first, place) == {"messages": 1, "offsets": {"1": [4, 5]}}
    assert call(config, "play", place, second)["messages"] == len(RECORDS) + 1
    assert broker.consume(second) == broker.consume(first)
    with pytest.raises(TidelakeError, match="'gs://lake/a' is a URI with the scheme 'gs'"):
        call(config, "record", first, "gs://lake/a")
