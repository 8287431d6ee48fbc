"""The facts on the page of a collection, as plain values: the same in the page, in its JSON and in the history."""

from __future__ import annotations

import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tidelake.read.words import counted
from tidelake.report.problems import ORDER, Level, Problem, problems_of
from tidelake.report.samples import Reason, read_reasons
from tidelake.report.text import CHARACTERS_MAX, shown_values, time_text
from tidelake.report.tide import OPEN_LISTED_MAX, OpenTime, Tide, read_tide
from tidelake.store.decision import Decision, described

if TYPE_CHECKING:
    from tidelake.read.status import CollectionStatus
    from tidelake.settings.collection import CollectionSettings
    from tidelake.store.entry import Collection
    from tidelake.validate.validation import ValidateReport

LISTED_MAX = 50
"""Maximum number of decisions, of times sealed by decision, and of contradictions on a page."""
_EVIDENCE_MAX = 10
_DO_NOT_USE = "Do not use this table"


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    check: str
    passed: bool
    level: Level
    """`calm` if it passed, else how severe the failure is."""
    sentence: str
    """The result in one sentence, with numbers."""
    is_blocking: bool = False
    evidence: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class DecisionRow:
    """A decision, as a row of a table."""

    kind: str
    about: str
    reason: str
    at_ms: int


@dataclass
class Facts:
    """Everything that a report says about a collection after a validation."""

    name: str
    family: str
    framing: str
    topics: list[str]
    at_ms: int
    """When the report was made, in milliseconds since 1970."""
    level: Level
    verdict: str
    """One sentence: whether the table can be used, and up to which time."""
    ahead: str
    """The sentence of `tidelake status`; empty if the verdict already says it."""
    state: str
    waits_for: str | None
    since: int | None
    upper: int | None
    """None if the stream is closed, or if the state cannot be read."""
    closed: bool
    tide: Tide
    recounted: int | None
    """Distinct updates found by the validation at times that compaction has not changed; None if it did not recount."""
    recounted_times: int
    status: dict[str, Any]
    """The fields of `tidelake status --json`; empty if the state cannot be read."""
    problems: list[Problem]
    checks: list[CheckResult]
    quarantine: list[Reason]
    shows_values: bool
    contradictions: list[dict[str, Any]]
    late_evidence: list[str]
    decisions: list[DecisionRow]
    decisions_total: int
    sealed_by_decision: list[dict[str, Any]]
    sealed_by_decision_total: int
    mismatches: list[str]
    contents_hash: str | None
    version: int | None
    late_problem: str | None = None
    """Why the validation could not compare late statements; None if it could, or if there were none."""

    @property
    def is_clock(self) -> bool:
        """Whether times are milliseconds since 1970."""
        return self.framing == "reclock"

    def add_checks(self, checks: Sequence[CheckResult]) -> None:
        """Add the results of checks; each failure is a problem, unless the state already shows it.

        The state does not show that late statements could not be compared: only the validation knows.
        """
        shown = _SHOWN_BY_STATE - {"late_statements_are_copies"} if self.late_problem else _SHOWN_BY_STATE
        self.checks += checks
        self.problems += [_failed(check) for check in checks if not check.passed and check.check not in shown]
        self.problems.sort(key=lambda problem: ORDER[problem.level])
        self.level = _worst(self.problems)

    def mark_unreadable(self, problem: str) -> None:
        """Let the verdict and the first problem say why the table could not be validated.

        If the verdict already says not to use the table, do nothing.
        """
        if not self.verdict.startswith(_DO_NOT_USE):
            name = self.name
            self.verdict, self.ahead = f"{_DO_NOT_USE}: {_first_line(problem)}.", ""
            commands = (f"tidelake verify {name} --deep", f"tidelake repair {name} --apply")
            self.problems.insert(0, Problem("alarm", problem, commands))
            self.level = "alarm"

    def as_json(self) -> dict[str, Any]:
        """Return the facts as JSON values; texts are cut, as on the page."""
        return dict(shown_values(asdict(self), CHARACTERS_MAX))


def read_facts(
    collection: Collection,
    settings: CollectionSettings,
    status: CollectionStatus,
    validated: ValidateReport | None,
) -> Facts:
    """Gather what a page shows, except the results of checks; see `Facts.add_checks`.

    Args:
        collection: the collection.
        settings: its settings, of which only names and limits are used.
        status: its state, read after the validation.
        validated: the result of the validation; None if it could not be carried out.

    Raises:
        DamagedTable: one of its tables cannot be read.
    """
    tide = read_tide(collection)
    quarantine = read_reasons(collection, settings.show_values)
    first = next((sample.place for reason in quarantine for sample in reason.samples if not sample.explained), None)
    problems = problems_of(status, first)
    if status.waiting is not None:
        waiting = status.waiting.times[:OPEN_LISTED_MAX]
        tide.open_first = [OpenTime(time.time, time.announced, time.counted) for time in waiting]
    decisions = [_decision_row(decision) for decision in reversed(collection.entry.decisions)]
    facts = Facts(
        name=collection.name,
        family=settings.family,
        framing=settings.framing,
        topics=list(settings.topics),
        at_ms=int(clock.time() * 1000),
        level=_worst(problems),
        verdict="",
        ahead="",
        state=status.state,
        waits_for=status.waits_for,
        since=status.since,
        upper=status.upper,
        closed=status.closed,
        tide=tide,
        recounted=sum(row["recounted"] for row in validated.times) if validated else None,
        recounted_times=len(validated.times) if validated else 0,
        status=status.as_json(),
        problems=problems,
        checks=[],
        quarantine=quarantine,
        shows_values=settings.show_values,
        contradictions=status.contradictions[:LISTED_MAX],
        late_evidence=status.late_evidence[:_EVIDENCE_MAX],
        decisions=decisions[:LISTED_MAX],
        decisions_total=len(decisions),
        sealed_by_decision=status.sealed_by_decision[-LISTED_MAX:],
        sealed_by_decision_total=len(status.sealed_by_decision),
        mismatches=list(validated.mismatches) if validated else [],
        contents_hash=validated.contents_hash if validated else None,
        version=validated.version if validated else None,
        late_problem=validated.late_problem if validated else None,
    )
    # Lists that are shown in full elsewhere would make the JSON of a broken collection large.
    facts.status["contradictions"] = facts.contradictions
    facts.status["sealed_by_decision"] = facts.sealed_by_decision
    facts.status["decided_counts"] = facts.status["decided_counts"][:LISTED_MAX]
    facts.status["topic_gaps"] = facts.status["topic_gaps"][:LISTED_MAX]
    facts.verdict, facts.ahead = _verdict(facts, status), _status_sentence(status)
    return facts


