"""The events of a collection that its logs still have: ticks, seals and merges, and the changes of its entry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from tidelake.read.events import COLUMNS, FENCE, FORMAT, MERGE, SINCE_MOVED, TICK, WITHDRAWAL, Event
from tidelake.read.words import counted
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable
from tidelake.store.decision import Decision, described, replaces
from tidelake.store.entry import Collection, Entry
from tidelake.store.layout import RUN, run_of
from tidelake.store.publication import holds_publication
from tidelake.store.state import CLOSED, SINCE, UPPER
from tidelake.store.table_log import Entry as LogEntry
from tidelake.store.table_log import committed_ms, kept_entries, newest_version, values_of

_OFFSET = "offset/"


@dataclass(frozen=True)
class CommittedSeal:
    """A seal in the log."""

    lower: int | None
    """None if the log no longer shows the previous upper."""
    upper: int
    closed: bool
    at_ms: int


@dataclass
class TableLog:
    """The events that the log of `updates/` still has, oldest first."""

    start_ms: int | None = None
    """When its oldest entry was written; None if the log is complete."""
    upper: int | None = None
    """Upper as of the oldest entry; None if that is unknown."""
    seals: list[CommittedSeal] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    """The ticks, unless the collection is reclocked, and the merges."""


def read_table_log(collection: Collection) -> TableLog:
    """Read the log of `updates/`.

    Cost: each entry that the log still has, and the state at the oldest one.
    """
    table, mints_times = OpenTable(collection.paths.updates), collection.entry.mints_times
    entries = list(kept_entries(table.path))[::-1]
    version, oldest = entries[0]
    before = table.at(version)
    log = TableLog(committed_ms(oldest) if version else None)
    log.upper = None if before is None else before.value(UPPER) or 0
    rows = {} if before is None else {file.path: file.rows for file in before.files()}
    upper = log.upper
    for _, entry in entries[1:]:
        values, at_ms = values_of(entry), committed_ms(entry)
        added = {unquote(add["path"]): _rows_of(add) for add in _actions(entry, "add")}
        removed = [unquote(remove["path"]) for remove in _actions(entry, "remove")]
        if UPPER in values:
            if not mints_times:
                log.seals.append(CommittedSeal(upper, values[UPPER], bool(values.get(CLOSED)), at_ms))
            upper = values[UPPER]
        elif removed:
            log.events.append(_merge(at_ms, added, removed, rows, values))
        elif any(name.startswith(_OFFSET) for name in values):
            log.events.append(_tick(at_ms, sum(added.values()), values))
        rows |= added
    return log


def _merge(
    at_ms: int, added: dict[str, int], removed: list[str], rows: dict[str, int], values: dict[str, int]
) -> Event:
    runs = {run_of(f"/{path}") for path in removed}
    before = sum(rows[path] for path in removed) if all(path in rows for path in removed) else None
    after, since = sum(added.values()), values.get(SINCE)
    facts = {"runs": len(runs), "rows_before": before, "rows": after, "since": since}
    had = "" if before is None else f" with {counted(before, 'row')}"
    return Event(
        at_ms, MERGE, f"{counted(len(runs), 'run')}{had} became {counted(after, 'row')}; since is {since}", facts
    )


def _tick(at_ms: int, rows: int, values: dict[str, int]) -> Event:
    ends = {
        name.removeprefix(_OFFSET).replace("/", ":"): end for name, end in values.items() if name.startswith(_OFFSET)
    }
    places = ", ".join(f"{place} up to {end}" for place, end in sorted(ends.items()))
    return Event(at_ms, TICK, f"read {places}; stored {counted(rows, 'row')}", {"offsets": ends, "rows": rows})


def _actions(entry: LogEntry, kind: str) -> Iterator[dict[str, Any]]:
    return (action[kind] for action in entry if kind in action)


def _rows_of(add: dict[str, Any]) -> int:
    return int(json.loads(add["stats"])["numRecords"]) if add.get("stats") else 0


# --- the entry -------------------------------------------------------------------------------------------------------


@dataclass
class EntryLog:
    """The changes of a collection's entry that the logs still have, oldest first."""

    start_ms: int | None = None
    """From when on the logs have every commit; None if they are complete."""
    events: list[Event] = field(default_factory=list)
    withdrawn: list[Decision] = field(default_factory=list)
    """The decisions that were withdrawn or replaced."""


