"""Gives a collection another name, which no command does."""

from __future__ import annotations

from tidelake.store.catalog import Catalog
from tidelake.store.handles import change_handles
from tidelake.store.name_log import Binding, NameLog


def rename(catalog: Catalog, name: str, other: str) -> None:
    """Give a collection another name; its earlier name is free then."""
    paths = catalog.find(name).paths
    entry = change_handles(paths, lambda entry: entry.model_copy(update={"name": other}))
    log = NameLog.of(catalog.store, other)
    log.commit(Binding(name=other, id=entry.id, publication=log.binding and log.binding.publication))
