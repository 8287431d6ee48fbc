"""Publishing a collection, and reading the topic into another lake."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.lakes.every_type import ALL, everything
from tests.lakes.lake import Lake, progress, updates
from tests.lakes.raw_lake import RawLake
from tests.lakes.round_trip import (
    check_equal,
    other_lake,
    publish_lake,
    published_messages,
    published_of,
)
from tests.lakes.upserts import ITEM, item
from tidelake.codec.avro import AvroCodec
from tidelake.errors import KeysInError, UpperError
from tidelake.protocol.message import Progress, Updates
from tidelake.read.compare import Counts, compare, count

pytestmark = pytest.mark.spark


def test_a_published_topic_gives_the_same_contents_in_another_lake(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path / "one", spark)
    lake.send(updates((1, 0, 1), ((2, 20), 0, 2)), progress([0], [3], {0: 2}))
    lake.run()
    first = publish_lake(lake)
    assert (first.frontier, first.updates, published_of(lake).frontier) == (3, 2, 3)
    assert lake.collection.entry.capabilities[-1].since == (2,)
    lake.send(updates((1, 4, -1), (3, 5, 1)), progress([3], [7], {4: 1, 5: 1}))
    lake.run()
    assert publish_lake(lake).frontier == 7
    before = len(published_messages(lake))
    assert publish_lake(lake).messages == 0
    assert len(published_messages(lake)) == before, "nothing that is already in the topic is published again"
    lake.send(progress([7], []))
    lake.run()
    assert publish_lake(lake).closed
    assert publish_lake(lake).statements == 0
    other = other_lake(lake, tmp_path / "other", spark, Random(0))
    check_equal(lake, other, range(7))
    assert other.table.value("closed") == 1


@pytest.mark.sweep
def test_values_of_every_type_are_published_as_they_are(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path / "one", spark, schema=ALL)
    codec = AvroCodec(ALL)
    rows = [
        everything(),
        everything(f=-0.0, d=float("nan"), several=None, home={"city": "x"}, two={"double": -0.0}, day=-1),
        everything(again="red", list=[], many=[], place=None, several={"place": {"city": "y"}}, dec=b"\x00"),
    ]
    lake.send(codec.encode(Updates([(row, 0, 1) for row in rows])), codec.encode(Progress([0], [1], [(0, 3)])))
    lake.run()
    assert publish_lake(lake).updates == 3
    other = other_lake(lake, tmp_path / "other", spark, Random(1))
    check_equal(lake, other, range(1))
    found = compare(spark, lake.collection, other.collection)
    assert found.columns == ()
    assert found.rows is not None
    assert count(found, found.rows) == Counts(3, 3, 0, 0)
    reader = AvroCodec(published_of(lake).record_schema)
    batches = [message.batch for message in published_messages(lake) if isinstance(message, Updates)]
    data = [update.data for batch in batches for update in batch]
    assert len(data) == 3
    assert all(reader.encode_data(row) == reader.identity(row) for row in data)


def test_collections_that_differ_are_compared_by_rows_and_by_columns(tmp_path: Path, spark: SparkSession) -> None:
    one, other = (Lake(tmp_path / name, spark) for name in ("one", "other"))
    one.send(updates((1, 0, 3), (2, 1, 1)), progress([0], [2], {0: 1, 1: 1}))
    other.send(updates((1, 0, 1), (3, 2, 1)), progress([0], [5], {0: 1, 2: 1}))
    narrow = {"type": "record", "name": "data", "fields": [{"name": "id", "type": "string"}]}
    third = Lake(tmp_path / "third", spark, schema=narrow)
    third.send(AvroCodec(narrow).encode(Progress([0], [9])))
    for lake in (one, other, third):
        lake.run()
    found = compare(spark, one.collection, other.collection)
    assert (found.as_of, found.columns) == (1, ())
    assert found.rows is not None
    assert count(found, found.rows) == Counts(4, 1, 3, 0)
    assert {(row["id"], row["_diff"]) for row in found.rows.collect()} == {(1, 2), (2, 1)}
    differing = compare(spark, one.collection, third.collection)
    assert differing.rows is None
    assert differing.columns == (
        "only the first has the column 'price'",
        "the column 'id' is bigint in the first, and string in the second",
    )
    with pytest.raises(UpperError):
        compare(spark, one.collection, other.collection, as_of=3)


def test_publishing_stops_before_a_key_in_error_unless_the_first_call_skips_errors(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = RawLake(tmp_path, spark, envelope="upsert", key="id", schema=ITEM)
    lake.put(item(1, 10), item(2, 20))
    lake.run()
    publish_lake(lake)
    lake.put({"key": {"id": 1}, "value": {"id": 1, "price": "none"}})
    lake.run()
    for _ in range(2):
        with pytest.raises(KeysInError):
            publish_lake(lake)
    upper = lake.table.value("upper") or 0
    assert published_of(lake).frontier == upper - 1, "all times before that of the error are published"
    assert publish_lake(lake, "new", skip_errors=True).frontier == upper
    lake.put(item(1, 11))
    lake.run()
    assert publish_lake(lake, "new").frontier > upper
