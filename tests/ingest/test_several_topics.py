"""Several topics state one CDCv2 stream: shards, redundant writers, topics that are added and retired."""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.lakes.lake import NAME, Lake, progress, updates
from tests.sweeps import seeds
from tidelake import open_lake
from tidelake.errors import TopicGap
from tidelake.read.status import CollectionStatus
from tidelake.store.state import UPPER, next_offsets

pytestmark = [pytest.mark.spark]


class Streams(Lake):
    """A stream in several topics of one partition each."""

    def __init__(self, root: Path, spark: SparkSession, *topics: str, **more: Any) -> None:
        super().__init__(root, spark, topic=list(topics), **more)
        self.ends: Counter[str] = Counter()
        for topic in topics:
            (root / "topics" / topic).mkdir()

    def put(self, topic: str, *values: bytes, skip: int = 0) -> None:
        """Append messages to a topic, with `skip` offsets missing before them."""
        folder = self.root / "topics" / topic
        folder.mkdir(exist_ok=True)
        self.ends[topic] += skip
        with (folder / "0.jsonl").open("a", encoding="utf-8") as lines:
            for value in values:
                text = base64.b64encode(value).decode("ascii")
                lines.write(json.dumps({"offset": self.ends[topic], "timestamp_ms": 0, "value_b64": text}) + "\n")
                self.ends[topic] += 1

    def read_from(self, *topics: str) -> None:
        """Change the topics in the settings."""
        self.document["collections"][NAME]["topic"] = list(topics)
        self.settings = self.written()

    @property
    def upper(self) -> int:
        """The first time that is not sealed."""
        return self.table.value(UPPER) or 0

    @property
    def status(self) -> CollectionStatus:
        """The status, as the command shows it."""
        found = open_lake(self.file).status()[NAME]
        assert isinstance(found, CollectionStatus)
        return found


