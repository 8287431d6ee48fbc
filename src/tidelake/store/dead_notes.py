"""Notes of the folders that sweeps found in no version of a table; the age of the note decides when they are deleted.

The age of a file says when it was written. It does not say for how long no version has named it: a process may sleep
for days before the commit that replaces a run, and a reader of the version before needs that run for some time
afterwards. So a sweep notes what it finds, and a later sweep deletes what was noted long enough ago, by the store's
clock. A folder that was written to or renewed after its note is noted again.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence

from tidelake.storage import blobs
from tidelake.storage.location import Blob, Location

DEAD = "_dead"
"""The folder of a table that holds the notes."""


def long_dead(table: Location, folders: Sequence[str], retention_s: float) -> list[str]:
    """Return the folders that were noted more than `retention_s` ago and have not changed since; note the others.

    Args:
        table: the table's folder.
        folders: the names of all its folders that no version names now.
        retention_s: how long a reader may still need a folder after the first note of it.

    Cost: nothing if there are no folders. Otherwise the notes are listed and read, and one is written if a folder is
    new; the store's clock is read; and each folder whose note is old enough is listed.
    """
    if not folders:
        return []
    notes = list(_read(table))
    noted_s: dict[str, float] = {}
    for blob, names in notes:
        noted_s |= {name: max(blob.changed_s, noted_s.get(name, 0.0)) for name in names}
    horizon_s = blobs.now_s(table) - retention_s
    old = [name for name in folders if name in noted_s and noted_s[name] < horizon_s]
    changed = [name for name in old if blobs.last_change_s(table / name) > noted_s[name]]
    if new := [*(name for name in folders if name not in noted_s), *changed]:
        blobs.write(table / DEAD / f"{secrets.token_hex(16)}.json", json.dumps(new).encode())
    for blob, names in notes:
        if not names & set(folders):  # they were deleted
            blobs.delete(blob.location)
    return [name for name in old if name not in changed]


def _read(table: Location) -> Iterator[tuple[Blob, set[str]]]:
    for blob in blobs.list_folder(table / DEAD, hidden=False).blobs:
        try:
            yield blob, set(json.loads(blobs.read(blob.location)))
        except FileNotFoundError:  # another sweep has just deleted it
            continue
        except (ValueError, TypeError):  # it is damaged, so what it noted is noted again
            yield blob, set()
