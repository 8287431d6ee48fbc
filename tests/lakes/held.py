"""A lake whose collection has no rows: its frontiers move and its times are held, all without a JVM."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.lakes.lake import NAME, RECORD
from tidelake import open_lake
from tidelake.compact.compaction import move_since
from tidelake.lake import LakeCollection
from tidelake.store.catalog import Catalog
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.layout import Store
from tidelake.store.state import UPPER


class HeldLake:
    """One collection, in its own folder; `create` makes it, and other processes may open it."""

    def __init__(self, root: Path) -> None:
        self.root, self.file = root, root / "collections.yaml"
        self.store = root / "store"

    @classmethod
    def create(cls, root: Path, upper: int = 0, **more: Any) -> HeldLake:
        """Write the settings, create the collection, and seal up to a time."""
        lake = cls(root)
        (root / "topics" / NAME).mkdir(parents=True)
        block = {"family": "plain", "topic": NAME, "schema": RECORD, **more}
        document = {"store": "store", "topics": "topics", "collections": {NAME: block}}
        lake.file.write_text(yaml.safe_dump(document), encoding="utf-8")
        lake.catalog.open_or_create(open_lake(lake.file).settings.collection(NAME).spec())
        if upper:
            lake.seal(upper)
        return lake

    def copy(self, root: Path) -> HeldLake:
        """Copy the lake with all its files: that is faster than creating one."""
        shutil.copytree(self.root, root)
        return HeldLake(root)

    @property
    def catalog(self) -> Catalog:
        """The store's catalog."""
        return Catalog(Store(self.store))

    @property
    def stored(self) -> Collection:
        """The collection as its handles have it now."""
        return self.catalog.find(NAME)

    @property
    def since(self) -> int:
        """The collection's since, as its handles have it now."""
        return self.stored.entry.since[0]

    @property
    def collection(self) -> LakeCollection:
        """The collection of the public interface."""
        return open_lake(self.file).collection(NAME)

    def seal(self, upper: int) -> None:
        """Move upper."""
        OpenTable(self.stored.paths.updates).commit({UPPER: upper})

    def compact(self, keep: str | int = 0) -> int | None:
        """Move `since` as a compaction does, and return it; None if the collection is unreadable."""
        return next(iter(move_since(self.catalog, self.stored, keep).since), None)
