"""The events of a collection's history."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tidelake.protocol.iso_times import iso_to_the_second

CREATED, TICK, SEAL, VALIDATION, DAMAGE = "created", "tick", "seal", "validation", "damage"
CONTRADICTION, LATE, DECISION, WITHDRAWAL = "contradiction", "late", "decision", "withdrawal"
COMPACTION, MERGE, SINCE_MOVED, COLUMNS, FENCE, FORMAT = "compaction", "merge", "since", "columns", "fence", "format"
RENAMED, DROPPED, RETENTION = "renamed", "dropped", "retention"
KINDS = (
    CREATED,
    TICK,
    SEAL,
    VALIDATION,
    DAMAGE,
    CONTRADICTION,
    LATE,
    DECISION,
    WITHDRAWAL,
    COMPACTION,
    MERGE,
    SINCE_MOVED,
    COLUMNS,
    FENCE,
    FORMAT,
    RENAMED,
    DROPPED,
    RETENTION,
)


@dataclass(frozen=True)
class Event:
    """Something that was done to a collection."""

    at_ms: int
    """When, in milliseconds since 1970, by the clock of the process that did it."""
    kind: str
    """One of `KINDS`."""
    what: str
    """A description for a person."""
    facts: dict[str, Any] = field(default_factory=dict)
    """The numbers in the description and further ones, depending on the kind."""

    @property
    def at(self) -> str:
        """When, in ISO 8601, in UTC."""
        return iso_to_the_second(self.at_ms)

    def as_json(self) -> dict[str, Any]:
        """Return the fields and `at` as JSON values."""
        return {"at_ms": self.at_ms, "at": self.at, "kind": self.kind, "what": self.what, **self.facts}
