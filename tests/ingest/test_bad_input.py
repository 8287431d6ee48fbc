"""Bad and unusual input in the whole pipeline: it ends up in the table or the quarantine, or an error names it."""

from __future__ import annotations

import base64
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession

from jobs import ingest
from tests.lakes.lake import NAME, RECORD, Lake, encode, progress, updates
from tidelake.errors import ConfigurationError, MalformedLine, MalformedTopic, SourceError, TopicGap
from tidelake.settings.lake import load_settings
from tidelake.store.decision import counts_in
from tidelake.store.failpoints import on_reach
from tidelake.store.state import UPPER
from tidelake.topic.lines import LINE_BYTES_MAX

pytestmark = pytest.mark.spark

GOOD = updates((1, 1, 1))


def row(time: int, diff: int, row_id: int = 1) -> dict[str, Any]:
    return {"data": {"id": row_id, "price": None}, "time": time, "diff": diff}


def counts(*entries: tuple[int, int]) -> list[dict[str, int]]:
    return [{"time": time, "count": count} for time, count in entries]


BAD: list[tuple[bytes, str]] = [
    (b"", "undecodable"),
    (b"\x07", "undecodable"),
    (GOOD[:-1], "undecodable"),
    (GOOD + b"\x00", "bytes_left_over"),
    (GOOD + b"left over bytes that are longer than any sentinel", "bytes_left_over"),
    (progress([0], [3]) + b"\x01", "bytes_left_over"),
    (progress([0], [3])[:-1], "undecodable"),
    (b"\x00" + GOOD, "bytes_left_over"),  # a framing header that was not stripped reads as an empty batch
    (bytes([0]) + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", "undecodable"),  # an absurd length
    (b"\x00\x02\x02\x02" + b"\xff" * 10 + b"\x01\x02\x00", "undecodable"),  # a varint beyond 64 bits
    (b"\x00\x02\x02\x00" + b"\x80" * 9 + b"\x02" + b"\x02\x00", "undecodable"),  # a time of 2^63
    (b"\x00\x02\x02\x00\x02" + b"\x82" + b"\x80" * 8 + b"\x02" + b"\x00", "undecodable"),  # a diff beyond int64
    (b"\x00\x02\x02\x02\x82\x80\x80\x80\x10\x02\x02\x00", "undecodable"),  # a price beyond int32
    (encode([row(1, 0)]), "zero_diff"),
    (encode([row(1, 1), row(-1, 1, 2)]), "negative_time"),
    (encode({"lower": [-1], "upper": [3], "counts": []}), "negative_time"),
    (encode({"lower": [3], "upper": [2], "counts": []}), "bad_interval"),
    (encode({"lower": [], "upper": [2], "counts": []}), "bad_interval"),
    (encode({"lower": [0], "upper": [9], "counts": counts((4, -1))}), "negative_count"),
    (encode({"lower": [2], "upper": [9], "counts": counts((1, 1))}), "count_outside_interval"),
    (encode({"lower": [2], "upper": [9], "counts": counts((9, 1))}), "count_outside_interval"),
    (encode({"lower": [2], "upper": [2], "counts": counts((2, 1))}), "count_outside_interval"),
    (encode({"lower": [0], "upper": [9], "counts": counts((4, 1), (4, 1))}), "duplicate_count"),
]


def test_each_bad_message_is_quarantined_with_its_place_and_reason_and_the_rest_is_read(lake: Lake) -> None:
    lake.send(*(value for value, _ in BAD), None, GOOD, progress([0], [5], {1: 1}))
    ingested = lake.ingest()
    assert lake.quarantined() == [(offset, reason) for offset, (_, reason) in enumerate(BAD)]
    assert (ingested.quarantined, ingested.null_records) == (len(BAD), 1)
    assert lake.seal().upper == 5
    assert lake.contents(4) == {(1, None): 1}
    from tidelake.store.quarantine import quarantine_rows

    refused = quarantine_rows(lake.collection)
    assert [message["value"] for message in refused] == [value for value, _ in BAD]
    assert {(message["topic"], message["partition"]) for message in refused} == {(NAME, 0)}
    assert refused[14]["times"] == [1, -1]


def test_empty_and_closed_intervals_and_zero_counts_are_not_errors(lake: Lake) -> None:
    lake.send(progress([3], [3]), encode({"lower": [], "upper": [], "counts": []}), progress([0], [4], {2: 0}))
    assert lake.ingest().quarantined == 0
    assert lake.seal().upper == 4


@pytest.mark.sweep
def test_confluent_framing_is_checked_before_the_body(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, encoding="confluent", schema_ids={7: RECORD, 2**32 - 1: RECORD})
    header = b"\x00" + (7).to_bytes(4, "big")
    lake.send(
        header + GOOD,
        b"\x00\xff\xff\xff\xff" + progress([0], [5], {1: 1}),
        b"\x00" + (8).to_bytes(4, "big") + GOOD,
        b"\x01" + (7).to_bytes(4, "big") + GOOD,
        b"\x00\x00",
        header,
        header + GOOD + b"x",
        header + progress([0], [5]) + b"x",
        b"\x00" + (9).to_bytes(4, "big") + progress([0], [5]),
        None,
    )
    assert lake.run().upper == 5
    assert lake.quarantined() == [
        (2, "unknown_schema_id"),
        (3, "wrong_magic_byte"),
        (4, "undecodable"),
        (5, "undecodable"),
        (6, "bytes_left_over"),
        (7, "bytes_left_over"),
        (8, "unknown_schema_id"),
    ]
    assert lake.contents(1) == {(1, None): 1}


def test_a_string_that_is_not_utf8_is_quarantined(tmp_path: Path, spark: SparkSession) -> None:
    record = {"type": "record", "name": "data", "fields": [{"name": "s", "type": ["null", "string", "long"]}]}
    lake = Lake(tmp_path, spark, schema=record)
    good = encode([{"data": {"s": "abc"}, "time": 1, "diff": 1}], record)
    lake.send(good, good.replace(b"abc", b"a\xffc"))
    lake.ingest()
    assert lake.quarantined() == [(1, "undecodable")]


def test_a_negative_diff_in_an_append_only_collection_holds_its_time_back(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, family="append_only")
    lake.send(updates((1, 1, 1)), updates((2, 2, 1), (3, 2, -1)), progress([0], [9], {1: 1, 2: 1, 4: 1}))
    lake.send(updates((4, 4, 1)))
    sealed = lake.run()
    assert sealed.upper == 2
    assert [(error.kind, error.time) for error in sealed.contradictions] == [("envelope_breach", 2)]
    assert lake.quarantined() == [(1, "append_only_diff")]
    lake.decide(time=2, count=1)
    assert lake.seal().upper == 9
    assert lake.contents(8) == {(1, None): 1, (2, None): 1, (4, None): 1}
    report = lake.validate()
    assert not report.damaged
    assert report.decided == 1


@pytest.mark.sweep
def test_a_contradiction_holds_its_time_back_until_a_decision(lake: Lake) -> None:
    lake.send(updates((1, 1, 1), (2, 3, 1), (2, 3, 2)), updates((4, 5, 1), (5, 5, 1)))
    lake.send(progress([0], [10], {1: 1, 3: 1, 5: 1, 7: 1}), progress([6], [8], {7: 2}))
    sealed = lake.run()
    assert sealed.upper == 3
    assert {(error.kind, error.time) for error in sealed.contradictions} == {
        ("conflicting_diff", 3),
        ("over_count", 5),
        ("conflicting_count", 7),
    }
    lake.decide(time=3, discard={"data": {"id": 2, "price": None}, "diff": 2})
    assert lake.seal().upper == 5
    assert lake.contents(4) == {(1, None): 1, (2, None): 1}
    lake.decide(time=5, count=2)
    assert lake.seal().upper == 7
    lake.decide(time=7, count=0)
    assert lake.seal().upper == 10
    assert lake.contents(9) == {(1, None): 1, (2, None): 1, (4, None): 1, (5, None): 1}
    assert not lake.validate(full=True).damaged


def test_only_the_newest_of_several_decided_counts_applies(lake: Lake) -> None:
    lake.send(updates((1, 1, 1), (2, 1, 1)), progress([0], [3], {1: 1}))
    assert lake.run().upper == 1
    for count in (2, 5, 2):
        lake.decide(time=1, count=count)
    assert {time: decision.count for time, decision in counts_in(lake.collection.entry.decisions).items()} == {1: 2}
    entry = lake.collection.entry
    assert len(entry.decisions) == 1
    lake.decide(time=1, count=7)
    assert lake.seal().upper == 1
    lake.catalog.withdraw(NAME, 1)
    assert lake.collection.entry.decisions == ()
    lake.decide(time=1, count=2)
    assert lake.seal().upper == 3


def test_the_note_about_a_conflict_shows_the_data(lake: Lake) -> None:
    from tidelake.store.proof_log import read_proof_log

    lake.send(updates(((1, None), 1, 1), ((1, None), 1, 2)), progress([0], [3], {1: 1}))
    lake.run()
    (note,) = read_proof_log(lake.collection).blocked
    assert note["detail"].endswith('; its data: {"id":1,"price":null}')


@pytest.mark.sweep
def test_copies_of_a_discarded_statement_are_discarded_whenever_they_arrive(lake: Lake) -> None:
    lake.send(updates((1, 1, 1), (2, 1, 1)))
    lake.run()
    lake.decide(time=1, discard={"data": {"id": 2, "price": None}, "diff": 1})
    lake.send(updates((2, 1, 1)), updates((2, 1, 1), (1, 1, 1)))
    lake.ingest()
    lake.send(updates((2, 1, 1)), progress([0], [2], {1: 1}))
    assert lake.run().upper == 2
    assert lake.contents(1) == {(1, None): 1}


def test_a_gap_is_reported_after_everything_before_it_is_read_and_is_passed_only_if_accepted(lake: Lake) -> None:
    lake.send(updates((1, 1, 1)))
    lake.send(progress([0], [2], {1: 1}), at=5)
    with pytest.raises(TopicGap) as caught:
        lake.ingest()
    gap = caught.value
    assert (gap.topic, gap.partition, gap.from_offset, gap.to_offset) == (NAME, 0, 1, 5)
    assert sum(file.rows for file in lake.table.files()) == 1
    lake.decide(accept_gap=(NAME, 0, 1, 5))
    assert lake.run().upper == 2


def test_a_topic_whose_first_offsets_or_files_are_missing_is_reported(lake: Lake) -> None:
    lake.send(updates((1, 1, 1)), at=3)
    with pytest.raises(TopicGap, match=r"(?s)0.*3"):
        lake.ingest()
    lake.send(updates((0, 0, 1)), updates((0, 0, 1)), updates((0, 0, 1)), at=0)
    assert lake.ingest().messages == 4
    (lake.topic / "0.jsonl").unlink()
    with pytest.raises(TopicGap) as caught:
        lake.ingest()
    assert (caught.value.from_offset, caught.value.to_offset) == (0, 4)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("0.jsonl", b'{"offset": 0, "value": "a"}\n{"offset": "one"}\n', "line 2: offset is 'one'"),
        ("0.jsonl", b"not json\n", "line 1"),
        ("0.jsonl", b'{"offset": 0, "value": "a", "value_b64": "YQ=="}\n', "both given"),
        ("0.jsonl", b'{"offset": 0, "value_b64": "!!"}\n', "line 1"),
        ("0.jsonl", b'{"offset": 0, "surprise": 1}\n', "the field 'surprise' is not known"),
        ("0.jsonl.gz", b"not gzip", "0.jsonl.gz"),
        ("a.parquet", b"PAR1 but not really", "is not a complete Parquet file"),
        ("notes.txt", b"hello", "is not a topic file"),
    ],
)
def test_an_invalid_topic_file_is_named_in_the_error(lake: Lake, name: str, content: bytes, message: str) -> None:
    (lake.topic / name).write_bytes(content)
    with pytest.raises(SourceError, match=message):
        lake.ingest()
    assert lake.table.version == 0


