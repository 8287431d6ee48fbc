"""Work that stops at a failpoint, as if its process had been killed there, but within this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidelake.store.failpoints import on_reach


class Killed(BaseException):
    """Stands for the end of a process."""


def stop_at(place: str, work: Callable[[], object], visits: int = 1) -> None:
    """Stop work when it reaches a failpoint for the `visits`-th time; fail if it never does."""
    left = visits

    def kill(name: str) -> None:
        nonlocal left
        left -= name == place
        if name == place and left == 0:
            raise Killed

    on_reach(kill)
    try:
        with pytest.raises(Killed):
            work()
    finally:
        on_reach(None)
