"""Notes about late facts: the number of rows with each verdict, and evidence of contradictions. Needs no JVM.

The verdict of a late statement is the kind of its run in `late/`; see `tidelake.validate.late`.
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

from tidelake.protocol.intervals import merge_intervals
from tidelake.protocol.json_values import parse, to_text
from tidelake.protocol.order import INT64_MAX
from tidelake.schema.columns import column_types, map_bytes
from tidelake.store.commit import OpenTable
from tidelake.store.decision import Count, Discard
from tidelake.store.entry import Collection
from tidelake.store.files import meets, read_rows, write_run
from tidelake.store.layout import PROOFS_SCHEMA, TIME
from tidelake.store.proofs import Proven, read_proven

_TIMES_LISTED_MAX = 20
_NOTES_PARSED_AT_ONCE = 100

NOT_COMPARED, COPY, CONTRADICTION, SETTLED, UNTOLD = "late", "copy", "contradiction", "settled", "untold"
"""The kinds of runs in `late/`. Whether an `untold` statement is a copy can no longer be verified."""
VERDICTS = (COPY, CONTRADICTION, SETTLED, UNTOLD, NOT_COMPARED)
CONTRADICTED_RUN = "contradicted"
"""The kind of the runs in `proofs/` that hold evidence."""
LATE_UPDATE, LATE_COUNT = "late_update", "late_count"
"""The kinds of evidence: an update at a sealed time, or a progress statement's count for a sealed time."""


@dataclass(frozen=True)
class LateContradiction:
    """A late fact that contradicts the published contents, which do not change."""

    kind: str
    """`late_update` or `late_count`."""
    time: int
    topic: str
    partition: int
    offset: int
    stated: int
    """The stated diff or count."""
    published: int
    """The proven diff or count; 0 without a proof."""
    data: dict[str, Any] | None
    """The update's data as `tidelake read --json` prints it; None for a count."""
    decision: str | None
    """The reason for the decision that settles the contradiction; None if no decision does."""
    more: int = 0
    """Number of further, unlisted times at which the statement contradicts the proven count."""

    @property
    def fact(self) -> str:
        """The contradiction and its place as a sentence."""
        place = f"topic '{self.topic}', partition {self.partition}, offset {self.offset}"
        if self.kind == LATE_COUNT:
            updates = "1 update" if self.stated == 1 else f"{self.stated} updates"
            further = "count of 1 further time is" if self.more == 1 else f"counts of {self.more:,} further times are"
            rest = f", and the {further} contradicted" if self.more else ""
            return f"time {self.time} is stated to have {updates}, but was sealed with {self.published} ({place}){rest}"
        published = f"was published with {self.published}" if self.published else "was never counted at that time"
        return f"at time {self.time}, {to_text(self.data)} is stated with diff {self.stated}, but {published} ({place})"

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values; `json_values.to_text` preserves the numbers that JSON would round."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def kind_of(run: str) -> str:
    """Return the kind of a run, from its name.

    >>> kind_of("contradiction-0f3a")
    'contradiction'
    """
    return run.partition("-")[0]


def late_verdicts(collection: Collection) -> dict[str, int]:
    """Count late rows by verdict, from the log alone."""
    rows: Counter[str] = Counter()
    for file in OpenTable(collection.paths.late).files():
        rows[kind_of(file.run)] += file.rows
    return {verdict: rows[verdict] for verdict in VERDICTS}


