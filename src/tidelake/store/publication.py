"""A publication: the folder in which a name's contents are published, and the collection whose contents they are.

The folder belongs to the name, not to a collection: if the name passes to another collection, the contents of that
collection overwrite the table in the same Delta log, so readers never see a table that disappears or starts over.
"""

from __future__ import annotations

import re
from hashlib import sha256

from pydantic import BaseModel, ConfigDict

_SAFE = re.compile(r"[a-z0-9][a-z0-9_]{0,62}")
_UNSAFE_CHARACTERS = re.compile(r"[^a-z0-9]+")
_SLUG_CHARACTERS_MAX = 40
_HASH_CHARACTERS = 16
_KIND = "publication."


class Publication(BaseModel):
    """A publication as the log of its name stores it. Its name and folder never change."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    folder: str
    """Its folder below `<store>/tables`."""
    collection_id: str
    """The only collection that may be published here."""
    bound_at_ms: int
    """When the name was bound to this collection, in milliseconds since 1970."""


def folder_of_name(name: str) -> str:
    """Return the folder of a name: the name itself if it is safe on every disk and in every URI.

    Any other name, such as one from a plug-in, gets a folder that ends in `-` and a hash of the name. No safe name
    contains `-`, and the hash tells all other names apart, so no two names share a folder.

    >>> folder_of_name("prices"), folder_of_name("Prices"), folder_of_name("eu/prices.v2")
    ('prices', 'prices-5a6e4f56c0a254e0', 'eu_prices_v2-0c40e47784d0241e')
    """
    if _SAFE.fullmatch(name):
        return name
    slug = _UNSAFE_CHARACTERS.sub("_", name.lower()).strip("_")[:_SLUG_CHARACTERS_MAX]
    return f"{slug or 'table'}-{_hash_of(name)}"


def run_kind(name: str) -> str:
    """Return the kind of the run that holds the publication of a name in an undivided catalog; see `layout.new_run`."""
    return f"{_KIND}{_hash_of(name)}"


def holds_publication(run: str, name: str | None = None) -> bool:
    """Return whether a run of an undivided catalog holds a publication: of this name, or of any if `name` is None."""
    return run.startswith(_KIND if name is None else f"{run_kind(name)}-")


def _hash_of(name: str) -> str:
    return sha256(name.encode()).hexdigest()[:_HASH_CHARACTERS]
