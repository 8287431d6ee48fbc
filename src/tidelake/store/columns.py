"""Adds to a table the columns that the collection's entry has and the table lacks, in a separate commit.

The entry is changed first. If a process stops in between, the next process that opens the collection adds the columns.
"""

from __future__ import annotations

import pyarrow as pa

from tidelake.storage.location import Location
from tidelake.storage.notices import inform
from tidelake.store.commit import OpenTable
from tidelake.store.failpoints import reach
from tidelake.store.retry import ATTEMPTS_MAX, retry_commit


def carry_columns(path: Location, wanted: pa.Schema, epoch: int) -> OpenTable:
    """Add the columns that a table lacks, and return the resulting table.

    Raises:
        Conflict: every attempt failed.
        Fenced: the epoch was raised in the meantime.

    Cost: nothing if no column is missing; else one commit. No file is rewritten.
    """

    def commit(table: OpenTable) -> OpenTable:
        stored = set(table.schema().names)
        missing = [field for field in wanted if field.name not in stored]
        if not missing:
            return table
        table.add_columns(missing, epoch)
        reach("columns.after_commit")
        inform("columns were added", table=str(path), columns=[field.name for field in missing])
        return OpenTable(path)

    return retry_commit(path, commit, f"{ATTEMPTS_MAX} attempts to add columns failed")
