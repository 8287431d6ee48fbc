"""`trace` says what became of each message, for every pitfall of the protocol and every family."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tidelake
from tests.lakes.change_events import EVENT, events
from tests.lakes.change_events import progress as event_progress
from tests.lakes.changes import Changes
from tests.lakes.every_type import ALL, everything
from tests.lakes.lake import NAME, RECORD, Lake, progress, updates
from tests.lakes.raw_lake import RawLake
from tests.lakes.upserts import ITEM, gone, item
from tidelake.codec.avro import AvroCodec
from tidelake.errors import TopicGap, UnknownTopic
from tidelake.protocol.message import Progress, Updates
from tidelake.read.fates import Fate
from tidelake.validate.late import compare_late


def fate_of(lake: Lake, offset: int, partition: int = 0, topic: str = NAME) -> Fate:
    """The fate of a message for which `trace` finds only one."""
    (fate,) = tidelake.open_lake(lake.file).collection(NAME).trace(topic, partition, offset)
    return fate


def statements_of(lake: Lake, offset: int) -> list[tuple[int, int, str]]:
    """The time, the diff and the fate of each statement of a message."""
    return [(statement.time, statement.diff, statement.fate) for statement in fate_of(lake, offset).statements]


# --- the pitfalls of CDCv2 -------------------------------------------------------------------------------------------

PITFALLS = [
    updates((1, 1, 1), (1, 1, 1)),  # 0: a copy inside one message
    updates((1, 1, 1)),  # 1: a redundant writer
    progress([0], [3], {1: 1, 2: 1}),  # 2
    updates((2, 2, 1)),  # 3
    progress([1], [4], {1: 1, 2: 1, 3: 1}),  # 4: overlaps the previous statement
    updates((3, 3, 1)),  # 5
    updates(((9, 9), 5, 1), ((9, 9), 5, 2)),  # 6: two diffs for one update
    progress([4], [6], {5: 1}),  # 7
    progress([9], [10], {9: 1}),  # 8: ahead of the frontier
    updates((1, -1, 1)),  # 9: a negative time
    updates((1, 7, 0)),  # 10: a diff of 0
    None,  # 11
    b"\x07 garbage",  # 12
    updates((6, 6, 1), (7, 6, 1)),  # 13: one more than announced
    progress([6], [7], {6: 1}),  # 14
    progress([7], [8], {7: 1}),  # 15
    progress([7], [8], {7: 2}),  # 16: two counts for one time
    progress([7], [3]),  # 17: its end comes before its beginning
    progress([8], [8]),  # 18: covers no time
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("pitfalls"), spark)
    lake.send(*PITFALLS)
    assert lake.run().upper == 5
    return lake


@pytest.mark.spark
def test_a_copy_inside_one_message_and_one_of_a_redundant_writer_have_no_effect_of_their_own(prepared: Lake) -> None:
    assert statements_of(prepared, 0) == [(1, 1, "published"), (1, 1, "copy")]
    assert fate_of(prepared, 0).statements[1].detail == "a copy of statement 1 of this message"
    assert fate_of(prepared, 0).statements[0].data == {"id": 1, "price": None}
    assert statements_of(prepared, 1) == [(1, 1, "published")]
    assert fate_of(prepared, 0).summary == "read: updates (1 published, 1 copy)"
    assert not fate_of(prepared, 0).needs_somebody


@pytest.mark.spark
def test_statements_that_overlap_announce_the_same_counts(prepared: Lake) -> None:
    for offset, times in ((2, [1, 2]), (4, [1, 2, 3])):
        fate = fate_of(prepared, offset)
        assert (fate.kind, [(count.time, count.count, count.fate) for count in fate.counts]) == (
            "progress",
            [(time, 1, "sealed") for time in times],
        )
        assert fate.summary.endswith("all of them are sealed")
        assert fate.counts[0].detail == "sealed with 1 update"


@pytest.mark.spark
def test_a_statement_ahead_of_the_frontier_waits(prepared: Lake) -> None:
    fate = fate_of(prepared, 8)
    assert "[9, 10); it is waiting: upper is 5, and the times before 9 have to be sealed first" in fate.summary
    assert [(count.time, count.count, count.fate) for count in fate.counts] == [(9, 1, "pending")]
    assert not fate.needs_somebody


@pytest.mark.spark
@pytest.mark.parametrize("offset", [6, 13, 14, 15, 16])
def test_a_time_with_a_contradiction_needs_a_decision_whichever_of_its_messages_is_traced(
    prepared: Lake, offset: int
) -> None:
    time = {6: 5, 13: 6, 14: 6, 15: 7, 16: 7}[offset]
    fact = {5: "conflicting_diff", 6: "over_count", 7: "conflicting_count"}[time]
    fate = fate_of(prepared, offset)
    assert list(fate.todo()) == [f"decide about time {time}"]
    parts: list[Any] = [*fate.statements, *fate.counts]
    assert all(f"the time is held back: {fact}" in part.detail for part in parts)
    assert {part.fate for part in parts} == ({"stored"} if fate.statements else {"contradicted"})


@pytest.mark.spark
def test_two_diffs_for_one_update_are_reported_and_a_discard_leaves_one(prepared: Lake, tmp_path: Path) -> None:
    first, second = fate_of(prepared, 6).statements
    assert "the same update is stated with diff 2 as well" in first.detail
    assert "the same update is stated with diff 1 as well" in second.detail
    lake = prepared.copy(tmp_path / "decided")
    lake.decide("a typo", time=5, discard={"data": {"id": 9, "price": 9}, "diff": 2})
    assert statements_of(lake, 6) == [(5, 1, "stored"), (5, 2, "discarded")]
    assert not fate_of(lake, 6).needs_somebody
    lake.decide("both are right", time=6, count=2)
    lake.decide("none came", time=7, count=0)
    assert lake.seal().upper == 8
    assert statements_of(lake, 6) == [(5, 1, "published"), (5, 2, "discarded")]
    assert fate_of(lake, 6).statements[1].detail == "has no effect, by decision: a typo"
    assert [(count.time, count.count, count.fate, count.detail) for count in fate_of(lake, 14).counts] == [
        (6, 1, "sealed", "sealed with 2 updates, by decision: both are right")
    ]
    assert not fate_of(lake, 16).needs_somebody


@pytest.mark.spark
@pytest.mark.parametrize(
    ("offset", "reason"), [(9, "negative_time"), (10, "zero_diff"), (12, "undecodable"), (17, "bad_interval")]
)
def test_a_message_that_breaks_a_rule_is_quarantined_until_it_is_explained(
    prepared: Lake, tmp_path: Path, offset: int, reason: str
) -> None:
    fate = fate_of(prepared, offset)
    assert (fate.kind, fate.facts["reason"]) == ("quarantined", reason)
    assert any(f"tidelake resolve quarantine prices --offsets prices:0:{offset}" in needed for needed in fate.todo())
    lake = prepared.copy(tmp_path / "explained")
    lake.decide("a test message", quarantined=(NAME, 0, offset, offset + 1))
    explained = fate_of(lake, offset)
    assert explained.summary.endswith("; explained by decision: a test message")
    assert not explained.needs_somebody


@pytest.mark.spark
def test_a_null_record_and_a_statement_about_no_time_mean_nothing(prepared: Lake) -> None:
    assert (fate_of(prepared, 11).kind, fate_of(prepared, 11).needs_somebody) == ("null", False)
    assert fate_of(prepared, 18).summary == "read: a progress statement that covers no time"


@pytest.mark.spark
def test_late_facts_have_the_verdict_of_the_next_validation(
    prepared: Lake, tmp_path: Path, spark: SparkSession
) -> None:
    lake = prepared.copy(tmp_path / "late")
    lake.send(updates((1, 1, 1), ((2, 9), 2, 1), (4, 9, 1)), progress([1], [2], {1: 4}))
    lake.run()
    assert statements_of(lake, 19) == [(1, 1, "late"), (2, 1, "late"), (9, 1, "stored")]
    assert "the next validation compares the statement" in fate_of(lake, 19).statements[0].detail
    compare_late(spark, lake.collection)
    copied, contradicting, open_statement = fate_of(lake, 19).statements
    assert (copied.detail, copied.needs) == (
        "time 1 was already sealed; the statement is a copy of what was published",
        None,
    )
    assert contradicting.detail == (
        "time 2 was already sealed; the statement contradicts what was published, which lacks this update"
    )
    assert contradicting.needs == "decide about a late fact: `tidelake late prices` shows it"
    assert (open_statement.fate, open_statement.detail) == ("stored", "time 9 is not sealed yet")
    (count,) = fate_of(lake, 20).counts
    assert (count.fate, count.detail) == ("contradicted", "time 1 was already sealed with 1 update")
    assert fate_of(lake, 20).needs_somebody

    lake.decide("not ours", time=2, discard={"data": {"id": 2, "price": 9}, "diff": 1})
    lake.decide("one is right", time=1, count=1)
    assert fate_of(lake, 19).statements[1].detail.endswith("which lacks this update; settled by decision: not ours")
    assert fate_of(lake, 20).counts[0].detail.endswith("settled by decision: one is right")
    assert not fate_of(lake, 19).needs_somebody
    assert not fate_of(lake, 20).needs_somebody

    lake.send(updates((4, 9, 1)))
    lake.ingest()
    assert "the table has the statement 2 times, and seal counts it once" in fate_of(lake, 21).statements[0].detail


@pytest.mark.spark
def test_a_late_count_of_zero_by_omission_is_contradicted(prepared: Lake, tmp_path: Path) -> None:
    lake = prepared.copy(tmp_path / "omitted")
    lake.send(progress([2], [4], {3: 1}))
    lake.run()
    assert [(count.time, count.count, count.fate) for count in fate_of(lake, 19).counts] == [
        (2, 0, "contradicted"),
        (3, 1, "sealed"),
    ]


@pytest.mark.spark
def test_the_tick_that_read_a_message_is_known_as_long_as_the_log_has_it(prepared: Lake, tmp_path: Path) -> None:
    lake = prepared.copy(tmp_path / "ticks")
    lake.send(updates((4, 9, 1)))
    lake.ingest()
    first, later = fate_of(lake, 0).facts, fate_of(lake, 19).facts
    assert (first["version"], later["version"]) == (1, lake.table.version)
    assert first["at_ms"] < later["at_ms"]


# --- messages that were not read, or are gone ------------------------------------------------------------------------


@pytest.mark.spark
def test_a_message_that_was_not_read_waits_for_ingest_or_for_its_offset_to_exist(
    prepared: Lake, tmp_path: Path
) -> None:
    lake = prepared.copy(tmp_path / "behind")
    lake.send(updates((4, 9, 1)), updates((5, 9, 1)))
    assert fate_of(lake, 19).summary == "not read yet: the next ingest begins with this message"
    assert "the next ingest begins at offset 19, 1 offset before this message" in fate_of(lake, 20).summary
    assert "the topic has no such message yet; it ends at 21" in fate_of(lake, 21).summary
    assert fate_of(lake, 0, partition=3).summary == "not read: the topic has no such partition; it has 0"
    assert not any(fate_of(lake, offset).needs_somebody for offset in (19, 20, 21))


@pytest.mark.spark
def test_a_gap_before_a_message_needs_attention_and_an_accepted_gap_skips_its_offsets(
    prepared: Lake, tmp_path: Path
) -> None:
    lake = prepared.copy(tmp_path / "gap")
    lake.send(updates((4, 9, 1)), at=25)
    with pytest.raises(TopicGap):
        lake.ingest()
    for offset in (20, 25):
        fate = fate_of(lake, offset)
        assert (fate.kind, fate.facts["next_offset"], fate.needs_somebody) == ("not_read", 19, True)
        assert "ingest stops at a gap:" in fate.summary
        assert "offsets 19 to 24 are missing" in fate.summary
    lake.decide("lost in the move", accept_gap=(NAME, 0, 19, 25))
    assert fate_of(lake, 20).summary == "not read yet: the next ingest skips it, by decision: lost in the move"
    assert fate_of(lake, 25).summary == "not read yet: the next ingest begins with this message"
    lake.ingest()
    skipped = fate_of(lake, 20)
    assert (skipped.kind, skipped.needs_somebody) == ("skipped", False)
    assert skipped.summary == "skipped: the offsets prices:0:19-25 were given up, by decision: lost in the move"
    assert statements_of(lake, 25) == [(9, 1, "stored")]
    lake.send(updates((77, 9, 1)), at=20)
    assert fate_of(lake, 20).kind == "skipped"
    assert fate_of(lake, 20).summary.endswith("; the topic has this message again, but ingest had already skipped it")


@pytest.mark.spark
@pytest.mark.sweep
def test_a_message_that_the_topic_no_longer_has_is_explained_by_the_small_tables_as_far_as_they_go(
    prepared: Lake, tmp_path: Path, spark: SparkSession
) -> None:
    lake = prepared.copy(tmp_path / "retention")
    lake.send(updates((1, 1, 1)))
    lake.run()
    compare_late(spark, lake.collection)
    (lake.topic / "0.jsonl").write_text("", encoding="utf-8")
    gone_from_the_topic = "the topic no longer has a message at this offset"
    accepted, pending, late, bad = (fate_of(lake, offset) for offset in (0, 8, 19, 12))
    assert (accepted.kind, accepted.unknown) == ("read", f"what it states: {gone_from_the_topic}")
    assert [(count.time, count.fate) for count in pending.counts] == [(9, "pending")]
    assert [(statement.time, statement.fate) for statement in late.statements] == [(1, "late")]
    assert late.unknown == f"whether it had more statements: {gone_from_the_topic}"
    assert (bad.kind, bad.needs_somebody) == ("quarantined", True)
    assert not any(fate.needs_somebody for fate in (accepted, pending, late))
    (lake.topic / "0.jsonl").unlink()
    lake.topic.rmdir()
    unreadable = f"the topic cannot be read: the topic 'prices' has no folder {lake.topic}"
    assert fate_of(lake, 0).unknown == f"what it states: {unreadable}"
    assert fate_of(lake, 99).needs_somebody


@pytest.mark.spark
def test_a_message_that_was_replaced_in_its_topic_is_missing_from_the_table(prepared: Lake, tmp_path: Path) -> None:
    lake = prepared.copy(tmp_path / "replaced")
    (lake.topic / "0.jsonl").unlink()
    lake.send(updates((55, 1, 1), ((9, 9), 5, 3)), at=0)
    sealed, still_open = fate_of(lake, 0).statements
    assert (sealed.fate, sealed.detail) == ("missing", "the table does not have it")
    assert (still_open.fate, still_open.detail) == ("missing", "the table has this update with diff 1, 2")
    assert fate_of(lake, 0).needs_somebody


@pytest.mark.spark
@pytest.mark.sweep
def test_times_that_compaction_has_merged_cannot_be_told_apart(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, keep=1)
    lake.send(*(updates((time, time, 1)) for time in range(1, 5)), progress([0], [5], dict.fromkeys(range(1, 5), 1)))
    lake.run()
    lake.compact()
    assert [statements_of(lake, offset)[0][2] for offset in range(4)] == ["merged", "merged", "merged", "merged"]
    lake.send(updates((5, 5, 1)), progress([5], [6], {5: 1}))
    lake.run()
    assert statements_of(lake, 5) == [(5, 1, "published")]


# --- collections and topics ------------------------------------------------------------------------------------------


def test_a_topic_that_no_collection_reads_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    blocks = {name: {"family": "plain", "topic": topic, "schema": RECORD} for name, topic in
              [("sales", "orders"), ("visitors", "visits")]}  # fmt: skip
    (tmp_path / "collections.yaml").write_text(json.dumps({"collections": blocks}), encoding="utf-8")
    lake = tidelake.open_lake(tmp_path / "collections.yaml")
    with pytest.raises(UnknownTopic, match=r"did you mean 'orders'\? These topics are read: orders, visits"):
        lake.trace("order", 0, 0)
    other = r"^'sales' does not read the topic 'visits'\nhint: 'sales' reads these topics: orders; `Lake\.trace` asks"
    with pytest.raises(UnknownTopic, match=other):
        lake.collection("sales").trace("visits", 0, 0)


def test_the_first_ingest_stops_at_a_gap_at_the_beginning_of_a_topic(tmp_path: Path) -> None:
    lake = Lake(tmp_path, None)  # type: ignore[arg-type]  # no job runs
    lake.send(updates((1, 1, 1)), at=5)
    for offset in (2, 5):
        fate = fate_of(lake, offset)
        assert (fate.kind, fate.needs_somebody) == ("not_read", True)
        assert "ingest stops at a gap: topic 'prices', partition 0: offsets 0 to 4 are missing" in fate.summary


@pytest.mark.spark
def test_every_collection_that_reads_the_topic_answers_even_one_that_was_never_ingested(
    prepared: Lake, tmp_path: Path
) -> None:
    lake = prepared.copy(tmp_path / "two")
    document = json.loads(json.dumps({"store": "store", "topics": "topics", "data_docs": "docs"}))
    block = {"family": "plain", "topic": NAME, "schema": RECORD}
    document["collections"] = {NAME: block, "again": block, "other": {**block, "topic": "other"}}
    lake.file.write_text(json.dumps(document), encoding="utf-8")
    found = tidelake.open_lake(lake.file).trace(NAME, 0, 3)
    assert list(found) == [NAME, "again"]
    (mine,), (fresh,) = found[NAME], found["again"]  # type: ignore[misc]
    assert (mine.kind, fresh.kind) == ("updates", "not_read")
    assert fresh.summary == (
        "not read yet: the next ingest begins at offset 0, 3 offsets before this message; "
        "the collection was never ingested"
    )


@pytest.mark.spark
def test_a_topic_that_was_accepted_again_answers_under_each_of_its_names(prepared: Lake, tmp_path: Path) -> None:
    lake = prepared.copy(tmp_path / "accepted")
    lake.table.commit({f"offset/{NAME}#1/0": 30, f"partitions/{NAME}#1": 1}, epoch=0)
    lake.decide("truncated", accept_topic=(NAME, 0, {0: 10}))

    def names(offset: int, topic: str = NAME) -> list[tuple[str, str]]:
        fates = tidelake.open_lake(lake.file).collection(NAME).trace(topic, 0, offset)
        return [(fate.topic, fate.kind) for fate in fates]

    assert names(3) == [("prices", "updates")]  # the new name begins at 10
    assert names(11) == [
        ("prices", "read"),
        ("prices#1", "null"),
    ]  # the message there now belongs to the new name
    assert names(25) == [("prices#1", "read")]
    assert names(40) == [("prices#1", "not_read")]
    assert names(3, "prices#1") == [("prices#1", "never_read")]
    fates = tidelake.open_lake(lake.file).collection(NAME).trace(NAME, 0, 11)
    assert fates[0].unknown == "what it states: the topic has since been accepted again, and now has different messages"


@pytest.mark.spark
def test_a_trace_does_not_start_a_jvm(prepared: Lake) -> None:
    code = f"""
