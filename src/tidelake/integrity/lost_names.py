"""Recovers a name whose whole log is lost, using what the collections state about themselves.

The handles of each collection state its name. So if all handles can be read, and exactly one collection that was not
dropped states the name, the name is bound to that collection. The handles do not state where its contents are
published; the next publication finds the table by its name.
"""

from __future__ import annotations

from tidelake.catalog.handles import read_handles
from tidelake.catalog.name_log import Binding, NameLog
from tidelake.errors import Conflict, TidelakeError
from tidelake.storage import blobs
from tidelake.storage.location import HIDDEN
from tidelake.storage.notices import warn
from tidelake.store.layout import Store
from tidelake.store.publication import folder_of_name


def owner_of(store: Store, name: str) -> str | None:
    """Return the id of the collection whose handles state this name; None if it is not certain which one it is.

    Returns:
        The only collection that states the name and was not dropped; if every collection that states it was dropped,
        one of them. None if no collection states it, if several that were not dropped do, or if some handles cannot be
        read: they might state it, too.

    Cost: the handles of all collections of the store are read.
    """
    owners: list[str] = []
    dropped: list[str] = []
    for folder in blobs.list_names(store.collections):
        if folder.startswith(HIDDEN):
            continue
        try:
            entry = read_handles(store.collection(folder))
        except TidelakeError:
            return None
        if entry.name == name:
            (owners if entry.dropped is None else dropped).append(entry.id)
    found = owners or dropped[:1]
    return found[0] if len(found) == 1 else None


def bind_again(store: Store, name: str, owner: str) -> None:
    """Start a new log for a name whose log is lost.

    Raises:
        Conflict: another process has started the log in the meantime; nothing was written.
    """
    log = NameLog(store, folder_of_name(name), may_be_lost=True)
    if log.version >= 0:
        raise Conflict(str(log.path), 0, "another process has already recreated the log")
    log.commit(Binding(name=name, id=owner))
    warn("the lost log of a name was recreated", name=name, collection=owner)
