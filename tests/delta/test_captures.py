"""Topics as Debezium wrote them from a real PostgreSQL end equal to its tables, row for row, at every moment noted."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.captures.lake import CaptureLake, moments
from tests.captures.workload import TABLES

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("capture", "table"),
    [
        ("snapshots", "people"),
        *(
            pytest.param(capture, table, marks=pytest.mark.sweep)
            for capture, table in (("snapshots", "papers"), *(("steady", table) for table in TABLES))
        ),
    ],
)
def test_a_capture_ends_equal_to_the_database_at_each_moment_and_later_ticks_change_nothing_read(
    tmp_path: Path, interpreted: SparkSession, capture: str, table: str
) -> None:
    lake = CaptureLake(tmp_path, interpreted, capture, table, keep="all", messages_per_tick_max=250)
    read = {}
    for moment in moments(capture):
        lake.send_to(moment["offsets"][f"{capture}.public.{table}"])
        assert lake.ingest().quarantined == 0
        assert lake.rows() == sorted(moment["rows"][table])
        read[lake.time] = sorted(moment["rows"][table])
    for time, rows in list(read.items())[:-1]:
        assert lake.rows(time) == rows
    assert not lake.validate().damaged
