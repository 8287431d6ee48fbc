"""Whether errors are shown with tracebacks."""

from __future__ import annotations


class _State:
    is_debugging = False


def debug(on: bool) -> None:
    """Choose whether errors are shown with tracebacks, for the rest of the process."""
    _State.is_debugging = on


def is_debugging() -> bool:
    """Return whether errors are shown with tracebacks."""
    return _State.is_debugging
