"""Reclocking: a tick mints a time and binds it to offsets, and the time means the same rows forever."""

from __future__ import annotations

import json
import time as clock
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from tests.lakes.lake import NAME
from tests.lakes.raw_lake import RawLake
from tests.stops import stop_at
from tests.sweeps import swept
from tidelake.cli.app import main
from tidelake.errors import ClockAhead, DamagedTable, NotReclocked, TopicGap, UpperError
from tidelake.read.current import update_current
from tidelake.store.commit import OpenTable
from tidelake.store.failpoints import on_reach
from tidelake.store.files import discard_run, read_rows, write_run
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


def test_every_record_is_one_event_and_two_equal_records_are_two_events(visits: RawLake) -> None:
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


def test_reading_any_recorded_prefix_again_gives_the_same_rows(visits: RawLake, tmp_path: Path) -> None:
    """A lake that reads only the offsets of a binding has the contents of the first lake AS OF the binding's time."""
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


def test_a_recount_agrees_with_each_binding(visits: RawLake) -> None:
    report = visits.validate(full=True)
    assert (report.damaged, [time["recounted"] for time in report.times]) == (False, [4, 2, 1])


def test_the_times_command_lists_the_times_with_their_offsets(
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
    shown = capsys.readouterr().err
    assert "mints its times itself" in shown
    assert f"`tidelake status {NAME}` shows what does" in shown


def test_reading_stops_at_a_gap_until_the_gap_is_accepted(tmp_path: Path, spark: SparkSession) -> None:
    lake = RawLake(tmp_path, spark)
    lake.put({"id": 1})
    lake.ends[NAME, 0] = 5
    lake.put({"id": 2})
    with pytest.raises(TopicGap, match="offsets 1 to 4 are missing"):
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


def test_a_row_that_is_not_in_the_binding_of_its_time_is_reported_as_damage(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = RawLake(tmp_path, spark)
    lake.put({"id": 1})
    lake.ingest()
    table = OpenTable(lake.collection.paths.updates)
    (file,) = table.files()
    table.commit({}, write_run(table.path, "ingest-smuggled", pq.read_table((table.path / file.path).local)))
    time = lake.times[0].time
    assert (
        lake.validate(full=True).mismatches[0] == f"time {time}: rows: 1 according to its binding, but 2 in the table"
    )


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
        monkeypatch.setattr(clock, "time", lambda: to_ms / 1000)

    def put(page: str, stamp_ms: int | None) -> None:
        lake.put({"value": {"id": 1, "page": page}, "timestamp_ms": stamp_ms})

    put("its first records may be old", 1000)
    lake.ingest()
    before = lake.table.version, OpenTable(lake.collection.paths.bindings).version
    put("a year ahead", start_ms + 1000)
    turn_clock(start_ms + 365 * DAY_MS)
    with pytest.raises(
        ClockAhead, match=r"31535999 s after the latest known time[\s\S]*hint: .*clock_ahead_max_s"
    ) as caught:
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
    with pytest.raises(ClockAhead, match="none of the records to read has a timestamp"):
        lake.ingest()
    lake.configure(clock_ahead_max_s=2 * 86_400)
    lake.ingest()
    assert [binding.time - start_ms for binding in lake.times[1:]] == [1000, 10 * DAY_MS, 12 * DAY_MS]


# --- idle topics -----------------------------------------------------------------------------------------------------


class IdleLake(RawLake):
    """A lake whose clock is turned by hand, with one record that was read when the lake was made."""

    def __init__(self, root: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
        super().__init__(root, spark, **more)
        self.start_ms = self.now_ms = int(clock.time() * 1000) - 30 * DAY_MS
        monkeypatch.setattr(clock, "time", lambda: self.now_ms / 1000)
        self.put({"id": 1, "page": "a"})
        self.ingest()

    def tick_at(self, after_s: float) -> tuple[int, int]:
        """Ingest this long after the start; return the number of idle ticks, and `upper` in seconds after the start."""
        self.now_ms = self.start_ms + int(after_s * 1000)
        ingested = self.ingest()
        return ingested.idle_ticks, (self.upper - self.start_ms) // 1000

    @property
    def upper(self) -> int:
        return self.table.value("upper") or 0

    @property
    def versions(self) -> tuple[int, int]:
        return self.table.version, OpenTable(self.collection.paths.bindings).version


@pytest.fixture
def idle(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IdleLake:
    return IdleLake(tmp_path, spark, monkeypatch)


def test_an_idle_topic_moves_upper_once_per_interval_however_often_ingest_runs(idle: IdleLake) -> None:
    before = idle.versions
    ticks = [idle.tick_at(after_s) for after_s in (1, 299, 300, 300, 301, 599, 600, 1000)]
    assert ticks == [(0, 0), (0, 0), (1, 300), (0, 300), (0, 300), (0, 300), (1, 600), (1, 1000)]
    assert idle.versions == (before[0] + 3, before[1] + 3)
    assert idle.table.value("upper") == idle.start_ms + 1_000_001


@pytest.mark.sweep
def test_idle_ticks_bind_no_offsets_and_successive_ones_are_one_binding_in_the_chain(idle: IdleLake) -> None:
    for after_s in (300, 600, 900):
        idle.tick_at(after_s)
    idle.put({"id": 2, "page": "b"})
    idle.tick_at(950)
    for after_s in (1300, 1600):
        idle.tick_at(after_s)
    first, second, third, last = idle.times
    times = [(binding.time - idle.start_ms) // 1000 for binding in idle.times]
    assert times == [0, 900, 950, 1600]
    assert [binding.lower for binding in (second, third, last)] == [
        first.time + 1,
        second.time + 1,
        third.time + 1,
    ]
    assert [(binding.records, binding.rows, binding.quarantined) for binding in (second, last)] == [(0, 0, 0)] * 2
    assert [(binding.starts, binding.ends) for binding in (second, last)] == [
        ({(NAME, 0): 1}, {(NAME, 0): 1}),
        ({(NAME, 0): 2}, {(NAME, 0): 2}),
    ]
    rows = [[row["id"] for row in idle.rows(idle.start_ms + after_s * 1000)] for after_s in (0, 300, 949, 950, 1600)]
    assert rows == [[1], [1], [1], [1, 2], [1, 2]]
    report = idle.validate(full=True)
    assert (report.damaged, [time["recounted"] for time in report.times]) == (False, [1, 1])
    assert not idle.validate().damaged


def test_an_unconfirmed_clock_does_not_move_upper_and_does_not_stop_ingest(idle: IdleLake) -> None:
    """Ingest did not run for a week while the topic was idle: a clock that is a week ahead looks the same."""
    assert idle.tick_at(300 + 86_400) == (1, 300 + 86_400)
    start_s, before = 300 + 86_400, idle.versions
    with capture_logs() as logs:
        assert idle.tick_at(start_s + 7 * 86_400) == (0, start_s)
    assert [(log["event"], log["ahead_s"]) for log in logs if log["log_level"] == "warning"] == [
        ("upper is waiting for a record that confirms the clock", 7 * 86_400)
    ]
    assert idle.versions == before
    idle.put({"value": {"id": 2, "page": "after the holiday"}, "timestamp_ms": idle.now_ms})
    assert idle.tick_at(start_s + 7 * 86_400 + 5) == (0, start_s + 7 * 86_400 + 5)
    assert idle.tick_at(start_s + 7 * 86_400 + 305)[0] == 1


def test_a_clock_that_was_set_back_does_not_move_upper_until_it_has_caught_up(idle: IdleLake) -> None:
    idle.tick_at(3600)
    before = idle.versions
    assert [idle.tick_at(after_s) for after_s in (10, 3899)] == [(0, 3600)] * 2
    assert idle.versions == before
    assert idle.tick_at(3900) == (1, 3900)


def test_an_idle_topic_is_left_alone_if_the_interval_is_0(idle: IdleLake) -> None:
    idle.configure(idle_upper_s=0)
    assert idle.tick_at(86_000) == (0, 0)
    idle.configure(idle_upper_s=3600)
    assert [idle.tick_at(after_s) for after_s in (86_001, 86_301)] == [(1, 86_001), (0, 86_001)]


def test_a_topic_without_any_record_mints_no_time(spark: SparkSession, tmp_path: Path) -> None:
    lake = RawLake(tmp_path, spark)
    (lake.topic / "0.jsonl").touch()
    assert lake.ingest().idle_ticks == 0
    assert lake.table.value("upper") == 0


def test_a_gap_holds_back_upper_of_an_idle_topic(idle: IdleLake) -> None:
    idle.ends[NAME, 0] += 2
    idle.put({"id": 2, "page": "behind the gap"})
    with pytest.raises(TopicGap):
        idle.tick_at(300)
    assert idle.upper == idle.start_ms + 1


@pytest.mark.parametrize("place", swept(["raw.after_binding", "commit.after_call.updates"], ["raw.after_binding"]))
def test_an_idle_tick_that_is_killed_costs_at_most_an_interval(idle: IdleLake, place: str) -> None:
    stop_at(place, lambda: idle.tick_at(300))
    committed = place != "raw.after_binding"
    assert [idle.tick_at(after_s) for after_s in (301, 600)] == [(0, 300 if committed else 0), (1, 600)]
    assert [(binding.time - idle.start_ms) // 1000 for binding in idle.times] == [0, 600]
    assert not idle.validate(full=True).damaged


@pytest.mark.sweep
def test_an_idle_tick_that_another_tick_overtakes_does_not_move_upper(idle: IdleLake) -> None:
    def meet(name: str) -> None:
        if name == "raw.after_binding":
            on_reach(None)
            idle.put({"id": 2, "page": "b"})
            idle.tick_at(310)

    on_reach(meet)
    try:
        assert idle.tick_at(300) == (0, 310)
    finally:
        on_reach(None)
    assert [binding.records for binding in idle.times] == [1, 1]
    assert [row["id"] for row in idle.rows()] == [1, 2]


@pytest.mark.sweep
def test_compaction_and_current_do_nothing_if_all_newer_ticks_are_idle(idle: IdleLake) -> None:
    idle.configure(keep=600_000)
    idle.put({"id": 2, "page": "b"})
    idle.tick_at(100)
    idle.tick_at(1000)
    assert idle.compact(full=True).merges == 1
    built = update_current(idle.spark, idle.collection)
    assert (built.published, built.as_of, built.unchanged_through) == (True, idle.upper - 1, None)
    files = [file.path for file in idle.table.files()]
    for after_s in (2000, 3000):
        assert idle.tick_at(after_s) == (1, after_s)
        compacted = idle.compact(full=True)
        assert (compacted.merges, compacted.since) == (0, (idle.now_ms - 600_000,))
        shown = update_current(idle.spark, idle.collection)
        assert (shown.published, shown.as_of, shown.rows) == (False, built.as_of, 2)
        assert shown.unchanged_through == idle.upper - 1
    assert [file.path for file in idle.table.files()] == files
    assert [row["id"] for row in idle.rows()] == [1, 2]
    idle.put({"id": 3, "page": "c"})
    idle.tick_at(3001)
    assert update_current(idle.spark, idle.collection).published
    assert [row["id"] for row in idle.rows()] == [1, 2, 3]
    assert not idle.validate(full=True).damaged


def test_the_bindings_of_many_idle_ticks_are_merged(idle: IdleLake) -> None:
    for number in range(1, 12):
        idle.tick_at(number * 300)
    before = len(OpenTable(idle.collection.paths.bindings).files())
    idle.compact(full=True)
    files = OpenTable(idle.collection.paths.bindings).files()
    assert (before, len(files), sum(file.rows for file in files)) == (12, 1, 12)
    assert len(idle.times) == 2
