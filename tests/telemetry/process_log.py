"""Sends the log of a test's process where environment variables say, as the jobs do."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from tidelake.telemetry.logs import LogStream, log_processors, log_stream


def configure_logs(variables: Mapping[str, str]) -> LogStream:
    """Send the log of this process where the environment says, and return what it is written to."""
    processors, stream = log_processors(variables), log_stream(variables)
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.add_log_level, *processors],
        logger_factory=structlog.PrintLoggerFactory(stream),  # type: ignore[arg-type]
    )
    return stream
