"""Logs events about tables and blobs. The logging library is loaded on first use."""

from __future__ import annotations

import math
import sys
import time
from contextlib import suppress
from typing import Any

_WAITING_EVERY_S = 10.0
"""The minimum time between two warnings about waiting for the same store, however many requests fail."""
_warned_at_s: dict[tuple[str, str], float] = {}
"""When this process last warned about a store, by the store and the event."""


def inform(event: str, **values: Any) -> None:
    """Log that something was done."""
    with suppress(OSError):
        _log().info(event, **values)


def warn(event: str, **values: Any) -> None:
    """Log something that a person should know: damage that was repaired or set aside, or a new format.

    If the log is a file on a full disk, nothing is logged: a message never changes the outcome of what it reports.
    """
    with suppress(OSError):
        _log().warning(event, **values)


def warn_of_waiting(store: str, event: str, **values: Any) -> None:
    """Log that an attempt failed and is repeated, unless the same warning about this store was logged just before."""
    now_s = time.monotonic()
    if now_s - _warned_at_s.get((store, event), -math.inf) >= _WAITING_EVERY_S:
        _warned_at_s[store, event] = now_s
        warn(event, **values)


def _log() -> Any:
    import structlog  # imported late: it loads half of rich, and `status` hardly ever logs

    if not structlog.is_configured():  # standard output is for what a command prints
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    return structlog.get_logger("tidelake")
