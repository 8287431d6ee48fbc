"""The format of log lines and where they go: text or JSON, to standard error and, if requested, also to a file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import structlog

from tidelake.errors import ConfigurationError

FORMAT = "TIDELAKE_LOG_FORMAT"
FILE = "TIDELAKE_LOG_FILE"
_FORMATS = ("text", "json")


class LogStream:
    """Standard error, and a file that gets the same lines."""

    def __init__(self, file: TextIO | None = None) -> None:
        """Write to this file as well, if there is one; it usually stays open until the process ends."""
        self._file = file

    def write(self, text: str) -> int:
        """Write to both."""
        if self._file is not None:
            self._file.write(text)
        return sys.stderr.write(text)

    def close(self) -> None:
        """Close the file; later lines go to standard error only."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def flush(self) -> None:
        """Flush both."""
        if self._file is not None:
            self._file.flush()
        sys.stderr.flush()


def log_stream(variables: Mapping[str, str]) -> LogStream:
    """Open the stream to which log lines are written.

    Raises:
        ConfigurationError: the file cannot be opened.
    """
    name = variables.get(FILE)
    if not name:
        return LogStream()
    try:
        return LogStream(Path(name).open("a", encoding="utf-8", errors="backslashreplace"))
    except OSError as error:
        raise ConfigurationError(
            "environment", "", f"{FILE} names {name}, which cannot be opened: {error.strerror}", "give another file"
        ) from error


def log_processors(variables: Mapping[str, str]) -> list[Any]:
    """Return the processors that turn an event into a line.

    JSON lines have `timestamp`, `level`, `event` and the values of the event. A traceback never shows the values of
    variables, as these may contain data or secrets.

    Raises:
        ConfigurationError: the format is unknown.
    """
    chosen = variables.get(FORMAT) or "text"
    if chosen not in _FORMATS:
        raise ConfigurationError(
            "environment", "", f"{FORMAT} is {chosen!r}, which is neither 'text' nor 'json'", "write `text` or `json`"
        )
    time = structlog.processors.TimeStamper(fmt="iso", utc=True)
    if chosen == "json":
        traceback = structlog.processors.format_exc_info
        return [time, traceback, structlog.processors.JSONRenderer(ensure_ascii=False, default=str)]
    colors = sys.stderr.isatty() and not variables.get("NO_COLOR") and not variables.get(FILE)
    plain = structlog.dev.plain_traceback
    return [time, structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]


def configure_logs(variables: Mapping[str, str]) -> LogStream:
    """Direct the log of this process to where the environment says, and return the stream.

    Standard output is never written to: it is for a command's result.

    Raises:
        ConfigurationError: the format is unknown, or the file cannot be opened.
    """
    processors, stream = log_processors(variables), log_stream(variables)
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.add_log_level, *processors],
        logger_factory=structlog.PrintLoggerFactory(stream),  # type: ignore[arg-type]
    )
    return stream
