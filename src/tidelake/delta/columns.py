"""Brings the columns that the catalog knows of into a table that lacks them, by a commit of their own.

The catalog has decided before: a stop in between is healed by whoever opens the collection next.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tidelake.delta.commit import OpenTable
from tidelake.delta.notices import inform
from tidelake.delta.stops import reach
from tidelake.errors import Conflict

_ATTEMPTS_MAX = 64


def carry_columns(path: Path, wanted: pa.Schema, epoch: int) -> OpenTable:
    """Add the columns that a table does not have yet, and give the table as it is then.

    Raises:
        Conflict: every attempt lost.
        Fenced: the writer's epoch has moved.

    Cost: none where they are all there; else one commit, and no file is written anew.
    """
    for _ in range(_ATTEMPTS_MAX):
        table = OpenTable(path)
        there = set(table.schema().names)
        missing = [one for one in wanted if one.name not in there]
        if not missing:
            return table
        try:
            table.add_columns(missing, epoch)
        except Conflict:
            continue
        reach("columns.after_commit")
        inform("columns were added", table=str(path), columns=[one.name for one in missing])
    raise Conflict(str(path), -1, f"{_ATTEMPTS_MAX} attempts to add columns failed")
