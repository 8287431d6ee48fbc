"""The open problems of a collection, each with the command that solves it or shows more."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tidelake.read.verdict import FINE, PROBLEM, WARNING
from tidelake.read.words import counted, fact_of
from tidelake.seal.ambiguity import ambiguity_of

if TYPE_CHECKING:
    from tidelake.read.status import CollectionStatus
    from tidelake.read.waiting import WaitingTime

Level = Literal["alarm", "warning", "calm"]
"""`alarm`: needs attention now; `warning`: needs attention soon; `calm`: nothing is wrong."""
LEVELS: dict[str, Level] = {PROBLEM: "alarm", WARNING: "warning", FINE: "calm"}
"""The level of each severity of a status."""
ORDER: dict[str, int] = {"alarm": 0, "warning": 1, "calm": 2}

_LISTED_MAX = 20
_REASON = '--reason "…"'


@dataclass(frozen=True)
class Problem:
    """Something that a person has to decide, restore or look at."""

    level: Level
    text: str
    commands: tuple[str, ...] = ()
    """Commands to run, the best first. A part in capitals or `…` has to be filled in."""


def problems_of(status: CollectionStatus, quarantined: str | None) -> list[Problem]:
    """List the open problems of a collection, the worst first.

    Args:
        status: the state of the collection.
        quarantined: the place `TOPIC:PARTITION:OFFSET` of an unexplained message, if there is one.
    """
    name = shlex.quote(status.name)
    found: list[Problem] = []
    if status.damaged:
        text = (
            f"Files are missing or damaged: {status.damaged}. Until they are restored, nothing is ingested or sealed."
            if status.has_damaged_files
            else f"The contents differ from what was proven: {status.damaged}. Do not build on this table."
        )
        found.append(
            Problem(
                "alarm",
                text,
                (f"tidelake verify {name} --deep", f"tidelake repair {name} --apply"),
            )
        )
    if status.topic_problem:
        found.append(Problem("alarm", f"{_sentence(_fact(status.topic_problem))}."))
    for gap in status.topic_gaps[:_LISTED_MAX]:
        found.append(Problem("alarm", f"{_sentence(_fact(gap))}.", tuple(_commands_in(gap, name))))
    found += _more(len(status.topic_gaps), "gap")
    found += _contradictions(status, name)
    if status.late_undecided:
        verb = "contradicts" if status.late_undecided == 1 else "contradict"
        found.append(
            Problem(
                "alarm",
                f"{counted(status.late_undecided, 'late statement')} {verb} what was published. The "
                "published contents do not change.",
                (
                    f"tidelake late {name}",
                    f'tidelake resolve discard {name} --time T --statement \'{{"data": {{…}}, "diff": 1}}\' {_REASON}',
                    f"tidelake resolve count {name} --time T --count N {_REASON}",
                ),
            )
        )
    if status.late_problem:
        found.append(Problem("alarm", f"{_sentence(status.late_problem)}.", (f"tidelake verify {name} --deep",)))
    if status.keys_in_error:
        found.append(
            Problem(
                "alarm",
                f"{counted(status.keys_in_error, 'key')} cannot be read: the newest record cannot be used. A "
                "good value or a delete from the source clears the error.",
                (f"tidelake read {name} --skip-errors",),
            )
        )
    if status.times_ahead_s:
        found.append(Problem("alarm", f"The collection's times are {status.times_ahead_s:,} s ahead of the clock."))
    unexplained = sum(status.quarantine_unexplained.values())
    if unexplained:
        place = shlex.quote(quarantined) if quarantined else "TOPIC:PARTITION:OFFSET"
        found.append(
            Problem(
                "warning",
                f"{counted(unexplained, 'message')} could not be used, and no decision explains this.",
                (
                    f"tidelake quarantine {name}",
                    f"tidelake resolve quarantine {name} --offsets {place} {_REASON}",
                ),
            )
        )
    if status.published_problem is not None:
        text = (
            f"The table for other engines was changed: {status.published_problem}."
            if status.published_is_changed
            else f"The table for other engines cannot be used: {status.published_problem}. Make its folder "
            "readable; if it is, move it away and publish the contents again."
        )
        found.append(Problem("warning", text, (f"tidelake path {name}", f"tidelake current {name}")))
    missing = status.waiting.first_missing if status.waiting is not None else None
    if missing is not None:
        found.append(_waiting(status, name, missing))
    level = LEVELS[status.verdict.severity]
    if all(ORDER[problem.level] > ORDER[level] for problem in found):
        # The status has another problem, such as an upper that does not move.
        found.append(Problem(level, f"{_sentence(status.sentence)}.", (f"tidelake explain {name}",)))
    return sorted((problem for problem in found if problem.level != "calm"), key=lambda found: ORDER[found.level])


def _waiting(status: CollectionStatus, name: str, missing: WaitingTime) -> Problem:
    """Report the first time whose updates are missing.

    If the topic was read to its end, the source must send the rest, or an operator must decide on the count.
    """
    is_read = status.lag_messages == 0
    where = ", and the topic has been read to its end" if is_read else ""
    time = f"--time {missing.time}"
    return Problem(
        "alarm" if is_read or status.upper_age_s >= status.stalled_after_s else "warning",
        f"Updates are missing at {missing}{where}. Have the source send the rest, or decide on the count.",
        (f"tidelake explain {name} {time}", f"tidelake resolve count {name} {time} --count N {_REASON}"),
    )


def _contradictions(status: CollectionStatus, name: str) -> list[Problem]:
    found = []
    for noted in status.contradictions[:_LISTED_MAX]:
        time = noted["time"]
        count = f"tidelake resolve count {name} --time {time} --count N {_REASON}"
        explain = f"tidelake explain {name} --time {time}"
        if not noted["decided"]:
            statement = '\'{"data": {…}, "diff": 1}\''
            discard = f"tidelake resolve discard {name} --time {time} --statement {statement} {_REASON}"
            details = [other["detail"] for other in status.contradictions if other["time"] == time]
            commands = (explain, count, discard) if ambiguity_of(details) is None else (explain, discard)
            found.append(Problem("alarm", f"Time {time} is held back: {fact_of(noted['detail'])}.", commands))
        elif time in status.decided_counts:
            if status.waiting is None or not status.waiting.is_sealed:
                text = f"Time {time} is decided; the next seal applies the decision."
                found.append(Problem("warning", text, (f"tidelake seal {name}",)))
            else:
                text = f"Time {time} is decided, but updates are missing, at this time or at an earlier one."
                found.append(Problem("warning", text, (f"tidelake explain {name} --time {time}",)))
        else:
            text = (
                f"At time {time}, a statement is discarded by decision. If the number of remaining "
                "updates differs from the announced count, decide on the count."
            )
            found.append(Problem("warning", text, (f"tidelake seal {name}", count)))
    return found + _more(len(status.contradictions), "contradiction")


def _more(count: int, noun: str) -> list[Problem]:
    more = count - _LISTED_MAX
    text = counted(more, f"further {noun} is", f"further {noun}s are")
    return [Problem("alarm", f"{text} not listed.")] if more > 0 else []


def _fact(error: str) -> str:
    """Return the fact of an error's text, without its hint."""
    return error.partition("\nhint: ")[0].rstrip(".")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _commands_in(error: str, name: str) -> list[str]:
    """Return the commands that an error's hint names, for this collection."""
    parts = error.partition("\nhint: ")[2].split("`")[1::2]
    return [part.replace(" NAME ", f" {name} ", 1) for part in parts if part.startswith("tidelake ")]
