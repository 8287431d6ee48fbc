"""How long a frontier has stood still: from its last move on, or from the beginning, and not at all once closed."""

from __future__ import annotations

import time as clock
from dataclasses import replace
from pathlib import Path

from expectations.checks import frontier_age_s
from tests.expectations.test_suite import STATUS, settings
from tidelake.delta.catalog import Catalog
from tidelake.delta.commit import OpenTable
from tidelake.delta.layout import Store
from tidelake.delta.status import read_status
from tidelake.delta.values import CLOSED, SEALED_AT_MS, UPPER


def test_the_age_of_a_frontier_that_never_moved_of_one_that_did_and_of_a_closed_one(tmp_path: Path) -> None:
    catalog = Catalog(Store(tmp_path))
    catalog.open_or_create(settings("plain"))
    entry = catalog.update("prices", lambda one: one.model_copy(update={"created_at_ms": one.created_at_ms - 90_000}))
    collection = catalog.find("prices")
    assert collection.entry == entry

    def age_s() -> int:
        return frontier_age_s(collection, read_status(collection, "plain"))

    assert 90 <= age_s() < 150  # nothing was ever sealed: since it was made
    now_ms = int(clock.time() * 1000)
    OpenTable(collection.paths.updates).commit({UPPER: 5, SEALED_AT_MS: now_ms - 40_000})
    assert 40 <= age_s() < 90
    OpenTable(collection.paths.updates).commit({CLOSED: 1, SEALED_AT_MS: now_ms - 40_000})
    assert age_s() == 0
    assert frontier_age_s(collection, replace(STATUS, lag_s=-3.0)) == 0  # a clock that went back
