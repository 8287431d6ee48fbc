"""What a collection's small tables say, for people and for reports; read without a JVM."""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelake.delta.bindings import read_bindings
from tidelake.delta.catalog import Collection
from tidelake.delta.commit import OpenTable
from tidelake.delta.engines import engine_fact
from tidelake.delta.evidence import CONTRADICTED_RUN, VERDICTS, LateNotes, late_verdicts
from tidelake.delta.files import RunFile, meets, read_rows
from tidelake.delta.key_errors import KeyErrors, keys_in_error
from tidelake.delta.layout import PROGRESS_SCHEMA, PROOF_RUN, PROOFS_SCHEMA, TIME
from tidelake.delta.position import unread
from tidelake.delta.proven import Proven, read_proven
from tidelake.delta.quarantine import quarantine_reasons
from tidelake.delta.topic import Topic
from tidelake.delta.values import CLOSED, SEALED_AT_MS, SINCE, UPPER
from tidelake.errors import DamagedTable, TidelakeError, TopicGap
from tidelake.order import INT64_MAX

_EVIDENCE_SHOWN_MAX = 10


@dataclass
class ProofLog:
    """What seals and validations have noted in `proofs/`, besides the proofs themselves."""

    blocked: list[dict[str, Any]] = field(default_factory=list)
    """`time`, `detail` of every contradiction that a seal has met, each once."""
    validated_upper: int = 0
    validated_sum: int = 0
    validated_closed: bool = False
    """Whether the closed stream was validated to its end."""
    validations: int = 0
    damaged: str | None = None
    """What the newest validation found wrong below upper; None where it agreed."""
    damaged_at_ms: int = 0
    """When a validation last found anything wrong; 0 where none ever did."""
    newest_at_ms: int = 0
    """When the newest note was made, by the clock of whoever made it."""


@dataclass
class CollectionStatus:
    """One collection as it stands."""

    name: str
    family: str
    since: int | None
    upper: int | None
    closed: bool
    rows: int
    pending: int
    """Stored rows at or after upper, copies included."""
    runs: int
    bytes: int
    late: int
    """Rows about times that were sealed before they came."""
    quarantine: int
    quarantine_reasons: dict[str, int]
    """By reason, how many messages are there; `quarantine_unexplained` has those that nobody has seen to yet."""
    lag_messages: int | None
    """Messages in the topic that were not read yet; None where the topic cannot be read."""
    lag_s: float | None
    """How long ago upper last moved; None before it first did."""
    statements_pending: int
    contradictions: list[dict[str, Any]]
    damaged: str | None
    topic_problem: str | None = None
    """Why a topic cannot be read; None where it can."""
    topic_gaps: list[str] = field(default_factory=list)
    """What is missing in a topic, or is no longer what it was, and stops ingest until it is back or accepted."""
    quarantine_unexplained: dict[str, int] = field(default_factory=dict)
    sealed_by_decision: list[dict[str, Any]] = field(default_factory=list)
    """`time`, `announced` (as decided), `reason` of every sealed time that somebody has decided about."""
    decided_counts: list[int] = field(default_factory=list)
    """The times for which somebody has decided how many updates they have."""
    late_verdicts: dict[str, int] = field(default_factory=dict)
    """How many of the late rows are a `copy`, a `contradiction`, `settled`, `untold`, or not compared yet (`late`)."""
    late_contradicted: int = 0
    """How many late facts are noted that do not agree with what was published; `late_undecided` of them still stand."""
    late_undecided: int = 0
    late_evidence: list[str] = field(default_factory=list)
    """The first of those that stand, each in a sentence."""
    late_problem: str | None = None
    """Why the notes of late facts cannot be read; None where they can. What is said of late facts is then not known."""
    keys_in_error: int = 0
    """How many keys' newest record could not be decoded; reads refuse them, or leave them out."""
    keys_in_error_first: list[str] = field(default_factory=list)
    """Some of them, each with what is wrong and where it was read."""

    def as_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return asdict(self)


def read_proof_log(collection: Collection) -> ProofLog:
    """Read the notes in `proofs/`; one that was repeated after a stop counts once. Proofs themselves are not opened."""
    table = OpenTable(collection.paths.proofs)
    others = (PROOF_RUN, f"{CONTRADICTED_RUN}-")
    notes = [file for file in table.files() if not file.run.startswith(others)]
    log = ProofLog()
    blocked: dict[tuple[int, str], dict[str, Any]] = {}
    rows = read_rows(collection.paths.proofs, notes, PROOFS_SCHEMA).to_pylist()
    for row in sorted(rows, key=lambda one: one["at_ms"]):
        log.newest_at_ms = row["at_ms"]
        if row["kind"] == "blocked":
            blocked[row[TIME], row["detail"]] = {"time": row[TIME], "detail": row["detail"]}
            continue
        log.damaged = row["detail"] if row["kind"] == "damaged" else None
        if log.damaged is not None:
            log.damaged_at_ms = row["at_ms"]
        if row["kind"] == "validated" and row["upper"] >= log.validated_upper:
            log.validated_upper, log.validated_sum = row["upper"], int(row["diff_sum"])
            log.validated_closed = bool(row["closed"])
            log.validations += 1
    log.blocked = [blocked[key] for key in sorted(blocked)]
    return log


def read_proofs(collection: Collection, lower: int) -> dict[int, dict[str, Any]]:
    """By time, at or after `lower`: announced, counted, copies, decision. Only files that reach `lower` are opened.

    Of a re-clocked collection the bindings are the proofs, and what is counted is rows.
    """
    if collection.entry.framing == "reclock":
        bound = read_bindings(collection, OpenTable(collection.paths.updates), lower)
        return {one.time: Proven(one.rows, one.rows, 0, None)._asdict() for one in bound if one.rows}
    proven = read_proven(collection.paths.proofs, [(lower, INT64_MAX + 1)])
    return {time: proof._asdict() for time, proof in proven.items()}


