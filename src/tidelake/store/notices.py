"""Logs events about tables. The logging library is loaded on first use."""

from __future__ import annotations

from typing import Any


def inform(event: str, **values: Any) -> None:
    """Log that something was done."""
    _log().info(event, **values)


def warn(event: str, **values: Any) -> None:
    """Log that something was damaged and has been repaired."""
    _log().warning(event, **values)


def _log() -> Any:
    import structlog  # imported late: it loads half of rich, and `status` hardly ever logs

    return structlog.get_logger("tidelake")
