"""A published folder belongs to its name, which is bound to one collection at a time, by a commit to the name's log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.expectations.reports import settings
from tests.lakes.places import store_root
from tests.stops import stop_at
from tidelake.catalog.catalog import Catalog
from tidelake.catalog.name_log import NameLog
from tidelake.errors import Fenced, NewerFormat, UnknownCollection
from tidelake.integrity.verification import Verification, verify_name
from tidelake.store import commit
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.followed import known, remember
from tidelake.store.format import CATALOG_VERSION, FORMAT_VERSION
from tidelake.store.layout import Store
from tidelake.store.publication import Publication, folder_of_name


@pytest.fixture
def catalog(any_store: Path) -> Catalog:
    return Catalog(Store(store_root(any_store)))


@pytest.fixture
def prices(catalog: Catalog) -> Collection:
    return catalog.open_or_create(settings("plain").spec())


@pytest.mark.parametrize("name", ["Prices", "PRICES", "a.b", "../prices", "a/b", ".", "_log", "x" * 300, "preis_ä", ""])
def test_a_name_that_is_unsafe_as_a_folder_gets_a_safe_and_distinct_folder(name: str) -> None:
    folder = folder_of_name(name)
    assert folder == folder.lower() and len(folder) < 64 and folder[0].isalnum()
    assert set(folder) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-")
    assert folder != folder_of_name(name.lower()) or name == name.lower()
    assert "-" in folder and "-" not in folder_of_name("prices")


def test_publishing_binds_a_name_once(catalog: Catalog, prices: Collection) -> None:
    assert catalog.publication("prices") is None
    publication = catalog.publish(prices)
    assert (publication.name, publication.folder) == ("prices", "prices")
    assert publication.collection_id == prices.entry.id
    version = NameLog.of(catalog.store, "prices").version
    assert catalog.publish(prices) == publication == catalog.publication("prices")
    assert NameLog.of(catalog.store, "prices").version == version
    assert catalog.publication("price") is None
    assert [entry.name for entry in catalog.entries()] == ["prices"]
    found = Verification()
    verify_name(catalog.store, "prices", found)
    assert (found.tables, found.damages) == (1, [])


def test_a_name_that_passes_to_another_collection_keeps_its_folder(catalog: Catalog, prices: Collection) -> None:
    first = catalog.publish(prices)
    catalog.rename("prices", "old_prices")
    successor = catalog.open_or_create(settings("plain").spec())
    assert successor.entry.id != prices.entry.id
    second = catalog.publish(successor)
    assert (second.folder, second.collection_id) == (first.folder, successor.entry.id)
    assert catalog.publication("prices") == second
    renamed = catalog.find("old_prices")
    assert catalog.publish(renamed).folder == "old_prices"
    with pytest.raises(UnknownCollection):  # this entry has the earlier name
        catalog.publish(prices)
    assert catalog.publication("prices") == second


def test_a_fenced_process_publishes_nothing(catalog: Catalog, prices: Collection) -> None:
    catalog.fence("prices", "other")
    with pytest.raises(Fenced):
        catalog.publish(prices)
    assert catalog.publication("prices") is None


@pytest.mark.everywhere
@pytest.mark.parametrize("place", ["names.after_entry", "names.after_marker"])
def test_a_binding_that_was_interrupted_is_not_repeated(catalog: Catalog, prices: Collection, place: str) -> None:
    stop_at(place, lambda: catalog.publish(prices))
    before = catalog.publication("prices")
    publication = catalog.publish(prices)
    assert before == publication
    assert isinstance(publication, Publication)
    assert catalog.find("prices").entry == prices.entry


@pytest.mark.everywhere
def test_a_binding_of_a_process_that_died_is_finished_by_one_that_already_follows_the_name(
    catalog: Catalog, prices: Collection
) -> None:
    log = NameLog.of(catalog.store, "prices")
    seen = known(log.path)
    stop_at("names.after_entry", lambda: catalog.publish(prices))
    remember(log.path, seen)  # as if another process had died
    publication = catalog.publish(prices)
    assert NameLog.of(catalog.store, "prices").version == log.version + 1
    assert catalog.publication("prices") == publication


def test_earlier_versions_refuse_a_catalog_whose_names_have_logs(
    catalog: Catalog, prices: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.publish(prices)
    assert OpenTable(catalog.store.catalog).format == CATALOG_VERSION == 4
    assert OpenTable(prices.paths.updates).format == OpenTable(prices.paths.handles).format == FORMAT_VERSION == 2
    monkeypatch.setattr(commit, "NEWEST_VERSION", 3)  # the earlier version's newest format
    with pytest.raises(NewerFormat, match="catalog was written by a later version of Tidelake, in format 4"):
        OpenTable(catalog.store.catalog)
