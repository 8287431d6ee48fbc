"""Local copies of verified logs: delta-rs writes to a copy, and what it wrote is then put into the real log.

So delta-rs reads exactly the bytes that were verified, and sends no request to an object store.
"""

from __future__ import annotations

from collections.abc import Callable

from deltalake import DeltaTable

from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.table_log import HINT, LOG, Tip, checkpoint_path, entry_path


def next_entry(tip: Tip, commit: Callable[[DeltaTable], None]) -> bytes:
    """Return the entry that a call to delta-rs adds to a log.

    Args:
        tip: the verified log.
        commit: makes the call; if it raises, there is no entry.
    """
    with blobs.scratch_folder() as folder:
        commit(_copied(tip, folder))
        return blobs.read(entry_path(folder, tip.version + 1))


def new_checkpoint(tip: Tip) -> tuple[bytes, bytes]:
    """Return a checkpoint of a log, and the hint that names it."""
    with blobs.scratch_folder() as folder:
        _copied(tip, folder).create_checkpoint()
        return blobs.read(checkpoint_path(folder, tip.version)), blobs.read(folder / LOG / HINT)


def _copied(tip: Tip, folder: Location) -> DeltaTable:
    if tip.checkpoint is not None:
        blobs.write(checkpoint_path(folder, tip.checkpoint_version), tip.checkpoint)
    first = tip.version - len(tip.entries) + 1
    for version, text in enumerate(tip.entries, start=first):
        blobs.write(entry_path(folder, version), text)
    return DeltaTable(str(folder))
