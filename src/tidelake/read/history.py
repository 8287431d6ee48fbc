"""The history of a collection, with wall-clock times, without a JVM.

The small tables keep some events for good: seals of times with updates, validations, contradictions, full compactions,
the ticks of reclocked collections, and recorded retention; the handles keep the creation, renamings, the drop, and the
decisions in force. Other events are known only while the logs still have their entries, for a few hours: the ticks of
other collections, seals of times without updates, merges, moves of `since`, withdrawn decisions, fences, new columns
and formats.
"""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tidelake.protocol.binding import Binding
from tidelake.protocol.iso_times import iso_to_the_second
from tidelake.read.events import CREATED, DECISION, DROPPED, RENAMED, RETENTION, SEAL, TICK, Event
from tidelake.read.log_events import CommittedSeal, EntryLog, TableLog, read_entry_log, read_table_log
from tidelake.read.noted_events import ProvenSeal, noted_events, proven_seals
from tidelake.read.words import counted
from tidelake.store.bindings import read_bindings
from tidelake.store.commit import OpenTable
from tidelake.store.decision import described
from tidelake.store.entry import Collection, Entry
from tidelake.store.retention import read_departures
from tidelake.store.state import UPPER


@dataclass(frozen=True)
class History:
    """The history of a collection."""

    name: str
    events: list[Event]
    """Oldest first."""
    total: int
    """The number of known events, including those that a limit has left out."""
    complete_from_ms: int | None
    """The time since which every event is known, in milliseconds since 1970; None if the logs have everything."""

    @property
    def complete_from(self) -> str | None:
        """The time since which every event is known, in ISO 8601, in UTC; None if the logs have everything."""
        start_ms = self.complete_from_ms
        return None if start_ms is None else iso_to_the_second(start_ms)

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return {
            "name": self.name,
            "complete_from_ms": self.complete_from_ms,
            "complete_from": self.complete_from,
            "total": self.total,
            "events": [event.as_json() for event in self.events],
        }


def read_history(collection: Collection, limit: int | None = None, kinds: Names[str] = ()) -> History:
    """Read the history of a collection.

    Args:
        collection: the collection.
        limit: the maximum number of events; the newest are returned. None means all.
        kinds: the kinds of events; empty means all.

    Raises:
        DamagedTable: a table of the collection is damaged.

    Cost: the table `proofs/`, the table `bindings/`, and the entries that the logs of `updates/` and `handles/`
        still have.
    """
    table, changes = read_table_log(collection), read_entry_log(collection)
    departures = list(_departures(collection))
    if collection.entry.mints_times:
        steps = _ticks(collection, {event.facts["time"] for event in departures})
    else:
        steps = _seals(collection, table)
    events = [
        *_life(collection.entry),
        *noted_events(collection),
        *table.events,
        *changes.events,
        *_decisions(collection, changes),
        *departures,
        *steps,
    ]
    starts = [start for start in (table.start_ms, changes.start_ms) if start is not None]
    return _history(collection.name, events, limit, kinds, max(starts, default=None))


def read_dropped_history(collection: Collection, limit: int | None = None, kinds: Names[str] = ()) -> History:
    """Read the history of a dropped collection from its handles; its tables may be gone.

    Args:
        collection: the collection, with the entry of its tombstone.
        limit: as for `read_history`.
        kinds: as for `read_history`.
    """
    changes = read_entry_log(collection)
    events = [*_life(collection.entry), *changes.events, *_decisions(collection, changes)]
    return _history(collection.name, events, limit, kinds, changes.start_ms)


def _history(
    name: str, events: Iterable[Event], limit: int | None, kinds: Names[str], complete_from_ms: int | None
) -> History:
    chosen = sorted((event for event in events if not kinds or event.kind in kinds), key=lambda event: event.at_ms)
    shown = chosen if limit is None else chosen[max(0, len(chosen) - limit) :]
    return History(name, shown, len(chosen), complete_from_ms)


