"""Retries after a conflict: either of the commit alone, or of all the work that led to it.

A `Conflict` only says that another process committed first; the caller decides what that means. If the caller's commit
would still be valid after the other commit, it is retried. Otherwise the caller raises `LostRace`, and the work is
repeated.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from tidelake.errors import Conflict, RunSwept
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable
from tidelake.store.followed import refresh

ATTEMPTS_MAX = 64
_PAUSE_S_MAX = 1.0
_TURN_S_MAX = 2.0
"""Maximum wait for a turn: the process that has the turn may be suspended. Turns are not needed for safety."""
_turns: ContextVar[frozenset[Location]] = ContextVar("turns", default=frozenset())
"""The tables for which this thread has the turn."""

T = TypeVar("T")


class LostRace(Exception):
    """Another commit made this attempt's work useless: repeat the work from fresh state."""


def retry_commit(
    table: Location | OpenTable,
    commit: Callable[[OpenTable], T],
    failure: str,
    *,
    after_conflict: Callable[[OpenTable], None] = lambda _: None,
    attempts_max: int = ATTEMPTS_MAX,
) -> T:
    """Call `commit` with fresh state until it raises no `Conflict`, and return what it returns.

    Without further measures, the caller that takes longest from reading to committing would lose every time. So on a
    disk, callers take turns once they have lost, and all others wait until the turn ends. Elsewhere, callers pause
    after each loss; see `pause_after_conflicts`.

    Args:
        table: the table's folder, or an open table to use for the first attempt.
        commit: makes one attempt from an open table, or finds that no commit is needed.
        failure: the text of the error if every attempt fails.
        after_conflict: called with the fresh state before each further attempt, and before the first attempt if it has
            to wait for another caller's turn. It raises `LostRace` if the commit is no longer valid.
        attempts_max: maximum number of attempts.

    Raises:
        Conflict: every attempt failed; the error's text is `failure`.
        LostRace: a sweep may have deleted the runs to commit, or `commit` or `after_conflict` raised it. Only a
            `Conflict` that `commit` raises is caught.

    Cost: the log is opened once for each attempt.
    """
    opened = table if isinstance(table, OpenTable) else OpenTable(table)
    is_nested = opened.path in _turns.get()
    lost: Conflict | None = None
    first, begun = 0, time.monotonic()
    if is_nested or not blobs.is_turn_taken(opened.path):
        try:
            return _attempt(commit, opened)
        except Conflict as conflict:
            lost, first = conflict, 1
    took_s = time.monotonic() - begun
    is_mine: Callable[[], bool] = lambda: is_nested  # noqa: E731
    with ExitStack() as turns:
        for attempt in range(first, attempts_max):
            if not is_mine():
                turns.close()
                is_mine = turns.enter_context(_turn(opened.path, 2 * took_s))
            if not is_mine():
                pause_after_conflicts(attempt, took_s)
            begun = time.monotonic()
            opened = OpenTable(opened.path)
            after_conflict(opened)
            try:
                return _attempt(commit, opened)
            except Conflict as conflict:
                lost, took_s = conflict, time.monotonic() - begun
    raise Conflict(str(opened.path), opened.version + 1, failure) from lost


def pause_after_conflicts(conflicts: int, took_s: float) -> None:
    """Pause for a random time of at most 1 s. On average, it doubles with each conflict, so callers spread out.

    Args:
        conflicts: how many attempts in a row have failed.
        took_s: how long the last of these attempts took, in seconds.

    Source: "full jitter" in M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """
    longest_s = min(took_s * 2 ** min(conflicts, 16), _PAUSE_S_MAX)
    time.sleep(random.uniform(0, longest_s))


@contextmanager
def _turn(path: Location, needs_s: float) -> Iterator[Callable[[], bool]]:
    """Wait for a turn, and yield a function that says whether it is this thread's turn.

    If the wait succeeds, further commits within the block, by this thread to the same table, need no turn.
    """
    with blobs.turn(path, _TURN_S_MAX, needs_s) as is_mine:
        token = _turns.set(_turns.get() | {path} if is_mine() else _turns.get())
        try:
            yield is_mine
        finally:
            _turns.reset(token)


def _attempt(commit: Callable[[OpenTable], T], opened: OpenTable) -> T:
    try:
        return commit(opened)
    except RunSwept as swept:
        raise LostRace from swept


def retry_work(
    work: Callable[[], T],
    table: Location,
    failure: str,
    *,
    named: Location | None = None,
    attempts_max: int = ATTEMPTS_MAX,
) -> T:
    """Call `work` until it raises no `LostRace`, and return what it returns.

    Args:
        work: reads fresh state on each call and ends with a commit.
        table: the folder of the table that `work` reads, whose log is read again after each lost race.
        failure: the text of the error if every attempt fails.
        named: the table that the error names, if `work` reads `table` but commits to another table.
        attempts_max: maximum number of attempts.

    Raises:
        Conflict: every attempt failed; the error's text is `failure`.
    """
    for _ in range(attempts_max):
        try:
            return work()
        except LostRace:
            refresh(table)
    raise Conflict(str(named or table), None, failure)
