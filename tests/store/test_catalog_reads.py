"""How often the state of a whole lake reads the catalog, without a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assets.topics import look_at_lake
from tests.expectations.reports import settings
from tests.report.published import configure
from tidelake import open_lake
from tidelake.errors import StoreUnreadable, TidelakeError
from tidelake.read.status import CollectionStatus
from tidelake.store.catalog import Catalog
from tidelake.store.entry import Entry
from tidelake.store.layout import Store


@pytest.mark.parametrize("number", [2, 6])
def test_the_state_of_a_lake_reads_the_entries_of_the_catalog_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    names = [f"c{at}" for at in range(number)]
    catalog = Catalog(Store(tmp_path / "store"))
    for name in names:
        catalog.open_or_create(settings("plain").model_copy(update={"name": name}).spec())
    lake = open_lake(configure(tmp_path, *names, "new"))
    reads: list[int] = []
    read = Catalog._read

    def counted(self: Catalog, table: Any) -> dict[str, Entry]:
        reads.append(1)
        return read(self, table)

    monkeypatch.setattr(Catalog, "_read", counted)
    found = lake.status()
    assert len(reads) == 1
    assert [name for name, status in found.items() if isinstance(status, CollectionStatus)] == names
    assert found["new"] is None
    reads.clear()
    states = look_at_lake(lake.settings)
    assert len(reads) == 1 and list(states) == [*names, "new"]
    assert not any(isinstance(state, TidelakeError) for state in states.values())
    reads.clear()
    assert lake.collection("c1").status() is not None
    assert len(reads) == 1


def test_a_catalog_that_cannot_be_read_is_the_error_of_each_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = open_lake(configure(tmp_path, "a", "b"))

    def unreadable(self: Catalog) -> list[Entry]:
        raise OSError("the disk is away")

    monkeypatch.setattr(Catalog, "entries", unreadable)
    found = lake.status()
    assert list(found) == ["a", "b"]
    assert all(isinstance(error, StoreUnreadable) and "the disk is away" in str(error) for error in found.values())
