"""Stored rows are published unchanged only if a proof shows that they are consolidated updates."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.lakes.lake import Lake, progress, updates
from tests.lakes.round_trip import publish_lake, published_messages
from tidelake.codec.avro import AvroCodec
from tidelake.protocol.message import Progress, Updates
from tidelake.publish.distinct import distinct_rows
from tidelake.store.commit import OpenTable

pytestmark = pytest.mark.spark
REALS = {"type": "record", "name": "data", "fields": [{"name": "x", "type": "double"}]}


def counts(lake: Lake, first: int, through: int, is_initial: bool = False) -> dict[int, int] | None:
    """The counts of a range of times; None if its rows are not proven distinct."""
    table = OpenTable(lake.collection.paths.updates)
    found = distinct_rows(lake.spark, lake.collection, table, first, through, is_initial)
    if found is None:
        return None
    assert Counter(row["_time"] for row in found.rows.collect()) == found.counts
    return found.counts


def test_rows_are_published_unchanged_only_if_they_are_proven_distinct(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates((1, 0, 1), (2, 0, 2), (1, 1, 1)), updates((3, 2, 1)), updates((3, 2, 1)))
    lake.send(progress([0], [3], {0: 2, 1: 1, 2: 1}))
    lake.run()
    assert counts(lake, 0, 1, is_initial=True) == {0: 2, 1: 1}
    assert counts(lake, 1, 1) == {1: 1}
    assert counts(lake, 1, 2) is None, "time 2 has more rows than its proof counted"
    assert counts(lake, 1, 1, is_initial=True) is None, "the initial contents at 1 include the rows of 0"
    report = publish_lake(lake)
    assert report.updates == 4
    stated = [update for each in published_messages(lake) for update in getattr(each, "batch", ())]
    assert sorted((update.data["id"], update.time, update.diff) for update in stated) == [
        (1, 0, 1),
        (1, 1, 1),
        (2, 0, 2),
        (3, 2, 1),
    ]
    lake.compact(full=True)
    assert counts(lake, 0, 2, is_initial=True) == {0: 2, 1: 1, 2: 1}, "a merge has added up the copies"
    lake.send(updates((4, 3, 1)), progress([3], [4], {3: 1}))
    lake.run()
    assert counts(lake, 0, 3, is_initial=True) == {0: 2, 1: 1, 2: 1, 3: 1}, "every proof counted all rows of its time"


def test_zeros_with_different_signs_are_added_up(tmp_path: Path, spark: SparkSession) -> None:
    lake, codec = Lake(tmp_path, spark, schema=REALS), AvroCodec(REALS)
    lake.send(
        codec.encode(Updates([({"x": 0.0}, 0, 1), ({"x": 1.0}, 0, 1)])), codec.encode(Progress([0], [1], [(0, 2)]))
    )
    lake.run()
    assert counts(lake, 0, 0, is_initial=True) is None, "zeros and NaNs may be stated in several ways"
    assert publish_lake(lake).updates == 2
