"""The operators' decisions about the times of a collection, as seal applies them."""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.store.decision import Decision, Discard, counts_in, discards_in, reasons_in


class Rulings:
    """The decisions about times. If several set a count for one time, the newest applies."""

    def __init__(self, decisions: Sequence[Decision]) -> None:
        """Group decisions by what they do."""
        self.reasons = reasons_in(decisions)
        """By time, the reason for the newest decision."""
        self.counts = {time: decision.count for time, decision in counts_in(decisions).items()}
        """By time, the number of distinct updates, whatever was announced."""
        self.discards = discards_in(decisions)
        """The decisions to discard a statement."""

    def discarded_times(self, first: int) -> set[int]:
        """Return the times at or after `first` at which a statement is discarded."""
        return {discard.time for discard in self.discards if discard.time >= first}

    def discards_within(self, first: int, end: int) -> list[Discard]:
        """Return the discards at times at or after `first` and before `end`."""
        return [discard for discard in self.discards if first <= discard.time < end]
