"""Retries after a conflict: either of the commit alone, or of all the work that led to it.

A `Conflict` only says that another process committed first; the caller decides what that means. If the caller's commit
would still be valid after the other commit, it is retried. Otherwise the caller raises `LostRace`, and the work is
repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tidelake.errors import Conflict, RunSwept
from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable
from tidelake.store.followed import refresh

ATTEMPTS_MAX = 64
_PAUSE_S_MAX = 0.1

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
    pause_s: float = 0.0,
) -> T:
    """Call `commit` with fresh state until it raises no `Conflict`, and return what it returns.

    Args:
        table: the table's folder, or an open table to use for the first attempt.
        commit: makes one attempt from an open table, or finds that no commit is needed.
        failure: the text of the error if every attempt loses.
        after_conflict: called with the fresh state after each conflict. It raises `LostRace` if the commit is no longer
            valid.
        attempts_max: maximum number of attempts.
        pause_s: how much longer to pause after each further conflict, up to 0.1 s.

    Raises:
        Conflict: every attempt lost; its text is `failure`.
        LostRace: a sweep may have deleted the runs to commit, or `commit` or `after_conflict` raised it. Only a
            `Conflict` that `commit` raises is caught.

    Cost: the log is opened once for each attempt.
    """
    opened = table if isinstance(table, OpenTable) else OpenTable(table)
    for attempt in range(attempts_max):
        try:
            return commit(opened)
        except RunSwept as swept:
            raise LostRace from swept
        except Conflict as conflict:
            lost = conflict
        time.sleep(min(pause_s * attempt, _PAUSE_S_MAX))
        opened = OpenTable(opened.path)
        after_conflict(opened)
    raise Conflict(str(opened.path), opened.version, failure) from lost


def retry_work(work: Callable[[], T], table: Location, failure: str, *, attempts_max: int = ATTEMPTS_MAX) -> T:
    """Call `work` until it raises no `LostRace`, and return what it returns.

    Args:
        work: reads fresh state on each call and ends with a commit.
        table: the folder of the table that `work` commits to.
        failure: the text of the error if every attempt loses.
        attempts_max: maximum number of attempts.

    Raises:
        Conflict: every attempt lost; its text is `failure`.
    """
    for _ in range(attempts_max):
        try:
            return work()
        except LostRace:
            refresh(table)
    raise Conflict(str(table), -1, failure)
