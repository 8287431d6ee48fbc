"""A lake whose rows, frontiers and holds change without a JVM, on a disk or in S3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from tests.lakes.lake import NAME, RECORD
from tests.lakes.places import copy_lake, store_root, store_settings
from tidelake import open_lake
from tidelake.catalog.catalog import Catalog
from tidelake.compact.compaction import move_since
from tidelake.lake import LakeCollection
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import write_run
from tidelake.store.layout import DIFF, RUN, TIME, Store, new_run
from tidelake.store.state import CLOSED, UPPER


class HeldLake:
    """One collection, in its own folder; `create` makes it, and other processes can open it."""

    def __init__(self, root: Path) -> None:
        self.root, self.file = root, root / "collections.yaml"

    @classmethod
    def create(cls, root: Path, upper: int = 0, **more: Any) -> HeldLake:
        """Write the settings, create the collection, and seal up to a time."""
        lake = cls(root)
        (root / "topics" / NAME).mkdir(parents=True)
        block = {"family": "plain", "topic": NAME, "schema": RECORD, **more}
        document = {**store_settings(root), "topics": "topics", "collections": {NAME: block}}
        lake.file.write_text(yaml.safe_dump(document), encoding="utf-8")
        lake.catalog.open_or_create(open_lake(lake.file).settings.collection(NAME).spec())
        if upper:
            lake.seal(upper)
        return lake

    def copy(self, root: Path) -> HeldLake:
        """Copy the lake with all its files, which is faster than creating one."""
        copy_lake(self.root, root)
        copy = HeldLake(root)
        document = yaml.safe_load(copy.file.read_text(encoding="utf-8"))
        copy.file.write_text(yaml.safe_dump(document | store_settings(root)), encoding="utf-8")
        return copy

    @property
    def catalog(self) -> Catalog:
        """The store's catalog."""
        return Catalog(Store(store_root(self.root)))

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
        """The collection, through the public interface."""
        return open_lake(self.file).collection(NAME)

    def append(self, *updates: tuple[int, int, int], upper: int | None = None) -> None:
        """Commit updates of rows `(id, None)`, as an ingest does; if `upper` is given, the same commit moves upper."""
        stored, (ids, times, diffs) = self.stored, zip(*updates, strict=True) if updates else ((), (), ())
        table, schema = OpenTable(stored.paths.updates), stored.updates_schema()
        run = new_run("ingest", table.seq)
        columns = {"id": ids, "price": [None] * len(ids), TIME: times, DIFF: diffs, RUN: [run] * len(ids)}
        rows = pa.table({name: pa.array(columns[name], schema.field(name).type) for name in schema.names})
        table.commit({} if upper is None else {UPPER: upper}, write_run(table.path, run, rows))

    def seal(self, upper: int, closed: bool = False) -> None:
        """Move upper. If `closed`, also close the stream; `upper` must then be one more than the last update's time."""
        OpenTable(self.stored.paths.updates).commit({UPPER: upper, CLOSED: int(closed)})

    def compact(self, keep: str | int = 0) -> int | None:
        """Move `since` as a compaction does, and return it; None if the collection is unreadable."""
        return next(iter(move_since(self.catalog, self.stored, keep).since), None)
