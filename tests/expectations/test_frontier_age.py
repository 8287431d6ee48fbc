"""The age of a frontier counts from its last move or the collection's creation; the age in a closed stream is 0."""

from __future__ import annotations

import time as clock
from dataclasses import replace
from pathlib import Path

from expectations.frame import frontier_age_s
from tests.expectations.reports import STATUS, settings
from tidelake.catalog.catalog import Catalog
from tidelake.read.status import read_status
from tidelake.store.commit import OpenTable
from tidelake.store.layout import Store
from tidelake.store.state import CLOSED, SEALED_AT_MS, UPPER


def test_the_age_of_a_frontier_is_counted_from_its_last_move_and_is_zero_if_closed(tmp_path: Path) -> None:
    catalog = Catalog(Store(tmp_path))
    catalog.open_or_create(settings("plain").spec())
    entry = catalog.update("prices", lambda old: old.model_copy(update={"created_at_ms": old.created_at_ms - 90_000}))
    collection = catalog.find("prices")
    assert collection.entry == entry

    def age_s() -> int:
        return frontier_age_s(collection, read_status(collection))

    assert 90 <= age_s() < 150  # nothing is sealed yet, so the age is counted from the creation
    now_ms = int(clock.time() * 1000)
    OpenTable(collection.paths.updates).commit({UPPER: 5, SEALED_AT_MS: now_ms - 40_000})
    assert 40 <= age_s() < 90
    OpenTable(collection.paths.updates).commit({CLOSED: 1, SEALED_AT_MS: now_ms - 40_000})
    assert age_s() == 0
    assert frontier_age_s(collection, replace(STATUS, lag_s=-3.0)) == 0  # a clock was set back


def test_a_reclocked_topic_stalls_only_if_it_has_unread_records(tmp_path: Path) -> None:
    quiet, unread, unreachable = (replace(STATUS, lag_s=90.0, lag_messages=lag) for lag in (0, 1, None))
    catalog = Catalog(Store(tmp_path))
    raw = catalog.open_or_create(settings("append_only", "reclock").spec())
    assert [frontier_age_s(raw, status) for status in (quiet, unread, unreachable)] == [0, 90, 90]
    # A stream that states its own progress has to keep stating it, even if nothing is left to read.
    catalog.open_or_create(replace(settings("plain").spec(), name="stated"))
    assert frontier_age_s(catalog.find("stated"), quiet) == 90
