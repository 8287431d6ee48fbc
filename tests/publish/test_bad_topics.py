"""Topics that differ from what was published: each has its own error, nothing is lost, and other topics continue."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.lakes.lake import NAME, Lake, progress, updates
from tests.lakes.round_trip import OUT, publish_lake, published_of, target_of
from tests.stops import stop_at
from tidelake.errors import (
    ArgumentRefused,
    PublishedTopicBehind,
    PublishedTopicContradicts,
    PublishedTopicCut,
    PublishedTopicForeign,
    PublishedTopicNotEmpty,
    PublishedTopicRecreated,
    SinceError,
)
from tidelake.publish.marked import ID_HEADER, SHARDS_HEADER
from tidelake.publish.messages import statements
from tidelake.store import published_topics
from tidelake.store.entry import Entry

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Lake:
    """A lake whose times 0 and 1 are published."""
    lake = Lake(tmp_path, spark)
    grow(lake, 0)
    publish_lake(lake)
    return lake


def grow(lake: Lake, time: int) -> None:
    lake.send(updates((time, time, 1), (time, time + 1, 1)), progress([time], [time + 2], {time: 1, time + 1: 1}))
    lake.run()


def files(lake: Lake) -> list[Path]:
    return sorted((lake.root / "out" / OUT).glob("*.parquet"))


@pytest.mark.sweep
def test_a_message_of_another_writer_stops_publishing_to_its_topic_only(lake: Lake) -> None:
    end = target_of(lake).offsets()[0][1]
    target_of(lake).write_few([updates((7, 1, 1))], {"made-by": "somebody"}, 0)
    grow(lake, 2)
    for _ in range(2):
        with pytest.raises(PublishedTopicForeign) as refused:
            publish_lake(lake)
        assert (refused.value.partition, refused.value.offset, refused.value.messages) == (0, end, 1)
    assert published_of(lake).frontier == 2
    assert publish_lake(lake, "new").frontier == 4


@pytest.mark.sweep
def test_cutting_messages_that_were_read_back_is_only_a_warning(lake: Lake) -> None:
    first = files(lake)
    assert publish_lake(lake).cut == {}
    for file in first[:-1]:
        file.unlink()
    grow(lake, 2)
    report = publish_lake(lake)
    assert (report.frontier, list(report.cut)) == (4, [0])
    assert report.cut[0] > 0


def test_cutting_messages_that_nobody_has_read_back_needs_a_decision(lake: Lake) -> None:
    grow(lake, 2)
    stop_at("publish.after_updates", lambda: publish_lake(lake))
    target_of(lake).write_few([b"\x00\x00"], {ID_HEADER: published_of(lake).id}, 0)
    for file in files(lake)[:-1]:
        file.unlink()
    with pytest.raises(PublishedTopicCut) as refused:
        publish_lake(lake)
    assert refused.value.from_offset == published_of(lake).offsets[0] < refused.value.to_offset
    assert "--accept-cut" in refused.value.hint
    report = publish_lake(lake, accepts_cut=True)
    assert (report.frontier, report.updates) == (4, 2)


def test_an_accepted_cut_states_lost_updates_again_although_their_progress_is_still_there(lake: Lake) -> None:
    grow(lake, 2)
    stop_at("publish.after_progress", lambda: publish_lake(lake))
    *lost, progress_file = files(lake)
    for file in lost:
        file.unlink()
    with pytest.raises(PublishedTopicCut):
        publish_lake(lake)
    report = publish_lake(lake, accepts_cut=True)
    assert (report.frontier, report.updates, progress_file.exists()) == (4, 2, True)
    assert publish_lake(lake).updates == 0


def test_a_file_that_is_missing_between_others_is_not_accepted_as_a_cut(lake: Lake) -> None:
    start = target_of(lake).offsets()[0][1]
    target_of(lake).write_few([b"\x00\x00"], {ID_HEADER: published_of(lake).id}, 0)
    lost = files(lake)[-1]
    target_of(lake).write_few([b"\x00\x00"], {ID_HEADER: published_of(lake).id}, 0)
    held = lost.read_bytes()
    lost.unlink()
    grow(lake, 2)
    for accepts_cut in (False, True):
        with pytest.raises(
            PublishedTopicCut, match=f"has lost offset {start} of partition 0, which has not"
        ) as refused:
            publish_lake(lake, accepts_cut=accepts_cut)
        assert refused.value.hint.startswith("restore the file")
        assert "--accept-cut" not in refused.value.hint
    lost.write_bytes(held)
    assert publish_lake(lake).frontier == 4


@pytest.mark.sweep
def test_a_topic_that_was_recreated_is_published_again_only_on_request(lake: Lake) -> None:
    shutil.rmtree(lake.root / "out" / OUT)
    grow(lake, 2)
    for _ in range(2):
        with pytest.raises(PublishedTopicRecreated, match="recreated"):
            publish_lake(lake)
    published = published_of(lake)
    lake.catalog.update(NAME, lambda entry: published_topics.end(entry, published))
    assert [each.kind for each in lake.collection.entry.capabilities] == ["critical"]
    assert publish_lake(lake).frontier == 4


def test_a_topic_that_lost_its_end_is_not_mistaken_for_the_published_one(lake: Lake) -> None:
    for file in files(lake)[1:]:
        file.unlink()
    with pytest.raises(PublishedTopicRecreated, match="but ends at"):
        publish_lake(lake)


@pytest.mark.sweep
def test_a_topic_with_messages_is_not_published_to(lake: Lake, tmp_path: Path, spark: SparkSession) -> None:
    other = Lake(tmp_path / "other", spark)
    grow(other, 0)
    (other.root / "out").mkdir()
    shutil.copytree(lake.root / "out" / OUT, other.root / "out" / OUT)
    with pytest.raises(PublishedTopicNotEmpty):
        publish_lake(other)
    assert other.collection.entry.published_topics == ()


def test_a_topic_that_was_given_up_is_not_said_to_be_of_somebody_else(lake: Lake) -> None:
    published = published_of(lake)
    lake.catalog.update(NAME, lambda entry: published_topics.end(entry, published))
    with pytest.raises(PublishedTopicNotEmpty, match="is not published to it, or no longer is"):
        publish_lake(lake)


def test_a_topic_that_contradicts_itself_or_is_ahead_is_refused(lake: Lake) -> None:
    headers = {ID_HEADER: published_of(lake).id, SHARDS_HEADER: "*/1"}
    record = published_of(lake).record_schema
    target_of(lake).write_few(statements(record, b"", 2, 4, {2: 9}), headers, 0)
    with pytest.raises(
        PublishedTopicContradicts, match="all times before 4, but the collection has sealed only the times before 2"
    ):
        publish_lake(lake)
    assert published_of(lake).frontier == 2, "the hold must not follow a topic that is wrong"
    target_of(lake).write_few(statements(record, b"", 2, 4, {2: 1}), headers, 0)
    with pytest.raises(PublishedTopicContradicts, match="different counts"):
        publish_lake(lake)


def test_a_topic_that_lacks_forgotten_times_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, keep=0)
    grow(lake, 0)
    publish_lake(lake)
    grow(lake, 2)
    lake.compact()
    assert lake.collection.entry.since == (1,), "the hold of the topic keeps the times that the topic lacks"
    id = published_of(lake).id
    lake.catalog.update(NAME, lambda entry: without_hold(entry, id))
    lake.compact()
    with pytest.raises(PublishedTopicBehind) as refused:
        publish_lake(lake)
    assert (refused.value.frontier, refused.value.since) == (2, (3,))
    assert publish_lake(lake, "new").published_from == 3


def without_hold(entry: Entry, id: str) -> Entry:
    left = tuple(each for each in entry.capabilities if each.id != id)
    return entry.model_copy(update={"capabilities": left})


def test_terms_are_those_of_the_first_publisher(lake: Lake) -> None:
    for terms in ({"published_from": 1}, {"is_confluent": True}, {"skip_errors": True}, {"shard": 1}):
        with pytest.raises(ArgumentRefused):
            publish_lake(lake, **terms)
    with pytest.raises(SinceError):
        publish_lake(lake, "new", published_from=-1)
    assert publish_lake(lake, published_from=0).frontier == 2
    grow(lake, 2)
    assert publish_lake(lake, shards=2, shard=1).frontier == 2, "shard 0 is still missing"
    assert publish_lake(lake, shard=0).frontier == 4
