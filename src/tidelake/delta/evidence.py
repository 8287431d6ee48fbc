"""What is kept of late facts: how many there are of each verdict, and the evidence of those that contradict.

Read without a JVM. The verdict of a late statement is the kind of its run in `late/`; see `tidelake.delta.late`.
"""

from __future__ import annotations

import time as clock
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.column_types import column_types, map_bytes
from tidelake.delta.catalog import Collection
from tidelake.delta.commit import OpenTable
from tidelake.delta.files import meets, read_rows, write_run
from tidelake.delta.layout import PROOFS_SCHEMA, TIME, new_run
from tidelake.delta.proven import Proven, read_proven
from tidelake.delta.topic import merge_intervals
from tidelake.json_values import parse, to_text
from tidelake.order import INT64_MAX

_TIMES_LISTED_MAX = 20
_NOTES_PARSED_AT_ONCE = 100

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
    more: int = 0
    """At how many further times, listed nowhere, the same statement gives another count than the proven one."""

    def fact(self) -> str:
        """The contradiction as one sentence, with its place."""
        place = f"topic '{self.topic}', partition {self.partition}, offset {self.offset}"
        if self.kind == LATE_COUNT:
            rest = f", and so at {self.more:,} more times" if self.more else ""
            return (
                f"time {self.time} is said to have {self.stated} updates and was sealed with {self.published} "
                f"({place}){rest}"
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


class LateNotes:
    """The notes of late facts that contradict; one that was noted twice after a stop counts once.

    A note is of one statement. Only those that are asked for are parsed, so a source that contradicts itself at every
    time costs no more than what is shown of it.
    """

    def __init__(self, collection: Collection) -> None:
        files = [file for file in OpenTable(collection.paths.proofs).files() if kind_of(file.run) == CONTRADICTED_RUN]
        columns = [TIME, "kind", "detail"]
        rows = read_rows(collection.paths.proofs, files, PROOFS_SCHEMA, [*columns, "counted"])
        distinct = rows.group_by(columns).aggregate([("counted", "max")])
        self.rows = distinct.rename_columns([*columns, "counted"]).sort_by([(name, "ascending") for name in columns])
        self.settled = _Settled(collection)

    @property
    def contradictions(self) -> int:
        """How many there are; a statement about many times makes one at each."""
        return pc.sum(self.rows["counted"]).as_py() or 0

    @property
    def undecided(self) -> int:
        """How many of them nobody has settled. Only notes that a decision may be about are parsed."""
        found = (one for row in self._maybe_settled().to_pylist() for one in self._read(row))
        return self.contradictions - sum(1 + one.more for one in found if one.decision is not None)

    def first(self, limit: int, undecided: bool = False) -> list[LateContradiction]:
        """The first of them, by the times at which their statements begin to contradict; of those that stand, if so."""
        found = (one for one in self._each(self.rows) if not undecided or one.decision is None)
        return _in_order(islice(found, limit))

    def at(self, time: int) -> list[LateContradiction]:
        """Those at one time, as far as their statements list it."""
        here = pc.field(TIME) == time
        before = (pc.field("kind") == LATE_COUNT) & (pc.field(TIME) < time)
        return _in_order(one for one in self._each(self.rows.filter(here | before)) if one.time == time)

    def _each(self, rows: pa.Table) -> Iterator[LateContradiction]:
        for batch in rows.to_batches(max_chunksize=_NOTES_PARSED_AT_ONCE):
            for row in batch.to_pylist():
                yield from self._read(row)

    def _read(self, row: dict[str, Any]) -> list[LateContradiction]:
        return self.settled.read(row[TIME], row["kind"], parse(row["detail"]), row["counted"])

    def _maybe_settled(self) -> pa.Table:
        discarded = pa.array(sorted({time for time, _, _ in self.settled.discards}), pa.int64())
        update = (pc.field("kind") == LATE_UPDATE) & pc.field(TIME).isin(discarded)
        last = max(self.settled.counts, default=-1)
        return self.rows.filter(update | ((pc.field("kind") == LATE_COUNT) & (pc.field(TIME) <= last)))


def _in_order(found: Iterable[LateContradiction]) -> list[LateContradiction]:
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

    def read(self, time: int, kind: str, noted: dict[str, Any], facts: int) -> list[LateContradiction]:
        """What a note says, beside the decisions: one contradiction, or those that a statement of counts lists."""
        place = {name: noted[name] for name in ("topic", "partition", "offset")}
        if kind == LATE_COUNT:
            return self._read_counts(noted["times"], facts, place)
        stated, published = noted["stated"], noted["published"]
        data = {
            name: map_bytes(self.kinds[name], value, lambda text: {"b64": text})
            for name, value in noted["data"].items()
        }
        decision = self.discards.get((time, stated, self.bytes_of(data))) if self.discards else None
        return [
            LateContradiction(kind, time, **place, stated=stated, published=published, data=data, decision=decision)
        ]

    def _read_counts(self, listed: list[list[int]], facts: int, place: dict[str, Any]) -> list[LateContradiction]:
        reasons = [self.counts.get(time) for time, _, _ in listed]
        last = len(listed) - 1
        # Who has settled all that is listed of a statement has settled the statement: the rest stands with the last.
        rest = None if None in reasons else reasons[last]
        found = [
            LateContradiction(LATE_COUNT, time, **place, stated=stated, published=published, data=None, decision=reason)
            for (time, stated, published), reason in zip(listed, reasons, strict=True)
        ]
        if facts > len(listed):
            found[last] = replace(found[last], more=facts - len(listed), decision=rest)
        return found


def note_late_counts(collection: Collection, pending: pa.Table, upper: int, closed: bool) -> bool:
    """Compare what statements say of sealed times with what was proven there, and note each that contradicts once.

    A note has the first times that its statement contradicts, and how many there are; it says where the statement came
    first, and whoever states the same again, at whatever place, adds nothing. Times that were sealed by decision have
    the count that was decided, whatever is said of them.

    Args:
        collection: whose proofs.
        pending: rows of `progress/`, none of which was looked at before.
        upper: what is sealed lies before it.
        closed: whether every time is sealed.

    Returns:
        Whether any statement reaches below upper.

    Cost: nothing where none does; else the proofs of those times that late statements cover. What is written is bounded
    by the number of statements, not of times.
    """
    end_of_sealed = INT64_MAX + 1 if closed else upper
    late = [row for row in pending.to_pylist() if row["lower"] and (closed or min(row["lower"]) < upper)]
    intervals = [_sealed_part(row, end_of_sealed) for row in late]
    if not late:
        return False
    proven = read_proven(collection.paths.proofs, merge_intervals(intervals))
    times = sorted(proven)
    notes: dict[str, dict[str, Any]] = {}
    for row, interval in zip(late, intervals, strict=True):
        others = list(_other_counts(row, interval, proven, times))
        if others:
            note = _note_of(row, others)
            notes.setdefault(note["fact"], note)
    _append_notes(collection, notes)
    return True


def _sealed_part(row: dict[str, Any], end_of_sealed: int) -> tuple[int, int]:
    """The sealed times that a statement covers, as `(first, end)`."""
    end = min(row["upper"]) if row["upper"] else INT64_MAX + 1
    return min(row["lower"]), min(end, end_of_sealed)


def _other_counts(
    row: dict[str, Any], interval: tuple[int, int], proven: dict[int, Proven], times: list[int]
) -> Iterator[tuple[int, int, int]]:
    """The sealed times for which a statement gives another count than the one proven: (time, stated, proven)."""
    start, end = interval
    stated = dict(zip(row["count_times"], row["count_values"], strict=True))
    covered = times[bisect_left(times, start) : bisect_left(times, end)]
    named = (time for time in stated if start <= time < end)
    for time in sorted({*covered, *named}):
        proof = proven.get(time)
        published = proof.announced if proof else 0
        if stated.get(time, 0) != published and not (proof and proof.decision is not None):
            yield time, stated.get(time, 0), published


def _note_of(row: dict[str, Any], others: list[tuple[int, int, int]]) -> dict[str, Any]:
    fact = blake2b(to_text(others).encode(), digest_size=16).hexdigest()
    place = {name: row[name] for name in ("topic", "partition", "offset")}
    return place | {"fact": fact, "times": others[:_TIMES_LISTED_MAX], "facts": len(others)}


def _append_notes(collection: Collection, notes: dict[str, dict[str, Any]]) -> None:
    """Append the notes that are not there yet, by what they say and not by where it was said."""
    if not notes:
        return
    path = collection.paths.proofs
    times = sorted({note["times"][0][0] for note in notes.values()})
    files = [file for file in OpenTable(path).files() if kind_of(file.run) == CONTRADICTED_RUN and meets(file, times)]
    like = (pc.field("kind") == LATE_COUNT) & pc.field(TIME).isin(times)
    there = read_rows(path, files, PROOFS_SCHEMA, [TIME, "kind", "detail"], like)
    known = {parse(detail)["fact"] for detail in there["detail"].to_pylist()}
    at_ms = int(clock.time() * 1000)
    rows = [
        {
            TIME: note["times"][0][0],
            "kind": LATE_COUNT,
            "counted": note.pop("facts"),
            "detail": to_text(note),
            "at_ms": at_ms,
        }
        for fact, note in notes.items()
        if fact not in known
    ]
    if rows:
        from tidelake.delta.runs import append_run  # late: `status` reads the notes without Spark

        table = pa.Table.from_pylist(rows, schema=PROOFS_SCHEMA)
        append_run(path, write_run(path, new_run(CONTRADICTED_RUN), table), collection.entry.epoch)
