"""The state of a collection, for people and for reports. Needs no JVM."""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import DamagedTable, SourceError, TidelakeError, TopicGap
from tidelake.forms.key_errors import KeyErrors, keys_in_error
from tidelake.ingest.position import check_undivided, unread
from tidelake.ingest.went_back import went_back
from tidelake.integrity.verification import missing_files
from tidelake.read.publication import publication_of
from tidelake.read.status_facts import StatusFacts
from tidelake.read.stored_topics import retired_topics
from tidelake.read.verdict import PROBLEM, Verdict, verdict_of
from tidelake.read.waiting import read_waiting
from tidelake.read.waiting_events import waiting_events
from tidelake.settings.collection import STALLED_AFTER_S, CollectionSettings
from tidelake.settings.terms import envelope_terms
from tidelake.settings.transactions import TransactionSettings
from tidelake.spark.engine_errors import engine_fact
from tidelake.storage.arrow import integers
from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable
from tidelake.store.decision import counts_in, reasons_in
from tidelake.store.entry import Collection
from tidelake.store.files import RunFile, meets, read_file, read_rows
from tidelake.store.holds import held_text
from tidelake.store.late_notes import VERDICTS, LateNotes, late_verdicts
from tidelake.store.layout import PROGRESS_SCHEMA, PROOF_RUN, PROOFS_SCHEMA, TIME
from tidelake.store.proof_log import read_proof_log
from tidelake.store.quarantine import quarantine_reasons
from tidelake.store.state import HAS_LATE, HAS_QUARANTINE, LEFT_AT, ROWS_LEFT, SEALED_AT_MS
from tidelake.store.transactions import asserted_times
from tidelake.topic.topic import Topic

_EVIDENCE_SHOWN_MAX = 10
_AHEAD_MAX_S = 86_400


@dataclass
class CollectionStatus(StatusFacts):
    """The current state of one collection, and what it means."""

    @property
    def verdict(self) -> Verdict:
        """The problem, if any, and whether an operator must act."""
        return verdict_of(self)

    @property
    def state(self) -> str:
        """Its state in a few words: the worst problem, if there is one."""
        return self.verdict.state

    @property
    def waits_for(self) -> str | None:
        """What must happen before it continues, or can be trusted again; None if nothing is wrong."""
        return self.verdict.waits_for

    @property
    def sentence(self) -> str:
        """Its state in a sentence with the numbers, as `tidelake status` shows it."""
        return self.verdict.sentence

    @property
    def needs_somebody(self) -> bool:
        """Whether it does not continue, or cannot be trusted, until an operator acts."""
        return self.verdict.severity == PROBLEM

    def as_json(self) -> dict[str, Any]:
        """Return all fields, and those of the verdict, as JSON values."""
        waiting = {"waiting": None if self.waiting is None else self.waiting.as_json()}
        return asdict(self) | waiting | self.verdict._asdict() | {"needs_somebody": self.needs_somebody}


def sealed_by_decision(collection: Collection) -> list[dict[str, Any]]:
    """Return `time`, `announced`, `reason` of every time that was sealed by decision.

    If a time has more than one proof, the newest applies: a seal that stopped before it committed may have recorded an
    earlier decision.
    Cost: only the files that may have such a time are opened.
    """
    times = sorted(reasons_in(collection.entry.decisions))
    if not times:
        return []
    proofs = OpenTable(collection.paths.proofs).files()
    files = [file for file in proofs if file.run.startswith(PROOF_RUN) and meets(file, times)]
    columns = [TIME, "announced", "decision", "at_ms"]
    rows = read_rows(collection.paths.proofs, files, PROOFS_SCHEMA, columns).sort_by("at_ms")
    newest = {row[TIME]: row for row in rows.filter(pc.is_in(rows[TIME], pa.array(times, pa.int64()))).to_pylist()}
    return [
        {"time": time, "announced": newest[time]["announced"], "reason": newest[time]["decision"]}
        for time in sorted(newest)
        if newest[time]["decision"] is not None
    ]


