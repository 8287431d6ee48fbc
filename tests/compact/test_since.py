"""A compaction first moves `since`: how far it moves, which clocks count, and which writer may move it."""

from __future__ import annotations

import os
import time as clock
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.expectations.reports import settings
from tidelake.catalog.catalog import Catalog
from tidelake.compact.compaction import move_since
from tidelake.errors import Fenced
from tidelake.read.holding import acquire
from tidelake.read.status import read_status
from tidelake.settings.collection import CollectionSpec
from tidelake.storage import blobs
from tidelake.storage.location import locate
from tidelake.store import sealed_at
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import read_rows, write_run
from tidelake.store.layout import BINDINGS_SCHEMA, PROOFS_SCHEMA, TIME, Store, new_run
from tidelake.store.state import UPPER

DAY_MS = 86_400_000
RECORD = {"type": "record", "name": "visit", "fields": [{"name": "id", "type": "long"}]}
NOW_MS = int(clock.time() * 1000)


class EmptyCollection:
    """A collection without rows, whose `since` can be moved."""

    def __init__(self, root: Path, framing: str, envelope: str) -> None:
        self.catalog = Catalog(Store(root))
        self.catalog.open_or_create(CollectionSpec("visits", framing, envelope, RECORD))

    @property
    def collection(self) -> Collection:
        return self.catalog.find("visits")

    def since(self, upper: int, keep: str | int | timedelta) -> int:
        """Seal up to `upper`, let compaction move `since`, and return the new value."""
        OpenTable(self.collection.paths.updates).commit({UPPER: upper})
        return move_since(self.catalog, self.collection, keep).since[0]


@pytest.fixture
def empty(tmp_path: Path) -> EmptyCollection:
    """A reclocked collection."""
    return EmptyCollection(tmp_path, "reclock", "append_only")


def test_nothing_recent_is_forgotten_if_upper_is_in_the_future(empty: EmptyCollection) -> None:
    since = empty.since(NOW_MS + 365 * DAY_MS, DAY_MS)
    assert NOW_MS - DAY_MS <= since <= int(clock.time() * 1000) - DAY_MS


def test_keep_is_measured_from_upper_if_the_topic_is_idle(empty: EmptyCollection) -> None:
    assert empty.since(NOW_MS - 9 * DAY_MS, "all") == 0
    assert empty.since(NOW_MS - 9 * DAY_MS, DAY_MS) == NOW_MS - 10 * DAY_MS
    assert empty.since(NOW_MS - 5 * DAY_MS, 0) == NOW_MS - 5 * DAY_MS - 1


