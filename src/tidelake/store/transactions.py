"""The table `transactions/`: the transactions of a source, by their commit positions. Needs no JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow.compute as pc

from tidelake.protocol.iso_times import iso_of
from tidelake.protocol.transactions import End, Snapshot
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import read_rows
from tidelake.store.layout import TIME, TRANSACTIONS_SCHEMA

STATED = "transactions/stated"
"""A value of `updates/`: progress statements cover all times before this one."""
LAST = "transactions/last"
"""A value of `updates/`: one more than the greatest commit position that was read."""
SNAPSHOT = "transactions/snapshot"
"""A value of `updates/`: the log position of the newest snapshot of which a row was read."""
_SNAPSHOT_ROWS, _SNAPSHOT_MARKS, _SNAPSHOT_BEFORE = "snapshot/rows", "snapshot/ended", "snapshot/before"
_ENDED, _FIRST_MARKED, _ABANDONED = 1, 2, 4
"""The bits that mark a snapshot; once set, a bit stays set."""
_END, _SNAPSHOT = "end", "snapshot"


class Transaction(NamedTuple):
    """A transaction or a snapshot of the source."""

    time: int
    kind: str
    """`end`, or `snapshot`, which is asserted to be complete."""
    id: str | None
    topic: str
    partition: int
    offset: int
    events: int
    """Number of events in the collection's table."""
    events_in_all: int
    """Number of events in all tables of the connector."""
    ended_at_ms: int | None
    begins_at: int | None = None
    """Where its first change is in the log, as its BEGIN states; None if that is unknown."""

    @property
    def is_snapshot(self) -> bool:
        """Whether this is a snapshot of the table."""
        return self.kind == _SNAPSHOT

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        ended_at = None if self.ended_at_ms is None else iso_of(self.ended_at_ms)
        return self._asdict() | {"ended_at": ended_at}


def end_rows(ends: Iterable[End], topic: str) -> list[dict[str, Any]]:
    """Return the rows for ENDs."""
    return [
        {
            TIME: end.lsn,
            "kind": _END,
            "id": end.id,
            "topic": topic,
            "partition": 0,
            "offset": end.offset,
            "events": end.events,
            "events_in_all": end.events_in_all,
            "ended_at_ms": end.ended_at_ms,
            "begins_at": end.begins_at,
        }
        for end in ends
    ]


def snapshot_row(snapshot: Snapshot, topic: str) -> dict[str, Any]:
    """Return the row of `transactions/` for a snapshot; `topic` is the topic that has the snapshot's own rows."""
    numbers = {"events": snapshot.rows, "events_in_all": snapshot.rows}
    return {TIME: snapshot.lsn, "kind": _SNAPSHOT, "topic": topic, **numbers}


def read_transactions(collection: Collection, lower: int = 0, upper: int | None = None) -> list[Transaction]:
    """Read the transactions and snapshots at or after `lower` and, if given, before `upper`, in order of time.

    This call opens the table. If the caller opened `updates/` earlier, the result has every END that `updates/` knows.

    Cost: the files that may hold such a time.
    """
    path = collection.paths.transactions
    files = [file for file in OpenTable(path).files() if file.reach[1] >= lower]
    within = pc.field(TIME) >= lower
    if upper is not None:
        files = [file for file in files if file.reach[0] < upper]
        within = within & (pc.field(TIME) < upper)
    names = [TIME, *Transaction._fields[1:]]
    rows = read_rows(path, files, TRANSACTIONS_SCHEMA, names, within).to_pydict()
    found: dict[tuple[int, str], Transaction] = {}
    for values in zip(*(rows[name] for name in names), strict=True):
        row = Transaction(*values)
        first = found.get((row.time, row.kind))
        if first is None or (row.offset or 0) < (first.offset or 0):
            found[row.time, row.kind] = row
    return [found[key] for key in sorted(found)]


def snapshot_values(snapshots: Iterable[Snapshot]) -> dict[str, int]:
    """Return the values that the commit of a tick sets for snapshots.

    Args:
        snapshots: the snapshots that no progress statement covered before the tick, oldest first.
    """
    values: dict[str, int] = {}
    before = None
    for snapshot in snapshots:
        values |= {
            SNAPSHOT: snapshot.lsn,
            f"{_SNAPSHOT_ROWS}/{snapshot.lsn}": snapshot.rows,
            f"{_SNAPSHOT_MARKS}/{snapshot.lsn}": _marks_of(snapshot),
        }
        if before is not None:
            values[f"{_SNAPSHOT_BEFORE}/{snapshot.lsn}"] = before
        before = snapshot.lsn
    return values


def asserted_times(table: OpenTable) -> list[int]:
    """Return the times of the snapshots that were stated and were not abandoned.

    Such a snapshot is asserted to be complete, not proven: nothing announces how many rows it has.
    """
    stated = table.value(STATED) or 0
    snapshots = read_snapshots(table, 0)
    return [snapshot.lsn for snapshot in snapshots if snapshot.lsn < stated and not snapshot.is_abandoned]


def abandoned_in(values: Mapping[str, int]) -> frozenset[int]:
    """Return the log positions of the snapshots that the values of a commit mark as abandoned."""
    prefix = f"{_SNAPSHOT_MARKS}/"
    marks = {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
    return frozenset(int(lsn) for lsn, value in marks.items() if value & _ABANDONED)


def read_snapshots(table: OpenTable, lower: int) -> list[Snapshot]:
    """Return the snapshots of which a row was read, as a version of `updates/` states them, oldest first.

    Those before `lower` are left out.
    """
    snapshots: list[Snapshot] = []
    lsn = table.value(SNAPSHOT)
    while lsn is not None and lsn >= lower:
        rows = table.value(f"{_SNAPSHOT_ROWS}/{lsn}") or 0
        marks = table.value(f"{_SNAPSHOT_MARKS}/{lsn}") or 0
        bits = (bool(marks & bit) for bit in (_ENDED, _FIRST_MARKED, _ABANDONED))
        snapshots.append(Snapshot(lsn, rows, *bits))
        lsn = table.value(f"{_SNAPSHOT_BEFORE}/{lsn}")
    return snapshots[::-1]


def _marks_of(snapshot: Snapshot) -> int:
    bits = {_ENDED: snapshot.is_ended, _FIRST_MARKED: snapshot.is_first_marked, _ABANDONED: snapshot.is_abandoned}
    return sum(bit for bit, is_set in bits.items() if is_set)
