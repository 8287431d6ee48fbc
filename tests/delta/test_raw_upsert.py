"""Raw upserts: the newest record of a key counts, a null value deletes, and what cannot be decoded marks its key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.delta.raw_lake import RawLake
from tidelake.delta.status import read_status
from tidelake.errors import KeysInError

pytestmark = pytest.mark.spark
ITEM = {
    "type": "record",
    "name": "item",
    "fields": [{"name": "id", "type": "long"}, {"name": "price", "type": ["null", "int"]}],
}


def item(key: int, price: int | None = None) -> dict[str, Any]:
    return {"key": {"id": key}, "value": {"id": key, "price": price}}


def gone(key: int) -> dict[str, Any]:
    return {"key": {"id": key}, "value": None}


def test_the_last_value_of_a_key_counts_and_a_null_value_deletes(tmp_path: Path, spark: SparkSession) -> None:
    lake = RawLake(tmp_path, spark, envelope="upsert", key="id", schema=ITEM)
    lake.put(item(1, 10), item(1, 11), item(2, 20), gone(9), item(3, 30), gone(3))
    lake.put(item(2, 21), partition=1)
    first = lake.ingest()
    assert (first.messages, first.updates_stored, first.quarantined) == (7, 4, 0)
    at_first = lake.times[-1].time
    assert lake.rows() == [{"id": 1, "price": 11, "_diff": 1}, {"id": 2, "price": 21, "_diff": 1}]
    lake.put(gone(1), item(2, 22), item(3, None), {"key": None, "value": {"id": 4, "price": 1}})
    lake.put({"key": {"id": "x"}, "value": None}, {"value": '{"id":4}', "key": "{"}, partition=1)
    second = lake.ingest()
    assert second.quarantined == 3
    assert lake.quarantined() == [(9, "null_key"), (1, "wrong_type"), (2, "undecodable")]
    assert lake.rows() == [{"id": 2, "price": 22, "_diff": 1}, {"id": 3, "price": None, "_diff": 1}]
    assert lake.rows(at_first) == [{"id": 1, "price": 11, "_diff": 1}, {"id": 2, "price": 21, "_diff": 1}]
    assert not lake.validate(full=True).damaged


def test_a_value_that_cannot_be_decoded_marks_its_key_until_it_is_healed(tmp_path: Path, spark: SparkSession) -> None:
    lake = RawLake(tmp_path, spark, envelope="upsert", key="id", schema=ITEM)
    lake.put(item(1, 10), item(2, 20), {"key": {"id": 2}, "value": {"id": 2, "price": "dear"}})
    lake.put({"key": {"id": 3}, "value": "{"}, {"key": {"id": 4}, "value": {"id": 5}}, item(6, 60))
    first = lake.ingest()
    assert (first.values_in_error, first.quarantined) == (3, 0)
    with pytest.raises(KeysInError, match=r'3 keys of .prices. are in error: {"id":2}, {"id":3}, {"id":4}') as caught:
        lake.rows()
    assert "--skip-errors" in str(caught.value)
    assert [row["id"] for row in lake.rows(skip_errors=True)] == [1, 6]
    status = read_status(lake.collection, "upsert")
    assert status.keys_in_error == 3
    assert status.keys_in_error_first == [
        '{"id":2}: the value cannot be used: wrong_type (prices:0:2)',
        '{"id":3}: the value cannot be used: undecodable (prices:0:3)',
        '{"id":4}: the value names another key than the record has (prices:0:4)',
    ]
    lake.put(item(2, 21), gone(3))
    lake.ingest()
    with pytest.raises(KeysInError, match=r'1 keys of .prices. are in error: {"id":4}'):
        lake.rows()
    assert read_status(lake.collection, "upsert").keys_in_error == 1
    lake.put(item(4, 40))
    lake.ingest()
    assert read_status(lake.collection, "upsert").keys_in_error == 0
    assert [(row["id"], row["price"]) for row in lake.rows()] == [(1, 10), (2, 21), (4, 40), (6, 60)]
    lake.configure(keep=0)
    lake.compact()
    assert [(row["id"], row["price"]) for row in lake.rows()] == [(1, 10), (2, 21), (4, 40), (6, 60)]
    assert not lake.validate(full=True).damaged


PRICE = {"type": "record", "name": "price", "fields": [{"name": "price", "type": "int"}]}
SHOP_KEY = {"type": "record", "name": "key", "fields": [{"name": "shop", "type": "string"}]}


def test_the_keys_columns_are_added_to_the_value_and_a_key_of_one_column_may_be_bare(
    tmp_path: Path, spark: SparkSession
) -> None:
    topics = ["eu", "us"]
    more = {"topic": topics, "metadata": {"topic": "origin", "offset": "at"}}
    lake = RawLake(tmp_path, spark, envelope="upsert", key="shop", key_schema=SHOP_KEY, schema=PRICE, **more)
    lake.put({"key": 'a"b', "value": {"price": 1}}, {"key": "7", "value": {"price": 2}}, topic="eu")
    lake.put({"key": {"shop": "7"}, "value": {"price": 3}}, {"key": '"c"', "value": {"price": 4}}, topic="us")
    lake.put({"key": "true", "value": {"price": 5}}, {"key": None, "value": {"price": 6}}, topic="us")
    assert lake.ingest().quarantined == 1
    assert lake.rows() == [
        {"shop": "7", "price": 3, "origin": "us", "at": 0, "_diff": 1},
        {"shop": 'a"b', "price": 1, "origin": "eu", "at": 0, "_diff": 1},
        {"shop": "c", "price": 4, "origin": "us", "at": 1, "_diff": 1},
        {"shop": "true", "price": 5, "origin": "us", "at": 2, "_diff": 1},
    ]
    assert lake.times[-1].ends == {("eu", 0): 2, ("us", 0): 4}
