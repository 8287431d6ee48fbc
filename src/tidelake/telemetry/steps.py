"""Reports a step on a collection to monitoring: how long it took, what it counted, and whether it failed.

`observed` marks the function of a step. Even without a listener, a step first opens its table, for the context of its
log lines.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from operator import attrgetter
from typing import Any, ParamSpec, Protocol, TypeVar

import structlog
from deltalake.exceptions import DeltaError

from tidelake.errors import TidelakeError
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.state import UPPER

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

log = structlog.get_logger("tidelake")

COUNTS: dict[str, dict[str, str]] = {
    "ingest": {
        "ticks": "ticks",
        "messages": "messages",
        "rows": "updates_stored",
        "copies": "copies_dropped",
        "late_rows": "updates_late",
        "quarantined_messages": "quarantined",
        "progress_statements": "progress_statements",
        "gaps": "gaps",
        "bytes": "bytes_stored",
    },
    "seal": {
        "times": "times_sealed",
        "copies": "copies_cancelled",
        "decided_times": "decided",
        "contradictions": "contradictions",
        "waiting_rows": "unsealed_rows",
        "files_opened": "files_opened",
    },
    "validate": {
        "times": "times",
        "mismatches": "mismatches",
        "late_contradictions": "late.contradictions",
        "files_opened": "files_verified",
        "bytes": "bytes_verified",
    },
    "compact": {"merges": "merges", "rows": "rows_after", "bytes": "bytes_written"},
    "current": {
        "rows": "rows",
        "published": "published",
        "rows_changed": "rows_changed",
        "files_rewritten": "files_rewritten",
    },
}
"""For each step, the names of its counts, each with the attribute of the report that holds the number or a list of
that length."""

TEXTS: dict[str, str] = {
    "ticks": "Ticks of ingest that read messages.",
    "messages": "Messages that were read.",
    "rows": "Rows that were written.",
    "copies": "Copies that were dropped or cancelled.",
    "late_rows": "Rows about times that were already sealed.",
    "quarantined_messages": "Messages that were quarantined.",
    "progress_statements": "Progress statements that were read.",
    "gaps": "Gaps in topics at which ingest stopped.",
    "bytes": "Bytes of data files that were written or verified.",
    "times": "Times that were sealed or recounted.",
    "decided_times": "Times that were sealed by decision.",
    "contradictions": "Contradictions that keep times unsealed.",
    "waiting_rows": "Rows at or after upper that the seal counted.",
    "files_opened": "Data files that were opened or verified.",
    "mismatches": "Differences between a recount and what was proven.",
    "late_contradictions": "Late statements that contradict what was published.",
    "merges": "Merges of runs.",
    "published": "1 if the table was changed or rebuilt, 0 if it was up to date.",
    "rows_changed": "Rows that were added to or removed from the contents, and applied to the published table.",
    "files_rewritten": "Files of the published table that were replaced.",
}
"""The meaning of each count."""


@dataclass(frozen=True)
class StepOutcome:
    """One step on one collection, after it ended."""

    step: str
    collection: str
    began_s: float
    """In Unix time."""
    seconds: float
    counts: Mapping[str, int] = field(default_factory=dict)
    """Numbers by name, as in `COUNTS`; empty if the step failed before it had a report."""
    error: str | None = None
    """The name of the error's class if the step failed. The error's text may contain data, so it is only in the log."""


class Listener(Protocol):
    """Receives the outcome of each step."""

    def record(self, outcome: StepOutcome) -> None:
        """Receive an outcome. An error is logged, and does not affect the step."""

    def close(self) -> None:
        """Send what was not sent yet, before the process ends."""


_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Notify a listener of every step of this process from now on."""
    _listeners.append(listener)


def has_listeners() -> bool:
    """Return whether there are listeners."""
    return bool(_listeners)


def stop_listening() -> None:
    """Close all listeners."""
    while _listeners:
        listener = _listeners.pop()
        try:
            listener.close()
        except Exception as error:
            log.warning("telemetry was not sent", listener=type(listener).__name__, reason=type(error).__name__)


def observed(
    step: str, report: str | None = None, *, refreshes: bool = False
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Notify listeners of each call of a function that runs a step, and add the step's context to its log lines.

    Args:
        step: the name of the step, a key of `COUNTS`.
        report: the parameter that receives the report; by default, the function returns it.
        refreshes: whether the newest state of `updates` is read first, so that the function need not ask for it again.

    The function has a parameter `collection`. Log lines of the call carry `collection`, `step` and `lower`, the
    collection's upper when the step began.
    """

    def mark(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        signature = inspect.signature(function)

        @wraps(function)
        def call(*positional: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
            arguments = signature.bind(*positional, **named).arguments
            collection: Collection = arguments["collection"]
            began_s, clock = time.time(), time.perf_counter()
            found: Any = arguments.get(report or "")
            error: str | None = None
            with structlog.contextvars.bound_contextvars(step=step, **_place_of(collection, not refreshes)):
                try:
                    result = function(*positional, **named)
                    found = result if report is None else found
                    return result
                except BaseException as raised:
                    error = type(raised).__name__
                    raise
                finally:
                    if _listeners:
                        seconds = time.perf_counter() - clock
                        counts = {} if found is None else _counts_of(step, found)
                        _notify(StepOutcome(step, collection.name, began_s, seconds, counts, error))

        return call

    return mark


def _place_of(collection: Collection, may_be_stale: bool) -> dict[str, Any]:
    """Return the context of a step's log lines: the collection's name and, if its table can be read, its upper."""
    try:
        upper = OpenTable(collection.paths.updates, may_be_stale=may_be_stale).value(UPPER)
    except (TidelakeError, DeltaError, OSError):  # the step meets the same error, and reports it
        return {"collection": collection.name}
    return {"collection": collection.name, "lower": upper or 0}


def _counts_of(step: str, report: object) -> dict[str, int]:
    """Return the numbers of a step's report, by name."""
    numbers = {}
    for name, attribute in COUNTS[step].items():
        value = attrgetter(attribute)(report)
        numbers[name] = len(value) if isinstance(value, list) else int(value)
    return numbers


def _notify(outcome: StepOutcome) -> None:
    """Notify every listener. Monitoring never stops a step."""
    for listener in _listeners:
        try:
            listener.record(outcome)
        except Exception as error:
            log.warning("telemetry was not recorded", listener=type(listener).__name__, reason=str(error))
