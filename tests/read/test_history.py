"""`history` shows some events forever and others only while the logs have them, and says from when it is complete."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tidelake
from tests.lakes.lake import NAME, RECORD, Lake, progress, updates
from tests.lakes.raw_lake import RawLake
from tests.stops import stop_at
from tidelake.catalog.catalog import Catalog
from tidelake.compact.compaction import CompactReport
from tidelake.compact.note import note_compaction
from tidelake.decisions import Acknowledge, Count, Offsets
from tidelake.read.history import History, read_history
from tidelake.settings.collection import CollectionSpec
from tidelake.storage.location import Location
from tidelake.store import table_log
from tidelake.store.commit import OpenTable, maintain
from tidelake.store.files import write_run
from tidelake.store.layout import PROOFS_SCHEMA, Store
from tidelake.store.proof_log import read_proof_log
from tidelake.store.runs import append_run
from tidelake.validate.late import compare_late


def history_of(lake: Lake, *kinds: str, limit: int | None = None) -> History:
    return tidelake.open_lake(lake.file).collection(NAME).history(limit, kinds)


def whats(lake: Lake, *kinds: str) -> list[str]:
    return [event.what for event in history_of(lake, *kinds).events]


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    """A collection whose history has events of most kinds."""
    lake = Lake(tmp_path_factory.mktemp("busy"), spark, keep=1)
    prices = tidelake.open_lake(lake.file).collection(NAME)
    lake.send(updates((1, 1, 1), (1, 1, 1), (2, 2, 1)), progress([0], [4], {1: 1, 2: 1}), b"\x07 garbage")
    lake.run()
    lake.send(progress([4], [6]))
    lake.run()
    lake.send(updates((6, 6, 1), (7, 6, 1)), progress([6], [8], {6: 1}))
    lake.run()
    prices.decide(Count(time=6, count=2, reason="both are right"))
    prices.decide(Acknowledge(offsets=Offsets.parse(f"{NAME}:0:2"), reason="a test"))
    prices.withdraw(Offsets.parse(f"{NAME}:0:2"))
    lake.seal()
    lake.validate()
    lake.send(updates((9, 1, 1)))
    lake.run()
    compare_late(spark, lake.collection)
    lake.compact(full=False)
    lake.compact()
    prices.fence("machine-2")
    return lake


@pytest.mark.spark
def test_each_event_is_shown_once_with_its_numbers_and_the_newest_last(busy: Lake) -> None:
    events = history_of(busy).events
    assert [event.at_ms for event in events] == sorted(event.at_ms for event in events)
    assert (events[0].kind, events[-1].kind) == ("created", "fence")
    assert whats(busy, "seal") == [
        "sealed from 0 to 4, 2 times with updates, 1 copy left out",
        "sealed from 4 to 6, no time had updates",
        "sealed from 6 to 8, 1 time with updates, 1 time sealed by decision",
    ]
    assert whats(busy, "tick") == [
        "read prices:0 up to 3; stored 3 rows",
        "read prices:0 up to 4; stored 0 rows",
        "read prices:0 up to 6; stored 2 rows",
        "read prices:0 up to 7; stored 0 rows",
    ]
    assert whats(busy, "validation") == ["the times from 0 to 8 agree with what was proven"]
    (contradiction,) = history_of(busy, "contradiction").events
    assert contradiction.what.startswith(
        "time 6: over_count: time 6 has more distinct updates than announced: 2 instead of 1"
    )
    assert whats(busy, "late") == ["1 late update contradicts what was published at time 1"]
    assert whats(busy, "decision") == [
        "count, time 6: 2 updates: both are right",
        "quarantine, prices:0:2: a test",
    ]
    assert whats(busy, "withdrawal") == ["quarantine, prices:0:2"]
    assert whats(busy, "since") == ["since moved from 0 to 7"]
    assert whats(busy, "merge") == ["3 runs with 6 rows became 4 rows; since is 7"]
    assert whats(busy, "compaction") == ["3 runs with 6 rows became 4 rows"]  # only the full compaction is noted
    assert whats(busy, "fence") == ["only the writer 'machine-2' may write; running processes have to restart"]
    assert history_of(busy).complete_from is None


@pytest.mark.spark
@pytest.mark.sweep
def test_a_publication_is_not_an_event_of_another_kind(lake: Lake) -> None:
    lake.send(updates((1, 1, 1)), progress([0], [4], {1: 1}))
    lake.run()
    before = whats(lake)
    assert lake.current().ok
    assert whats(lake) == before


def test_a_limit_keeps_the_newest_events_and_counts_the_others(busy: Lake) -> None:
    everything, few = history_of(busy), history_of(busy, limit=2)
    assert (few.events, few.total) == (everything.events[-2:], len(everything.events))
    assert history_of(busy, limit=0).events == []
    assert everything.as_json()["events"][-1]["at"].endswith("Z")


@pytest.mark.spark
def test_an_event_has_the_time_at_which_it_was_committed(busy: Lake) -> None:
    sealed = history_of(busy, "seal").events
    ticks = history_of(busy, "tick").events
    assert ticks[0].at_ms < sealed[0].at_ms < ticks[1].at_ms < sealed[1].at_ms < ticks[2].at_ms


def forget(table: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clean up a log, as after hours with many commits."""
    monkeypatch.setattr(table_log, "RETENTION_S", -60)
    epoch = OpenTable(table).value("epoch")
    for _ in range(70):
        OpenTable(table).commit({}, epoch=epoch)
        maintain(table)


