"""The saved form of times and contradictions, shared by both implementations of the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidelake.errors import ConflictingCount, Contradiction
from tidelake.protocol.order import Time


def time_from_json(value: Any) -> Time:
    """Read a time: an integer or a list of integers."""
    return tuple(value) if isinstance(value, (list, tuple)) else value


def time_to_json(time: Time) -> Any:
    """Write a time: an integer or a list of integers."""
    return list(time) if isinstance(time, tuple) else time


def contradictions_to_json(errors: Iterable[Contradiction]) -> list[list[Any]]:
    """Write contradictions as `[kind, time, further values...]`."""
    return [[error.kind, time_to_json(error.time), *error.args[1:]] for error in errors]


def contradiction_from_json(value: list[Any]) -> Contradiction:
    """Read one contradiction of any kind."""
    classes = {error.kind: error for error in Contradiction.__subclasses__()}
    return classes[value[0]](time_from_json(value[1]), *value[2:])


def conflicting_count(time: Time, values: Iterable[int]) -> ConflictingCount:
    """Return the conflict between announced counts. It names the two smallest, so their order does not matter."""
    first, second, *_ = sorted(values)
    return ConflictingCount(time, first, second)
