"""New columns of a collection: first in the catalog, which is the decision, then in the table, by a commit of its own.

Whoever writes opens the collection with `open_newest`, so that what it writes has the columns of the table as it is.
"""

from __future__ import annotations

from tidelake.configuration import CollectionSettings
from tidelake.delta.catalog import Catalog, Collection, Entry
from tidelake.delta.commit import OpenTable
from tidelake.delta.entry_check import with_columns
from tidelake.delta.stops import reach
from tidelake.errors import Conflict, Fenced

_ATTEMPTS_MAX = 64
_COLUMNS = ("record_schema", "value_schema", "added")


def open_newest(collection: Collection) -> tuple[Collection, OpenTable]:
    """A collection with the columns that it has now, and its table, which has the same; its epoch stays as it was.

    Raises:
        Conflict: others add columns all the time.
        Fenced: the table lacks a column, and the writer's epoch has moved.

    Cost: one look into the catalog.
    """
    for _ in range(_ATTEMPTS_MAX):
        newest = Catalog(collection.paths.store).find(collection.name).entry
        columns = {name: getattr(newest, name) for name in _COLUMNS}
        opened = Collection(collection.entry.model_copy(update=columns), collection.paths)
        table = opened.carry_columns()
        if len(table.schema().names) == len(opened.updates_schema().names):
            return opened, table
    raise Conflict(str(collection.paths.updates), -1, f"columns were added {_ATTEMPTS_MAX} times meanwhile")


def evolve(collection: Collection, settings: CollectionSettings) -> None:
    """Let the catalog know of the columns that the settings have beyond the collection.

    Raises:
        ConfigurationError: somebody has added one of that name otherwise, meanwhile.
        Fenced: the writer's epoch has moved.
    """

    def grown(entry: Entry) -> Entry:
        if entry.epoch != collection.entry.epoch:
            raise Fenced(str(collection.paths.store.catalog), collection.entry.epoch, entry.epoch)
        return with_columns(entry, settings)

    Catalog(collection.paths.store).update(collection.name, grown)
    reach("columns.after_catalog")
