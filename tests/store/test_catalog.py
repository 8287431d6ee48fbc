"""What the catalog refuses to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.expectations.reports import settings
from tidelake.errors import FrontierRegression, UnknownCollection
from tidelake.store.catalog import Catalog
from tidelake.store.layout import Store


def test_since_never_goes_back_and_the_entry_stays_as_it_is(tmp_path: Path) -> None:
    catalog = Catalog(Store(tmp_path))
    catalog.open_or_create(settings("plain").spec())
    entry = catalog.update("prices", lambda old: old.model_copy(update={"since": (5,)}))
    with pytest.raises(FrontierRegression, match=r"since of 'prices' is \[5\] and never goes back to \[3\]"):
        catalog.update("prices", lambda old: old.model_copy(update={"since": (3,)}))
    assert catalog.find("prices").entry == entry


def test_a_collection_that_the_store_does_not_have_is_named_with_the_store(tmp_path: Path) -> None:
    catalog = Catalog(Store(tmp_path))
    catalog.open_or_create(settings("plain").spec())
    for change in (catalog.find, lambda name: catalog.update(name, lambda old: old)):
        with pytest.raises(UnknownCollection, match="has no collection 'visits'\nhint: run its ingest once") as error:
            change("visits")
        assert str(tmp_path) in str(error.value)
