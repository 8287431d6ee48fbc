"""Predicts the next seal: the times that are complete but not sealed, and those that are still waiting for updates.

The answer comes from the pure ledger, as in a seal, but Arrow counts the rows, so no JVM is needed. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelake.protocol.antichain import Antichain
from tidelake.protocol.ledger.ledger import Ledger
from tidelake.protocol.order import INT64_MAX
from tidelake.seal.count_arrow import count_in_arrow
from tidelake.seal.count_positions import count_positions
from tidelake.seal.counts import OpenCounts
from tidelake.seal.pending import Pending
from tidelake.seal.rulings import Rulings
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import RunFile
from tidelake.store.state import CLOSED, UPPER

ROWS_COUNTED_MAX = 1_000_000
"""If more rows than this are unsealed, they are not counted: a status has to be quick."""
NESTED_ROWS_COUNTED_MAX = 100_000
"""The same limit, for a collection in which a column has lists or structs."""
_TIMES_MAX = 20


@dataclass(frozen=True)
class WaitingTime:
    """A time that is not complete."""

    time: int
    announced: int | None
    """The number of updates that are announced, or decided; None if no progress statement covers the time."""
    counted: int
    """The number of distinct updates that are stored."""
    is_decided: bool = False
    """Whether `announced` is the number that a decision sets."""

    @property
    def missing(self) -> int:
        """The number of announced updates that are not stored."""
        return max(0, (self.announced or 0) - self.counted)

    def __str__(self) -> str:
        if self.announced is None:
            return f"time {self.time}: no progress statement covers it; {self.counted:,} stored"
        word = "decided" if self.is_decided else "announced"
        return f"time {self.time}: {self.announced:,} {word}, {self.counted:,} stored"

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "time": self.time,
            "announced": self.announced,
            "counted": self.counted,
            "missing": self.missing,
            "decided": self.is_decided,
        }


@dataclass(frozen=True)
class Waiting:
    """The facts about the times that are not sealed."""

    provable_upper: int | None
    """How far the stored facts prove the stream complete; None if they prove the whole stream complete."""
    is_sealed: bool = True
    """Whether upper has already reached `provable_upper`; if not, the next seal moves it there."""
    times: list[WaitingTime] = field(default_factory=list)
    """The first incomplete times, in order."""

    @property
    def first_missing(self) -> WaitingTime | None:
        """The time at `provable_upper`, if some of its announced updates are not stored; otherwise None."""
        first = self.times[0] if self.times else None
        return first if first is not None and first.missing and first.time == self.provable_upper else None

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "provable_upper": self.provable_upper,
            "is_sealed": self.is_sealed,
            "times": [time.as_json() for time in self.times],
        }


def read_waiting(
    collection: Collection, table: OpenTable, files: Sequence[RunFile], may_be_stale: bool = False
) -> Waiting | None:
    """Compare what is announced with what is stored at or after upper.

    Args:
        collection: the collection.
        table: its updates table.
        files: the table's files.
        may_be_stale: whether the statements may be the last ones that this process has seen; see `OpenTable`.

    Returns:
        What the next seal would find; None if each tick of ingest seals its own time, if the stream is closed, or if
        the rows cannot be counted quickly, because there are too many.

    Cost: one pass over the unsealed rows, and over the statements about unsealed times.
    """
    if collection.entry.mints_times or table.value(CLOSED):
        return None
    upper = table.value(UPPER) or 0
    unsealed = [file for file in files if file.reach[1] >= upper]
    counts = stored_counts(collection, table, unsealed, range(upper, INT64_MAX + 1))
    if counts is None:
        return None
    rulings = Rulings(collection.entry.decisions)
    ledger = Ledger(Antichain.of(upper))
    ledger.announce_all(Pending(collection, may_be_stale).statements())
    ledger.count_all((time, distinct) for time, (distinct, _) in counts.items())
    for time, number in rulings.counts.items():
        if time >= upper:
            ledger.decide(time, number)
    frontier = ledger.advance()
    provable = int(str(frontier.elements[0])) if frontier.elements else None
    times = [
        WaitingTime(int(str(time)), announced, counted, int(str(time)) in rulings.counts)
        for time, announced, counted in ledger.outstanding()[:_TIMES_MAX]
    ]
    return Waiting(provable, provable == upper, times)


def stored_counts(
    collection: Collection, table: OpenTable, files: Sequence[RunFile], within: range
) -> dict[int, tuple[int, int]] | None:
    """Return the number of distinct updates and of surplus copies at each of these times, if any are stored.

    Args:
        collection: the collection.
        table: its updates table.
        files: the files that may hold a row at these times.
        within: the times, all at or after upper.

    Returns:
        The numbers by time; None if the rows cannot be counted quickly, see `read_waiting`.
    """
    if not files:
        return {}
    if sum(file.rows for file in files) > ROWS_COUNTED_MAX:
        return None
    from tidelake.store.table_schema import data_fields  # imported late: it loads the registry of types

    if collection.entry.counts_positions:
        positions = count_positions(table.path, files, within, ROWS_COUNTED_MAX)
        return None if positions is None else _totals(positions)
    data = [field.name for field in data_fields(collection.entry.record_schema)]
    schema = collection.updates_schema()
    counts = count_in_arrow(table.path, files, schema, data, (), within, NESTED_ROWS_COUNTED_MAX)
    return None if counts is None else _totals(counts)


def _totals(counts: OpenCounts) -> dict[int, tuple[int, int]]:
    return {time: (count.distinct, count.copies) for time, count in counts.by_time.items()}
