"""Names that the store does not have, or cannot give."""

from __future__ import annotations

from tidelake.errors.base import InvalidUsage


class UnknownCollection(InvalidUsage):
    """The store has no collection of this name."""

    store: str
    collection: str
    fact = "the store {store} has no collection '{collection}'"
    hint = "run its ingest once, or correct the name"


class CollectionRenamed(InvalidUsage):
    """The collection has another name now."""

    collection: str
    name: str
    """Its name now."""
    fact = "the collection '{collection}' was renamed to '{name}'"
    hint = (
        "use the new name, in the settings as well; for a new collection with the earlier name, keep both names in the "
        "settings"
    )


class NameTaken(InvalidUsage):
    """Another collection has the name."""

    store: str
    collection: str
    fact = "the store {store} already has a collection '{collection}'"
    hint = "choose another name, or rename or drop the other collection first; nothing was renamed"
