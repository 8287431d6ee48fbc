"""The table `bindings/` of a re-clocked collection: which offsets each minted time stands for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.delta.catalog import Collection
from tidelake.delta.commit import OpenTable, maintain
from tidelake.delta.files import discard_run, read_rows, write_run
from tidelake.delta.layout import BINDINGS_SCHEMA, TIME, new_run
from tidelake.delta.position import next_offsets
from tidelake.delta.stops import reach
from tidelake.delta.values import UPPER
from tidelake.errors import Conflict
from tidelake.framing.reclock import Binding, Place, chain_of

_MINTED = "minted"
"""The greatest time that was bound, also by a tick that lost or died after it."""
_ATTEMPTS_MAX = 64


def minted_time(path: Path) -> int:
    """The greatest time that was bound; -1 where there is none."""
    found = OpenTable(path).value(_MINTED)
    return -1 if found is None else found


def append_binding(path: Path, binding: Binding, epoch: int) -> bool:
    """Write a binding down, before the commit that makes it true; False where another tick has bound its time.

    Raises:
        Conflict: every attempt lost.
        Fenced: the writer's epoch has moved.
    """
    run = new_run("binding")
    files = write_run(path, run, pa.Table.from_pylist([_row_of(binding)], schema=BINDINGS_SCHEMA))
    for _ in range(_ATTEMPTS_MAX):
        table = OpenTable(path)
        minted = table.value(_MINTED)
        if minted is not None and minted >= binding.time:
            discard_run(path, run)
            return False
        try:
            table.commit({_MINTED: binding.time}, files, epoch=epoch)
        except Conflict:
            reach("append.after_conflict")
            continue
        maintain(path)
        return True
    raise Conflict(str(path), -1, f"{_ATTEMPTS_MAX} attempts to bind the time {binding.time} failed")


def read_bindings(collection: Collection, table: OpenTable, lower: int = 0) -> list[Binding]:
    """The bindings that count at one version of the updates table, of times at or after `lower`, oldest first.

    Raises:
        DamagedTable: one is missing, or does not fit.

    Cost: the files of `bindings/` that reach `lower`; a row a tick.
    """
    path = collection.paths.bindings
    files = [one for one in OpenTable(path).files() if one.time_max is None or one.time_max >= lower]
    rows = read_rows(path, files, BINDINGS_SCHEMA, where=pc.field(TIME) >= lower).to_pylist()
    topics = {topic for row in rows for topic in row["topics"]}
    return chain_of(
        map(_binding_of, rows), table.value(UPPER) or 0, known_offsets(table, topics), str(collection.paths.root), lower
    )


def known_offsets(table: OpenTable, topics: set[str]) -> dict[Place, int]:
    """By topic and partition, the next offset as a version of the updates table has it."""
    return {(topic, one): offset for topic in topics for one, offset in next_offsets(table, topic).items()}


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
