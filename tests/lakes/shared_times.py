"""A lake of several collections without rows. Tests move the frontiers by hand; no JVM is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.lakes.lake import RECORD
from tidelake import open_lake
from tidelake.catalog.catalog import Catalog
from tidelake.lake import Lake
from tidelake.store.commit import OpenTable
from tidelake.store.layout import Store
from tidelake.store.state import CLOSED, UPPER

RECLOCKED = {"framing": "reclock", "format": "json", "family": "append_only"}
"""The settings that make a collection a reclocked one."""


class SharedTimes:
    """A lake of the named collections, each with the settings in which it differs from a plain one."""

    def __init__(self, root: Path, **collections: dict[str, Any]) -> None:
        self.file = root / "collections.yaml"
        self.catalog = Catalog(Store(root / "store"))
        blocks = {}
        for name, more in collections.items():
            (root / "topics" / name).mkdir(parents=True)
            blocks[name] = {"family": "plain", "topic": name, "schema": RECORD, **more}
        document = {"store": "store", "topics": "topics", "collections": blocks}
        self.file.write_text(yaml.safe_dump(document), encoding="utf-8")
        for settings in self.lake.settings.collections:
            self.catalog.open_or_create(settings.spec())

    @property
    def lake(self) -> Lake:
        """The lake, through the public interface."""
        return open_lake(self.file)

    def seal(self, **uppers: int) -> None:
        """Move the upper of collections."""
        for name, upper in uppers.items():
            OpenTable(self.catalog.find(name).paths.updates).commit({UPPER: upper})

    def close(self, name: str, last: int) -> None:
        """Close a stream after its last update."""
        OpenTable(self.catalog.find(name).paths.updates).commit({UPPER: last + 1, CLOSED: 1})

    def forget(self, name: str, since: int) -> None:
        """Move `since`."""
        self.catalog.update(name, lambda entry: entry.model_copy(update={"since": (since,)}))
