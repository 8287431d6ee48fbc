"""Columns that a collection gets while it is published: each message has the schema in force at its time."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.lakes.lake import Lake
from tests.lakes.raw_lake import RawLake
from tests.lakes.round_trip import (
    Schemas,
    check_equal,
    other_lake,
    publish_lake,
    published_bytes,
    published_messages,
    published_of,
    read_whole,
)
from tests.lakes.upserts import gone, item
from tests.publish.histories import add_column, growing_lake
from tests.stops import stop_at
from tidelake.codec.avro import AvroCodec
from tidelake.errors import ConfigurationError, PublishedTopicColumns
from tidelake.protocol.message import Progress, Updates
from tidelake.publish.publishing import PublishReport
from tidelake.publish.schema import column_names
from tidelake.store.failpoints import on_reach

pytestmark = pytest.mark.spark


def noted(key: int, price: int | None, note: str | None) -> dict[str, Any]:
    whole = item(key, price)
    whole["value"]["note"] = note
    return whole


def tick(lake: RawLake, *records: Any) -> int:
    """Ingest and seal records; return their time."""
    lake.put(*records)
    lake.run()
    return lake.times[-1].time


class Published:
    """A growing lake whose topic has schema ids."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.lake, self.schemas = growing_lake(root, spark), Schemas()

    def publish(self, **terms: Any) -> PublishReport:
        return publish_lake(self.lake, is_confluent=True, register=self.schemas.register, **terms)

    def by_time(self) -> dict[int, set[tuple[int, tuple[tuple[Any, ...], int]]]]:
        """The schema id, the row and the diff of each update, by time."""
        found: dict[int, set[tuple[int, tuple[tuple[Any, ...], int]]]] = {}
        values = published_bytes(self.lake)
        for value, message in zip(values, published_messages(self.lake), strict=True):
            if isinstance(message, Updates):
                id = int.from_bytes(value[1:5], "big")
                for data, time, diff in message.batch:
                    found.setdefault(int(str(time)), set()).add((id, (tuple(data.values()), diff)))
        return found


@pytest.fixture
def published(tmp_path: Path, spark: SparkSession) -> Published:
    """A published topic, with two rows and one version."""
    topic = Published(tmp_path / "one", spark)
    tick(topic.lake, item(1, 10), item(2, 20))
    topic.publish()
    return topic


@pytest.mark.sweep
def test_a_new_column_is_in_force_from_the_first_time_that_nobody_has_claimed(
    published: Published, tmp_path: Path, spark: SparkSession
) -> None:
    lake, first = published.lake, published_of(published.lake)
    add_column(lake)
    at = tick(lake, noted(1, 10, "x"), gone(2), noted(3, 30, None))
    report = published.publish()
    assert report.columns_from == {"note": first.claimed}
    assert first.frontier <= first.claimed <= at
    found = published_of(lake)
    assert found.record_schema == first.record_schema
    assert [each.starts_at for each in found.versions] == [0, first.claimed]
    assert found.version_at(at)[0].record_schema["fields"][-1] == {
        "name": "note",
        "type": ["null", "string"],
        "default": None,
    }
    # Rows that are older than the column are retracted with null in it.
    assert published.by_time()[at] == {
        (2, ((1, 10, None), -1)),
        (2, ((1, 10, "x"), 1)),
        (2, ((2, 20, None), -1)),
        (2, ((3, 30, None), 1)),
    }
    assert {id for time, rows in published.by_time().items() if time < at for id, _ in rows} == {1}
    assert published.publish().statements == 0
    read_whole(published_messages(lake), AvroCodec(found.versions[-1].record_schema))
    other = other_lake(lake, tmp_path / "other", spark, Random(3))
    check_equal(lake, other, range(at - 1, at + 1))
    assert other.quarantined() == []


@pytest.mark.sweep
def test_a_reader_without_the_column_stops_before_it_and_is_right_until_then(
    published: Published, tmp_path: Path, spark: SparkSession
) -> None:
    lake, start = published.lake, published_of(published.lake).claimed
    before = lake.rows()
    add_column(lake)
    tick(lake, noted(1, 11, "x"))
    published.publish()
    old = published_of(lake).record_schema
    reader = Lake(tmp_path / "reader", spark, schema=deepcopy(old), encoding="confluent", schema_ids={1: deepcopy(old)})
    values = published_bytes(lake)
    reader.send(*values)
    reader.run()
    assert reader.table.value("upper") == start
    assert reader.contents(start - 1) == {(row["id"], row["price"]): 1 for row in before}
    later = [offset for offset, value in enumerate(values) if value[1:5] == bytes([0, 0, 0, 2])]
    assert later
    assert reader.quarantined() == [(offset, "unknown_schema_id") for offset in later]
    wider = deepcopy(published_of(lake).versions[-1].record_schema)
    reader.document["collections"]["prices"]["schema_ids"][2] = wider
    with pytest.raises(ConfigurationError, match="the collection has no column 'note'"):
        reader.written()