def read_status(
    collection: Collection,
    topics: Sequence[Topic] = (),
    stalled_after_s: int = STALLED_AFTER_S,
    *,
    counts_waiting: bool = True,
    settings: CollectionSettings | None = None,
) -> CollectionStatus:
    """Read the status of a collection, without a JVM.

    Args:
        collection: the collection.
        topics: its topics; if there are none, the lag is None.
        stalled_after_s: how long upper may stay where it is before the collection counts as stalled.
        counts_waiting: whether unsealed rows may be read to find what upper is waiting for; if not, `waiting` is None.
        settings: its settings, which say how to read messages of a source with transactions. If None, the
            messages are read as JSON.

    Cost: the logs of five tables, the notes in `proofs`, the small tables `progress` and `quarantine`, and one column
    of the files that hold both sealed and unsealed rows. If no contradiction holds the collection back, the unsealed
    rows are read, unless there are too many; see `read_waiting`. In an object store, `quarantine` and `late` are opened
    only if they have rows, and whether all data files exist is not checked.
    """
    paths = collection.paths
    table = OpenTable(paths.updates)
    files = table.files()
    since, upper, closed = collection.readable_range(table)
    proofs = read_proof_log(collection)
    reasons = quarantine_reasons(collection) if _may_have(table, HAS_QUARANTINE) else {}
    progress = OpenTable(paths.progress)
    lag, gaps, problem = _topic_lag(collection, table, topics, settings)
    sealed_at_ms = table.value(SEALED_AT_MS)
    decisions = collection.entry.decisions
    decided = reasons_in(decisions)
    late = read_late(collection, has_rows=_may_have(table, HAS_LATE))
    errors = keys_in_error(collection) if collection.entry.positioned else KeyErrors()
    pending = 0 if closed else _rows_from(paths.updates, files, upper)
    statements = read_rows(paths.progress, progress.files(), PROGRESS_SCHEMA).num_rows
    contradictions = [
        note | {"decided": note["time"] in decided} for note in proofs.blocked if not closed and note["time"] >= upper
    ]
    # In an object store, the search for missing files is left to ingest, seal and compaction, which begin with it.
    missing = _missing(paths.updates, files) if paths.updates.is_local and proofs.damaged is None else None
    damaged = proofs.damaged or missing
    is_held_back = damaged or not all(noted["decided"] for noted in contradictions)
    may_wait = counts_waiting and (pending or statements) and not is_held_back
    lag_s = None if sealed_at_ms is None else round(clock.time() - sealed_at_ms / 1000, 1)
    return CollectionStatus(
        name=collection.name,
        family=envelope_terms(collection.entry.envelope).family,
        since=since[0] if since else None,
        upper=None if closed else upper,
        closed=closed,
        rows=sum(file.rows for file in files),
        pending=pending,
        runs=len({file.run for file in files}),
        bytes=sum(file.bytes for file in files),
        late=sum(late.verdicts.values()),
        quarantine=sum(reasons.values()),
        quarantine_reasons=reasons,
        lag_messages=lag,
        lag_s=lag_s,
        statements_pending=statements,
        contradictions=contradictions,
        damaged=damaged,
        has_damaged_files=missing is not None or (proofs.damaged is not None and proofs.has_damaged_files),
        topic_problem=problem,
        topic_gaps=[str(gap) for gap in gaps],
        topic_gap_kind=type(gaps[0] if gaps else TopicGap).__name__,
        quarantine_unexplained=quarantine_reasons(collection, explained=False, may_be_stale=True) if reasons else {},
        sealed_by_decision=sealed_by_decision(collection),
        decided_counts=sorted(counts_in(decisions)),
        late_verdicts=late.verdicts,
        late_contradicted=late.contradicted,
        late_undecided=late.undecided,
        late_evidence=late.evidence,
        late_problem=late.problem,
        keys_in_error=errors.count,
        keys_in_error_first=errors.first,
        times_ahead_s=_times_ahead_s(upper) if collection.entry.mints_times else 0,
        waiting_transactions=_waiting_transactions(collection, table, topics, settings),
        asserted_times=asserted_times(table) if collection.entry.counts_positions else [],
        held=held_text(collection.entry),
        retired_topics=retired_topics(table, [topic.name for topic in topics]) if topics else {},
        rows_left=table.value(ROWS_LEFT) or 0,
        left_at=table.value(LEFT_AT),
        waiting=read_waiting(collection, table, files, may_be_stale=True) if may_wait else None,
        upper_age_s=age_of_upper_s(collection, closed, lag, lag_s),
        stalled_after_s=stalled_after_s,
        publication=None
        if (published := publication_of(collection, may_be_stale=True)) is None
        else published.as_json(),
    )


