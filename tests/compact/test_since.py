"""Moving since, the first commit of a compaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.expectations.reports import settings
from tidelake.compact.compaction import move_since
from tidelake.errors import Fenced
from tidelake.store.catalog import Catalog
from tidelake.store.commit import OpenTable
from tidelake.store.layout import Store


def test_a_compaction_that_was_fenced_before_it_began_gets_no_new_epoch(tmp_path: Path) -> None:
    catalog = Catalog(Store(tmp_path))
    running = catalog.open_or_create(settings("plain").spec())
    OpenTable(running.paths.updates).commit({"upper": 9})
    fenced = catalog.fence("prices", None)
    with pytest.raises(Fenced, match="with epoch 0 was fenced by epoch 1"):
        move_since(catalog, running, 2)
    assert catalog.find("prices").entry == fenced
    assert move_since(catalog, catalog.find("prices"), 2).since == (7,)
