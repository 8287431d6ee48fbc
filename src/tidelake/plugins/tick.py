"""One tick of ingest: plan, read, decode, write, commit. A framing fills in the steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from tidelake.errors import TopicGap
from tidelake.store.commit import OpenTable, maintain
from tidelake.store.files import RunFile


@dataclass
class Counts:
    """What was read and where it went. Counts are of messages, unless their names say otherwise."""

    messages: int = 0
    null_records: int = 0
    quarantined: int = 0
    progress_statements: int = 0
    updates_read: int = 0
    updates_stored: int = 0
    updates_late: int = 0
    bytes_stored: int = 0
    values_in_error: int = 0
    """Reclocking with a key: values that could not be used; each leaves its key in error until a later record
    for that key arrives."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Quarantined messages by reason."""

    def count_reasons(self, reasons: dict[str, int]) -> None:
        """Add the counts of quarantined messages, by reason."""
        for reason, count in reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count

    def add(self, other: Counts) -> None:
        """Add each count of another report to the same count here."""
        for count in fields(Counts):
            if count.name != "reasons":
                setattr(self, count.name, getattr(self, count.name) + getattr(other, count.name))
        self.count_reasons(other.reasons)


@dataclass
class TickReport(Counts):
    """The counts of one tick, the gaps that it found, and the version that it committed."""

    gaps: list[TopicGap] = field(default_factory=list)
    version: int = -1

    @property
    def copies_dropped(self) -> int:
        """Number of updates that were copies of other updates in the same tick."""
        return self.updates_read - self.updates_late - self.updates_stored


@dataclass(frozen=True)
class PastTick:
    """A tick that was committed: the state that it began with, and what its commit said."""

    table: OpenTable
    """The table as it was just before the tick's commit."""
    values: Mapping[str, int]
    """The values that the tick's commit set."""
    files: Sequence[RunFile]
    """The files that the tick's commit added."""


class Tick(ABC):
    """The steps of a tick, which turns a bounded range of offsets into one commit, starting from one table version."""

    table: OpenTable
    report: TickReport
    run_ms: int | None = None
    """When the ingest run of this tick began, in milliseconds since 1970; None if unknown."""

    def run(self) -> TickReport | None:
        """Run the steps; return None if there is nothing new to read and no gap, and `commit_idle` committed nothing.

        Raises:
            LostRace: another tick read the same offsets; nothing was committed.
            Fenced: the writer's epoch has moved.
            Indeterminate: it is unknown whether the commit succeeded; the next tick finds out from the offsets.
        """
        if not self.plan():
            return self.report if self.report.gaps or self.commit_idle() else None
        self.read()
        self.decode()
        self.write()
        self.commit()
        maintain(self.table.path)
        return self.report

    @abstractmethod
    def plan(self) -> bool:
        """Open the table and plan the next range of offsets; False if there is none. The report names the gaps."""

    def commit_idle(self) -> bool:
        """If the framing records idle ticks, commit one; return whether anything was committed."""
        return False

    @abstractmethod
    def read(self) -> None:
        """Read what decoding depends on: the schemas of the range, the announcements, the time."""

    @abstractmethod
    def decode(self) -> None:
        """Create the DataFrames of the range. They are evaluated only when they are written."""

    @abstractmethod
    def write(self) -> None:
        """Write uncommitted runs, and append to the small tables, where repeated rows do no harm."""

    @abstractmethod
    def commit(self) -> None:
        """Commit the run and the next offsets together."""

    @abstractmethod
    def write_again(self, past: PastTick) -> list[RunFile]:
        """Read the offsets of a past tick again, and write the same rows as uncommitted runs. Nothing else is written.

        The caller compares the files with those that were committed.

        Raises:
            NotRewritable: the input of the tick, or the state that it used, is gone.
            SourceError: a topic is missing or malformed, or its brokers do not answer.
        """
