"""Publishing a collection, and reading what was published into another lake."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.lakes.lake import Lake, progress, updates
from tests.lakes.round_trip import (
    check_equal,
    other_lake,
    publish_lake,
    published_messages,
    published_of,
)

pytestmark = pytest.mark.spark


def test_what_was_published_gives_the_same_contents_in_another_lake(tmp_path: Path, spark: SparkSession) -> None:
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
    assert len(published_messages(lake)) == before, "what the topic states was stated again"
    lake.send(progress([7], []))
    lake.run()
    assert publish_lake(lake).closed
    assert publish_lake(lake).statements == 0
    other = other_lake(lake, tmp_path / "other", spark, Random(0))
    check_equal(lake, other, range(7))
    assert other.table.value("closed") == 1
