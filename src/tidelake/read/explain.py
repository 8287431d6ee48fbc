"""Explains a time of a collection: who proved it and how, or what it is waiting for. Needs no JVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow.compute as pc

from tidelake.protocol.iso_times import iso_to_the_second
from tidelake.protocol.order import INT64_MAX
from tidelake.read.moment import AS_READ
from tidelake.read.transactions import facts_about, missing_events
from tidelake.read.waiting import read_waiting, stored_counts
from tidelake.read.words import counted, fact_of
from tidelake.seal.ambiguity import ambiguity_of, discard_command
from tidelake.seal.cut_transactions import cut_transactions
from tidelake.seal.pending import Pending
from tidelake.store.bindings import read_bindings
from tidelake.store.commit import OpenTable
from tidelake.store.decision import Decision, DecisionDocument, time_of
from tidelake.store.entry import Collection
from tidelake.store.files import meets, read_rows
from tidelake.store.holds import held_text
from tidelake.store.late_notes import LateNotes
from tidelake.store.layout import PROOF_RUN, PROOFS_SCHEMA, TIME
from tidelake.store.proof_log import read_proof_log
from tidelake.store.quarantine import explanation_of, quarantine_rows
from tidelake.store.retention import read_departures
from tidelake.store.state import SINCE

_SHOWN_MAX = 5


@dataclass
class Explanation:
    """The facts about one time of a collection."""

    name: str
    time: int
    state: str
    """`sealed`, `complete` (the next seal proves it), `waiting`, `contradicted`, `not announced`, or `not read`."""
    facts: list[str] = field(default_factory=list)
    """Sentences, the most important first."""
    next_steps: list[str] = field(default_factory=list)
    """What a person can do; empty if nothing needs to be done."""
    announced: int | None = None
    counted: int | None = None
    """The number of distinct updates that are stored; None if they were not counted."""
    copies: int | None = None
    statements: list[dict[str, Any]] = field(default_factory=list)
    """The progress statements that cover the time: place, lower, upper (None: it closes the stream) and count."""
    quarantined: list[dict[str, Any]] = field(default_factory=list)
    """The quarantined messages that are known to be about the time, each with its place and reason."""
    decisions: list[dict[str, Any]] = field(default_factory=list)
    proof: dict[str, Any] | None = None
    """For a sealed time: when it was sealed, the seal's range, and the numbers compared. If reclocked: the binding."""

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


def explain(collection: Collection, time: int | None = None) -> Explanation:
    """Explain a time.

    Args:
        collection: the collection.
        time: the time; None means the first time that is not sealed or, if the stream is closed or the collection
            is reclocked, the last sealed time.

    Raises:
        DamagedTable: a table that the answer depends on is damaged.

    Cost: the small tables; and one pass over the unsealed rows, if the time is not sealed.
    """
    table = OpenTable(collection.paths.updates)
    since, upper, closed = collection.readable_range(table)
    if time is None:
        time = max(0, upper - 1) if closed or (collection.entry.mints_times and upper) else upper
    found = Explanation(collection.name, time, "sealed")
    decided = [decision for decision in collection.entry.decisions if time_of(decision) == time]
    found.decisions = [DecisionDocument.of(decision).model_dump(exclude_none=True) for decision in decided]
    if not closed and time >= upper:
        _explain_open(collection, table, found, upper, decided)
    elif collection.entry.mints_times:
        _explain_binding(collection, table, found)
    else:
        _explain_proof(collection, table, found)
    if found.state == "sealed":
        departures = read_departures(collection, table)
        found.facts += [f"recorded retention: {each.sentence} at this time" for each in departures if each.time == time]
    if found.state == "sealed" and (not since or time < since[0]):
        low = f"reads begin at since, {since[0]}" if since else "no time of this collection can be read"
        found.facts.append(f"its contents can no longer be distinguished from later ones: {low}")
    if since and time == since[0] and (held := held_text(collection.entry)) is not None:
        found.facts.append(held)
        found.next_steps.append(f"tidelake holds {collection.name}")
    found.facts += [f"decision: {_decision_text(decision)}" for decision in decided]
    return found


# --- sealed times


