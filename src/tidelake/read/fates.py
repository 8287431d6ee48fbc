"""The fate of a message: the answers of `tidelake trace`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

NOT_READ, NEVER_READ, SKIPPED, QUARANTINED = "not_read", "never_read", "skipped", "quarantined"
NULL, PROGRESS, UPDATES, RECORD, READ = "null", "progress", "updates", "record", "read"
"""The kinds of fates; see `Fate.kind`."""

STORED, PUBLISHED, MERGED, COPY, LATE, DISCARDED, MISSING = (
    "stored",
    "published",
    "merged",
    "copy",
    "late",
    "discarded",
    "missing",
)
"""The fates of statements; see `StatementFate.fate`."""

SEALED, PENDING, CONTRADICTED = "sealed", "pending", "contradicted"
"""The fates of counts; see `CountFate.fate`."""


@dataclass(frozen=True)
class StatementFate:
    """The fate of one statement of an update message."""

    number: int
    """Its place in the message, from 1; 0 if the message can no longer be read."""
    time: int
    diff: int
    data: dict[str, Any]
    """As JSON, in the form that `tidelake resolve discard` accepts."""
    fate: str
    """`stored` (its time is not sealed yet), `published`, `merged` (published at a time that compaction has since
    merged with other times), `copy` (of another statement of the same message), `late` (its time was sealed before it
    was read), `discarded` (by decision), or `missing` (the table does not have it)."""
    detail: str
    """The rest of the answer, in words."""
    needs: str | None = None
    """What to do, as in an error's hint, or None."""


@dataclass(frozen=True)
class CountFate:
    """The fate of a count that a progress statement announces for a time."""

    time: int
    count: int
    """The announced number of updates; 0 if the statement covers the time without naming it."""
    fate: str
    """`sealed`, `pending` (the time is not sealed yet), or `contradicted`."""
    detail: str
    needs: str | None = None
    """What to do, as in an error's hint, or None."""


@dataclass(frozen=True)
class Fate:
    """The fate of a message in one collection."""

    collection: str
    topic: str
    """The name under which the collection stores the offsets: `orders#1` if the topic was accepted again."""
    partition: int
    offset: int
    kind: str
    """`not_read`; `never_read` (it belongs to an earlier or later topic of this name); `skipped` (by an accepted gap);
    `quarantined`; `null`; `progress` or `updates`, a message in CDCv2; `record`, a message of any other topic; or
    `read` (the message was accepted, but can no longer be read or decoded)."""
    summary: str
    """The answer in a sentence."""
    needs: str | None = None
    """What to do about it, as in an error's hint, or None."""
    unknown: str | None = None
    """What cannot be known, and why; or None."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Further facts, which depend on the kind."""
    statements: tuple[StatementFate, ...] = ()
    counts: tuple[CountFate, ...] = ()

    @property
    def needs_somebody(self) -> bool:
        """Whether an operator must act on the message or a part of it."""
        return next(self.todo(), None) is not None

    def todo(self) -> Iterator[str]:
        """Yield what needs to be done, without repetition."""
        parts: list[Fate | StatementFate | CountFate] = [self, *self.statements, *self.counts]
        yield from dict.fromkeys(part.needs for part in parts if part.needs is not None)

    def as_json(self) -> dict[str, Any]:
        """Return all fields and `needs_somebody` as JSON values; `json_values.to_text` preserves numbers."""
        parts = {"statements": list(map(asdict, self.statements)), "counts": list(map(asdict, self.counts))}
        return asdict(self) | parts | {"needs_somebody": self.needs_somebody}
