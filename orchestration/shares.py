"""Divides the collections of a lake among several code locations, so that each loads in seconds.

Collections that name the same timeline, or have a topic in common, stay together: a run publishes the tables of a
timeline at one time, and a topic is an asset of one location.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from assets.names import Names
from tidelake.errors import ConfigurationError
from tidelake.settings.collection import WALL_CLOCK, CollectionSettings

SHARES_MAX = 1_000
_SHARE = re.compile(r"([0-9]{1,4})/([0-9]{1,4})")


@dataclass(frozen=True)
class Share:
    """One of `shares` parts of a lake, counted from 1."""

    number: int = 1
    shares: int = 1

    @classmethod
    def read(cls, text: str) -> Share:
        """Read a share, such as `2/10`.

        Raises:
            ConfigurationError: it is not a share.
        """
        found = _SHARE.fullmatch(text)
        number, shares = (int(each) for each in found.groups()) if found else (0, 0)
        if not 1 <= number <= shares <= SHARES_MAX:
            raise ConfigurationError(
                "environment",
                "",
                f"TIDELAKE_SHARE is {text!r}, which is not a share of the collections",
                f"write, for example, `2/10` for the second of ten shares; there are at most {SHARES_MAX:,}",
            )
        return cls(number, shares)

    @property
    def prefix(self) -> str:
        """The prefix of the names of its jobs, schedules and sensors; empty if there is only one share."""
        return "" if self.shares == 1 else f"share_{self.number}_"

    def has(self, name: str) -> bool:
        """Return whether this name belongs to the share; every name belongs to exactly one.

        >>> [Share(number, 3).has("orders") for number in (1, 2, 3)]
        [False, False, True]
        """
        return zlib.crc32(name.encode()) % self.shares == self.number - 1

    def of(self, names: Names, collections: Sequence[CollectionSettings]) -> list[CollectionSettings]:
        """Return the collections that belong to this share, in order.

        A collection stays in its share when others are added, unless they tie it to a collection whose name comes
        earlier in the alphabet.
        """
        if self.shares == 1:
            return list(collections)
        first = _first_of_each(names, collections)
        return [collection for collection in collections if self.has(first[collection.name])]


def _first_of_each(names: Names, collections: Sequence[CollectionSettings]) -> dict[str, str]:
    """Map the name of each collection to the first name among the collections that must stay together with it."""
    first: dict[str, str] = {}

    def find(node: str) -> str:
        while first.setdefault(node, node) != node:
            first[node] = node = first[first[node]]
        return node

    for collection in sorted(collections, key=lambda each: each.name):
        ties = [f"topic {key.to_user_string()}" for key in names.topics(collection)]
        if collection.timeline_name != WALL_CLOCK:
            ties.append(f"timeline {collection.timeline_name}")
        roots = [find(node) for node in (f"name {collection.name}", *ties)]
        for root in roots:
            first[root] = min(roots, key=_order)
    return {each.name: find(f"name {each.name}").removeprefix("name ") for each in collections}


def _order(node: str) -> tuple[bool, str]:
    """Return a key that sorts names before topics and timelines, and names alphabetically."""
    return not node.startswith("name "), node