def _explain_proof(collection: Collection, table: OpenTable, found: Explanation) -> None:
    """Explain a time that a seal has proven."""
    path, time = collection.paths.proofs, found.time
    files = [file for file in OpenTable(path).files() if file.run.startswith(PROOF_RUN) and meets(file, [time])]
    columns = [TIME, "lower", "upper", "closed", "announced", "counted", "copies", "decision", "at_ms"]
    rows = read_rows(path, files, PROOFS_SCHEMA, columns, pc.field(TIME) == time).sort_by("at_ms").to_pylist()
    if rows:
        proof = found.proof = rows[-1]
        found.announced, found.counted, found.copies = proof["announced"], proof["counted"], proof["copies"]
        end = "the end of the stream" if proof["closed"] else str(proof["upper"])
        numbers = f"{proof['announced']:,} announced, {proof['counted']:,} counted"
        if proof["decision"] is not None:
            numbers = f"{proof['announced']:,} by decision, {proof['counted']:,} counted"
        copies = f", {counted(proof['copies'], 'surplus copy', 'surplus copies')}" if proof["copies"] else ""
        found.facts.append(
            f"sealed at {iso_to_the_second(proof['at_ms'])} by the seal from {proof['lower']} to {end}: "
            f"{numbers}{copies}"
        )
    else:
        found.announced = found.counted = found.copies = 0
        found.facts.append(
            "sealed without updates: no transaction that ended there changed this table"
            if collection.entry.counts_positions
            else "sealed without updates: progress statements cover it, and announce none"
        )
    if collection.entry.counts_positions:
        found.facts += facts_about(collection, time)
        found.facts += [
            f"according to a table of the same connector, {error.fact}"
            for error in cut_transactions(collection, table, time)
            if error.time == time
        ]
    _add_validations(collection, table, found)
    late = LateNotes(collection).at(time)
    for contradiction in late[:_SHOWN_MAX]:
        decided = f" (decided: {contradiction.decision})" if contradiction.decision is not None else ""
        found.facts.append(f"a late fact contradicts it: {contradiction.fact}{decided}")
    if any(contradiction.decision is None for contradiction in late):
        found.next_steps.append(f"tidelake late {collection.name}")


def _explain_binding(collection: Collection, table: OpenTable, found: Explanation) -> None:
    """Explain a sealed time of a reclocked collection, whether or not a tick has minted it."""
    bindings = [binding for binding in read_bindings(collection, table) if binding.time <= found.time]
    if not bindings:
        found.facts.append("sealed before anything was read: the contents are empty")
        return
    binding = bindings[-1]
    found.proof = binding.as_json()
    found.announced = found.counted = binding.rows if binding.time == found.time else 0
    read = f"{counted(binding.records, 'record')}, {counted(binding.rows, 'row')}"
    quarantined = f", {binding.quarantined:,} quarantined" if binding.quarantined else ""
    ends = ", ".join(f"{topic}:{partition} before offset {end}" for (topic, partition), end in binding.ends.items())
    if binding.time == found.time:
        found.facts.append(
            f"sealed by the tick that started at {iso_to_the_second(binding.at_ms)}: {read}{quarantined}"
        )
    else:
        found.facts.append(
            f"sealed, with the contents of time {binding.time}, whose tick started at "
            f"{iso_to_the_second(binding.at_ms)}: {read}{quarantined}"
        )
    contents = f"the contents are the records of {ends}" if ends else "no record had been read: the contents are empty"
    found.facts.append(f"{contents}; a binding says what was read, not what is missing")
    found.facts.append(AS_READ)
    _add_validations(collection, table, found)


def _add_validations(collection: Collection, table: OpenTable, found: Explanation) -> None:
    """Add whether a validation has recounted the time.

    A validation begins after the compacted times, because their updates can no longer be told apart.
    """
    proofs, compacted = read_proof_log(collection), table.value(SINCE) or 0
    if proofs.damaged is not None:
        found.facts.append(f"a validation has found damage below upper: {proofs.damaged}")
        found.next_steps.append(f"tidelake verify {collection.name} --deep")
    elif any(note.lower <= found.time and (note.closed or found.time < note.upper) for note in proofs.hashes):
        validations = counted(proofs.validations, "validation has", "validations have")
        found.facts.append(f"recounted independently; {validations} found no difference so far")
    elif compacted and found.time <= compacted:
        found.facts.append("never recounted: compaction merged it with other times before the next validation")
    else:
        found.facts.append("not recounted yet: the next validation recounts it")


# --- open times


