"""Upgrades older tables to the newest format, so that processes of earlier releases can no longer work on them.

The commit that upgrades a table sets a property that makes every earlier release refuse the table. The catalog is
upgraded first, as every process opens it first; the tables of a collection follow, before anything else is committed to
them. There is no way back. See docs/decisions/format.md.
"""

from __future__ import annotations

from tidelake.errors import Conflict
from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable
from tidelake.store.failpoints import reach
from tidelake.store.format import FORMAT_VERSION
from tidelake.store.retry import ATTEMPTS_MAX, retry_commit
from tidelake.store.table_log import settle


def bring_over(path: Location) -> bool:
    """Upgrade a table to the newest format, unless it already has that format; return whether this call upgraded it.

    First, markers are written for the entries of the log; then a single commit states the format and sets the property.
    If the call is interrupted in between, the table still belongs to the earlier release, and the next call starts
    over. If the earlier release commits in between, this call's commit conflicts, and is tried again.

    Raises:
        Conflict: every attempt failed.
        Indeterminate: it is unknown whether the commit succeeded; the next call finds out.
    """

    def commit(table: OpenTable) -> bool:
        if table.format >= FORMAT_VERSION:
            return False
        marked = settle(path, takes_over=True).version
        reach("format.after_markers")
        table = OpenTable(path)  # marking took a while
        if table.version != marked:
            raise Conflict(str(path), marked + 1, "another process committed while the table was being upgraded")
        table.raise_format()
        reach("format.after_commit")
        return True

    return retry_commit(path, commit, f"{ATTEMPTS_MAX} attempts to upgrade the table failed")