def test_a_pipe_and_an_endless_line_stop_only_their_own_collections(lake: Lake) -> None:
    document = yaml.safe_load(lake.file.read_text(encoding="utf-8"))
    for name in ("piped", "endless"):
        document["collections"][name] = {**document["collections"][NAME], "topic": name}
        (lake.root / "topics" / name).mkdir()
    os.mkfifo(lake.root / "topics" / "piped" / "0.jsonl")
    piece = gzip.compress(b"a" * 2**23)
    (lake.root / "topics" / "endless" / "0.jsonl.gz").write_bytes(piece * (LINE_BYTES_MAX // 2**23 + 1))
    lake.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    lake.send(GOOD)
    report = ingest.run(lake.spark, load_settings(lake.file))
    assert {name: type(error) for name, error in report.errors.items()} == {
        "piped": MalformedTopic,
        "endless": MalformedLine,
    }
    assert report.results[NAME].messages == 1


def test_parquet_with_a_column_of_the_wrong_type_is_refused_and_the_column_is_named(lake: Lake) -> None:
    strings = pa.table({"value": ["text"], "partition": pa.array([0], pa.int32()), "offset": [0]})
    pq.write_table(strings, lake.topic / "a.parquet")
    with pytest.raises(SourceError, match="column 'value' is string, not binary"):
        lake.ingest()


def test_one_topic_may_mix_parquet_with_plain_and_compressed_lines(lake: Lake) -> None:
    values = [updates((1, 1, 1)), progress([0], [2], {1: 1})]
    pq.write_table(
        pa.table(
            {
                "key": pa.array([None, b"k"], pa.binary()),
                "value": pa.array(values, pa.binary()),
                "topic": [NAME, NAME],
                "partition": pa.array([0, 0], pa.int32()),
                "offset": pa.array([0, 1], pa.int64()),
                "timestamp": pa.array([0, 1], pa.timestamp("us", "UTC")),
            }
        ),
        lake.topic / "part-0.parquet",
    )
    line = {"offset": 0, "value_b64": base64.b64encode(updates((7, 3, 1))).decode()}
    (lake.topic / "1.jsonl.gz").write_bytes(gzip.compress(json.dumps(line).encode()))
    assert lake.run().upper == 2
    lake.send(progress([2], [4], {3: 1}), at=2)
    (lake.topic / "_not_yet.parquet").write_bytes(b"")
    assert lake.run().upper == 4
    assert lake.contents(3) == {(1, None): 1, (7, None): 1}


@pytest.mark.sweep
def test_ticks_are_bounded_and_shared_among_partitions(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, messages_per_tick_max=4)
    for partition in range(3):
        lake.send(*(updates((row_id, partition, 1)) for row_id in range(3)), partition=partition, at=0)
    assert lake.ingest().ticks == 3
    lake.send(progress([0], [3], dict.fromkeys(range(3), 3)), at=3)
    assert lake.run().upper == 3


def test_a_run_ends_even_if_messages_keep_arriving(lake: Lake) -> None:
    def send_another(place: str) -> None:
        if place == "ingest.after_commit":
            assert lake.offset < 5
            lake.send(updates((lake.offset, 1, 1)))

    lake.send(updates((0, 1, 1)))
    on_reach(send_another)
    try:
        assert [lake.ingest().messages for _ in range(3)] == [1, 1, 1]
    finally:
        on_reach(None)


@pytest.mark.parametrize(
    ("field", "schema", "reason"),
    [
        ("attributes", {"type": "map", "values": "string"}, "map"),
        ("at", {"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp"),
        ("_time", "long", "start with _"),
        ("nothing", "null", "null"),
        ("d", {"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 0}, "38"),
    ],
)
def test_a_column_that_cannot_be_stored_is_refused_and_named_before_anything_is_written(
    tmp_path: Path, spark: SparkSession, field: str, schema: Any, reason: str
) -> None:
    record = {"type": "record", "name": "data", "fields": [{"name": field, "type": schema}]}
    with pytest.raises(ConfigurationError, match=rf"(?s){field}.*{reason}"):
        Lake(tmp_path, spark, schema=record)
    assert not (tmp_path / "store").exists()


def test_a_missing_topic_is_refused_before_anything_is_written(lake: Lake) -> None:
    lake.topic.rmdir()
    with pytest.raises(ConfigurationError, match=r"collections.prices.topic: the topic 'prices' has no folder"):
        ingest.run(lake.spark, lake.settings)
    assert not lake.store_folder.exists()


def test_the_family_and_the_schema_of_a_collection_are_fixed(tmp_path: Path, spark: SparkSession) -> None:
    Lake(tmp_path, spark).ingest()
    with pytest.raises(ConfigurationError, match="created with the envelope 'none'"):
        Lake(tmp_path, spark, family="append_only").ingest()
    other = {"type": "record", "name": "data", "fields": [{"name": "other", "type": "int"}]}
    with pytest.raises(ConfigurationError, match="the collection has a different schema"):
        Lake(tmp_path, spark, schema=other).ingest()


def test_nested_nulls_empty_strings_and_a_mebibyte_are_stored(tmp_path: Path, spark: SparkSession) -> None:
    inner = {"type": "record", "name": "inner", "fields": [{"name": "s", "type": ["null", "string"]}]}
    record = {
        "type": "record",
        "name": "data",
        "fields": [
            {"name": "list", "type": {"type": "array", "items": ["null", inner]}},
            {"name": "b", "type": "bytes"},
        ],
    }
    lake = Lake(tmp_path, spark, schema=record)
    big = bytes(range(256)) * 4096
    data = [{"list": [None, {"s": None}, {"s": ""}], "b": big}, {"list": [], "b": b""}]
    lake.send(encode([{"data": value, "time": 1, "diff": 1} for value in data], record))
    lake.send(encode({"lower": [0], "upper": [2], "counts": counts((1, 2))}, record))
    assert lake.run().upper == 2
    from tidelake.read.snapshot import snapshot

    rows = {len(row["b"]): row for row in snapshot(spark, lake.collection, 1).contents.collect()}
    assert bytes(rows[len(big)]["b"]) == big
    assert [None if item is None else item["s"] for item in rows[len(big)]["list"]] == [None, None, ""]
    assert rows[len(big)]["list"][0] is None
    assert rows[0]["list"] == []
    assert lake.table.value(UPPER) == 2
