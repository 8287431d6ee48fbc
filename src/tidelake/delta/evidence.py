"""What is kept of late facts: how many there are of each verdict, and the evidence of those that contradict.

Read without a JVM. The verdict of a late statement is the kind of its run in `late/`; see `tidelake.delta.late`.
"""

from __future__ import annotations

import time as clock
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.column_types import column_types, map_bytes
from tidelake.delta.catalog import Collection
from tidelake.delta.commit import OpenTable
from tidelake.delta.files import RunFile, read_rows, write_run
from tidelake.delta.layout import PROOF_RUN, PROOFS_SCHEMA, TIME, new_run
from tidelake.json_values import parse, to_text

NOT_COMPARED, COPY, CONTRADICTION, SETTLED, UNTOLD = "late", "copy", "contradiction", "settled", "untold"
"""The kinds of runs in `late/`."""
VERDICTS = (COPY, CONTRADICTION, SETTLED, UNTOLD, NOT_COMPARED)
CONTRADICTED_RUN = "contradicted"
"""The kind of those runs of `proofs/` that hold evidence."""
LATE_UPDATE, LATE_COUNT = "late_update", "late_count"
"""What the evidence is of: an update at a sealed time, or the count that a progress statement gives for one."""


@dataclass(frozen=True)
class LateContradiction:
    """A late fact that does not agree with what was published; what was published stays."""

    kind: str
    """`late_update` or `late_count`."""
    time: int
    topic: str
    partition: int
    offset: int
    stated: int
    """The diff, or the count, that is stated."""
    published: int
    """The diff, or the count, that was proven; 0 where there is none."""
    data: dict[str, Any] | None
    """The update's data as `tidelake read --json` prints it; None for a count."""
    decision: str | None
    """Why somebody has settled it; None where nobody has."""

    def fact(self) -> str:
        """The contradiction as one sentence, with its place."""
        place = f"topic '{self.topic}', partition {self.partition}, offset {self.offset}"
        if self.kind == LATE_COUNT:
            return (
                f"time {self.time} is said to have {self.stated} updates and was sealed with {self.published} ({place})"
            )
        published = f"was published with {self.published}" if self.published else "was never counted there"
        return f"at time {self.time} {to_text(self.data)} is stated with diff {self.stated} and {published} ({place})"

    def as_json(self) -> dict[str, Any]:
        """The same as JSON values; numbers that JSON would round are kept as they are by `json_values.to_text`."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def kind_of(run: str) -> str:
    """What a run's name says of it.

    >>> kind_of("contradiction-0f3a")
    'contradiction'
    """
    return run.partition("-")[0]


def late_verdicts(collection: Collection) -> dict[str, int]:
    """How many late rows there are of each verdict, from the log alone."""
    found: Counter[str] = Counter()
    for file in OpenTable(collection.paths.late).files():
        found[kind_of(file.run)] += file.rows
    return {verdict: found[verdict] for verdict in VERDICTS}


def late_contradictions(collection: Collection) -> list[LateContradiction]:
    """Every noted contradiction of a late fact, by time and place; one that was noted twice after a stop comes once.

    Cost: the notes, of which there are none where sources say the same as before.
    """
    files = [file for file in OpenTable(collection.paths.proofs).files() if kind_of(file.run) == CONTRADICTED_RUN]
    rows = read_rows(collection.paths.proofs, files, PROOFS_SCHEMA, ["_time", "kind", "detail"]).to_pylist()
    notes = {(row[TIME], row["kind"], row["detail"]) for row in rows}
    settled = _Settled(collection)
    found = [settled.read(time, kind, parse(detail)) for time, kind, detail in notes]
    return sorted(found, key=lambda one: (one.time, one.topic, one.partition, one.offset, one.kind, to_text(one.data)))


def settles(
    collection: Collection, one: LateContradiction, time: int, count: int | None, discard: dict[str, Any] | None
) -> bool:
    """Whether a decision about a sealed time says again what was published there, against a late fact.

    Args:
        collection: whose.
        one: the late fact.
        time: what the decision is about.
        count: the count that it gives, or None.
        discard: the statement `{"data": …, "diff": …}` that it leaves out, or None.
    """
    if one.time != time:
        return False
    if one.kind == LATE_COUNT:
        return count == one.published
    if discard is None or int(discard["diff"]) != one.stated:
        return False
    settled = _Settled(collection)
    return settled.bytes_of(one.data) == settled.bytes_of(discard["data"])


class _Settled:
    """The decisions that settle late facts, by what they are about."""

    def __init__(self, collection: Collection) -> None:
        self.schema = collection.entry.record_schema
        self.kinds = {one.name: one.type for one in column_types(self.schema)}
        self.counts: dict[int, str] = {}
        self.discards: dict[tuple[int, int, bytes], str] = {}
        for one in collection.entry.decisions:
            if one.time is not None and one.count is not None:
                self.counts[one.time] = one.reason
            if one.time is not None and one.discard is not None:
                self.discards[one.time, int(one.discard["diff"]), self.bytes_of(one.discard["data"])] = one.reason

    def bytes_of(self, data: Any) -> bytes:
        """The same for equal data."""
        from tidelake.delta.statements import encode_data

        return encode_data(self.schema, data)

    def read(self, time: int, kind: str, noted: dict[str, Any]) -> LateContradiction:
        """A note as it stands beside the decisions."""
        data = noted.pop("data", None)
        if kind == LATE_COUNT:
            return LateContradiction(kind=kind, time=time, data=None, decision=self.counts.get(time), **noted)
        data = {name: map_bytes(self.kinds[name], value, lambda text: {"b64": text}) for name, value in data.items()}
        decision = self.discards.get((time, noted["stated"], self.bytes_of(data))) if self.discards else None
        return LateContradiction(kind=kind, time=time, data=data, decision=decision, **noted)


def note_late_counts(collection: Collection, pending: pa.Table, upper: int, closed: bool) -> bool:
    """Compare what statements say of sealed times with what was proven there, and note each other count once.

    Times that were sealed by decision have the count that was decided, whatever is said of them.

    Args:
        collection: whose proofs.
        pending: rows of `progress/`, none of which was looked at before.
        upper: what is sealed lies before it.
        closed: whether every time is sealed.

    Returns:
        Whether any statement reaches below upper.

    Cost: nothing where none does; else those files of `proofs/` whose times they meet.
    """
    late = [row for row in pending.to_pylist() if row["lower"] and (closed or min(row["lower"]) < upper)]
    if not late:
        return False
    ends = [min(row["upper"]) if row["upper"] else None for row in late]
    last = None if None in ends else max(end for end in ends if end is not None)
    if not closed:
        last = upper if last is None else min(last, upper)
    first = min(min(row["lower"]) for row in late)
    proven = _read_counts(collection, first, last)
    times = sorted(proven)
    notes: dict[tuple[int, str], None] = {}
    for row in late:
        for time, stated, published in _other_counts(row, proven, times, None if closed else upper):
            place = {name: row[name] for name in ("topic", "partition", "offset")}
            notes[time, to_text(place | {"stated": stated, "published": published})] = None
    _append_counts(collection, notes)
    return True


def _other_counts(
    row: dict[str, Any], proven: dict[int, tuple[int, bool]], times: list[int], upper: int | None
) -> Iterable[tuple[int, int, int]]:
    """The sealed times for which a statement gives another count than the one proven: (time, stated, proven)."""
    start = min(row["lower"])
    end = min(row["upper"]) if row["upper"] else None
    if upper is not None:
        end = upper if end is None else min(end, upper)
    stated = dict(zip(row["count_times"], row["count_values"], strict=True))
    covered = times[bisect_left(times, start) : len(times) if end is None else bisect_right(times, end - 1)]
    named = (time for time in stated if time >= start and (end is None or time < end))
    for time in sorted({*covered, *named}):
        published, decided = proven.get(time, (0, False))
        if stated.get(time, 0) != published and not decided:
            yield time, stated.get(time, 0), published


def _read_counts(collection: Collection, first: int, last: int | None) -> dict[int, tuple[int, bool]]:
    """By time in [first, last): the count that was proven, and whether somebody decided it."""
    files = [
        file
        for file in OpenTable(collection.paths.proofs).files()
        if file.run.startswith(PROOF_RUN) and _reaches(file, first, last)
    ]
    columns = [TIME, "announced", "decision"]
    # A seal that was overtaken may have noted a time before the one that sealed it: the newest note stands.
    rows = read_rows(collection.paths.proofs, files, PROOFS_SCHEMA, [*columns, "at_ms"]).sort_by("at_ms")
    rows = rows.filter(pc.greater_equal(rows[TIME], first))
    if last is not None:
        rows = rows.filter(pc.less(rows[TIME], last))
    return {
        time: (announced, decision is not None)
        for time, announced, decision in zip(*(rows[name].to_pylist() for name in columns), strict=True)
    }


def _reaches(file: RunFile, first: int, last: int | None) -> bool:
    after = file.time_max is not None and file.time_max < first
    before = last is not None and file.time_min is not None and file.time_min >= last
    return not after and not before


def _append_counts(collection: Collection, notes: dict[tuple[int, str], None]) -> None:
    """Append the notes that are not there yet: a seal that moves nothing may meet the same statements again."""
    if not notes:
        return
    path = collection.paths.proofs
    files = [file for file in OpenTable(path).files() if kind_of(file.run) == CONTRADICTED_RUN]
    there = read_rows(path, files, PROOFS_SCHEMA, [TIME, "detail"])
    known = set(zip(there[TIME].to_pylist(), there["detail"].to_pylist(), strict=True))
    at_ms = int(clock.time() * 1000)
    rows = [
        {TIME: time, "kind": LATE_COUNT, "detail": detail, "at_ms": at_ms}
        for time, detail in notes
        if (time, detail) not in known
    ]
    if rows:
        from tidelake.delta.runs import append_run  # late: `status` reads the notes without Spark

        table = pa.Table.from_pylist(rows, schema=PROOFS_SCHEMA)
        append_run(path, write_run(path, new_run(CONTRADICTED_RUN), table), collection.entry.epoch)