@pytest.mark.spark
def test_events_that_the_logs_have_forgotten_are_gone_and_the_history_says_when_it_begins(
    busy: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = busy.copy(tmp_path / "old")
    before = history_of(lake)
    forget(lake.collection.paths.updates, monkeypatch)
    forget(lake.collection.paths.handles, monkeypatch)
    after = history_of(lake)
    assert after.complete_from_ms is not None
    assert after.complete_from_ms > before.events[-1].at_ms
    for kind in ("tick", "merge", "since", "withdrawal", "fence"):
        assert whats(lake, kind) == []
    assert whats(lake, "seal") == [
        "sealed from 0 to 4, 2 times with updates, 1 copy left out",
        "sealed from 6 to 8, 1 time with updates, 1 time sealed by decision",
    ]
    for kind in ("created", "validation", "contradiction", "late", "compaction"):
        assert whats(lake, kind) == [event.what for event in before.events if event.kind == kind]
    assert whats(lake, "decision") == ["count, time 6: 2 updates: both are right"]


@pytest.mark.spark
@pytest.mark.sweep
def test_a_seal_that_stopped_before_its_commit_is_not_shown(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates((1, 1, 1)), progress([0], [2], {1: 1}))
    lake.ingest()
    stop_at("seal.after_proofs", lake.seal)
    assert whats(lake, "seal") == []
    lake.send(updates((2, 2, 1)), progress([2], [3], {2: 1}))
    lake.run()
    assert whats(lake, "seal") == ["sealed from 0 to 3, 2 times with updates"]
    forget(lake.collection.paths.updates, monkeypatch)
    assert whats(lake, "seal") == ["sealed from 0 to 3, 2 times with updates"]


@pytest.mark.spark
def test_a_compaction_that_changes_nothing_is_not_noted(busy: Lake, tmp_path: Path) -> None:
    lake = busy.copy(tmp_path / "idle")
    tidelake.open_lake(lake.file).collection(NAME).fence(None)
    lake.compact()
    assert len(whats(lake, "compaction")) == 1


def test_the_note_of_a_compaction_does_not_hide_damage(tmp_path: Path) -> None:
    catalog = Catalog(Store(tmp_path))
    collection = catalog.open_or_create(CollectionSpec(NAME, "cdcv2", "none", RECORD))
    damage = {"kind": "damaged", "lower": 0, "upper": 3, "detail": "a row is missing", "at_ms": 5}
    path, note = collection.paths.proofs, pa.Table.from_pylist([damage], schema=PROOFS_SCHEMA)
    append_run(path, "validation", lambda run: write_run(path, run, note), 0)
    note_compaction(collection, (0,), CompactReport(since=(2,)))
    log = read_proof_log(collection)
    assert (log.damaged, log.newest_at_ms) == ("a row is missing", 5)
    assert [event.kind for event in read_history(collection, kinds=("damage", "compaction")).events] == [
        "damage",
        "compaction",
    ]


@pytest.mark.spark
@pytest.mark.sweep
def test_the_ticks_of_a_reclocked_collection_come_from_its_bindings(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = RawLake(tmp_path, spark)
    lake.put({"id": 1, "page": "a"}, "nonsense")
    lake.ingest()
    lake.put({"id": 2, "page": "b"})
    lake.ingest()
    forget(lake.collection.paths.updates, monkeypatch)
    first, second = lake.times
    shown: list[dict[str, Any]] = [event.as_json() for event in history_of(lake, "tick").events]
    assert [(event["at_ms"], event["time"], event["records"], event["quarantined"]) for event in shown] == [
        (first.at_ms, first.time, 2, 1),
        (second.at_ms, second.time, 1, 0),
    ]
    assert shown[0]["what"] == f"time {first.time}: read 2 records, stored 1 row, 1 quarantined"
    assert whats(lake, "seal") == []


@pytest.mark.spark
def test_a_history_does_not_start_a_jvm(busy: Lake) -> None:
    code = f"""
import sys, tidelake
assert tidelake.open_lake({str(busy.file)!r}).collection({NAME!r}).history().events
assert "pyspark" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