import sys, tidelake
lake = tidelake.open_lake({str(prepared.file)!r})
assert [fate.kind for fate in lake.trace({NAME!r}, 0, 6)[{NAME!r}]] == ["updates"]
assert lake.trace({NAME!r}, 0, 4) and lake.trace({NAME!r}, 0, 12) and lake.trace({NAME!r}, 0, 99)
assert "pyspark" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# --- families --------------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.sweep
def test_statements_of_every_type_are_found_in_the_table_with_any_writer_and_framing(
    tmp_path: Path, spark: SparkSession
) -> None:
    reordered = {**ALL, "fields": ALL["fields"][:10][::-1] + ALL["fields"][10:]}
    lake = Lake(tmp_path, spark, schema=ALL, encoding="confluent", schema_ids={1: ALL, 2: reordered})
    several = {"list": [], "several": {"place": {"city": "x"}}, "two": {"double": 0.5}, "again": "red"}
    rows = [
        everything(),
        everything(d=float("nan"), f=-0.0, us=2**63 - 1, day=2**31 - 1, dec=b"\x00", ms=-1),
        everything(i=7, l=-1, s="", place=None, home={"city": "y"}, dec=b"\xff\xff", **several),
    ]
    messages = [Updates([(row, time, 1) for row in rows]) for time in (1, 2)]
    for schema_id, (schema, message) in enumerate(zip((ALL, reordered), messages, strict=True), start=1):
        lake.send(b"\x00" + schema_id.to_bytes(4, "big") + AvroCodec(schema).encode(message))
    lake.ingest()
    for offset in (0, 1):
        assert statements_of(lake, offset) == [(offset + 1, 1, "stored")] * 3
    done = Progress([0], [3], [(1, 3), (2, 3)])
    lake.send(b"\x00" + (1).to_bytes(4, "big") + AvroCodec(ALL).encode(done))
    assert lake.run().upper == 3
    for offset in (0, 1):
        assert statements_of(lake, offset) == [(offset + 1, 1, "published")] * 3
    assert fate_of(lake, 1).statements[0].data["ms"] == 1_700_000_000_123