def test_bare_avro_cannot_state_a_new_column_and_the_error_names_it(tmp_path: Path, spark: SparkSession) -> None:
    lake = growing_lake(tmp_path / "one", spark)
    tick(lake, item(1, 10))
    publish_lake(lake)
    tick(lake, item(1, 11))
    stop_at("publish.after_claim", lambda: publish_lake(lake))
    claimed = published_of(lake).claimed
    add_column(lake)
    tick(lake, noted(1, 11, "x"))
    for _ in range(2):
        with pytest.raises(PublishedTopicColumns, match="new topic") as refused:
            publish_lake(lake)
        assert refused.value.columns == ("note",)
        assert published_of(lake).claimed == claimed
    assert published_of(lake).frontier == claimed, "the times before the column are stated"
    report = publish_lake(lake, "new")
    assert (report.frontier, report.columns_from) == (lake.table.value("upper"), {})


@pytest.mark.sweep
def test_a_publisher_that_dies_after_claiming_a_new_version_leaves_it_to_the_next_one(
    published: Published, tmp_path: Path, spark: SparkSession
) -> None:
    lake = published.lake
    add_column(lake)
    at = tick(lake, noted(1, 10, "x"))
    stop_at("publish.after_claim", published.publish)
    versions, stated = published_of(lake).versions, len(published_bytes(lake))
    assert len(versions) == 2
    add_column(lake)
    later = tick(lake, noted(1, 10, "y") | {"value": {"id": 1, "price": 10, "note": "y", "seen": 7}})
    assert len(published_bytes(lake)) == stated
    published.publish()
    starts = [each.starts_at for each in published_of(lake).versions]
    assert published_of(lake).versions[:2] == versions
    assert starts[1] <= at < starts[2] <= later
    assert {time: {id for id, _ in rows} for time, rows in published.by_time().items() if time >= at} == {
        at: {2},
        later: {3},
    }
    other = other_lake(lake, tmp_path / "other", spark, Random(5))
    check_equal(lake, other, range(at, at + 1))
    check_equal(lake, other, range(later, later + 1))


@pytest.mark.sweep
@pytest.mark.parametrize("place", ["publish.after_claim", "publish.after_updates"])
def test_a_publisher_that_sleeps_while_a_column_is_added_states_the_same_facts(
    published: Published, tmp_path: Path, spark: SparkSession, place: str
) -> None:
    lake = published.lake
    slept_at = tick(lake, item(1, 11), item(4, 40))
    later: list[int] = []

    def meanwhile(name: str) -> None:
        if name == place:
            on_reach(None)
            add_column(lake)
            later.append(tick(lake, noted(1, 11, "x"), gone(4)))
            published.publish()

    awake(meanwhile, published.publish)
    (at,) = later
    by_time = published.by_time()
    assert {id for id, _ in by_time[slept_at]} == {1}
    assert {id for id, _ in by_time[at]} == {2}
    read_whole(published_messages(lake), AvroCodec(published_of(lake).versions[-1].record_schema))
    other = other_lake(lake, tmp_path / "other", spark, Random(7))
    check_equal(lake, other, range(slept_at, slept_at + 1))
    check_equal(lake, other, range(at, at + 1))


def awake(hook: Callable[[str], None], work: Callable[[], object]) -> None:
    """Do work, with a hook at its failpoints."""
    on_reach(hook)
    try:
        work()
    finally:
        on_reach(None)


@pytest.mark.sweep
def test_a_column_added_before_the_first_message_is_in_the_whole_topic(tmp_path: Path, spark: SparkSession) -> None:
    topic = Published(tmp_path / "one", spark)
    tick(topic.lake, item(1, 10))
    stop_at("publish.after_begin", topic.publish)
    add_column(topic.lake)
    tick(topic.lake, noted(1, 10, "x"))
    topic.publish()
    found = published_of(topic.lake)
    assert column_names(found.version_at(found.published_from)[0].record_schema) == ["id", "price", "note"]
    assert {id for rows in topic.by_time().values() for id, _ in rows} == {2}
    other = other_lake(topic.lake, tmp_path / "other", spark, Random(9))
    check_equal(topic.lake, other, range(topic.lake.times[-1].time, topic.lake.times[-1].time + 1))


@pytest.mark.sweep
def test_progress_statements_never_reach_from_one_version_into_the_next(published: Published) -> None:
    lake = published.lake
    tick(lake, item(5, 50))
    stop_at("publish.after_claim", published.publish)
    add_column(lake)
    tick(lake, noted(5, 50, "x"))
    published.publish(rows_max=1_000)
    start = published_of(lake).versions[1].starts_at
    for value, message in zip(published_bytes(lake), published_messages(lake), strict=True):
        if isinstance(message, Progress):
            id, (lower,), (upper,) = int.from_bytes(value[1:5], "big"), message.lower, message.upper
            assert (id, int(str(upper)) <= start) in ((1, True), (2, False))
            assert id == 1 or int(str(lower)) >= start
