"""Sends job events to the run's log, as they happen."""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog

_KEYWORDS = ("exc_info", "stack_info")


@contextmanager
def events_sent_to(log: logging.Logger) -> Iterator[None]:
    """Send all events logged inside the block to one logger, each at its own level, from INFO upwards.

    Afterwards, restore structlog's configuration.
    """
    configured, before = structlog.is_configured(), structlog.get_config()
    structlog.configure(
        processors=[_as_text],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *_: log,
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        if configured:
            structlog.configure(**before)
        else:
            structlog.reset_defaults()


def _as_text(logger: Any, method: str, event: MutableMapping[str, Any]) -> tuple[tuple[str], dict[str, Any]]:
    """Write an event as text. The collection is left out: it is in the name of the step.

    >>> _as_text(None, "info", {"event": "sealed", "collection": "orders", "lower": 0, "upper": 6})
    (('sealed: lower=0, upper=6',), {})
    """
    values = {name: value for name, value in event.items() if name not in (*_KEYWORDS, "event", "collection")}
    shown = ", ".join(f"{name}={_shown(value)}" for name, value in values.items())
    text = f"{event['event']}: {shown}" if shown else str(event["event"])
    return (text,), {name: event[name] for name in _KEYWORDS if name in event}


def _shown(value: Any) -> str:
    return f"{value:,}" if type(value) is int else str(value)
