"""Names that the store does not have, or that are already taken."""

from __future__ import annotations

from tidelake.errors.base import InvalidUsage


class UnknownCollection(InvalidUsage):
    """The store has no collection with this name."""

    store: str
    collection: str
    fact = "the store {store} has no collection '{collection}'"
    hint = "run its ingest once, or correct the name"


class CollectionDropped(UnknownCollection):
    """The collection was dropped."""

    id: str
    name: str
    """The name that it had when it was dropped."""
    at: str
    """When it was dropped."""
    has_successor: bool
    """Whether another collection has the name now."""

    fact = "the collection {which} was dropped at {at}"
    hint = "{next_step}"

    @property
    def which(self) -> str:
        """Its name, its id if another collection has the name now, and its later name if it was renamed."""
        id = f" (id {self.id})" if self.has_successor else ""
        later = "" if self.name == self.collection else f", which was renamed to '{self.name}',"
        return f"'{self.collection}'{id}{later}"

    @property
    def next_step(self) -> str:
        """How to go on."""
        if self.has_successor:
            return "another collection has this name now, with another id: start again, with a snapshot of its contents"
        return (
            f"`tidelake history {self.name}` shows its events; if the settings name '{self.collection}', the next "
            "ingest creates a new collection from what the topic still has"
        )


class CollectionRenamed(UnknownCollection):
    """The collection has another name now."""

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
