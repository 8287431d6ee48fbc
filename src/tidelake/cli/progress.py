"""A progress bar on standard error, if that is a terminal; otherwise nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


class Working:
    """Shows what a command is doing."""

    def __init__(self, bar: Progress | None, total: int | None) -> None:
        """Show progress on this bar; without one, show nothing."""
        self._bar = bar
        self._task = None if bar is None else bar.add_task("", total=total)

    def show(self, text: str, done: int | None = None) -> None:
        """Show what is being done, and how many parts of the work are done."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=text, completed=done)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Remove the bar from the terminal while the block prints."""
        if self._bar is None:
            yield
            return
        self._bar.stop()
        try:
            yield
        finally:
            self._bar.start()


def shows_progress() -> bool:
    """Return whether standard error is a terminal that can redraw a line."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def working(text: str, total: int | None = None) -> Iterator[Working]:
    """Show a message, the elapsed time, and, if the number of parts is known, a bar.

    The block may print to standard output only inside `Working.paused`.
    """
    if not shows_progress():
        yield Working(None, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    measured = () if total is None else (BarColumn(bar_width=20), MofNCompleteColumn())
    # Duplicate standard error: while the JVM starts, file descriptor 2 is redirected to the log.
    with os.fdopen(os.dup(2), "w", encoding="utf-8") as terminal:
        columns = (SpinnerColumn(), *measured, TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
        bar = Progress(*columns, console=Console(file=terminal), transient=True, redirect_stdout=False)
        with bar:
            work = Working(bar, total)
            work.show(text)
            yield work
