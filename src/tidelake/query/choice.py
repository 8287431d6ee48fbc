"""Chooses the engine that reads a collection, DuckDB or Spark; both return the same rows."""

from __future__ import annotations

from tidelake.query.forms import is_known
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection

BYTES_MAX = 8 << 30
"""Maximum total size of the compressed files of a collection that DuckDB reads by default."""


def why_spark(collection: Collection) -> str | None:
    """Return why Spark has to read a collection, as a clause; None if DuckDB reads it.

    Cost: the log of the table.
    """
    entry = collection.entry
    if not is_known(entry):
        return f"the envelope '{entry.envelope}' of '{entry.name}' is from another package"
    size = sum(file.bytes for file in OpenTable(collection.paths.updates).files())
    if size > BYTES_MAX:
        return f"'{entry.name}' has {size / 2**30:,.0f} GiB of files"
    return None
