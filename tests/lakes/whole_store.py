"""A store of every family and framing as this release writes it: the golden store with each of its runs rewritten.

Making it takes seconds and needs no JVM; jobs would take minutes. Each table's log has two checkpoints, and entries
after them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.golden.shown import EXPECTED, unpack
from tidelake import open_lake
from tidelake.catalog.catalog import Catalog
from tidelake.lake import Lake, LakeCollection
from tidelake.settings.lake import load_settings
from tidelake.storage.location import Location, locate
from tidelake.store.commit import OpenTable
from tidelake.store.files import discard_run, read_file, write_run
from tidelake.store.layout import RUN, Store, new_run
from tidelake.store.row_hash import sum_of_rows
from tidelake.store.table_log import acknowledge_newest_checkpoint, clean_up, load_table

COLLECTIONS: dict[str, dict[str, Any]] = json.loads(EXPECTED.read_text(encoding="utf-8"))["collections"]
"""The output that the golden store must give for each collection, by name."""
SHARED = ("topics", "schemas")
"""Folders that no test changes, so that copies of a store can share them."""


@dataclass
class WholeStore:
    """A lake of twelve collections, and the store as it was before its newest checkpoints."""

    root: Path
    earlier: Path

    @property
    def config(self) -> Path:
        """Its `collections.yaml`."""
        return self.root / "collections.yaml"

    @property
    def store(self) -> Path:
        """The folder of its tables."""
        return self.root / "store"

    def copy(self, root: Path, *names: str) -> WholeStore:
        """Make a lake with its own copies of these collections, of the catalog and of the names; it shares the rest.

        Files are linked: to change a file, replace it.
        """
        root.mkdir()
        shutil.copy(self.config, root)
        for shared in SHARED:
            (root / shared).symlink_to(self.root / shared)
        own = {COLLECTIONS[name]["folder"] for name in names}
        for folder in ("catalog", "names"):
            _link(self.store / folder, root / "store" / folder)
        (root / "store" / "c").mkdir()
        for collection in (self.store / "c").iterdir():
            if collection.name in own:
                _link(collection, root / "store" / "c" / collection.name)
            else:
                (root / "store" / "c" / collection.name).symlink_to(collection)
        return WholeStore(root, self.earlier)

    def collection(self, name: str) -> LakeCollection:
        """A collection through the public interface."""
        return self.lake.collection(name)

    @cached_property
    def lake(self) -> Lake:
        """The lake; its settings are read once."""
        return open_lake(self.config)

    def folder(self, name: str) -> Path:
        """The folder of a collection."""
        return self.store / "c" / str(COLLECTIONS[name]["folder"])

    def folders(self, name: str) -> list[Path]:
        """The folders that a collection depends on: its own, that of its name, and the catalog's."""
        return [self.folder(name), self.store / "names" / name, self.store / "catalog"]


def _link(source: Path, target: Path) -> None:
    shutil.copytree(source, target, copy_function=os.link)


def make_whole_store(folder: Path) -> WholeStore:
    """Unpack the golden store and upgrade it: page checksums, digests, markers and checkpoints everywhere."""
    root, earlier = folder / "whole", folder / "earlier"
    root.mkdir()
    config = unpack(root)
    settings = load_settings(config)
    for collection in settings.collections:
        Catalog(Store(settings.store)).open_or_create(collection.spec())
    tables = tables_of(config)
    for table in tables:
        _write_again(table)
    for table in tables:
        _checkpoint(table)
    shutil.copytree(root / "store", earlier)
    for table in tables:
        _checkpoint(table)
    return WholeStore(root, earlier)


def tables_of(config: Path) -> Sequence[Location]:
    """The folders of all tables of a lake, the catalog's first. Names have logs, but no tables."""
    store = config.parent / "store"
    folders = [store / "catalog", *(table for table in sorted(store.glob("c/*/*")) if table.name != "current")]
    return [locate(folder) for folder in folders]


def _write_again(table: Location) -> None:
    """Swap each live run for a new run of the same kind with the same rows, and delete all other runs."""
    runs: dict[str, list[pa.Table]] = {}
    opened = OpenTable(table)
    columns = [field.name for field in opened.schema() if field.name != RUN]
    for file in opened.files():
        stored = _with_all_columns(read_file(table, file, columns), opened.schema())
        runs.setdefault(file.run, []).append(stored.select(columns))
    for run, parts in runs.items():
        opened = OpenTable(table)
        rows = pa.concat_tables(parts)
        rows_hash = sum_of_rows(rows) if table.name == "updates" else None
        files = write_run(table, new_run(run.partition("-")[0], opened.seq), rows, rows_hash)
        opened.commit({}, files, [run])
    live = {file.run for file in OpenTable(table).files()}
    for folder in table.local.glob(f"{RUN}=*"):
        if folder.name.removeprefix(f"{RUN}=") not in live:
            discard_run(table, folder.name.removeprefix(f"{RUN}="))


def _with_all_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    for field in schema:
        if field.name != RUN and field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows


def _checkpoint(table: Location) -> None:
    """Write a checkpoint, as `maintain` does after 32 commits, and commit past it.

    The second call also deletes the entries of the earlier release, which have no markers: two checkpoints now follow
    these entries.
    """
    load_table(table).create_checkpoint()
    acknowledge_newest_checkpoint(table)
    clean_up(table)
    for _ in range(2):
        OpenTable(table).commit({})