def _explain_open(
    collection: Collection, table: OpenTable, found: Explanation, upper: int, decided: Sequence[Decision]
) -> None:
    """Explain a time at or after upper."""
    if collection.entry.mints_times:
        found.state = "not read"
        found.facts.append(
            f"no tick has minted it: upper is {upper}, and the next tick of ingest mints a time from there on"
        )
        found.next_steps.append("tidelake ingest")
        return
    files = [file for file in table.files() if file.reach[1] >= upper]
    waiting = read_waiting(collection, table, files)
    found.statements = _statements_about(collection, found.time)
    stored = stored_counts(collection, table, files, range(found.time, found.time + 1))
    found.counted, found.copies = (None, None) if stored is None else stored.get(found.time, (0, 0))
    found.announced = max((statement["count"] for statement in found.statements), default=None)
    count = next((decision.count for decision in decided if hasattr(decision, "count")), None)
    found.announced = found.announced if count is None else count
    count_command = f"tidelake resolve count {collection.name} --time {found.time} --count N --reason …"
    contradictions = [noted for noted in read_proof_log(collection).blocked if noted["time"] == found.time]
    provable = upper if waiting is None else waiting.provable_upper
    if contradictions and not decided:
        found.state = "contradicted"
        facts = (fact_of(noted["detail"]) for noted in contradictions[:_SHOWN_MAX])
        found.facts += [f"it is held back: {fact}" for fact in facts]
        is_ambiguous = ambiguity_of([noted["detail"] for noted in contradictions]) is not None
        found.next_steps.append(discard_command(collection.name, found.time) if is_ambiguous else count_command)
    elif not found.statements:
        found.state = "not announced"
        here = "" if found.counted is None else f"; {counted(found.counted, 'update')} stored"
        found.facts.append(f"no progress statement that was read covers it{here}")
        if collection.entry.counts_positions:  # an event may be waiting in the topic, which only `status` reads
            found.next_steps.append(f"tidelake status {collection.name}")
    elif provable is None or found.time < provable:
        found.state = "complete"
        found.facts.append(f"complete, but not sealed yet: {_numbers(found)}")
        found.next_steps.append("tidelake seal")
    else:
        found.state = "waiting" if _is_short(found) else "complete"
        found.facts.append(_numbers(found))
    if collection.entry.counts_positions:
        found.facts += facts_about(collection, found.time)
        missing = missing_events(collection, table, files, found.time) if found.state == "waiting" else None
        found.facts += [] if missing is None else [missing]
    _add_statements(found, of_transactions=collection.entry.counts_positions)
    _add_quarantine(collection, found)
    if waiting is not None and waiting.times and waiting.times[0].time < found.time:
        found.facts.append(f"an earlier time must be sealed first: {waiting.times[0]}")
        found.next_steps.append(f"tidelake explain {collection.name} --time {waiting.times[0].time}")
    elif found.state == "waiting":
        found.next_steps.append(count_command)


def _is_short(found: Explanation) -> bool:
    return found.counted is None or found.counted != found.announced


def _numbers(found: Explanation) -> str:
    here = "an unknown number" if found.counted is None else f"{found.counted:,}"
    copies = f", plus {counted(found.copies, 'copy', 'copies')}" if found.copies else ""
    missing = (found.announced or 0) - (found.counted or 0)
    lacks = f": {counted(missing, 'update is', 'updates are')} missing" if found.counted is not None and missing else ""
    return f"{found.announced or 0:,} announced, {here} stored{copies}{lacks if missing > 0 else ''}"


def _statements_about(collection: Collection, time: int) -> list[dict[str, Any]]:
    """Return the pending statements that cover a time, by place; a repeated statement is listed once."""
    statements: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in Pending(collection).rows.to_pylist():
        end = min(row["upper"]) if row["upper"] else INT64_MAX + 1
        if not row["lower"] or not min(row["lower"]) <= time < end:
            continue
        counts = dict(zip(row["count_times"], row["count_values"], strict=True))
        statement = {name: row[name] for name in ("topic", "partition", "offset")}
        statement |= {"lower": min(row["lower"]), "upper": end if row["upper"] else None, "count": counts.get(time, 0)}
        statements.setdefault((statement["lower"], statement["upper"], statement["count"]), statement)
    return sorted(statements.values(), key=lambda statement: (statement["partition"], statement["offset"]))


def _add_statements(found: Explanation, of_transactions: bool) -> None:
    """Add the statements about the time.

    A statement about transactions may sum up all ENDs that a tick has read; its offset is then the tick's last one.
    """
    for statement in found.statements[:_SHOWN_MAX]:
        end = "the end" if statement["upper"] is None else statement["upper"]
        is_sum = of_transactions and statement["upper"] != statement["lower"] + 1
        place = "read up to offset" if is_sum else "offset"
        found.facts.append(
            f"announced by topic '{statement['topic']}', partition {statement['partition']}, {place} "
            f"{statement['offset']}: {counted(statement['count'], 'update')} at this time, in a statement about "
            f"the times from {statement['lower']} to {end}"
        )
    further = len(found.statements) - _SHOWN_MAX
    if further > 0:
        found.facts.append(f"and by {counted(further, 'further statement')}")


def _add_quarantine(collection: Collection, found: Explanation) -> None:
    """Add the quarantined messages that hold the time back, or may hold it back."""
    columns = ["topic", "partition", "offset", "reason", "times"]
    rows = quarantine_rows(collection, columns)
    about = [row for row in rows if found.time in (row["times"] or ())]
    found.quarantined = [{name: row[name] for name in columns[:4]} for row in about]
    for row in about[:_SHOWN_MAX]:
        found.facts.append(
            f"a quarantined message is about it: topic '{row['topic']}', partition {row['partition']}, offset "
            f"{row['offset']}, {row['reason']}"
        )
    unknown = [row for row in rows if not row["times"] and explanation_of(row, collection.entry.decisions) is None]
    if unknown and found.state == "waiting":
        messages = counted(len(unknown), "quarantined message")
        found.facts.append(f"{messages} may be about it: no time could be read")
    if (about or unknown) and found.state in ("waiting", "contradicted"):
        found.next_steps.append(f"tidelake quarantine {collection.name}")


# --- words


def _decision_text(decision: Decision) -> str:
    count = getattr(decision, "count", None)
    what = "a statement is discarded" if count is None else f"{counted(count, 'update')}"
    return f"{what}, {iso_to_the_second(decision.at_ms)}: {decision.reason}"
