"""Topics that Debezium wrote from a real database become the tables of that database at every recorded moment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.captures.lake import EVENT, CaptureLake, ChangeLake, avro_lines, lines, moments
from tests.captures.workload import RECORD
from tests.sweeps import swept
from tidelake.store.quarantine import quarantine_rows

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("any_store")]


@pytest.mark.parametrize(
    ("capture", "table", "newest"),
    swept(
        [
            ("snapshots", "people", 2),
            *((capture, table, None) for table in ("people", "papers") for capture in ("snapshots", "steady")),
        ],
        [("snapshots", "people", 2)],
        unpack=True,
    ),
)
def test_a_capture_equals_the_database_at_each_moment_and_later_ticks_change_no_earlier_read(
    tmp_path: Path, spark: SparkSession, capture: str, table: str, newest: int | None
) -> None:
    """Compare the last `newest` moments, or all if it is None; earlier messages are sent with the first of these."""
    lake = CaptureLake(tmp_path, spark, capture, table, keep="all", messages_per_tick_max=250)
    read = {}
    for moment in moments(capture)[-newest if newest else 0 :]:
        lake.send_to(moment["offsets"][f"{capture}.public.{table}"])
        assert lake.ingest().quarantined == 0
        assert lake.rows() == sorted(moment["rows"][table])
        read[lake.time] = sorted(moment["rows"][table])
    for time, rows in list(read.items())[:-1]:
        assert lake.rows(time) == rows
    assert not lake.validate().damaged


@pytest.mark.sweep
@pytest.mark.parametrize("framed", [True, False])
def test_the_same_history_as_avro_ends_in_the_same_table(tmp_path: Path, spark: SparkSession, framed: bool) -> None:
    topic = "snapshots.public.people"
    more = {"encoding": "confluent", "schema_ids": {7: EVENT}} if framed else {"schema": EVENT}
    lake = ChangeLake(tmp_path, spark, topic, RECORD, format="avro", **more)
    header = bytes([0, 0, 0, 0, 7]) if framed else b""
    last = moments("snapshots")[-1]
    for partition, captured in lines("snapshots", topic).items():
        lake.send({partition: avro_lines(captured[: last["offsets"][topic][str(partition)]], header)})
    assert lake.ingest().quarantined == 0
    assert lake.rows() == sorted(last["rows"]["people"])
    strays = ("AQAAAAcA", "AAAAAAgA")  # another magic byte, an unknown id
    lake.send({2: [json.dumps({"offset": place, "value_b64": value}) for place, value in enumerate(strays)]})
    report = lake.ingest()
    assert report.reasons == {"no_key": 2}
    strayed = ["wrong_magic_byte", "unknown_schema_id (schema id 8)"] if framed else ["undecodable"] * 2
    assert [row["detail"] for row in quarantine_rows(lake.collection)] == strayed
    assert lake.rows() == sorted(last["rows"]["people"])
