"""The report of a seal."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelake.errors import Contradiction
from tidelake.store.retention import Departure


@dataclass
class SealReport:
    """The times that one seal proved, and those that upper is waiting for."""

    lower: int
    upper: int
    closed: bool = False
    times_sealed: int = 0
    copies_cancelled: int = 0
    decided: int = 0
    decided_times: list[tuple[int, str]] = field(default_factory=list)
    """The times that were sealed by decision, each with its reason."""
    unsealed_rows: int = 0
    files_opened: int = 0
    contradictions: list[Contradiction] = field(default_factory=list)
    waiting_for: list[tuple[int, int | None, int]] = field(default_factory=list)
    """The first outstanding times: (time, announced or None if no statement covers the time, counted)."""
    committed: bool = False
    version: int = -1
    left: Departure | None = None
    """The rows that retention removed from the contents; None if it removed none."""
    sealed_by_ingest: bool = False
    """Whether each tick of ingest seals its own time; if so, nothing is left to prove."""