def unreadable_facts(settings: CollectionSettings, problem: str) -> Facts:
    """Return the facts about a collection whose state cannot be read: the problem, and nothing else."""
    name = settings.name
    return Facts(
        name=name,
        family=settings.family,
        framing=settings.framing,
        topics=list(settings.topics),
        at_ms=int(clock.time() * 1000),
        level="alarm",
        verdict=f"{_DO_NOT_USE}: {_first_line(problem)}.",
        ahead="",
        state="UNREADABLE",
        waits_for=None,
        since=None,
        upper=None,
        closed=False,
        tide=Tide(),
        recounted=None,
        recounted_times=0,
        status={},
        problems=[
            Problem("alarm", problem, (f"tidelake verify {name} --deep", f"tidelake repair {name} --apply")),
        ],
        checks=[],
        quarantine=[],
        shows_values=settings.show_values,
        contradictions=[],
        late_evidence=[],
        decisions=[],
        decisions_total=0,
        sealed_by_decision=[],
        sealed_by_decision_total=0,
        mismatches=[],
        contents_hash=None,
        version=None,
    )


_SHOWN_BY_STATE = frozenset(
    {
        "nothing_is_contradicted",
        "late_statements_are_copies",
        "no_key_is_in_error",
        "quarantine_is_explained",
        "frontier_moves",
    }
)
"""Checks whose failure `problems_of` already lists, with its command."""


def _worst(problems: Sequence[Problem]) -> Level:
    return min((problem.level for problem in problems), key=ORDER.__getitem__, default="calm")


def _failed(check: CheckResult) -> Problem:
    first = f": {check.evidence[0]}" if check.evidence else ""
    return Problem(check.level, f"The check {check.check} failed{first}. {check.sentence}")


def _verdict(facts: Facts, status: CollectionStatus) -> str:
    """Say whether the table can be used, up to which time, and which numbers prove it."""
    if status.damaged:
        return f"{_DO_NOT_USE}: it is damaged. {_first_line(status.damaged)}."
    if facts.since is None:
        return "This table can no longer be read: its history was given up for good."
    if not facts.closed and not facts.upper:
        return "Nothing is sealed yet, so there is nothing to read."
    if facts.closed:
        safe = "Safe to use at every time: the stream is closed"
    else:
        assert facts.upper is not None
        safe = f"Safe to use up to time {time_text(facts.upper - 1, facts.is_clock)}"
    return f"{safe}. {proof_sentence(facts.tide)}"


def proof_sentence(tide: Tide) -> str:
    """Return the proof in one sentence, with numbers.

    >>> proof_sentence(Tide(times=1000, announced=200_000, counted=200_000))
    '200,000 updates announced, 200,000 counted at 1,000 times.'
    """
    times = counted(tide.times, "time")
    if tide.records is not None:
        return f"{counted(tide.records, 'record')} read, {counted(tide.counted, 'row')} stored at {times}."
    return f"{counted(tide.announced, 'update')} announced, {tide.counted:,} counted at {times}."


def _status_sentence(status: CollectionStatus) -> str:
    """Return the sentence of `tidelake status` on what upper is waiting for; empty if the verdict already says it."""
    sentence = status.sentence
    return "" if status.damaged else f"{sentence[:1].upper()}{sentence[1:].rstrip('.')}."


def _decision_row(decision: Decision) -> DecisionRow:
    kind, about = described(decision)
    return DecisionRow(kind, about, decision.reason, decision.at_ms)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].rstrip(".")


def summary_of(facts: Facts) -> dict[str, Any]:
    """Return a collection's summary for the page of the lake."""
    status: Mapping[str, Any] = facts.status
    return {
        "name": facts.name,
        "family": facts.family,
        "level": facts.level,
        "verdict": facts.verdict,
        "ahead": facts.ahead,
        "problem": facts.problems[0].text if facts.problems else "",
        "problems": len(facts.problems),
        "since": facts.since,
        "upper": facts.upper,
        "closed": facts.closed,
        "is_clock": facts.is_clock,
        "lag_messages": status.get("lag_messages"),
        "lag_s": status.get("lag_s"),
        "pending": status.get("pending", 0),
        "outstanding": facts.tide.outstanding,
        "late": status.get("late", 0),
        "quarantine": status.get("quarantine", 0),
        "at_ms": facts.at_ms,
    }
