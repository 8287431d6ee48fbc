"""Re-clocking: a tick mints a time, binds it to offsets, and the same time means the same rows for ever."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.delta.raw_lake import RawLake

pytestmark = pytest.mark.spark


def test_the_same_time_means_the_same_offsets_and_rows(tmp_path: Path, spark: SparkSession) -> None:
    lake = RawLake(tmp_path, spark)
    lake.put({"id": 1, "page": "a"}, {"id": 1, "page": "a"}, {"id": 2, "page": None})
    lake.put({"id": 3, "page": "c"}, partition=1)
    first = lake.ingest()
    assert (first.ticks, first.messages, first.updates_stored, first.quarantined) == (1, 4, 4, 0)
    (bound,) = lake.times
    before = lake.rows()
    assert before == [
        {"id": 1, "page": "a", "_diff": 2},
        {"id": 2, "page": None, "_diff": 1},
        {"id": 3, "page": "c", "_diff": 1},
    ]
    assert bound.ends == {("prices", 0): 3, ("prices", 1): 1}
    assert lake.seal().sealed_by_ingest
    assert lake.ingest().ticks == 0
    lake.put({"id": 4, "page": "d"}, b"nonsense".decode(), None)
    assert lake.ingest().quarantined == 2
    assert [one.records for one in lake.times] == [4, 3]
    assert lake.rows(bound.time) == before
    assert {"id": 4, "page": "d", "_diff": 1} in lake.rows()
    assert lake.quarantined() == [(4, "undecodable"), (5, "null_value")]
    report = lake.validate(full=True)
    assert not report.damaged
    assert [one["recounted"] for one in report.times] == [4, 1]
