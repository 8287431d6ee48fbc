"""The table `bindings/` of a reclocked collection: the offsets bound to each minted time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.protocol.binding import Binding, Place, chain_of
from tidelake.storage.arrow import integers
from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable, maintain
from tidelake.store.entry import Collection
from tidelake.store.failpoints import reach
from tidelake.store.files import discard_run, read_rows, write_run
from tidelake.store.layout import BINDINGS_SCHEMA, TIME, new_run
from tidelake.store.retry import ATTEMPTS_MAX, retry_commit
from tidelake.store.state import UPPER, next_offsets

_MINTED = "minted"
"""The greatest time that any tick has bound, even if that tick later lost a race or crashed."""


def minted_time(path: Location) -> int:
    """Return the greatest bound time; -1 if there is no binding."""
    minted = OpenTable(path, may_be_stale=True).value(_MINTED)
    return -1 if minted is None else minted


def append_binding(path: Location, binding: Binding, epoch: int) -> bool:
    """Store a binding before the commit that makes it valid.

    Returns:
        False if another tick has bound the same time or a later time; in that case, nothing is stored.

    Raises:
        Conflict: every attempt failed.
        LostRace: a sweep may have deleted the binding's run before it was committed.
        Fenced: the epoch was raised in the meantime.
    """
    initial = OpenTable(path, may_be_stale=True)
    run = new_run("binding", initial.seq)
    files = write_run(path, run, pa.Table.from_pylist([_row_of(binding)], schema=BINDINGS_SCHEMA))

    def commit(table: OpenTable) -> bool:
        minted = table.value(_MINTED)
        if minted is not None and minted >= binding.time:
            discard_run(path, run)
            return False
        table.commit({_MINTED: binding.time}, files, epoch=epoch)
        maintain(path)
        return True

    failure = f"{ATTEMPTS_MAX} attempts to bind the time {binding.time} failed"
    return retry_commit(initial, commit, failure, after_conflict=lambda _: reach("append.after_conflict"))


def read_bindings(collection: Collection, table: OpenTable, lower: int = 0) -> list[Binding]:
    """Return the bindings that a version of the updates table makes valid, for times at or after `lower`, oldest first.

    Raises:
        DamagedTable: a binding is missing or contradicts the others.

    Cost: the files of `bindings/` with times at or after `lower`, which have one row for each tick. Of consecutive idle
    ticks, only the last row becomes a `Binding`.
    """
    path, upper = collection.paths.bindings, table.value(UPPER) or 0
    files = [file for file in OpenTable(path).files() if file.time_max is None or file.time_max >= lower]
    stored = read_rows(path, files, BINDINGS_SCHEMA, where=pc.field(TIME) >= lower)
    rows = stored.take(_linked(integers(stored[TIME]).tolist(), integers(stored["lower"]).tolist(), upper)).to_pylist()
    topics = {topic for row in rows for topic in row["topics"]}
    return chain_of(map(_binding_of, rows), upper, known_offsets(table, topics), str(collection.paths.root), lower)


def _linked(times: list[int], lowers: list[int], upper: int) -> list[int]:
    """Return the indices of the bindings whose times form a chain that ends at `upper`; offsets are not compared."""
    index_of = {time: index for index, time in enumerate(times)}
    linked: list[int] = []
    while (index := index_of.pop(upper - 1, None)) is not None:
        linked.append(index)
        upper = lowers[index]
    return linked


def known_offsets(table: OpenTable, topics: set[str]) -> dict[Place, int]:
    """Return the next offset at a version of the updates table, by topic and partition."""
    return {(topic, partition): offset for topic in topics for partition, offset in next_offsets(table, topic).items()}


def _row_of(binding: Binding) -> dict[str, Any]:
    places = sorted(binding.ends)
    return {
        TIME: binding.time,
        "lower": binding.lower,
        "topics": [topic for topic, _ in places],
        "partitions": [partition for _, partition in places],
        "starts": [binding.starts.get(place, 0) for place in places],
        "ends": [binding.ends[place] for place in places],
        "records": binding.records,
        "rows": binding.rows,
        "quarantined": binding.quarantined,
        "at_ms": binding.at_ms,
    }


def _binding_of(row: Mapping[str, Any]) -> Binding:
    places = list(zip(row["topics"], row["partitions"], strict=True))
    return Binding(
        row[TIME],
        row["lower"],
        dict(zip(places, row["starts"], strict=True)),
        dict(zip(places, row["ends"], strict=True)),
        row["records"],
        row["rows"],
        row["quarantined"],
        row["at_ms"],
    )
