"""Where the log of jobs goes: to standard error, or to a listener. Tracebacks go to a file."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import structlog

from tidelake.spark.installation import home
from tidelake.telemetry.logs import log_processors, log_stream

TRACEBACKS = home() / ".logs" / "errors.log"
"""The tracebacks of errors that Tidelake does not know, without values of variables."""
_BYTES_MAX = 10_000_000
"""If the file is longer, it is truncated before the next traceback."""

Event = MutableMapping[str, Any]
"""An event of the log: `event`, `level`, and its other values."""


def log_to_stderr(debug: bool = False) -> None:
    """Send the log to standard error, in the format that the environment names; standard output is for the report.

    Args:
        debug: whether to print tracebacks as well.

    Raises:
        ConfigurationError: the format is unknown, or the log file cannot be opened.
    """
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            *([] if debug else [_move_traceback]),
            *log_processors(os.environ),
        ],
        logger_factory=structlog.PrintLoggerFactory(log_stream(os.environ)),  # type: ignore[arg-type]
    )


@contextmanager
def log_to(listener: Callable[[Event], None], debug: bool = False) -> Iterator[None]:
    """Send the log to a function inside the block.

    Args:
        listener: receives each event.
        debug: whether to print tracebacks on standard error.
    """

    def listen(_: Any, __: str, event: Event) -> Event:
        if debug and (error := _error_of(event)) is not None:
            traceback.print_exception(error)
        listener(event)
        raise structlog.DropEvent

    is_configured, before = structlog.is_configured(), structlog.get_config()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            *([] if debug else [_move_traceback]),
            listen,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        yield
    finally:
        if is_configured:
            structlog.configure(**before)
        else:  # `configure` would mark the defaults, which print to standard output, as chosen
            structlog.reset_defaults()


def write_traceback(error: BaseException) -> None:
    """Append the traceback of an error to `TRACEBACKS`; an unwritable file raises no error."""
    text = "".join(traceback.format_exception(error))
    try:
        TRACEBACKS.parent.mkdir(parents=True, exist_ok=True)
        too_long = TRACEBACKS.exists() and TRACEBACKS.stat().st_size > _BYTES_MAX
        with TRACEBACKS.open("w" if too_long else "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"--- {datetime.now(UTC).isoformat(timespec='seconds')}, process {os.getpid()}\n{text}\n")
    except OSError as problem:
        print(f"the traceback cannot be written to {TRACEBACKS}: {problem.strerror}", file=sys.stderr)


def _move_traceback(_: Any, __: str, event: Event) -> Event:
    """Move the traceback of an event from the log to the file."""
    if (error := _error_of(event)) is not None:
        write_traceback(error)
    return event


def _error_of(event: Event) -> BaseException | None:
    """Take the error out of an event, and return it; None if the event has none."""
    found = event.pop("exc_info", None)
    if isinstance(found, BaseException):
        return found
    return sys.exc_info()[1] if found else None
