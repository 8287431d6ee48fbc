"""Says which contradictions a count cannot settle: a count does not say which of two values is right."""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.errors import REPEATED, TWO_VALUES, ConflictingDiff


def ambiguity_of(details: Sequence[str]) -> str | None:
    """Return what has two values according to the contradictions that were noted about a time; None if nothing has."""
    if any(detail.startswith(f"{ConflictingDiff.kind}:") for detail in details):
        return "one update has two diffs"
    if any(REPEATED in detail for detail in details):
        return "an event has two different values"
    return "a key has two values" if any(TWO_VALUES in detail for detail in details) else None


def discard_command(name: str, time: int) -> str:
    """Return the command with which an operator discards one of two values at this time."""
    return f'tidelake resolve discard {name} --time {time} --statement \'{{"data": {{…}}, "diff": 1}}\' --reason …'