class LateNotes:
    """The notes about contradictions. A note that was repeated after an interruption counts once.

    Each note is about one statement. Notes are parsed on demand, so even if a source contradicts itself at every time,
    only the notes that are shown have to be parsed.
    """

    def __init__(self, collection: Collection, may_be_stale: bool = False) -> None:
        """Read the notes; for `may_be_stale`, see `OpenTable`."""
        proofs = OpenTable(collection.paths.proofs, may_be_stale=may_be_stale)
        files = [file for file in proofs.files() if kind_of(file.run) == CONTRADICTED_RUN]
        columns = [TIME, "kind", "detail"]
        rows = read_rows(collection.paths.proofs, files, PROOFS_SCHEMA, [*columns, "counted"])
        if rows:  # there are hardly ever any, and importing Arrow's engine takes longer than `status`
            distinct = rows.group_by(columns).aggregate([("counted", "max")])
            rows = distinct.rename_columns([*columns, "counted"]).sort_by([(name, "ascending") for name in columns])
        self.rows = rows
        self.settled = _Settled(collection)

    @property
    def contradictions(self) -> int:
        """Number of contradictions; a statement about many times is counted once for each of them."""
        return pc.sum(self.rows["counted"]).as_py() or 0

    @property
    def undecided(self) -> int:
        """Number of contradictions that no decision settles. Only notes that a decision might settle are parsed."""
        if not self.rows:
            return 0
        late = (contradiction for row in self._maybe_settled().to_pylist() for contradiction in self._read(row))
        settled = sum(1 + contradiction.more for contradiction in late if contradiction.decision is not None)
        return self.contradictions - settled

    def first(self, limit: int, undecided: bool = False) -> list[LateContradiction]:
        """Return at most `limit` contradictions, by time, from the notes whose first times are earliest.

        With `undecided`, only contradictions that no decision settles are returned.
        """
        late = (
            contradiction for contradiction in self._each(self.rows) if not undecided or contradiction.decision is None
        )
        return _in_order(islice(late, limit))

    def at(self, time: int) -> list[LateContradiction]:
        """Return the contradictions at a time, if their notes list that time."""
        here = pc.field(TIME) == time
        before = (pc.field("kind") == LATE_COUNT) & (pc.field(TIME) < time)
        late = self._each(self.rows.filter(here | before))
        return _in_order(contradiction for contradiction in late if contradiction.time == time)

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


def _in_order(contradictions: Iterable[LateContradiction]) -> list[LateContradiction]:
    return sorted(
        contradictions,
        key=lambda late: (late.time, late.topic, late.partition, late.offset, late.kind, to_text(late.data)),
    )


def settles(
    collection: Collection, late: LateContradiction, time: int, count: int | None, discard: dict[str, Any] | None
) -> bool:
    """Return whether a decision about a sealed time confirms the published contents and so settles a late fact.

    Args:
        collection: the collection.
        late: the late fact.
        time: the time that the decision is about.
        count: the count that the decision sets, or None.
        discard: the statement `{"data": …, "diff": …}` that the decision discards, or None.
    """
    if late.time != time:
        return False
    if late.kind == LATE_COUNT:
        return count == late.published
    if discard is None or int(discard["diff"]) != late.stated:
        return False
    settled = _Settled(collection)
    return settled.bytes_of(late.data) == settled.bytes_of(discard["data"])


class _Settled:
    """The decisions that settle late facts, by the time or statement that they are about."""

    def __init__(self, collection: Collection) -> None:
        self.schema = collection.entry.statement_schema
        self.kinds = {column.name: column.type for column in column_types(self.schema)}
        self.counts: dict[int, str] = {}
        self.discards: dict[tuple[int, int, bytes], str] = {}
        for decision in collection.entry.decisions:
            match decision:
                case Count():
                    self.counts[decision.time] = decision.reason
                case Discard(time=time, statement=statement):
                    self.discards[time, int(statement["diff"]), self.bytes_of(statement["data"])] = decision.reason

    def bytes_of(self, data: Any) -> bytes:
        """Return bytes that are the same for equal data."""
        from tidelake.codec.typed import encode_data

        return encode_data(self.schema, data)

    def read(self, time: int, kind: str, note: dict[str, Any], facts: int) -> list[LateContradiction]:
        """Return the contradictions in a note, with their decisions.

        A late count has a contradiction for each listed time, and a late update has a single contradiction.
        """
        place = {name: note[name] for name in ("topic", "partition", "offset")}
        if kind == LATE_COUNT:
            return self._read_counts(note["times"], facts, place)
        stated, published = note["stated"], note["published"]
        data = {
            name: map_bytes(self.kinds[name], value, lambda text: {"b64": text}) for name, value in note["data"].items()
        }
        decision = self.discards.get((time, stated, self.bytes_of(data))) if self.discards else None
        return [
            LateContradiction(kind, time, **place, stated=stated, published=published, data=data, decision=decision)
        ]

    def _read_counts(self, listed: list[list[int]], facts: int, place: dict[str, Any]) -> list[LateContradiction]:
        reasons = [self.counts.get(time) for time, _, _ in listed]
        last = len(listed) - 1
        # If all listed times of a statement are settled, the unlisted ones count as settled, too, for the reason given
        # at the last listed time.
        rest = None if None in reasons else reasons[last]
        contradictions = [
            LateContradiction(LATE_COUNT, time, **place, stated=stated, published=published, data=None, decision=reason)
            for (time, stated, published), reason in zip(listed, reasons, strict=True)
        ]
        if facts > len(listed):
            contradictions[last] = replace(contradictions[last], more=facts - len(listed), decision=rest)
        return contradictions