def _life(entry: Entry) -> Iterator[Event]:
    """Yield the creation of a collection, its renamings, and its end."""
    yield Event(entry.created_at_ms, CREATED, "the collection was created")
    names = [earlier.name for earlier in entry.earlier_names] + [entry.name]
    for earlier, after in zip(entry.earlier_names, names[1:], strict=True):
        facts = {"name_before": earlier.name, "name": after}
        yield Event(earlier.until_ms, RENAMED, f"'{earlier.name}' was renamed to '{after}'", facts)
    if entry.dropped is not None:
        what = "the collection was dropped: it can no longer be read or written to"
        yield Event(entry.dropped.at_ms, DROPPED, what, {"storage": entry.dropped.storage})


def _decisions(collection: Collection, changes: EntryLog) -> Iterator[Event]:
    """Yield the decisions in force, and the withdrawn ones that the log still shows."""
    for decision in (*collection.entry.decisions, *changes.withdrawn):
        kind, about = described(decision)
        facts = {"decision": kind, "about": about, "reason": decision.reason}
        yield Event(decision.at_ms, DECISION, f"{kind}, {about}: {decision.reason}", facts)


def _departures(collection: Collection) -> Iterator[Event]:
    """Yield the removals of rows from the contents by retention."""
    for departure in read_departures(collection, OpenTable(collection.paths.updates)):
        what = f"{departure.sentence} at time {departure.time}"
        yield Event(departure.at_ms, RETENTION, what, departure.as_json())


def _ticks(collection: Collection, others: set[int]) -> Iterator[Event]:
    """Yield the ticks of a reclocked collection except those that removed rows; consecutive idle ticks count as one."""
    for binding in read_bindings(collection, OpenTable(collection.paths.updates)):
        if binding.time in others:
            continue
        yield Event(binding.at_ms, TICK, _described(binding), binding.as_json())


def _described(binding: Binding) -> str:
    if not binding.records and not binding.rows:
        return f"time {binding.time}: nothing new since {binding.lower}"
    bad = f", {binding.quarantined:,} quarantined" if binding.quarantined else ""
    return f"time {binding.time}: read {counted(binding.records, 'record')}, stored {counted(binding.rows, 'row')}{bad}"


def _seals(collection: Collection, log: TableLog) -> Iterator[Event]:
    """Yield the seals of a collection that is not reclocked.

    The log has every seal after its oldest entry. Later proofs that match none of these seals belong to seals that
    were never committed.
    """
    proven = proven_seals(collection)
    if log.upper is not None:
        start = log.upper
    elif log.seals:
        start = log.seals[0].upper - 1
    else:
        start = OpenTable(collection.paths.updates).value(UPPER) or 0
    for proof in proven:
        if proof.upper <= start:
            yield _seal(proof, None)
    by_upper = {proof.upper: proof for proof in proven}
    for seal in log.seals:
        yield _seal(by_upper.get(seal.upper), seal)


def _seal(proof: ProvenSeal | None, seal: CommittedSeal | None) -> Event:
    """Describe a seal: the log says when it was committed, and the proofs say what it proved."""
    stated: ProvenSeal | CommittedSeal | None = seal if seal is not None else proof
    assert stated is not None
    lower = proof.lower if proof is not None else stated.lower
    numbers = {"times": 0, "copies": 0, "decided": 0}
    if proof is not None:
        numbers = {"times": proof.times, "copies": proof.copies, "decided": proof.decided}
    facts = {"lower": lower, "upper": None if stated.closed else stated.upper, "closed": stated.closed, **numbers}
    end = "the end of the stream" if stated.closed else str(stated.upper)
    parts = [f"sealed up to {end}" if lower is None else f"sealed from {lower} to {end}"]
    parts.append(f"{counted(numbers['times'], 'time')} with updates" if numbers["times"] else "no time had updates")
    parts += [f"{counted(numbers['copies'], 'copy')} left out"] if numbers["copies"] else []
    parts += [f"{counted(numbers['decided'], 'time')} sealed by decision"] if numbers["decided"] else []
    return Event(stated.at_ms, SEAL, ", ".join(parts), facts)
