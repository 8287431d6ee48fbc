"""What happens to tables and is worth a line of the log; nothing here is loaded until there is something to say."""

from __future__ import annotations

from typing import Any


def inform(event: str, **values: Any) -> None:
    """Log that something was done."""
    _log().info(event, **values)


def warn(event: str, **values: Any) -> None:
    """Log that something is not as it should be, and was mended."""
    _log().warning(event, **values)


def _log() -> Any:
    import structlog  # late: it brings half of rich with it, and `status` hardly ever has something to say

    return structlog.get_logger("tidelake")