def note_late_counts(collection: Collection, pending: pa.Table, upper: int, closed: bool) -> bool:
    """Compare late progress statements with the proofs, and note each contradicting statement once.

    A note lists the first times whose counts its statement contradicts. It also has the number of all contradicted
    times, and the place where the statement was first read. The same statement at another place adds no note. A time
    that was sealed by a decision keeps the decided count, whatever late statements say.

    Args:
        collection: the collection.
        pending: rows of `progress/` that have not been compared yet.
        upper: the first time that is not sealed.
        closed: whether every time is sealed.

    Returns:
        Whether any statement reaches below upper.

    Cost: nothing if no statement reaches below upper; else the proofs of the times that late statements cover. The
    number of notes is bounded by the number of statements, not by the number of times.
    """
    end_of_sealed = INT64_MAX + 1 if closed else upper
    late = [row for row in pending.to_pylist() if row["lower"] and (closed or min(row["lower"]) < upper)]
    intervals = [sealed_part(row, end_of_sealed) for row in late]
    if not late:
        return False
    proven = read_proven(collection.paths.proofs, merge_intervals(intervals))
    times = sorted(proven)
    notes: dict[str, dict[str, Any]] = {}
    for row, interval in zip(late, intervals, strict=True):
        contradicted = list(contradicted_counts(row, interval, proven, times))
        if contradicted:
            note = _note_of(row, contradicted)
            notes.setdefault(note["fact"], note)
    _append_notes(collection, notes)
    return True


def sealed_part(row: dict[str, Any], end_of_sealed: int) -> tuple[int, int]:
    """Return the sealed times that a progress statement covers, as `[first, end)`.

    Args:
        row: a row of `progress/` whose `lower` is not empty.
        end_of_sealed: the first time that is not sealed; 2^63 if every time is.
    """
    end = min(row["upper"]) if row["upper"] else INT64_MAX + 1
    return min(row["lower"]), min(end, end_of_sealed)


def contradicted_counts(
    row: dict[str, Any], interval: tuple[int, int], proven: dict[int, Proven], times: list[int]
) -> Iterator[tuple[int, int, int]]:
    """Yield (time, stated, proven) for each sealed time at which a statement contradicts the proven count.

    Args:
        row: a row of `progress/`.
        interval: the sealed times that it covers, as `[first, end)`.
        proven: the proofs in that interval.
        times: the times of these proofs, sorted.
    """
    start, end = interval
    stated = dict(zip(row["count_times"], row["count_values"], strict=True))
    covered = times[bisect_left(times, start) : bisect_left(times, end)]
    named = (time for time in stated if start <= time < end)
    for time in sorted({*covered, *named}):
        proof = proven.get(time)
        published = proof.announced if proof else 0
        if stated.get(time, 0) != published and not (proof and proof.decision is not None):
            yield time, stated.get(time, 0), published


def _note_of(row: dict[str, Any], contradicted: list[tuple[int, int, int]]) -> dict[str, Any]:
    fact = blake2b(to_text(contradicted).encode(), digest_size=16).hexdigest()
    place = {name: row[name] for name in ("topic", "partition", "offset")}
    return place | {"fact": fact, "times": contradicted[:_TIMES_LISTED_MAX], "facts": len(contradicted)}


def _append_notes(collection: Collection, notes: dict[str, dict[str, Any]]) -> None:
    """Append the notes whose facts have not been noted yet; their places in the topic do not matter."""
    if not notes:
        return
    path = collection.paths.proofs
    times = sorted({note["times"][0][0] for note in notes.values()})
    files = [file for file in OpenTable(path).files() if kind_of(file.run) == CONTRADICTED_RUN and meets(file, times)]
    like = (pc.field("kind") == LATE_COUNT) & pc.field(TIME).isin(times)
    stored = read_rows(path, files, PROOFS_SCHEMA, [TIME, "kind", "detail"], like)
    stored_facts = {parse(detail)["fact"] for detail in stored["detail"].to_pylist()}
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
        if fact not in stored_facts
    ]
    if rows:
        from tidelake.store.runs import append_run  # imported late: `status` reads the notes without Spark

        table = pa.Table.from_pylist(rows, schema=PROOFS_SCHEMA)
        append_run(path, CONTRADICTED_RUN, lambda run: write_run(path, run, table), collection.entry.epoch)
