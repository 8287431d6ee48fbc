"""Reads, without a JVM, what the store holds of a collection that was dropped or is about to be."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tidelake.catalog.absence import absence
from tidelake.catalog.catalog import Catalog
from tidelake.catalog.name_log import NameLog
from tidelake.errors import DamagedTable
from tidelake.store.commit import OpenTable, is_table
from tidelake.store.files import RunFile
from tidelake.store.holds import label_of
from tidelake.store.layout import Store


@dataclass(frozen=True)
class Dropping:
    """The data that a drop removes."""

    name: str
    id: str
    rows: int
    """Stored statements, not rows of the contents."""
    bytes: int
    """The size of their files."""
    damaged: str | None
    """Why its rows cannot be counted, or None."""
    held_by: list[str]
    """The holders of its times: the tables stay until all of their holds end."""

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


def read_dropping(store: Store, name: str) -> Dropping:
    """Read what the store holds of the collection with this name, or else of the last dropped one that had it.

    Raises:
        UnknownCollection: the store has no such collection.

    Cost: the logs of the name and of two tables.
    """
    found = Catalog(store).get(name)
    entry = NameLog.of(store, name).bound_entry() if found is None else found.entry
    if entry is None or entry.name != name:
        raise absence(store, name, entry)
    paths = store.collection(entry.id)
    files, damaged = list[RunFile](), None
    try:
        files = OpenTable(paths.updates).files() if is_table(paths.updates) else []
    except DamagedTable as error:
        damaged = error.fact
    held_by = [label_of(capability) for capability in entry.capabilities if capability.kind == "read"]
    rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
    return Dropping(name, entry.id, rows, size, damaged, held_by)
