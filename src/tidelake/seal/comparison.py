"""Compares announced and counted updates, to find out up to which time the stream is complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelake.errors import (
    LARGE_DIFF,
    REPEATED,
    TWO_VALUES,
    ConflictingDiff,
    Contradiction,
    EnvelopeBreach,
    TransactionCut,
)
from tidelake.forms.form import Form
from tidelake.plugins.envelope import refusals_of
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.ledger.ledger import Ledger
from tidelake.seal.counts import OpenCounts
from tidelake.seal.pending import Pending
from tidelake.seal.rulings import Rulings
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import read_rows
from tidelake.store.layout import QUARANTINE_SCHEMA

_WAITING_NAMED_MAX = 20


@dataclass(frozen=True)
class Comparison:
    """The ledger's conclusions from the announced and the counted updates."""

    frontier: Antichain
    """All times before this frontier are proven."""
    contradictions: list[Contradiction]
    waiting_for: list[tuple[int, int | None, int]]
    """The first outstanding times: (time, announced or None if no statement covers the time, counted)."""


def compare(
    collection: Collection,
    form: Form,
    rulings: Rulings,
    pending: Pending,
    counts: OpenCounts,
    upper: int,
    end: int | None,
    cut: Sequence[TransactionCut] = (),
) -> Comparison:
    """Enter the announced and the counted updates into a new ledger, and advance it.

    Args:
        collection: the collection.
        form: the form of its table.
        rulings: the operators' decisions.
        pending: the announced counts.
        counts: what is stored at or after `upper`, and before `end` if that is not None.
        upper: the first time that is not sealed.
        end: the first time that was not counted; None if every time was counted.
        cut: the transactions at open times whose first changes might not have been sent.
    """
    ledger = Ledger(Antichain.of(upper))
    for statement in pending.statements():
        ledger.announce(statement)
    ledger.count_all((time, count.distinct) for time, count in counts.by_time.items())
    for time, count in counts.by_time.items():
        if count.conflict is not None:
            ledger.contradict(ConflictingDiff(time, *count.conflict))
    for breach in _breaches(form, rulings, pending, counts):
        ledger.contradict(breach)
    for time, reason in _refused(collection, upper).items():
        if time not in rulings.counts:
            ledger.contradict(EnvelopeBreach(time, f"{reason}; the statement is in the quarantine"))
    for error in cut:
        if error.time not in rulings.counts:
            ledger.contradict(error)
    for time, number in rulings.counts.items():
        if time >= upper:
            ledger.decide(time, number)
    outstanding, frontier = ledger.outstanding(), ledger.advance()
    if end is not None:  # nothing at or after `end` was counted, so it is unknown what is missing there
        outstanding = [waiting for waiting in outstanding if int(str(waiting[0])) < end]
        frontier = frontier.meet(Antichain.of(end))
    return Comparison(
        frontier,
        [error for errors in ledger.contradictions().values() for error in errors],
        [(int(str(time)), announced, counted) for time, announced, counted in outstanding[:_WAITING_NAMED_MAX]],
    )


def _breaches(form: Form, rulings: Rulings, pending: Pending, counts: OpenCounts) -> list[EnvelopeBreach]:
    """Return the breaches of the envelope that the counts show, in statements about keys and in repeated events."""
    expected = {} if form.breaches_stay else pending.announced() | rulings.counts
    breaches = []
    for time, count in counts.by_time.items():
        if count.differing:
            events = "1 event was" if count.differing == 1 else f"{count.differing} events were"
            breaches.append(EnvelopeBreach(time, f"{events} {REPEATED}"))
        if not form.breaches_stay and expected.get(time) != count.distinct:
            continue
        # Two values of one key have no order: only a discard says which one counts.
        if count.doubled:
            detail = f"{TWO_VALUES}: {count.doubled}; discard one of each, and count the rest"
            breaches.append(EnvelopeBreach(time, detail))
        elif count.large and time not in rulings.counts:
            # `proofs/` stores this text, and each breach is noted once: with another wording, it would be noted again.
            breaches.append(EnvelopeBreach(time, LARGE_DIFF))
    return breaches


def _refused(collection: Collection, upper: int) -> dict[int, str]:
    """Return the open times of statements that the envelope refused, each with a readable reason."""
    details = {refusal.reason: refusal.detail for refusal in refusals_of(collection.entry.envelope)}
    if not details:
        return {}
    quarantine = collection.paths.quarantine
    rows = read_rows(quarantine, OpenTable(quarantine).files(), QUARANTINE_SCHEMA, ["reason", "times"])
    return {
        time: details[reason]
        for reason, times in zip(rows["reason"].to_pylist(), rows["times"].to_pylist(), strict=True)
        if reason in details
        for time in times or []
        if time >= upper
    }
