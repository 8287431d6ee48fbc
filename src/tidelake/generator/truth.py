"""The ground truth of a generated topic: its distinct updates, its contents at any time, and the upper to reach.

The contents are computed with Arrow only. They are an independent check of what Spark and Delta compute.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from tidelake.errors import GeneratorRefused
from tidelake.generator.events import events_table
from tidelake.generator.history import Triple
from tidelake.generator.options import Encoding, Family
from tidelake.generator.orders import orders_table
from tidelake.schema.change_events import AFTER, BEFORE

TIME = "_time"
DIFF = "_diff"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HeldBack(_Frozen):
    """A time that cannot be sealed, and the kind of its contradiction."""

    time: int
    kind: str


class Part(_Frozen):
    """One call of the generator: its options, and the times and updates that it added."""

    options: dict[str, Any]
    first_time: int
    end: int
    updates: int


class Truth(_Frozen):
    """The summary of a topic over all calls of the generator: `<name>.truth.json`."""

    name: str
    family: Family
    encoding: Encoding
    schema_id: int
    upper: int
    """The upper that a table has to reach: the first time held back, or `stated_upper` if no time is held back."""
    closed: bool
    """Whether the stream is closed and no time is held back: the table's upper is then empty."""
    close_stated: bool
    """Whether a statement closes the stream."""
    stated_upper: int
    """The upper of the last progress statement, whether or not times are held back."""
    end: int
    """The first time after the history."""
    held_back: tuple[HeldBack, ...]
    updates: int
    """Number of distinct updates of the history: the rows of `<name>.truth.parquet`."""
    updates_stated: int
    """Number of updates in all usable messages, copies included."""
    messages: int
    """Number of records in the topic."""
    progress_messages: int
    null_records: int
    quarantined: dict[str, int]
    """Number of quarantined messages, by reason."""
    far_future: tuple[int, ...]
    """Times far beyond the history that have one update each; these updates are not part of the history."""
    rows: int
    """Number of rows created. If the topic is continued, row numbers start from here, and ids from `next_id`."""
    next_id: int
    parts: tuple[Part, ...]

    @property
    def quarantined_messages(self) -> int:
        """Number of quarantined messages."""
        return sum(self.quarantined.values())


def updates_table(rows: list[dict[str, Any]], updates: list[Triple], before: Path | None = None) -> pa.Table:
    """Return a table of the data's columns, `_time` and `_diff`: the rows of an earlier file, then the updates."""
    table = (events_table(rows) if rows and AFTER in rows[0] else orders_table(rows)).take(
        pa.array([row for row, _, _ in updates], pa.int64())
    )
    table = table.append_column(TIME, pa.array([time for _, time, _ in updates], pa.int64()))
    table = table.append_column(DIFF, pa.array([diff for _, _, diff in updates], pa.int64()))
    return table if before is None else pa.concat_tables([pq.read_table(before), table])


def contents_at(path: Path, as_of: int) -> pa.Table:
    """Return the contents at a time: the sums of the updates at or before it.

    Args:
        path: `<name>.truth.parquet`.
        as_of: any time, even one at which a table cannot be read.

    Returns:
        The data's columns and `_diff`, the multiplicity of each row, which is never 0. The order of rows is arbitrary.
        For change events, the columns are those of the rows that they change.
    """
    updates = pq.read_table(path, filters=[(TIME, "<=", as_of)])
    if AFTER in updates.column_names:
        updates = pa.concat_tables([_rows(updates, BEFORE, -1), _rows(updates, AFTER, +1)])
    names = [name for name in updates.column_names if name not in (TIME, DIFF)]
    keys = {name: _groupable(updates[name]) for name in names}
    places = pa.array(range(updates.num_rows), pa.int64())
    sums = pa.table({**keys, DIFF: updates[DIFF], "_place": places}).group_by(names)
    totals = sums.aggregate([(DIFF, "sum"), ("_place", "min")])
    totals = totals.filter(pc.not_equal(totals[f"{DIFF}_sum"], 0)).sort_by("_place_min")
    return updates.select(names).take(totals["_place_min"]).append_column(DIFF, totals[f"{DIFF}_sum"])


def _rows(events: pa.Table, name: str, sign: int) -> pa.Table:
    """Return the rows that events remove or add, as updates."""
    present = events.filter(pc.is_valid(events[name]))
    rows = pa.Table.from_struct_array(present[name].combine_chunks())
    return rows.append_column(TIME, present[TIME]).append_column(DIFF, pc.multiply(present[DIFF], sign))


def read_truth(path: Path) -> Truth:
    """Read `<name>.truth.json`.

    Raises:
        GeneratorRefused: the file is missing.
    """
    if not path.is_file():
        raise GeneratorRefused(
            f"there is no {path}", "continue a topic that this generator wrote, and give the folder of its ground truth"
        )
    return Truth.model_validate_json(path.read_text(encoding="utf-8"))


def write_truth(schema: tuple[Path, Any], updates: tuple[Path, pa.Table], summary: tuple[Path, Any]) -> None:
    """Write the record schema, the true updates and, finally, their summary."""
    for path, _ in (schema, updates, summary):
        path.parent.mkdir(parents=True, exist_ok=True)
    _write_json(*schema)
    _write_parquet(*updates)
    _write_json(*summary)


def counts_between(path: Path, lower: int, upper: int) -> list[tuple[int, int]]:
    """Count the distinct updates at each time in `[lower, upper)`; times without updates are left out."""
    times = pq.read_table(path, columns=[TIME], filters=[(TIME, ">=", lower), (TIME, "<", upper)])[TIME]
    return sorted((entry["values"], entry["counts"]) for entry in pc.value_counts(times).to_pylist())


def _groupable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return a column that makes the same groups as this one: Arrow cannot group by lists or structs."""
    if pa.types.is_nested(column.type):
        return pa.array([repr(value) for value in column.to_pylist()], pa.string())
    return column


def _write_parquet(path: Path, table: pa.Table) -> None:
    unfinished = path.with_name(f"_{path.name}")
    pq.write_table(table, unfinished, compression="zstd", write_page_checksum=True)
    unfinished.replace(path)


def _write_json(path: Path, value: Any) -> None:
    unfinished = path.with_name(f"_{path.name}")
    unfinished.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    unfinished.replace(path)
