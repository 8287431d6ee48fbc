"""The events that `proofs/` keeps forever: a collection's seals, validations, contradictions and full compactions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.read.events import COMPACTION, CONTRADICTION, DAMAGE, LATE, VALIDATION, Event
from tidelake.read.words import counted
from tidelake.storage.arrow import integers
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import RunFile, read_rows
from tidelake.store.late_notes import CONTRADICTED_RUN, LATE_COUNT, kind_of
from tidelake.store.layout import PROOF_RUN, PROOFS_SCHEMA, RETENTION_RUN, TIME
from tidelake.store.proof_log import COMPACTED

Integers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class ProvenSeal:
    """The proofs of one seal."""

    lower: int
    upper: int
    closed: bool
    times: int
    """The number of times with updates, or with a decision."""
    copies: int
    decided: int
    """The number of times that were sealed by decision."""
    at_ms: int


def proven_seals(collection: Collection) -> list[ProvenSeal]:
    """Return the seals that proved a time with updates, oldest first.

    If a time has two proofs, after an interruption or during an ingest, only the newest counts. If two seals
    overlap, because the second has proven the later times of the first again, the first ends where the second begins.

    Cost: all proofs, a row for each time, without their details.
    """
    files = [file for file in OpenTable(collection.paths.proofs).files() if file.run.startswith(PROOF_RUN)]
    names = [TIME, "lower", "upper", "closed", "copies", "decision", "at_ms"]
    rows = read_rows(collection.paths.proofs, files, PROOFS_SCHEMA, names)
    rows = rows.filter(pc.is_valid(rows["lower"]))
    if not rows.num_rows:
        return []
    decided = pc.is_valid(rows["decision"]).cast(pa.int64())
    flags = rows["closed"].cast(pa.int64())
    columns = [integers(column) for column in (*(rows[name] for name in (TIME, "at_ms", "lower", "upper")), flags)]
    time, at_ms, lower, upper, closed = columns
    order = np.lexsort((at_ms, time))
    newest = order[np.append(time[order][1:] != time[order][:-1], True)]
    ranges, group = np.unique(np.stack([lower, upper, closed], axis=1)[newest], axis=0, return_inverse=True)
    group = group.reshape(-1)
    at = np.zeros(len(ranges), np.int64)
    np.maximum.at(at, group, at_ms[newest])
    sums = (_sums(group, integers(column)[newest]) for column in (rows["copies"], decided))
    seals = [
        ProvenSeal(low, high, bool(is_closed), times, copies, decisions, when)
        for (low, high, is_closed), times, copies, decisions, when in zip(
            ranges.tolist(), *(numbers.tolist() for numbers in (np.bincount(group), *sums, at)), strict=True
        )
    ]
    return list(_without_overlaps(seals))


def _sums(group: Integers, values: Integers) -> Integers:
    """Return the sum of the values of each group, in the order of the groups' numbers."""
    sums = np.zeros(int(group.max()) + 1, np.int64)
    np.add.at(sums, group, values)
    return sums


def _without_overlaps(seals: list[ProvenSeal]) -> Iterator[ProvenSeal]:
    for seal, after in zip(seals, [*seals[1:], None], strict=True):
        if after is not None and (seal.upper > after.lower or seal.closed):
            yield replace(seal, upper=min(seal.upper, after.lower), closed=False)
        else:
            yield seal


def noted_events(collection: Collection) -> list[Event]:
    """Return the validations, contradictions, late facts and full compactions."""
    files: defaultdict[bool, list[RunFile]] = defaultdict(list)
    for file in OpenTable(collection.paths.proofs).files():
        if not file.run.startswith((PROOF_RUN, RETENTION_RUN)):
            files[kind_of(file.run) == CONTRADICTED_RUN].append(file)
    path = collection.paths.proofs
    notes = read_rows(path, files[False], PROOFS_SCHEMA).to_pylist()
    evidence = read_rows(path, files[True], PROOFS_SCHEMA, [TIME, "kind", "counted", "at_ms"]).to_pylist()
    return [*(event for note in notes if (event := _event_of(note)) is not None), *_late_events(evidence)]


def _event_of(note: dict[str, Any]) -> Event | None:
    at_ms, lower, upper = note["at_ms"], note["lower"], note["upper"]
    match note["kind"]:
        case "validated":
            facts = {"lower": lower, "upper": None if note["closed"] else upper}
            end = "the end" if note["closed"] else str(upper)
            return Event(at_ms, VALIDATION, f"the times from {lower} to {end} agree with what was proven", facts)
        case "damaged":
            return Event(at_ms, DAMAGE, f"a validation found: {note['detail']}", {"lower": lower, "upper": upper})
        case "blocked":
            return Event(at_ms, CONTRADICTION, f"time {note[TIME]}: {note['detail']}", {"time": note[TIME]})
        case kind if kind == COMPACTED:
            facts = {
                "since_before": lower,
                "since": upper,
                "runs": note["copies"],
                "rows_before": note["announced"],
                "rows": note["counted"],
            }
            runs, rows = counted(note["copies"], "run"), counted(note["announced"], "row")
            parts = [f"{runs} with {rows} became {counted(note['counted'], 'row')}"] if note["copies"] else []
            parts += [f"since moved from {lower} to {upper}"] if lower != upper else []
            return Event(at_ms, COMPACTION, "; ".join(parts), facts)
    return None


def _late_events(evidence: list[dict[str, Any]]) -> Iterator[Event]:
    """Yield an event for each group of late facts of one kind that were noted together."""
    together: defaultdict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for note in evidence:
        together[note["at_ms"], note["kind"]].append(note)
    for (at_ms, kind), notes in together.items():
        facts, first = sum(note["counted"] for note in notes), min(note[TIME] for note in notes)
        what = counted(facts, "late count" if kind == LATE_COUNT else "late update")
        verb = "contradicts" if facts == 1 else "contradict"
        at = "at time" if facts == 1 else "at or after time"
        yield Event(at_ms, LATE, f"{what} {verb} what was published {at} {first}", {"facts": facts, "time": first})
