"""Finds what became of the statements and counts of CDCv2 messages, without a JVM."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tidelake.codec.avro import AvroCodec
from tidelake.codec.stored import data_of_row
from tidelake.codec.typed import data_as_json, decode_data
from tidelake.protocol.intervals import merge_intervals
from tidelake.protocol.message import Update
from tidelake.protocol.order import INT64_MAX
from tidelake.read.fates import (
    CONTRADICTED,
    COPY,
    DISCARDED,
    LATE,
    MERGED,
    MISSING,
    PENDING,
    PUBLISHED,
    SEALED,
    STORED,
    CountFate,
    StatementFate,
)
from tidelake.read.same_cells import same_cells
from tidelake.read.words import counted
from tidelake.settings.terms import envelope_terms
from tidelake.storage.arrow import int64_array, integers
from tidelake.store import late_notes
from tidelake.store.commit import OpenTable
from tidelake.store.decision import counts_in, discards_in, reasons_in
from tidelake.store.entry import Collection
from tidelake.store.files import read_file, read_rows
from tidelake.store.late_notes import LATE_COUNT, LATE_UPDATE, LateNotes, contradicted_counts, kind_of, sealed_part
from tidelake.store.layout import DIFF, PROGRESS_SCHEMA, RUN, TIME
from tidelake.store.proof_log import read_proof_log
from tidelake.store.proofs import Proven, read_proven
from tidelake.store.rows_at import rows_at, with_numbers
from tidelake.store.state import CLOSED, SINCE, UPPER

_PLACE = ["_topic", "_partition", "_offset"]

Place = tuple[str, int, int]
"""The topic's name in the collection's tables, a partition and an offset."""
_Key = tuple[bytes, int]
"""The identity of data, and a time."""


class TracedStream:
    """The statements of a CDCv2 collection, at one version of its table."""

    def __init__(self, collection: Collection, table: OpenTable) -> None:
        self.collection, self.table = collection, table
        self.schema = collection.entry.record_schema
        self.upper, self.closed = table.value(UPPER) or 0, bool(table.value(CLOSED))
        compacted = table.value(SINCE) or 0
        self.first = compacted + 1 if compacted else 0
        """The earliest time that compaction has not merged with other times."""
        self.is_keyed = envelope_terms(collection.entry.envelope).key == "required"
        """Whether rows are statements about keys. If so, merges may drop rows, but never move them; if not, diffs are
        summed."""
        self.codec = AvroCodec(self.schema)
        self.reasons = reasons_in(collection.entry.decisions)
        self._blocked: defaultdict[int, list[str]] = defaultdict(list)
        for note in read_proof_log(collection).blocked:
            self._blocked[note["time"]].append(note["detail"])
        self._discards = {
            (self._identity_of_json(discard.statement["data"]), discard.time, int(discard.statement["diff"])): discard
            for discard in discards_in(collection.entry.decisions)
        }

    # --- updates -----------------------------------------------------------------------------------------------------

    def statements(self, batch: Sequence[Update], place: Place) -> tuple[StatementFate, ...]:
        """Return what became of each statement of an update message.

        Args:
            batch: the statements, as the message has them.
            place: where the message is.

        Raises:
            DamagedTable: a file is not the committed one, or cannot be read.

        Cost: reads the rows at the times of the statements, from those files of `updates/` that may hold them, and the
            places of all late rows.
        """
        keys: list[_Key] = [(self.codec.identity(data), time) for data, time, _ in batch]  # type: ignore[misc]
        late = {(self._identity_of_row(row), row[TIME], row[DIFF]): row[RUN] for row in self._late_rows(place)}
        wanted = {key: update.data for key, update in zip(keys, batch, strict=True) if self._is_findable(key[1])}
        stored = self._stored(wanted)
        proven = self._proven({time for _, time in keys if self._is_sealed(time)})
        fates, seen = [], dict[tuple[bytes, int, int], int]()
        for number, (key, update) in enumerate(zip(keys, batch, strict=True), start=1):
            identity, time = key
            whole = (identity, time, update.diff)
            earlier = seen.setdefault(whole, number)
            if earlier != number:
                judged: _Judged = (COPY, f"a copy of statement {earlier} of this message", None)
            elif whole in late:
                judged = self._late(whole, kind_of(late[whole]))
            elif whole in self._discards:
                judged = DISCARDED, f"has no effect, by decision: {self._discards[whole].reason}", None
            elif self._is_sealed(time):
                judged = self._sealed(time, update.diff, stored[key], proven.get(time))
            else:
                judged = self._open(time, update.diff, stored[key])
            fates.append(StatementFate(number, time, update.diff, data_as_json(self.schema, update.data), *judged))
        return tuple(fates)

    def late_statements(self, place: Place) -> tuple[StatementFate, ...]:
        """Return what became of the late statements of a message that can no longer be read."""
        fates = {}
        for row in self._late_rows(place):
            whole = (self._identity_of_row(row), row[TIME], row[DIFF])
            data = data_as_json(self.schema, data_of_row(self.schema, row))
            fates[whole] = StatementFate(0, row[TIME], row[DIFF], data, *self._late(whole, kind_of(row[RUN])))
        return tuple(sorted(fates.values(), key=lambda fate: (fate.time, fate.diff)))

    def _open(self, time: int, diff: int, rows: list[tuple[int, str]]) -> _Judged:
        """Judge a statement at a time that is not sealed."""
        same = sum(stored == diff for stored, _ in rows)
        if not same:
            return self._missing([stored for stored, _ in rows])
        detail = f"time {time} is not sealed yet"
        if same > 1:
            detail += f"; the table has the statement {same} times, and seal counts it once"
        others = sorted({stored for stored, _ in rows} - {diff})
        if others:
            detail += f"; the same update is stated with diff {', '.join(map(str, others))} as well"
        held, needs = self._held(time)
        return STORED, detail + held, needs

    def _sealed(self, time: int, diff: int, rows: list[tuple[int, str]], proof: Proven | None) -> _Judged:
        """Judge a statement that was not late, at a sealed time: sealing should have given it an effect."""
        diffs = [stored for stored, _ in rows]
        if (diff in diffs) if self.is_keyed else (sum(diffs) == diff):
            detail = f"time {time} was sealed" + (f" with {counted(proof.counted, 'update')}" if proof else "")
            if proof is not None and proof.decision is not None:
                detail += f", by decision: {proof.decision}"
            return PUBLISHED, detail, None
        if time < self.first:
            return MERGED, f"time {time} was sealed, and compaction has since merged it with other times", None
        return self._missing(diffs)

    def _missing(self, diffs: list[int]) -> _Judged:
        others = ", ".join(map(str, sorted(set(diffs))))
        detail = f"the table has this update with diff {others}" if others else "the table does not have it"
        needs = "compare the topic and the table: the topic may have had a different message at this offset"
        return MISSING, detail, needs

    def _late(self, whole: tuple[bytes, int, int], verdict: str) -> _Judged:
        time = whole[1]
        match verdict:
            case late_notes.COPY:
                return LATE, f"time {time} was already sealed; the statement is a copy of what was published", None
            case late_notes.SETTLED:
                return LATE, f"time {time} was already sealed; the statement has no effect, by decision", None
            case late_notes.UNTOLD:
                detail = f"time {time} was already sealed, and compaction has since merged it with other times"
                return LATE, f"{detail}; the statement can no longer be verified", None
            case late_notes.NOT_COMPARED:
                return LATE, f"time {time} was already sealed; the next validation compares the statement", None
        note = next(
            (
                note
                for note in self._late_notes.at(time)
                if note.kind == LATE_UPDATE and (self._identity_of_json(note.data), time, note.stated) == whole
            ),
            None,
        )
        detail = f"time {time} was already sealed; the statement contradicts what was published"
        if note is not None:
            detail += f": the same update with diff {note.published}" if note.published else ", which lacks this update"
        if note is not None and note.decision is not None:
            return LATE, f"{detail}; settled by decision: {note.decision}", None
        return LATE, detail, f"decide about a late fact: `tidelake late {self.collection.name}` shows it"

    def _held(self, time: int) -> tuple[str, str | None]:
        """Return what holds back an open time, as the end of a sentence, and what needs to be done about it."""
        if time in self.reasons:
            return f"; decided: {self.reasons[time]}", None
        if time not in self._blocked:
            return "", None
        return f"; the time is held back: {'; '.join(self._blocked[time])}", f"decide about time {time}"

    @cached_property
    def _late_notes(self) -> LateNotes:
        return LateNotes(self.collection)

    def _is_sealed(self, time: int) -> bool:
        return self.closed or time < self.upper

    def _is_findable(self, time: int) -> bool:
        """Return whether a statement at a time may still be found: merges move the times of diffs that are summed."""
        return self.is_keyed or time >= self.first

    def _stored(self, wanted: Mapping[_Key, Any]) -> defaultdict[_Key, list[tuple[int, str]]]:
        """Return the diff of each stored row with these data and times, and the kind of its run."""
        stored: defaultdict[_Key, list[tuple[int, str]]] = defaultdict(list)
        if not wanted:
            return stored
        columns = [TIME, DIFF, *(field["name"] for field in self.schema["fields"])]
        times = sorted({time for _, time in wanted})
        where = same_cells(self.schema, list(wanted.values()))
        for row in rows_at(self.table.path, self.table.files(), times, columns, where):
            key = (self._identity_of_row(row), row[TIME])
            if key in wanted:
                stored[key].append((row[DIFF], kind_of(row[RUN])))
        return stored

    def _late_rows(self, place: Place) -> Iterator[dict[str, Any]]:
        """Yield the late rows of a message."""
        path = self.collection.paths.late
        data = [field["name"] for field in self.schema["fields"]]
        for file in OpenTable(path).files():
            places = read_file(path, file, _PLACE)
            at_offset = np.flatnonzero(integers(places["_offset"]) == place[2])
            if len(at_offset):
                rows = read_file(path, file, [TIME, DIFF, *data, *_PLACE]).take(int64_array(at_offset))
                for row in with_numbers(rows).to_pylist():
                    if tuple(row[name] for name in _PLACE) == place:
                        yield row | {RUN: file.run}

    def _identity_of_row(self, row: Mapping[str, Any]) -> bytes:
        return self.codec.identity(data_of_row(self.schema, row))

    def _identity_of_json(self, data: Any) -> bytes:
        return self.codec.identity(decode_data(self.schema, data))

    def _proven(self, times: Iterable[int]) -> dict[int, Proven]:
        return read_proven(self.collection.paths.proofs, merge_intervals((time, time + 1) for time in times))

    # --- progress ----------------------------------------------------------------------------------------------------

    def counts(self, statement: Mapping[str, Any]) -> tuple[CountFate, ...]:
        """Return what became of each count that a progress statement announces.

        Args:
            statement: `lower`, `upper`, `count_times` and `count_values`, as in a row of `progress/`.

        Returns:
            The counts by time. A sealed time that the statement does not list is included, with the count 0, only if 0
            contradicts what was published.

        Cost: the proofs of the sealed times that the statement covers.
        """
        stated = dict(zip(statement["count_times"], statement["count_values"], strict=True))
        fates = {time: self._open_count(time, count) for time, count in stated.items() if not self._is_sealed(time)}
        end_of_sealed = INT64_MAX + 1 if self.closed else self.upper
        if statement["lower"] and min(statement["lower"]) < end_of_sealed:
            fates |= self._sealed_counts(statement, stated, end_of_sealed)
        return tuple(fates[time] for time in sorted(fates))

    def _open_count(self, time: int, count: int) -> CountFate:
        held, needs = self._held(time)
        decided = counts_in(self.collection.entry.decisions).get(time)
        detail = f"time {time} is not sealed yet"
        if decided is not None and decided.count != count:
            detail += f"; the count is {decided.count}, by decision"
        return CountFate(time, count, CONTRADICTED if needs else PENDING, detail + held, needs)

    def _sealed_counts(self, statement: Mapping[str, Any], stated: dict[int, int], end: int) -> dict[int, CountFate]:
        interval = sealed_part(dict(statement), end)
        proven = read_proven(self.collection.paths.proofs, merge_intervals([interval]))
        contradicted = {
            time: published
            for time, _, published in contradicted_counts(dict(statement), interval, proven, sorted(proven))
        }
        fates = {}
        for time in sorted({*(time for time in stated if self._is_sealed(time)), *contradicted}):
            count, proof = stated.get(time, 0), proven.get(time)
            if time in contradicted:
                fates[time] = self._contradicted_count(time, count, contradicted[time])
                continue
            detail = f"sealed with {counted(proof.announced if proof else 0, 'update')}"
            if proof is not None and proof.decision is not None:
                detail += f", by decision: {proof.decision}"
            fates[time] = CountFate(time, count, SEALED, detail)
        return fates

    def _contradicted_count(self, time: int, count: int, published: int) -> CountFate:
        detail = f"time {time} was already sealed with {counted(published, 'update')}"
        notes = [note for note in self._late_notes.at(time) if note.kind == LATE_COUNT]
        decision = next((note.decision for note in notes if note.stated == count and note.decision is not None), None)
        if decision is not None:
            return CountFate(time, count, CONTRADICTED, f"{detail}; settled by decision: {decision}")
        needs = f"decide about a late fact: `tidelake late {self.collection.name}` shows it"
        return CountFate(time, count, CONTRADICTED, detail, needs)

    def pending_rest(self, place: Place) -> dict[str, Any] | None:
        """Return what later seals still need of the progress statement at a place; None if they need nothing of it."""
        path = self.collection.paths.progress
        rows = read_rows(path, OpenTable(path).files(), PROGRESS_SCHEMA).to_pylist()
        return next((row for row in rows if (row["topic"], row["partition"], row["offset"]) == place), None)


_Judged = tuple[str, str, str | None]
"""A fate, its detail, and what needs to be done."""