def read_entry_log(collection: Collection) -> EntryLog:
    """Compare each entry of the collection with the one that it replaced, as far as the logs still have the commits.

    The file of a replaced entry stays for a day, longer than its commit stays in the log, unless a sweep ran with a
    shorter retention. Entries that were replaced before the catalog was divided are found through the catalog's log.

    Cost: opens the entries that were added and removed by each commit to the handles; in a store that was created
    before format 4, also those of all collections that the catalog's log still has.
    """
    log = EntryLog()
    _read_commits(collection.paths.store.catalog, collection, log)
    if newest_version(collection.paths.handles) >= 0:  # a store whose catalog is not divided yet has no handles
        _read_commits(collection.paths.handles, collection, log)
    return log


def _read_commits(path: Location, collection: Collection, log: EntryLog) -> None:
    OpenTable(path)  # opening the table verifies its newest entries
    commits = list(kept_entries(path))[::-1]
    version, oldest = commits[0]
    if version:
        log.start_ms = max(log.start_ms or 0, committed_ms(oldest))
    for _, commit in commits[1:]:
        if any(holds_publication(add["partitionValues"][RUN]) for add in _actions(commit, "add")):
            continue
        after = [_document(path, add) for add in _actions(commit, "add")]
        if len(after) != 1 or after[0] is None or after[0].id != collection.entry.id:
            continue
        before = [_document(path, remove) for remove in _actions(commit, "remove")]
        if len(before) == 1 and before[0] is not None:
            _compare(log, before[0], after[0], committed_ms(commit))


def _document(path: Location, action: dict[str, Any]) -> Entry | None:
    """Return the entry in a file; None if a sweep has deleted the file."""
    try:
        source = blobs.open_file(path / unquote(action["path"]))
    except FileNotFoundError:
        return None
    rows = pq.ParquetFile(source, page_checksum_verification=True).read(columns=["document"])
    return Entry.model_validate_json(rows["document"][0].as_py())


def _compare(log: EntryLog, before: Entry, after: Entry, at_ms: int) -> None:
    """Add the events that turned one entry into the other."""
    fresh = [decision for decision in after.decisions if decision not in before.decisions]
    for decision in before.decisions:
        if decision not in after.decisions:
            log.withdrawn.append(decision)
            if not any(replaces(other, decision) for other in fresh):
                kind, about = described(decision)
                facts = {"decision": kind, "about": about, "reason": decision.reason}
                log.events.append(Event(at_ms, WITHDRAWAL, f"{kind}, {about}", facts))
    if before.since != after.since:
        since = {"since_before": _only(before.since), "since": _only(after.since)}
        what = f"since moved from {since['since_before']} to {since['since']}"
        log.events.append(Event(at_ms, SINCE_MOVED, what if after.since else "the collection is unreadable", since))
    if (before.epoch, before.writer) != (after.epoch, after.writer):
        admitted = "any writer" if after.writer is None else f"only the writer '{after.writer}'"
        what = f"{admitted} may write; running processes have to restart"
        log.events.append(Event(at_ms, FENCE, what, {"epoch": after.epoch, "writer": after.writer}))
    columns = [name for name in after.added if name not in before.added]
    if columns:
        log.events.append(Event(at_ms, COLUMNS, f"columns were added: {', '.join(columns)}", {"columns": columns}))
    if before.tables_format != after.tables_format:
        what = f"the tables were upgraded to format {after.tables_format}"
        log.events.append(Event(at_ms, FORMAT, what, {"format": after.tables_format}))


def _only(since: tuple[int, ...]) -> int | None:
    return since[0] if since else None
