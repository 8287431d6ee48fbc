"""Times at which the tables of a database do not show one moment: between an abandoned snapshot and the next one.

A snapshot of a table is complete once its last row is read. If the connector is killed before it has reached all
tables, those that it had reached show the abandoned snapshot until the next one, and the other tables do not.

Needs no JVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from tidelake.errors import SnapshotTorn
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.transactions import asserted_times, read_transactions


def check_not_torn(tables: Mapping[str, tuple[Collection, OpenTable]], time: int) -> None:
    """Refuse a time at which only some of these tables show a snapshot that the connector never finished.

    Args:
        tables: collections of one timeline with the versions that are read, by name; those without transactions are
            left out.
        time: the time.

    Raises:
        SnapshotTorn: the time is between such a snapshot and the next one.

    Cost: only values in the log, unless the tables have different snapshots.
    """
    known = {
        name: (collection, frozenset(asserted_times(table)))
        for name, (collection, table) in tables.items()
        if collection.entry.counts_positions
    }
    every: Set[int] = frozenset().union(*(times for _, times in known.values()))
    last, following = max((at for at in every if at <= time), default=None), [at for at in every if at > time]
    lacking = [name for name, (_, times) in known.items() if last not in times]
    if last is None or not following or not lacking:
        return
    # A transaction between the two snapshots shows that the connector had finished the first snapshot, and that the
    # tables without this snapshot were empty.
    collection = known[lacking[0]][0]
    if all(found.is_snapshot for found in read_transactions(collection, last, min(following))):
        raise SnapshotTorn(time, last, min(following), lacking[0])
