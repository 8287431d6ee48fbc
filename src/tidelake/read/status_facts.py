"""The facts in the status of a collection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelake.read.waiting import Waiting


@dataclass
class StatusFacts:
    """The current state of one collection, in numbers."""

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
    """Rows about times that were sealed before the rows arrived."""
    quarantine: int
    quarantine_reasons: dict[str, int]
    """The number of messages by reason; `quarantine_unexplained` has only those that no decision explains."""
    lag_messages: int | None
    """Unread messages in the topic; None if the topic cannot be read."""
    lag_s: float | None
    """How long ago upper last moved; None if it never did."""
    statements_pending: int
    contradictions: list[dict[str, Any]]
    damaged: str | None
    """A mismatch below upper, or the files that are missing or damaged; None if neither is known."""
    has_damaged_files: bool = False
    """Whether `damaged` is about files. They may be files of any table, and their rows may not be sealed yet."""
    topic_problem: str | None = None
    """Why a topic cannot be read, or None."""
    topic_gaps: list[str] = field(default_factory=list)
    """Missing offsets, recreated topics, and log positions that went back; they stop ingest until a person acts."""
    topic_gap_kind: str = "TopicGap"
    """The name of the error of the first of `topic_gaps`."""
    quarantine_unexplained: dict[str, int] = field(default_factory=dict)
    sealed_by_decision: list[dict[str, Any]] = field(default_factory=list)
    """`time`, `announced` (as decided), `reason` of every time that was sealed by decision."""
    decided_counts: list[int] = field(default_factory=list)
    """The times for which a decision sets the number of updates."""
    late_verdicts: dict[str, int] = field(default_factory=dict)
    """The number of late rows by verdict: `copy`, `contradiction`, `settled`, or `untold` (unverifiable).

    Rows that have not been compared yet count as `late`."""
    late_contradicted: int = 0
    """Number of late facts that contradict what was published; `late_undecided` of them are undecided."""
    late_undecided: int = 0
    late_evidence: list[str] = field(default_factory=list)
    """The first undecided late facts, each in a sentence."""
    late_problem: str | None = None
    """Why the notes about late facts cannot be read, or None. If they cannot, the other `late_` fields mean nothing."""
    keys_in_error: int = 0
    """Number of keys whose newest record cannot be used; a read fails because of them, or leaves them out."""
    keys_in_error_first: list[str] = field(default_factory=list)
    """Some of these keys, each with its error."""
    times_ahead_s: int = 0
    """Reclocked: how far the last minted time is ahead of this machine's clock; 0 if it is less than a day ahead."""
    publication: dict[str, Any] | None = None
    """Its published table, and the state that the table shows; None if the contents were never published."""
    waiting_transactions: list[dict[str, Any]] = field(default_factory=list)
    """Transactions: the first unread event of each partition, if it makes ingest wait; see `WaitingEvent`."""
    asserted_times: list[int] = field(default_factory=list)
    """Transactions: the times of snapshots, which are asserted, but not proven, to be complete."""
    held: str | None = None
    """Why `since` cannot move: the hold that stops it, as a sentence; None if no hold does."""

    retired_topics: dict[str, dict[int, int]] = field(default_factory=dict)
    """The next offset of each partition of the topics that were once read but are no longer in the settings."""
    rows_left: int = 0
    """Append-only: the number of rows that retention has removed from the contents."""
    left_at: int | None = None
    """Append-only: the last time at which rows were removed; None if none were."""

    waiting: Waiting | None = None
    """The expected result of the next seal; None if it is unknown, or if there is nothing to seal."""
    upper_age_s: int = 0
    """How long upper has not moved although it should; 0 if it need not move."""
    stalled_after_s: int = 86_400
    """The `upper_age_s` from which the collection counts as stalled."""

    @property
    def published_problem(self) -> str | None:
        """What is wrong with its published table; None if it shows the contents, or if there is no published table."""
        return None if self.publication is None else self.publication.get("problem")

    @property
    def published_is_changed(self) -> bool:
        """Whether `published_problem` is a change that another engine made; the next run of `current` solves it."""
        return self.publication is not None and self.publication.get("changed_by") is not None
