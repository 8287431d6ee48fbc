"""Describes in one sentence what a step of a job did to a collection."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tidelake.cli.times import shown_time
from tidelake.read.words import counted


def sentence_of(step: str, result: Any, mints_times: bool) -> str:
    """Return the sentence.

    Args:
        step: the step's name in `jobs.tick`.
        result: what the step returned.
        mints_times: whether times are milliseconds, which are also shown as ISO times.
    """
    show = partial(shown_time, mints_times=mints_times)
    verb = step.removesuffix("_full")
    return f"{verb}: {_SENTENCES[verb](result, show)}"


def _ingest(result: Any, show: Callable[[int], str]) -> str:
    if not result.messages:
        return "no new messages" + ("; upper was moved" if result.idle_ticks else "")
    parts = [f"{counted(result.updates_stored, 'row')} stored"]
    if result.copies_dropped:
        parts.append(f"{counted(result.copies_dropped, 'copy')} dropped")
    if result.updates_late:
        parts.append(f"{counted(result.updates_late, 'row')} late")
    if result.quarantined:
        reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(result.reasons.items()))
        parts.append(f"{counted(result.quarantined, 'message')} quarantined ({reasons})")
    if result.values_in_error:
        parts.append(f"{counted(result.values_in_error, 'value')} in error")
    ticks = "" if result.ticks == 1 else f" in {result.ticks} ticks"
    return f"{counted(result.messages, 'message')}{ticks}: {', '.join(parts)}"


def _seal(result: Any, show: Callable[[int], str]) -> str:
    if result.sealed_by_ingest and result.left is not None:
        return f"{result.left.sentence} at time {show(result.left.time)}"
    if result.sealed_by_ingest:
        return "nothing to do: each tick of ingest seals its own time"
    new = counted(result.times_sealed, "new time is", "new times are")
    sealed = f"{new} sealed, " if result.times_sealed else "nothing new, "
    upper = "closed" if result.closed else show(result.upper)
    text = f"{sealed}upper is {upper}"
    if result.copies_cancelled:
        text += f", {counted(result.copies_cancelled, 'copy')} cancelled"
    if result.left is not None:
        text += f"; {result.left.sentence}"
    waiting = [place for place in result.waiting_for if place[1] is not None or place[2]]
    if waiting:
        time, announced, here = waiting[0]
        stated = "nothing announced" if announced is None else f"{announced:,} announced"
        text += f"; waiting at time {show(time)}: {stated}, {here:,} stored"
    return text


def _validate(result: Any, show: Callable[[int], str]) -> str:
    if result.damaged:
        return f"DAMAGED {'files' if result.has_damaged_files else 'below upper'}: {result.mismatches[0]}"
    text = (
        f"{counted(len(result.times), 'sealed time')} recounted and found as sealed" if result.times else "nothing new"
    )
    if result.files_verified:
        text += f", {counted(result.files_verified, 'file')} verified"
    if result.late.contradictions:
        verb = "contradicts" if result.late.contradictions == 1 else "contradict"
        text += f"; {counted(result.late.contradictions, 'late statement')} {verb} what was published"
    return text


def _compact(result: Any, show: Callable[[int], str]) -> str:
    since = f"since is {show(result.since[0])}" if result.since else "unreadable: since is empty"
    if result.held is not None:
        since = result.held
    if not result.merges:
        return f"nothing to merge; {since}"
    return f"{counted(result.runs_before, 'run')} became {result.runs_after:,}; {since}"


def _current(result: Any, show: Callable[[int], str]) -> str:
    if result.as_of is None:
        return "nothing is sealed yet, so there is no table"
    text = f"{counted(result.rows, 'row')} as of {show(result.as_of)}"
    if result.how == "followed":
        text += f", {result.rows_changed:,} changed, {counted(result.files_rewritten, 'file')} rewritten"
    elif result.how == "rebuilt":
        text += f", rebuilt: {result.reason}"
    else:
        text += ", unchanged"
        if result.unchanged_through is not None:
            text += f" through {show(result.unchanged_through)}"
    others = len(result.together) - 1
    # The other collections may not have been published yet, and their publications may fail.
    return f"{text}; the same time was chosen for {counted(others, 'other collection')}" if others > 0 else text


_SENTENCES: dict[str, Callable[[Any, Callable[[int], str]], str]] = {
    "ingest": _ingest,
    "seal": _seal,
    "validate": _validate,
    "compact": _compact,
    "current": _current,
}
