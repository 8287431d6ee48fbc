"""Adds columns to a collection: first to its entry, which is authoritative, then to the table, in a separate commit.

Writers open the collection with `open_newest`, so that their files have the table's current columns.
"""

from __future__ import annotations

from tidelake.catalog.catalog import Catalog
from tidelake.catalog.compatibility import with_columns
from tidelake.errors import Fenced
from tidelake.settings.collection import CollectionSpec
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection, Entry
from tidelake.store.failpoints import reach
from tidelake.store.retry import ATTEMPTS_MAX, LostRace, retry_work

_COLUMNS = ("record_schema", "value_schema", "added")


def open_newest(collection: Collection) -> tuple[Collection, OpenTable]:
    """Open a collection and its table with the newest columns. The writer's epoch stays as it is.

    Raises:
        Conflict: other processes kept adding columns.
        Fenced: the table lacks a column, and the epoch was raised in the meantime.

    Cost: that of `Catalog.find`, and the log of `updates/` is opened.
    """

    def open_both() -> tuple[Collection, OpenTable]:
        opened = with_newest_columns(collection)
        table = opened.carry_columns()
        if len(table.schema().names) != len(opened.updates_schema().names):
            raise LostRace
        return opened, table

    return retry_work(open_both, collection.paths.updates, f"columns were added during each of {ATTEMPTS_MAX} attempts")


def with_newest_columns(collection: Collection) -> Collection:
    """Return a collection with the columns of its newest entry.

    A column is added to the entry before it is added to the table. So the returned collection has every column that
    its table has in any version opened before this call.

    Cost: that of `Catalog.find`.
    """
    newest = Catalog(collection.paths.store).find(collection.name).entry
    columns = {name: getattr(newest, name) for name in _COLUMNS}
    return Collection(collection.entry.model_copy(update=columns), collection.paths)


def evolve(collection: Collection, spec: CollectionSpec) -> None:
    """Add the new columns of a specification to the entry of its collection.

    Raises:
        ConfigurationError: a different column of the same name has been added in the meantime.
        Fenced: the epoch was raised in the meantime.
    """

    def add(entry: Entry) -> Entry:
        if entry.epoch != collection.entry.epoch:
            raise Fenced(str(collection.paths.handles), collection.entry.epoch, entry.epoch)
        return with_columns(entry, spec)

    Catalog(collection.paths.store).update(collection.name, add)
    reach("columns.after_catalog")
