"""A collection that is published without a JVM."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from tests.expectations.reports import settings
from tests.report.stored import NAME, Stored
from tidelake.catalog.catalog import Catalog
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.published import Published, published_table
from tidelake.store.staged_rows import StagedRows


def publish(catalog: Catalog, name: str = NAME, columns: Sequence[str] = ("id", "_diff"), as_of: int = 4) -> Location:
    """Publish two rows AS OF the last time before upper, and return their location."""
    collection = catalog.find(name)
    publication = catalog.publish(collection)
    staged = StagedRows(published_table(collection, publication))
    options = blobs.delta_options(staged.folder)
    rows = pa.table({name: [1, 1] if name == "_diff" else [1, 2] for name in columns})
    write_deltalake(str(staged.folder), rows, storage_options=options)
    staged.take()
    note = Published(
        collection=name,
        collection_id=collection.entry.id,
        as_of=as_of,
        since=0,
        upper=as_of + 1,
        bound_at_ms=publication.bound_at_ms,
        published_at_ms=1,
        proofs_at_ms=0,
        rows=2,
        contents_rows=2,
        columns=tuple(columns),
    )
    staged.commit(name, "", note)
    return staged.table


def tear(table: Location) -> None:
    """Damage the newest entry of a published table."""
    sorted((table.local / "_delta_log").glob("*.json"))[-1].write_text("{")


def configure(root: Path, *names: str) -> Path:
    """Write the settings of a lake whose store is `root / "store"`; its topics are empty."""
    block = settings("plain").value_schema
    blocks = {}
    for name in names or (NAME,):
        (root / "topics" / name).mkdir(parents=True, exist_ok=True)
        blocks[name] = {"family": "plain", "topic": name, "schema": block}
    file = root / "collections.yaml"
    file.write_text(json.dumps({"store": "store", "topics": "topics", "collections": blocks}))
    return file


def published(root: Path) -> tuple[Stored, Location]:
    """Return a published collection whose upper is 5, and the location of the published table."""
    stored = Stored(root)
    stored.seal({4: 0}, 5)
    configure(root)
    return stored, publish(stored.catalog)