def test_a_count_is_met_by_all_topics_together_and_a_copy_in_another_topic_counts_once(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Streams(tmp_path, spark, "a", "b")
    lake.put("a", updates((1, 0, 1), (2, 0, 1)), progress([0], [1], {0: 3}))
    lake.run()
    assert lake.upper == 0  # a third update is missing
    lake.put("b", updates((2, 0, 1), (3, 0, 2)), progress([1], [2]))
    report = lake.ingest()
    sealed = lake.seal()
    assert (report.ticks, sealed.copies_cancelled, lake.upper) == (1, 1, 2)
    assert lake.contents(0) == {(1, None): 1, (2, None): 1, (3, None): 2}
    assert {topic: next_offsets(lake.table, topic) for topic in ("a", "b")} == {"a": {0: 2}, "b": {0: 2}}
    assert not lake.validate(full=True).damaged
    version = lake.table.version
    lake.run()
    assert lake.table.version == version


def test_one_tick_reads_all_topics_within_its_bound(tmp_path: Path, spark: SparkSession) -> None:
    lake = Streams(tmp_path, spark, "a", "b", messages_per_tick_max=4)
    lake.put("a", *(updates((number, 0, 1)) for number in range(5)))
    lake.put("b", updates((5, 0, 1)), progress([0], [1], {0: 6}))
    report = lake.ingest()
    assert (report.ticks, report.messages) == (3, 7)  # 2 + 2, 2, 1: each topic has a share of the bound
    assert lake.seal().upper == 1


@pytest.mark.sweep
def test_bad_and_late_messages_are_kept_with_their_topic(tmp_path: Path, spark: SparkSession) -> None:
    lake = Streams(tmp_path, spark, "a", "b")
    lake.put("a", updates((1, 0, 1)), progress([0], [1], {0: 1}))
    lake.run()
    lake.put("a", updates((1, 0, 1)), b"\x07")
    lake.put("b", b"\x09", updates((1, 0, 2), (4, 1, 1)))
    report = lake.ingest()
    assert (report.quarantined, report.updates_late) == (2, 2)
    late = lake.validate().late
    assert (late.copies, late.contradictions) == (1, 1)
    collection = open_lake(lake.file).collection(NAME)
    (bad_a,), (bad_b,) = collection.trace("a", 0, 3), collection.trace("b", 0, 0)
    assert (bad_a.kind, bad_b.kind) == ("quarantined", "quarantined")
    (copy,) = collection.trace("a", 0, 2)
    assert [each.fate for each in copy.statements] == ["late"]
    (found,) = collection.trace("b", 0, 1)
    assert [each.fate for each in found.statements] == ["late", "stored"]
    assert "contradicts" in found.statements[0].detail


def test_a_gap_stops_its_topic_and_the_others_are_still_read(tmp_path: Path, spark: SparkSession) -> None:
    lake = Streams(tmp_path, spark, "a", "b")
    lake.put("a", updates((1, 0, 1)))
    lake.put("b", updates((2, 0, 1)))
    lake.ingest()
    lake.put("a", updates((3, 0, 1)), skip=2)
    lake.put("b", updates((4, 0, 1)), progress([0], [1], {0: 3}))
    with pytest.raises(TopicGap):
        lake.ingest()
    assert {topic: next_offsets(lake.table, topic) for topic in ("a", "b")} == {"a": {0: 1}, "b": {0: 3}}
    assert lake.seal().upper == 1


def test_a_topic_is_added_and_another_retired_while_the_stream_goes_on(tmp_path: Path, spark: SparkSession) -> None:
    lake = Streams(tmp_path, spark, "a")
    lake.put("a", updates((1, 0, 1), (2, 1, 1)), progress([0], [2], {0: 1, 1: 1}))
    lake.run()
    # The new topic repeats everything, and continues.
    lake.put("b", updates((1, 0, 1), (2, 1, 1)), progress([0], [2], {0: 1, 1: 1}), updates((3, 2, 1)))
    lake.read_from("a", "b")
    lake.put("a", progress([2], [3], {2: 1}))
    assert lake.ingest().updates_late == 2
    assert lake.seal().upper == 3
    assert lake.validate(full=True).late.copies == 2
    assert lake.status.retired_topics == {}
    lake.read_from("b")
    lake.put("a", updates((9, 3, 1)))  # nobody reads it
    lake.put("b", updates((4, 3, 1)), progress([3], [4], {3: 1}))
    lake.run()
    assert lake.upper == 4
    assert lake.contents(3) == {(number, None): 1 for number in (1, 2, 3, 4)}
    assert lake.status.retired_topics == {"a": {0: 3}}
    assert lake.status.lag_messages == 0
    (fate,) = open_lake(lake.file).collection(NAME).trace("a", 0, 0)
    assert {each.fate for each in fate.statements} == {"published"}
    (unread,) = open_lake(lake.file).collection(NAME).trace("a", 0, 3)
    assert unread.kind == "not_read"
    lake.read_from("b", "a")  # ingest resumes `a` where it stopped
    assert lake.ingest().updates_late == 1
    assert lake.status.retired_topics == {}


def random_messages(rng: random.Random, times: int) -> list[bytes]:
    """The messages of a whole stream, in order of time."""
    messages: list[bytes] = []
    for time in range(times):
        stated = {row: rng.choice((-1, 1, 2)) for row in rng.sample(range(6), rng.randrange(4))}
        batch = [(row, time, diff) for row, diff in stated.items()]
        cut = rng.randrange(len(batch) + 1)
        messages += [updates(*part) for part in (batch[:cut], batch[cut:]) if part]
        messages.append(progress([time], [time + 1], {time: len(batch)} if batch else {}))
    return messages


def history(root: Path, spark: SparkSession, seed: int, times: int) -> None:
    """Check that a stream in several topics (sharded, redundant, added, retired) equals the same stream in one."""
    rng = random.Random(seed)
    messages = random_messages(rng, times)
    single = Streams(root / "single", spark, "only")
    single.put("only", *messages)
    single.run()
    names = ["a", "b", "c"]
    lake = Streams(root / "several", spark, "a", messages_per_tick_max=rng.choice((3, 200_000)))
    in_use, used = ["a"], ["a"]
    sent: list[bytes] = []
    for message in messages:
        for topic in rng.sample(in_use, rng.randrange(1, len(in_use) + 1)):
            lake.put(topic, message)
        sent.append(message)
        if sent and rng.random() < 0.1:
            lake.put(rng.choice(in_use), rng.choice(sent))  # a writer that was restarted
        if rng.random() < 0.25:
            lake.ingest()
            if rng.random() < 0.7:
                lake.seal()
        if rng.random() < 0.15 and len(used) < len(names):
            added = names[len(used)]
            used.append(added)
            in_use.append(added)
            lake.put(added, *rng.sample(sent, rng.randrange(len(sent) + 1)))  # the stream's old facts, in any order
            lake.read_from(*in_use)
        if rng.random() < 0.1 and len(in_use) > 1:
            lake.ingest()  # every topic is read to its end before one is retired
            in_use.remove(rng.choice(in_use))
            lake.read_from(*in_use)
    lake.run()
    assert lake.upper == single.upper == times
    for time in rng.sample(range(times), min(times, 6)):
        assert lake.contents(time) == single.contents(time), time
    report = lake.validate(full=True)
    assert not report.damaged and not report.late.contradictions
    assert set(lake.status.retired_topics) == set(used) - set(in_use)


@pytest.mark.sweep
def test_a_stream_in_several_topics_equals_the_stream_in_one(tmp_path: Path, spark: SparkSession) -> None:
    history(tmp_path, spark, seed=3, times=6)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", seeds())
def test_a_random_stream_in_several_topics_equals_the_stream_in_one(
    tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    history(tmp_path, spark, seed, times=25)


@pytest.mark.sweep
def test_a_damaged_file_of_a_tick_over_several_topics_is_restored(tmp_path: Path, spark: SparkSession) -> None:
    lake = Streams(tmp_path, spark, "a", "b")
    lake.put("a", updates((1, 0, 1)), progress([0], [2], {0: 2, 1: 1}))
    lake.put("b", updates((2, 0, 1), (3, 1, 1)))
    lake.run()
    file = min(lake.table.files(), key=lambda file: file.path)  # each topic has one file
    path = (lake.table.path / file.path).local
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    restored, left = open_lake(lake.file).collection(NAME).repair_files(spark)
    assert (len(restored), left) == (1, []) and path.read_bytes() == good
    lake.read_from("b")
    path.unlink()
    _, (damage,) = open_lake(lake.file).collection(NAME).repair_files(spark)
    assert not damage.is_restorable
