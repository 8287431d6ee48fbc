"""Logs events about tables and blobs. The logging library is loaded on first use."""

from __future__ import annotations

import sys
from typing import Any


def inform(event: str, **values: Any) -> None:
    """Log that something was done."""
    _log().info(event, **values)


def warn(event: str, **values: Any) -> None:
    """Log something that a person should know: damage that was repaired or set aside, or a new format."""
    _log().warning(event, **values)


def _log() -> Any:
    import structlog  # imported late: it loads half of rich, and `status` hardly ever logs

    if not structlog.is_configured():  # standard output is for what a command prints
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    return structlog.get_logger("tidelake")
