"""Reclocking: a tick mints a time and binds it to offsets, and the time means the same rows forever."""

from __future__ import annotations

import json
import time as clock
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.lakes.lake import NAME
from tests.lakes.raw_lake import RawLake
from tidelake.cli.app import main
from tidelake.errors import ClockAhead, DamagedTable, NotReclocked, TopicGap, UpperError
from tidelake.ingest import reclock
from tidelake.store.commit import OpenTable
from tidelake.store.files import discard_run, read_rows
from tidelake.store.layout import BINDINGS_SCHEMA

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> RawLake:
    """Three ticks: the first two read both partitions, the last reads one."""
    lake = RawLake(tmp_path_factory.mktemp("visits"), spark)
    lake.put({"id": 1, "page": "a"}, {"id": 1, "page": "a"}, {"id": 2, "page": None})
    lake.put({"id": 3, "page": "c"}, partition=1)
    lake.ingest()
    lake.put({"id": 4, "page": "d"}, "nonsense", None)
    lake.put({"id": 5, "page": "e"}, partition=1)
    lake.ingest()
    lake.put({"id": 6, "page": "f"}, partition=1)
    lake.ingest()
    return lake


FIRST = [
    {"id": 1, "page": "a", "_diff": 2},
    {"id": 2, "page": None, "_diff": 1},
    {"id": 3, "page": "c", "_diff": 1},
]


def test_every_record_is_one_event_and_two_equal_records_are_two(visits: RawLake) -> None:
    assert visits.rows(visits.times[0].time) == FIRST
    assert [row["id"] for row in visits.rows()] == [1, 2, 3, 4, 5, 6]


def test_several_partitions_share_a_time(visits: RawLake) -> None:
    first, second, third = visits.times
    assert first.ends == {(NAME, 0): 3, (NAME, 1): 1}
    assert second.ends == {(NAME, 0): 6, (NAME, 1): 2}
    assert third.ends == {(NAME, 0): 6, (NAME, 1): 3}
    assert [binding.lower for binding in visits.times] == [0, first.time + 1, second.time + 1]
    assert [(binding.records, binding.rows, binding.quarantined) for binding in visits.times] == [
        (4, 4, 0),
        (4, 2, 2),
        (1, 1, 0),
    ]


def test_a_time_is_the_later_of_upper_and_the_start_of_the_tick(visits: RawLake) -> None:
    assert all(binding.time == max(binding.lower, binding.at_ms) for binding in visits.times)


def test_the_binding_moves_upper_and_offsets_in_the_commit_of_the_data(visits: RawLake) -> None:
    table, last = visits.table, visits.times[-1]
    assert table.value("upper") == last.time + 1
    assert (table.value(f"offset/{NAME}/0"), table.value(f"offset/{NAME}/1")) == (6, 3)
    with pytest.raises(UpperError):
        visits.rows(last.time + 1)


def test_reading_any_recorded_prefix_again_gives_what_was_read_then(visits: RawLake, tmp_path: Path) -> None:
    """A lake that reads only the offsets of a binding shows what the first lake shows AS OF the binding's time."""
    records = {
        int(file.stem): [json.loads(line) for line in file.read_text().splitlines()]
        for file in visits.topic.glob("*.jsonl")
    }
    for index, binding in enumerate(visits.times[:2]):
        lake = RawLake(tmp_path / str(index), visits.spark)
        for (_, partition), end in binding.ends.items():
            lake.put(*({"value": record.get("value")} for record in records[partition][:end]), partition=partition)
        lake.ingest()
        assert lake.rows() == visits.rows(binding.time)


def test_a_tick_without_new_offsets_commits_nothing(visits: RawLake) -> None:
    version = visits.table.version
    assert visits.ingest().ticks == 0
    assert visits.table.version == version


def test_seal_finds_nothing_to_do_and_says_so(visits: RawLake) -> None:
    sealed = visits.seal()
    assert (sealed.sealed_by_ingest, sealed.committed) == (True, False)
    assert sealed.upper == visits.times[-1].time + 1


def test_a_value_that_does_not_fit_and_a_null_value_are_quarantined(visits: RawLake) -> None:
    assert visits.quarantined() == [(4, "undecodable"), (5, "null_value")]


def test_a_recount_finds_what_each_binding_says(visits: RawLake) -> None:
    report = visits.validate(full=True)
    assert (report.damaged, [time["recounted"] for time in report.times]) == (False, [4, 2, 1])


def test_times_lists_the_times_with_their_offsets(
    visits: RawLake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*more: str) -> str:
        monkeypatch.setattr("sys.argv", ["tidelake", "times", NAME, "--config", str(visits.file), *more])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 0
        return capsys.readouterr().out

    listed = json.loads(run("--json"))
    assert listed["times"] == 3
    assert [row["offsets"] for row in listed["rows"]] == [
        {NAME: {"0": 3, "1": 1}},
        {NAME: {"0": 6, "1": 2}},
        {NAME: {"0": 6, "1": 3}},
    ]
    assert str(visits.times[-1].time) in run("--limit", "1")


