"""The tables that delta-rs has loaded for a commit, kept for this process's next commit to the same table.

Loading a table costs more than the commit itself. A loaded table reads only the entries that were added, and does not
notice that an earlier entry was replaced. So it is used again only if the entry that it ends with is still the one in
the verified log, whose entries each state the SHA-256 of the entry before. Otherwise, or if a checkpoint has replaced
that entry, the table is loaded from scratch.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidelake.spark.engine_errors import is_panic
from tidelake.storage.location import Location
from tidelake.store.acknowledged import digest_of
from tidelake.store.table_log import Tip

_TABLES_MAX = 64
"""The number of tables that are kept. The least recently used ones are dropped."""
_FILES_MAX = 20_000
"""The number of live files that all kept tables have together: delta-rs holds about 700 bytes for each in memory."""


@dataclass(frozen=True)
class _Kept:
    table: DeltaTable
    digest: str
    files: int


_lock = Lock()
_kept: OrderedDict[Path, _Kept] = OrderedDict()
"""By the real path: a loaded table stays with its folder, even if a link or the working directory changes."""


def take(path: Location, tip: Tip) -> DeltaTable | None:
    """Return a table that was kept, brought up to the newest entry of its log; None if it must be loaded from scratch.

    The table is no longer kept: only one caller uses it.

    Args:
        path: the table's folder.
        tip: the verified log. The table's version may be a later one, if another process has committed since.
    """
    with _lock:
        kept = _kept.pop(_key_of(path), None)
    if kept is None:
        return None
    try:
        text = tip.numbered().get(kept.table.version())
        if text is None or digest_of(text) != kept.digest:
            return None
        kept.table.update_incremental()
        return kept.table if kept.table.version() >= tip.version else None
    except BaseException as error:  # loading the table from scratch says what is wrong
        if not isinstance(error, (DeltaError, OSError)) and not is_panic(error):
            raise
        return None


def keep(path: Location, digest: str, table: DeltaTable, files: int) -> None:
    """Keep a table for the next commit.

    Args:
        path: the table's folder.
        digest: the SHA-256 of the acknowledged entry of the table's version.
        table: the table, which nobody else uses.
        files: the number of its live files.
    """
    key = _key_of(path)
    with _lock:
        _kept.pop(key, None)
        _kept[key] = _Kept(table, digest, files)
        while len(_kept) > _TABLES_MAX or sum(each.files for each in _kept.values()) > _FILES_MAX:
            _kept.popitem(last=False)


def _key_of(path: Location) -> Path:
    return path.local.resolve()