def age_of_upper_s(collection: Collection, closed: bool, lag_messages: int | None, lag_s: float | None) -> int:
    """Return the seconds since upper last moved, or since the collection was created if upper never did.

    The result is 0 if upper need not move: the stream is closed, or a reclocked topic was read to its end.
    """
    if closed or (collection.entry.mints_times and lag_messages == 0):
        return 0
    if lag_s is None:
        lag_s = clock.time() - collection.entry.created_at_ms / 1000
    return max(0, int(lag_s))


def _waiting_transactions(
    collection: Collection, table: OpenTable, topics: Sequence[Topic], settings: CollectionSettings | None
) -> list[dict[str, Any]]:
    """Return the events that make ingest wait; none if the topic cannot be read, which `topic_problem` says."""
    if not topics or not collection.entry.counts_positions:
        return []
    try:
        return [event.as_json() for event in waiting_events(settings, table, topics[0])]
    except SourceError:
        return []


def _missing(table: Location, files: list[RunFile]) -> str | None:
    """Return what `damaged` says about the first missing file; None if no file is missing."""
    missing = missing_files(table, files)
    return f"the file {missing[0].path} is missing" if missing else None


def _times_ahead_s(upper: int) -> int:
    ahead_s = (upper - 1) // 1000 - int(clock.time())
    return ahead_s if ahead_s > _AHEAD_MAX_S else 0


@dataclass
class LateFacts:
    """The late facts, if they can be read."""

    verdicts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VERDICTS, 0))
    contradicted: int = 0
    undecided: int = 0
    evidence: list[str] = field(default_factory=list)
    problem: str | None = None


def _may_have(updates: OpenTable, flag: str) -> bool:
    """Return whether a small table may have rows; always true on a disk, where reading it costs next to nothing."""
    return updates.path.is_local or updates.may_have(flag)


def read_late(collection: Collection, has_rows: bool = True) -> LateFacts:
    """Read the late facts; a problem with them does not affect the rest of the status.

    Args:
        collection: the collection, whose notes have just been read.
        has_rows: whether the table of late rows may have any.
    """
    late = LateFacts()
    try:
        if has_rows:
            late.verdicts = late_verdicts(collection)
        notes = LateNotes(collection, may_be_stale=True)
        late.contradicted, late.undecided = notes.contradictions, notes.undecided
        late.evidence = [note.fact for note in notes.first(_EVIDENCE_SHOWN_MAX, undecided=True)]
    except (pa.ArrowException, OSError, DamagedTable) as error:
        late.problem = f"late facts cannot be read: {engine_fact(error)}"
    return late


def _rows_from(table: Location, files: list[RunFile], upper: int) -> int:
    """Count rows at or after upper; one column is read from files with rows on both sides of upper."""
    rows = 0
    for file in files:
        if file.time_min is not None and file.time_min >= upper:
            rows += file.rows
        elif file.time_max is None or file.time_max >= upper:
            rows += int((integers(read_file(table, file, [TIME])[TIME]) >= upper).sum())
    return rows


def _topic_lag(
    collection: Collection, table: OpenTable, topics: Sequence[Topic], settings: CollectionSettings | None
) -> tuple[int | None, list[TopicGap], str | None]:
    if not topics:
        return None, [], None
    lag = 0
    gaps: list[TopicGap] = []
    for topic in topics:
        try:
            ends = topic.end_offsets()
            if collection.entry.counts_positions and topic is topics[-1]:
                check_undivided(topic, ends)
                if isinstance(settings, TransactionSettings):
                    back = went_back(topic, table, collection, settings, ends)
                    gaps += [] if back is None else [back]
            left, missing = unread(topic, table, collection, ends)
        except TidelakeError as error:
            return None, gaps, str(error)
        lag, gaps = lag + left, gaps + missing
    return lag, gaps, None
