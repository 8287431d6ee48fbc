"""A lookup of collections reads only their own files. No JVM is started."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assets.topics import read_lake_states
from tests.expectations.reports import settings
from tests.report.published import configure
from tidelake import open_lake
from tidelake.catalog import handles
from tidelake.catalog.catalog import Catalog
from tidelake.catalog.name_log import NameLog
from tidelake.errors import DamagedTable, StoreUnreadable, TidelakeError
from tidelake.read.status import CollectionStatus
from tidelake.storage.local_disk import LocalDisk
from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Entry
from tidelake.store.layout import CollectionPaths, Store


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Location]:
    """The handles that are read."""
    found: list[Location] = []
    read = handles._read

    def counted(paths: CollectionPaths, table: OpenTable) -> Entry:
        found.append(table.path)
        return read(paths, table)

    monkeypatch.setattr(handles, "_read", counted)
    return found


@pytest.mark.parametrize("number", [2, 6])
def test_the_entry_of_each_collection_is_read_once_for_the_state_of_a_lake(
    tmp_path: Path, reads: list[Location], number: int
) -> None:
    names = [f"c{at}" for at in range(number)]
    catalog = Catalog(Store(tmp_path / "store"))
    for name in (*names, "of_another_lake"):
        catalog.open_or_create(settings("plain").model_copy(update={"name": name}).spec())
    lake = open_lake(configure(tmp_path, *names, "new"))
    own = [catalog.find(name).paths.handles for name in names]
    reads.clear()
    found = lake.status()
    assert reads == own
    assert [name for name, status in found.items() if isinstance(status, CollectionStatus)] == names
    assert found["new"] is None
    reads.clear()
    states = read_lake_states(lake.settings)
    assert reads == own and list(states) == [*names, "new"]
    assert not any(isinstance(state, TidelakeError) for state in states.values())
    reads.clear()
    assert lake.collection("c1").status() is not None
    assert reads == [own[1]]
    reads.clear()
    assert catalog.check([lake.settings.collection(name).spec() for name in ("c0", "new")]) == {"c0"}
    assert reads == [own[0]]


@pytest.mark.parametrize("number", [1, 12])
def test_finding_or_changing_a_collection_touches_the_same_number_of_files_in_any_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    catalog = Catalog(Store(tmp_path / "store"))
    for at in range(number):
        catalog.open_or_create(settings("plain").model_copy(update={"name": f"c{at}"}).spec())
    touched: Counter[str] = Counter()
    for name in ("read", "open_file", "list_names", "create", "exists"):
        monkeypatch.setattr(LocalDisk, name, counting(getattr(LocalDisk, name), name, touched))
    catalog.find("c0")
    assert touched == {"list_names": 4, "read": 5, "open_file": 1}
    touched.clear()
    catalog.update("c0", lambda entry: entry.model_copy(update={"epoch": 1}))
    assert touched == {"list_names": 7, "read": 6, "open_file": 3, "exists": 1, "create": 2}


def counting(call: Callable[..., Any], name: str, touched: Counter[str]) -> Callable[..., Any]:
    def counted(*arguments: Any) -> Any:
        touched[name] += 1
        return call(*arguments)

    return counted


def test_a_damaged_collection_is_an_error_in_its_own_status_only(tmp_path: Path) -> None:
    catalog = Catalog(Store(tmp_path / "store"))
    for name in "abc":
        catalog.open_or_create(settings("plain").model_copy(update={"name": name}).spec())
    shutil.rmtree(catalog.find("b").paths.handles.local)
    shutil.rmtree((catalog.store.names / "c").local)
    lake = open_lake(configure(tmp_path, *"abcd"))
    for found in lake.status(), read_lake_states(lake.settings):
        problems = {
            name: str(error).partition("\n")[0] for name, error in found.items() if isinstance(error, Exception)
        }
        assert list(problems) == ["b", "c"]
        assert problems["b"].endswith("handles is damaged: it is missing, but a name still refers to its collection")
        assert problems["c"].endswith("names/c is damaged: it is missing, but the name was bound to a collection")
    assert catalog.check(lake.settings.collection(name).spec() for name in "abcd") == {"a", "b", "c"}
    with pytest.raises(DamagedTable, match="but a name still refers to its collection"):
        catalog.open_or_create(lake.settings.collection("b").spec())


def test_an_unreadable_catalog_is_an_error_for_each_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = open_lake(configure(tmp_path, "a", "b"))

    def unreadable(store: Store, name: str) -> NameLog:
        raise OSError("the disk is gone")

    monkeypatch.setattr(NameLog, "of", unreadable)
    found = lake.status()
    assert list(found) == ["a", "b"]
    assert all(isinstance(error, StoreUnreadable) and "the disk is gone" in str(error) for error in found.values())