def test_the_stores_clock_is_used_if_this_machines_clock_is_a_year_ahead(
    empty: EmptyCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelake.compact.compaction.clock.time", lambda: NOW_MS / 1000 + 365 * 86_400)
    assert empty.since(NOW_MS + 365 * DAY_MS, DAY_MS) < NOW_MS + 3_600_000 - DAY_MS


def test_a_clock_that_is_behind_does_not_move_since_back(
    empty: EmptyCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = empty.since(NOW_MS - DAY_MS, DAY_MS)
    monkeypatch.setattr("tidelake.compact.compaction.clock.time", lambda: 0.0)
    assert empty.since(NOW_MS, DAY_MS) == before == NOW_MS - 2 * DAY_MS


def test_times_that_a_source_states_are_not_bounded_by_a_clock(tmp_path: Path) -> None:
    empty = EmptyCollection(tmp_path, "cdcv2", "none")
    assert empty.since(NOW_MS + 365 * DAY_MS, DAY_MS) == NOW_MS + 364 * DAY_MS


class Sealed:
    """A collection whose times were sealed at known moments, as stated by its proofs or bindings."""

    def __init__(self, empty: EmptyCollection) -> None:
        self.empty, self.upper = empty, 0

    def seal(self, *times: int, days_ago: float) -> None:
        """Record, in one run, that times were sealed, and move upper past the last of them."""
        paths = self.empty.collection.paths
        mints = self.empty.collection.entry.mints_times
        table, schema, kind = (
            (paths.bindings, BINDINGS_SCHEMA, "binding") if mints else (paths.proofs, PROOFS_SCHEMA, "proof")
        )
        at_ms = int(clock.time() * 1000) - int(days_ago * DAY_MS)
        rows = pa.Table.from_pylist([{TIME: time, "at_ms": at_ms} for time in times], schema=schema)
        opened = OpenTable(table)
        opened.commit({}, write_run(table, new_run(kind, opened.seq), rows))
        self.upper = max(self.upper, *(time + 1 for time in times))

    def since(self, days: float) -> int:
        return self.empty.since(self.upper, timedelta(days=days))


@pytest.fixture(params=["cdcv2", "reclock"])
def sealed(tmp_path: Path, request: pytest.FixtureRequest) -> Sealed:
    envelope = "none" if request.param == "cdcv2" else "append_only"
    return Sealed(EmptyCollection(tmp_path, request.param, envelope))


def test_a_duration_keeps_the_contents_that_were_readable_at_its_beginning(sealed: Sealed) -> None:
    sealed.seal(10, 11, days_ago=9)
    sealed.seal(20, days_ago=8)
    sealed.seal(30, 31, days_ago=6)
    sealed.seal(40, days_ago=1)
    assert sealed.since(10) == 0
    assert sealed.since(8.5) == 11
    assert sealed.since(7) == 20
    assert sealed.since(7) == 20
    assert sealed.since(8.5) == 20  # it does not move back
    assert sealed.since(3) == 31
    assert sealed.since(0.5) == 40


def test_a_stream_that_stalls_for_longer_than_a_duration_keeps_its_last_time(sealed: Sealed) -> None:
    sealed.seal(10, 20, days_ago=30)
    sealed.upper = 1000
    assert sealed.since(7) == 20


def test_a_time_that_was_proven_twice_counts_from_the_second_proof(sealed: Sealed) -> None:
    sealed.seal(10, days_ago=9)
    sealed.seal(20, 30, days_ago=8)  # this seal was stopped before its commit
    sealed.seal(20, days_ago=2)
    assert sealed.since(7) == 10
    assert sealed.since(1) == 30


def test_a_duration_is_not_shorter_if_this_machines_clock_is_ahead(
    sealed: Sealed, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed.seal(10, days_ago=9)
    sealed.seal(20, days_ago=6)
    monkeypatch.setattr("tidelake.compact.compaction.clock.time", lambda: NOW_MS / 1000 + 365 * 86_400)
    assert sealed.since(7) == 10


def test_a_duration_does_not_pass_a_hold(sealed: Sealed) -> None:
    sealed.seal(10, days_ago=9)
    sealed.seal(20, days_ago=8)
    OpenTable(sealed.empty.collection.paths.updates).commit({UPPER: sealed.upper})
    acquire(sealed.empty.catalog, sealed.empty.collection.name, 5, timedelta(hours=1), "report")
    assert sealed.since(7) == 5


def test_only_the_notes_up_to_the_first_time_that_is_too_young_are_read(
    sealed: Sealed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(30, 0, -1):
        sealed.seal(1000 - 10 * day, days_ago=day)
    assert sealed.since(20.5) == 1000 - 210
    opened: list[str] = []

    def noting(*given: Any) -> pa.Table:
        opened.append(given[1][0].path)
        return read_rows(*given)

    monkeypatch.setattr(sealed_at, "read_rows", noting)
    assert sealed.since(19.5) == 1000 - 200
    assert len(opened) == 2


def test_status_says_that_times_are_ahead_of_the_clock(empty: EmptyCollection) -> None:
    now_ms = int(clock.time() * 1000)  # a long run may have imported this file an hour ago
    empty.since(now_ms, "all")
    assert read_status(empty.collection).state == "in order"
    empty.since(now_ms + 3 * DAY_MS, "all")
    status = read_status(empty.collection)
    assert status.state == "times are ahead of the clock"
    assert status.waits_for is not None
    assert 3 * 86_400 - 600 < status.times_ahead_s <= 3 * 86_400


def test_the_clock_of_a_disk_is_read_from_a_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "time", lambda: 0.0)
    (tmp_path / "file").touch()
    assert abs(blobs.now_s(locate(tmp_path)) - (tmp_path / "file").stat().st_mtime) < 60
    assert os.listdir(tmp_path) == ["file"]


def test_a_compaction_that_was_fenced_before_it_began_gets_no_new_epoch(tmp_path: Path) -> None:
    catalog = Catalog(Store(tmp_path))
    running = catalog.open_or_create(settings("plain").spec())
    OpenTable(running.paths.updates).commit({"upper": 9})
    fenced = catalog.fence("prices", None)
    with pytest.raises(Fenced, match="with epoch 0 was fenced by epoch 1"):
        move_since(catalog, running, 2)
    assert catalog.find("prices").entry == fenced
    assert move_since(catalog, catalog.find("prices"), 2).since == (7,)