def sealed_by_decision(collection: Collection) -> list[dict[str, Any]]:
    """`time`, `announced`, `reason` of every sealed time that somebody decided about; only their files are opened.

    Of times noted twice the newest note stands: a seal that stopped before its commit has noted what was decided then.
    """
    times = sorted({one.time for one in collection.entry.decisions if one.time is not None})
    proofs = OpenTable(collection.paths.proofs).files()
    files = [one for one in proofs if one.run.startswith(PROOF_RUN) and meets(one, times)]
    columns = [TIME, "announced", "decision", "at_ms"]
    rows = read_rows(collection.paths.proofs, files, PROOFS_SCHEMA, columns).sort_by("at_ms")
    found = {row[TIME]: row for row in rows.filter(pc.is_in(rows[TIME], pa.array(times, pa.int64()))).to_pylist()}
    return [
        {"time": time, "announced": found[time]["announced"], "reason": found[time]["decision"]}
        for time in sorted(found)
        if found[time]["decision"] is not None
    ]


def read_status(collection: Collection, family: str, topics: Sequence[Topic] = ()) -> CollectionStatus:
    """Read what `status` shows; no JVM. Without topics nothing is said of lag.

    Cost: the logs of five tables, the notes in `proofs`, the small tables `progress` and `quarantine`, and one column
    of the files that hold both sealed and unsealed rows.
    """
    paths = collection.paths
    table = OpenTable(paths.updates)
    files = table.files()
    upper, closed = table.value(UPPER) or 0, bool(table.value(CLOSED))
    proofs = read_proof_log(collection)
    reasons = quarantine_reasons(collection)
    progress = OpenTable(paths.progress)
    lag, gaps, problem = _topic_lag(collection, table, topics)
    sealed_at_ms = table.value(SEALED_AT_MS)
    since = collection.entry.since
    decided = {one.time for one in collection.entry.decisions if one.time is not None}
    late = read_late(collection)
    errors = keys_in_error(collection) if collection.entry.positioned else KeyErrors()
    return CollectionStatus(
        name=collection.name,
        family=family,
        since=max(since[0], table.value(SINCE) or 0) if since else None,
        upper=None if closed else upper,
        closed=closed,
        rows=sum(file.rows for file in files),
        pending=0 if closed else _rows_from(paths.updates, files, upper),
        runs=len({file.run for file in files}),
        bytes=sum(file.bytes for file in files),
        late=sum(late.verdicts.values()),
        quarantine=sum(reasons.values()),
        quarantine_reasons=reasons,
        lag_messages=lag,
        lag_s=None if sealed_at_ms is None else round(clock.time() - sealed_at_ms / 1000, 1),
        statements_pending=read_rows(paths.progress, progress.files(), PROGRESS_SCHEMA).num_rows,
        contradictions=[
            one | {"decided": one["time"] in decided} for one in proofs.blocked if not closed and one["time"] >= upper
        ],
        damaged=proofs.damaged,
        topic_problem=problem,
        topic_gaps=[str(one) for one in gaps],
        quarantine_unexplained=quarantine_reasons(collection, explained=False),
        sealed_by_decision=sealed_by_decision(collection),
        decided_counts=sorted(
            one.time for one in collection.entry.decisions if one.time is not None and one.count is not None
        ),
        late_verdicts=late.verdicts,
        late_contradicted=late.contradicted,
        late_undecided=late.undecided,
        late_evidence=late.evidence,
        late_problem=late.problem,
        keys_in_error=errors.count,
        keys_in_error_first=errors.first,
    )


@dataclass
class LateFacts:
    """What is known of late facts, as far as it can be read."""

    verdicts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VERDICTS, 0))
    contradicted: int = 0
    undecided: int = 0
    evidence: list[str] = field(default_factory=list)
    problem: str | None = None


def read_late(collection: Collection) -> LateFacts:
    """Read what is known of late facts; that it cannot be read says nothing about the rest."""
    late = LateFacts()
    try:
        late.verdicts = late_verdicts(collection)
        notes = LateNotes(collection)
        late.contradicted, late.undecided = notes.contradictions, notes.undecided
        late.evidence = [one.fact() for one in notes.first(_EVIDENCE_SHOWN_MAX, undecided=True)]
    except (pa.ArrowException, OSError, DamagedTable) as error:
        late.problem = f"late facts cannot be read: {engine_fact(error)}"
    return late


def _rows_from(table: Path, files: list[RunFile], upper: int) -> int:
    """How many rows are at or after upper; only files on both sides of it are opened, for one column."""
    rows = 0
    for file in files:
        if file.time_min is not None and file.time_min >= upper:
            rows += file.rows
        elif file.time_max is None or file.time_max >= upper:
            times = pq.ParquetFile(table / file.path).read(columns=[TIME])[TIME]
            rows += pc.sum(pc.greater_equal(times, upper)).as_py() or 0
    return rows


def _topic_lag(
    collection: Collection, table: OpenTable, topics: Sequence[Topic]
) -> tuple[int | None, list[TopicGap], str | None]:
    if not topics:
        return None, [], None
    lag = 0
    gaps: list[TopicGap] = []
    for topic in topics:
        try:
            left, found = unread(topic, table, collection, topic.end_offsets())
        except TidelakeError as error:
            return None, gaps, str(error)
        lag, gaps = lag + left, gaps + found
    return lag, gaps, None
