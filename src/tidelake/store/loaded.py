"""The tables that delta-rs has loaded for a commit, kept for this process's next commit to the same table.

Loading a table costs more than the commit itself. A loaded table reads only the entries that were added, and does not
notice that an earlier entry was replaced. So it is used again only if the entry that it ends with is still the one in
the verified log, whose entries each state the SHA-256 of the entry before. Otherwise, or if a checkpoint has replaced
that entry, the table is loaded from scratch.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidelake.spark.engine_errors import is_panic
from tidelake.storage.location import Location
from tidelake.store.acknowledged import digest_of
from tidelake.store.table_log import Tip

_TABLES_MAX = 64
"""The number of tables that are kept. The least recently used ones are dropped."""
_FILES_MAX = 10_000
"""A table with more live files is not kept, because delta-rs holds a description of each in memory."""

_lock = Lock()
_kept: OrderedDict[Location, tuple[str, DeltaTable]] = OrderedDict()


def take(path: Location, tip: Tip) -> DeltaTable | None:
    """Return a table that was kept, brought up to the newest entry of its log; None if it must be loaded from scratch.

    The table is no longer kept: only one caller uses it.

    Args:
        path: the table's folder.
        tip: the verified log. The table's version may be a later one, if another process has committed since.
    """
    with _lock:
        digest, table = _kept.pop(path, (None, None))
    if table is None:
        return None
    text = tip.numbered().get(table.version())
    if text is None or digest_of(text) != digest:
        return None
    try:
        table.update_incremental()
    except BaseException as error:  # loading the table from scratch says what is wrong
        if not isinstance(error, (DeltaError, OSError)) and not is_panic(error):
            raise
        return None
    return table if table.version() >= tip.version else None


def keep(path: Location, digest: str, table: DeltaTable, files: int) -> None:
    """Keep a table for the next commit.

    Args:
        path: the table's folder.
        digest: the SHA-256 of the acknowledged entry of the table's version.
        table: the table, which nobody else uses.
        files: the number of its live files.
    """
    if files > _FILES_MAX:
        return
    with _lock:
        _kept[path] = digest, table
        _kept.move_to_end(path)
        while len(_kept) > _TABLES_MAX:
            _kept.popitem(last=False)
