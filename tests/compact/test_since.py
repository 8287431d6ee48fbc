"""Moving `since`, the first commit of a compaction: how far, by which clocks, and by whom."""

from __future__ import annotations

import os
import time as clock
from pathlib import Path

import pytest

from tests.expectations.reports import settings
from tidelake.compact.compaction import move_since
from tidelake.errors import Fenced
from tidelake.read.status import read_status
from tidelake.settings.collection import CollectionSpec
from tidelake.storage import blobs
from tidelake.storage.location import locate
from tidelake.store.catalog import Catalog
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.layout import Store
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

    def since(self, upper: int, keep: str | int) -> int:
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


def test_the_clock_of_the_store_is_used_if_this_machine_is_a_year_ahead(
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
