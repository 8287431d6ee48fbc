"""Says why the store has no collection of a given name: it was renamed, it was dropped, or there never was one."""

from __future__ import annotations

from tidelake.errors import CollectionDropped, CollectionRenamed, UnknownCollection
from tidelake.protocol.iso_times import iso_to_the_second
from tidelake.store.entry import Entry
from tidelake.store.layout import Store


def absence(store: Store, name: str, entry: Entry | None, *, has_successor: bool = False) -> UnknownCollection:
    """Return the error that says why no collection has this name, or why the one that had it no longer does.

    Args:
        store: the store.
        name: the name.
        entry: the newest entry of the collection that had the name; None if there was none.
        has_successor: whether another collection has the name now.
    """
    root = str(store.root)
    if entry is None or entry.has_name(name):  # it got the name a moment ago
        return UnknownCollection(root, name)
    if entry.dropped is None:
        return CollectionRenamed(root, name, entry.name)
    at = iso_to_the_second(entry.dropped.at_ms)
    return CollectionDropped(root, name, entry.id, entry.name, at, has_successor)
