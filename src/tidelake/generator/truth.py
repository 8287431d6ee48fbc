"""What is true of a generated topic: its distinct updates, its contents at any time, and how far a reader must come.

Contents are added up here by Arrow alone, so that they can be compared with what Spark and Delta make of the topic.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from tidelake.debezium import AFTER, BEFORE
from tidelake.errors import RuleBroken
from tidelake.generator.events import events_table
from tidelake.generator.history import Triple
from tidelake.generator.options import Encoding, Family
from tidelake.generator.orders import orders_table

TIME = "_time"
DIFF = "_diff"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HeldBack(_Frozen):
    """A time that cannot seal, and why: the kind of the contradiction, or `envelope_breach`."""

    time: int
    kind: str


class Part(_Frozen):
    """One call of the generator: with what options, and which times and how many updates it added."""

    options: dict[str, Any]
    first_time: int
    end: int
    updates: int


class Truth(_Frozen):
    """The summary of a topic, all calls together; `<name>.truth.json`."""

    name: str
    family: Family
    encoding: Encoding
    schema_id: int
    upper: int
    """How far a table must come: the first time held back, otherwise what progress states."""
    closed: bool
    """Whether the stream is closed, and nothing holds it back: a table's upper is then empty."""
    close_stated: bool
    """Whether a statement closes the stream."""
    stated_upper: int
    """How far progress is stated, contradictions or not."""
    end: int
    """The first time after the history."""
    held_back: tuple[HeldBack, ...]
    updates: int
    """Distinct updates of the history; the rows of `<name>.truth.parquet`."""
    updates_stated: int
    """Updates in all messages that can be used, copies too."""
    messages: int
    """Records in the topic."""
    progress_messages: int
    null_records: int
    quarantined: dict[str, int]
    """How many messages end in the quarantine, by reason."""
    far_future: tuple[int, ...]
    """Times of updates beyond the history, each with one; they are not in the history."""
    rows: int
    """How many rows were made; with `next_id`, where a continued topic goes on."""
    next_id: int
    parts: tuple[Part, ...]

    @property
    def quarantined_messages(self) -> int:
        """How many messages end in the quarantine."""
        return sum(self.quarantined.values())


def updates_table(rows: list[dict[str, Any]], updates: list[Triple], before: Path | None = None) -> pa.Table:
    """Give updates as rows: the data's columns, `_time`, `_diff`; behind those of an earlier file."""
    table = (events_table(rows) if rows and AFTER in rows[0] else orders_table(rows)).take(
        pa.array([row for row, _, _ in updates], pa.int64())
    )
    table = table.append_column(TIME, pa.array([time for _, time, _ in updates], pa.int64()))
    table = table.append_column(DIFF, pa.array([diff for _, _, diff in updates], pa.int64()))
    return table if before is None else pa.concat_tables([pq.read_table(before), table])


def contents_at(path: Path, as_of: int) -> pa.Table:
    """Add up the updates at or before a time.

    Args:
        path: `<name>.truth.parquet`.
        as_of: any time; the caller knows which ones a table can answer.

    Returns:
        The data's columns and `_diff`, how often each row is there: never 0. The order of rows means nothing. Of change
        events it is the columns of the rows that they are about.
    """
    updates = pq.read_table(path, filters=[(TIME, "<=", as_of)])
    if AFTER in updates.column_names:
        updates = pa.concat_tables([_rows(updates, BEFORE, -1), _rows(updates, AFTER, +1)])
    names = [name for name in updates.column_names if name not in (TIME, DIFF)]
    keys = {name: _groupable(updates[name]) for name in names}
    places = pa.array(range(updates.num_rows), pa.int64())
    sums = pa.table({**keys, DIFF: updates[DIFF], "_place": places}).group_by(names)
    found = sums.aggregate([(DIFF, "sum"), ("_place", "min")])
    found = found.filter(pc.not_equal(found[f"{DIFF}_sum"], 0)).sort_by("_place_min")
    return updates.select(names).take(found["_place_min"]).append_column(DIFF, found[f"{DIFF}_sum"])


def _rows(events: pa.Table, name: str, sign: int) -> pa.Table:
    """Give the rows that events take away or bring, as updates."""
    there = events.filter(pc.is_valid(events[name]))
    rows = pa.Table.from_struct_array(there[name].combine_chunks())
    return rows.append_column(TIME, there[TIME]).append_column(DIFF, pc.multiply(there[DIFF], sign))


def read_truth(path: Path) -> Truth:
    """Read `<name>.truth.json`.

    Raises:
        RuleBroken: it is not there.
    """
    if not path.is_file():
        raise RuleBroken(f"there is no {path}", "only a topic that this generator wrote has one; name its folder")
    return Truth.model_validate_json(path.read_text(encoding="utf-8"))


def counts_between(path: Path, lower: int, upper: int) -> list[tuple[int, int]]:
    """Count the distinct updates at each time from `lower` on and before `upper`; times without any are left out."""
    times = pq.read_table(path, columns=[TIME], filters=[(TIME, ">=", lower), (TIME, "<", upper)])[TIME]
    return sorted((one["values"], one["counts"]) for one in pc.value_counts(times).to_pylist())


def _groupable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Give a column that groups as this one does: Arrow does not group by lists and structs."""
    if pa.types.is_nested(column.type):
        return pa.array([repr(value) for value in column.to_pylist()], pa.string())
    return column