def test_a_decision_about_a_minted_time_is_refused(
    visits: RawLake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tidelake", "resolve", "count", NAME, "--time", "9" * 18, "--count", "1", "--reason", "x"]
    monkeypatch.setattr("sys.argv", [*command, "--config", str(visits.file)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "mints its times itself" in capsys.readouterr().err


def test_a_gap_stops_reading_until_it_is_accepted(tmp_path: Path, spark: SparkSession) -> None:
    lake = RawLake(tmp_path, spark)
    lake.put({"id": 1})
    lake.ends[NAME, 0] = 5
    lake.put({"id": 2})
    with pytest.raises(TopicGap, match="offsets 1 to 5 are missing"):
        lake.ingest()
    assert [row["id"] for row in lake.rows()] == [1]
    lake.decide(accept_gap=(NAME, 0, 1, 5))
    lake.ingest()
    assert [binding.ends for binding in lake.times] == [{(NAME, 0): 1}, {(NAME, 0): 6}]
    assert (lake.times[-1].starts, lake.times[-1].records) == ({(NAME, 0): 1}, 1)


def test_metadata_becomes_columns_with_names_from_the_settings(tmp_path: Path, spark: SparkSession) -> None:
    named = {"timestamp": "sent_at", "headers": "sent_with", "partition": "part"}
    lake = RawLake(tmp_path, spark, metadata=named, messages_per_tick_max=1)
    lake.put({"value": {"id": 1}, "headers": {"trace": "x"}}, {"value": {"id": 2}, "headers": None})
    assert lake.ingest().ticks == 2
    first, second = lake.rows()
    assert (first["part"], first["sent_at"]) == (0, datetime(1970, 1, 1, 0, 0, 1))
    assert [(header["key"], bytes(header["value"])) for header in first["sent_with"]] == [("trace", b"x")]
    assert second["sent_with"] is None


def test_a_lost_binding_is_reported_as_damage(tmp_path: Path, spark: SparkSession) -> None:
    lake = RawLake(tmp_path, spark)
    for row in range(2):
        lake.put({"id": row})
        lake.ingest()
    path, first = lake.collection.paths.bindings, lake.times[0]
    table = OpenTable(path)
    rows: Any = read_rows(path, table.files(), BINDINGS_SCHEMA)
    run = next(binding["_run"] for binding in rows.to_pylist() if binding["_time"] == first.time)
    table.commit({}, [], [run])
    with pytest.raises(DamagedTable, match=f"the binding of time {first.time} is missing"):
        lake.times  # noqa: B018
    discard_run(path, run)
    report = lake.validate(full=True)
    assert report.damaged
    assert f"the binding of time {first.time} is missing" in report.mismatches[0]
    assert "is missing" in str(lake.current().errors[NAME])


def test_a_cdcv2_collection_has_no_minted_times(tmp_path: Path, spark: SparkSession) -> None:
    from typer.testing import CliRunner

    from tests.lakes.lake import Lake
    from tidelake.cli.app import app

    lake = Lake(tmp_path, spark)
    lake.ingest()
    result = CliRunner().invoke(app, ["times", NAME, "--config", str(lake.file)])
    assert isinstance(result.exception, NotReclocked)
    assert "stated by its topic" in str(result.exception)


DAY_MS = 86_400_000


def test_a_clock_that_is_far_ahead_mints_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = RawLake(tmp_path, spark)
    start_ms = int(clock.time() * 1000)

    def turn_clock(to_ms: int) -> None:
        monkeypatch.setattr(reclock.clock, "time", lambda: to_ms / 1000)

    def put(page: str, stamp_ms: int | None) -> None:
        lake.put({"value": {"id": 1, "page": page}, "timestamp_ms": stamp_ms})

    put("its first records may be old", 1000)
    lake.ingest()
    before = lake.table.version, OpenTable(lake.collection.paths.bindings).version
    put("a year ahead", start_ms + 1000)
    turn_clock(start_ms + 365 * DAY_MS)
    with pytest.raises(ClockAhead, match=r"31535999 s after anything known[\s\S]*hint: .*clock_ahead_max_s") as caught:
        lake.ingest()
    assert (caught.value.time, caught.value.newest) == (start_ms + 365 * DAY_MS, start_ms + 1000)
    assert (lake.table.version, OpenTable(lake.collection.paths.bindings).version) == before
    turn_clock(start_ms + 1000)
    lake.ingest()
    put("after ten idle days", start_ms + 9 * DAY_MS + 1000)
    turn_clock(start_ms + 10 * DAY_MS)
    lake.ingest()
    put("without a timestamp", None)
    turn_clock(start_ms + 12 * DAY_MS)
    with pytest.raises(ClockAhead, match="the newest timestamp of the records to read is None"):
        lake.ingest()
    lake.configure(clock_ahead_max_s=2 * 86_400)
    lake.ingest()
    assert [binding.time - start_ms for binding in lake.times[1:]] == [1000, 10 * DAY_MS, 12 * DAY_MS]
