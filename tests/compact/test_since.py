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


class Kept:
    """A collection without rows, and its retention."""

    def __init__(self, root: Path, framing: str, envelope: str) -> None:
        self.catalog = Catalog(Store(root))
        self.catalog.open_or_create(CollectionSpec("visits", framing, envelope, RECORD))

    @property
    def collection(self) -> Collection:
        return self.catalog.find("visits")

    def since(self, upper: int, keep: str | int) -> int:
        """Seal up to `upper`, and let compaction move `since`."""
        OpenTable(self.collection.paths.updates).commit({UPPER: upper})
        return move_since(self.catalog, self.collection, keep).since[0]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """A reclocked collection."""
    return Kept(tmp_path, "reclock", "append_only")


def test_an_upper_in_the_future_forgets_nothing_recent(kept: Kept) -> None:
    since = kept.since(NOW_MS + 365 * DAY_MS, DAY_MS)
    assert NOW_MS - DAY_MS <= since <= int(clock.time() * 1000) - DAY_MS


def test_keep_counts_from_upper_if_the_topic_is_idle(kept: Kept) -> None:
    assert kept.since(NOW_MS - 9 * DAY_MS, "all") == 0
    assert kept.since(NOW_MS - 9 * DAY_MS, DAY_MS) == NOW_MS - 10 * DAY_MS
    assert kept.since(NOW_MS - 5 * DAY_MS, 0) == NOW_MS - 5 * DAY_MS - 1


def test_the_clock_of_the_store_counts_if_this_machine_is_a_year_ahead(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelake.compact.compaction.clock.time", lambda: NOW_MS / 1000 + 365 * 86_400)
    assert kept.since(NOW_MS + 365 * DAY_MS, DAY_MS) < NOW_MS + 3_600_000 - DAY_MS


def test_a_clock_that_is_behind_moves_nothing_back(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kept.since(NOW_MS - DAY_MS, DAY_MS)
    monkeypatch.setattr("tidelake.compact.compaction.clock.time", lambda: 0.0)
    assert kept.since(NOW_MS, DAY_MS) == before == NOW_MS - 2 * DAY_MS


def test_no_clock_bounds_the_times_of_a_source(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "cdcv2", "none")
    assert kept.since(NOW_MS + 365 * DAY_MS, DAY_MS) == NOW_MS + 364 * DAY_MS


def test_status_says_that_times_are_ahead_of_the_clock(kept: Kept) -> None:
    kept.since(NOW_MS, "all")
    assert read_status(kept.collection, "append_only").state == "in order"
    kept.since(NOW_MS + 3 * DAY_MS, "all")
    status = read_status(kept.collection, "append_only")
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