@pytest.mark.spark
@pytest.mark.sweep
def test_a_message_whose_schema_is_no_longer_known_is_read_and_its_statements_are_unknown(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Lake(tmp_path, spark, encoding="confluent", schema_ids={1: RECORD})
    lake.send(b"\x00\x00\x00\x00\x01" + updates((1, 1, 1)))
    lake.ingest()
    assert statements_of(lake, 0) == [(1, 1, "stored")]
    forgetful = Lake(tmp_path, spark, encoding="confluent", schema_ids={2: RECORD})
    fate = fate_of(forgetful, 0)
    assert (fate.kind, fate.needs_somebody) == ("read", True)
    assert fate.unknown is not None
    assert "unknown_schema_id: schema id 1 is not known" in fate.unknown


@pytest.mark.spark
@pytest.mark.sweep
def test_a_negative_diff_in_an_append_only_collection_is_quarantined_with_its_times(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Lake(tmp_path, spark, "append_only")
    lake.send(updates((1, 1, 1)), updates((1, 2, -1), (2, 2, 1)), progress([0], [3], {1: 1, 2: 2}))
    assert lake.run().upper == 2
    assert statements_of(lake, 0) == [(1, 1, "published")]
    fate = fate_of(lake, 1)
    assert (fate.kind, fate.facts["reason"], fate.facts["times"]) == ("quarantined", "append_only_diff", [2])
    assert next(fate.todo()).startswith("have the source send the statements again, or decide about the times 2;")


@pytest.mark.spark
def test_an_upsert_is_published_until_a_later_statement_of_its_key_is_merged_with_it(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Lake(tmp_path, spark, "upsert", key="id", keep=1)
    lake.send(updates(((1, 5), 1, 1), ((2, 5), 1, 1)), updates(((1, 6), 2, 1), ((1, 5), 2, -1)))
    lake.send(progress([0], [4], {1: 2, 2: 2}))
    assert lake.run().upper == 4
    assert statements_of(lake, 0) == [(1, 1, "published"), (1, 1, "published")]
    lake.compact()
    assert statements_of(lake, 0) == [(1, 1, "merged"), (1, 1, "published")]
    assert statements_of(lake, 1) == [(2, 1, "published"), (2, -1, "merged")]


@pytest.mark.spark
@pytest.mark.sweep
def test_change_events_over_cdcv2_are_found_by_both_of_their_rows(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, "debezium", key="id", schema=EVENT)
    lake.send(events((None, (1, 5), 1)), events(((1, 5), (1, 6), 2), ((1, 5), (1, 6), 2)), events(((1, 6), None, 3)))
    lake.send(event_progress([0], [3], {1: 1, 2: 1}))
    assert lake.run().upper == 3
    assert [statements_of(lake, offset) for offset in range(3)] == [
        [(1, 1, "published")],
        [(2, 1, "published"), (2, 1, "copy")],
        [(3, 1, "stored")],
    ]
    assert fate_of(lake, 1).statements[0].data["before"] == {"id": 1, "price": 5}


@pytest.mark.spark
def test_a_record_of_a_reclocked_topic_has_the_time_whose_binding_covers_it(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = RawLake(tmp_path, spark)
    lake.put({"id": 1, "page": "a"}, "nonsense", None)
    lake.put({"id": 2, "page": "b"}, partition=1)
    lake.ingest()
    lake.put({"id": 3, "page": "c"})
    lake.ingest()
    first, second = lake.times
    for partition, offset, binding in ((0, 0, first), (1, 0, first), (0, 3, second)):
        fate = fate_of(lake, offset, partition)
        assert (fate.kind, fate.facts["time"], fate.facts["rows"]) == ("record", binding.time, binding.rows)
        assert (fate.facts["at_ms"], fate.summary) == (
            binding.at_ms,
            f"read at time {binding.time}: it is a row of that time",
        )
    for offset, reason in ((1, "undecodable"), (2, "null_value")):
        fate = fate_of(lake, offset)
        assert (fate.kind, fate.facts["reason"], fate.facts["time"]) == ("quarantined", reason, first.time)
    (lake.topic / "0.jsonl").write_text("", encoding="utf-8")
    gone_from_the_topic = fate_of(lake, 0)
    assert (gone_from_the_topic.summary, gone_from_the_topic.needs_somebody) == (f"read at time {first.time}", False)
    assert gone_from_the_topic.unknown == "what was in it: the topic no longer has a message at this offset"


@pytest.mark.spark
@pytest.mark.sweep
def test_an_upsert_record_sets_or_deletes_its_key_or_puts_it_in_error_unless_a_later_one_took_its_place(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = RawLake(tmp_path, spark, envelope="upsert", key="id", schema=ITEM)
    bad = {"value_b64": "AAA=", "key": {"id": 3}}
    lake.put(item(1, 5), item(1, 6), item(2, 5), bad, {"key": "?", "value": {"id": 4, "price": 1}})
    lake.ingest()
    at = f"read at time {lake.times[0].time}"
    assert fate_of(lake, 0).summary == f"{at}: a later record of its key in the same tick took its place"
    assert fate_of(lake, 1).summary == f'{at}: sets {{"id": 1}}'
    assert fate_of(lake, 4).kind == "quarantined"
    error = fate_of(lake, 3)
    assert error.summary.startswith(f'{at}: puts {{"id": 3}} in error: the value cannot be used: undecodable')
    assert list(error.todo()) == ['send a later good value, or a delete, for the key {"id": 3}']
    lake.put(gone(2), item(3, 7))
    lake.ingest()
    assert fate_of(lake, 5).summary == f'read at time {lake.times[1].time}: deletes {{"id": 2}}'
    assert fate_of(lake, 5).kind == "null"
    cleared = fate_of(lake, 3)
    assert cleared.summary.endswith("; a later record has cleared the error")
    assert not cleared.needs_somebody
    lake.configure(keep=0)
    lake.compact()
    assert fate_of(lake, 1).summary == f'{at}: sets {{"id": 1}}'
    assert "a merge has since dropped its row" in fate_of(lake, 2).summary


@pytest.mark.spark
def test_a_change_event_changes_rows_and_a_tombstone_means_nothing(tmp_path: Path, spark: SparkSession) -> None:
    lake = Changes(tmp_path, spark)
    lake.put(
        lake.event("c", (1, "x")),
        lake.event("u", (2, "y"), before=(1, "x")),
        lake.event("d", before=(2, "y")),
        {"key": {"id": 2}, "value": None},
        {"key": {"id": 2}, "value": {"schema": {"type": "struct"}, "payload": None}},
        lake.event("t"),
        lake.event("m"),
    )
    lake.ingest()
    fates = [fate_of(lake, offset) for offset in range(7)]
    at = f"read at time {lake.times[0].time}"
    assert [fate.kind for fate in fates] == ["record", "record", "record", "null", "null", "record", "quarantined"]
    assert fates[0].summary == f'{at}: sets {{"id": 1}}'
    assert sorted(row["means"] for row in fates[1].facts["stored"]) == ["delete", "value"]
    assert fates[2].summary == f'{at}: deletes {{"id": 2}}'
    assert fates[3].summary == fates[4].summary == f"{at}: a tombstone, which means nothing: the delete came before it"
    assert fates[5].summary == f"{at}: empties the table"
    assert fates[6].facts["reason"] == "unknown_operation"
    assert [fate.needs_somebody for fate in fates] == [False] * 6 + [True]
