"""Which statements an envelope refuses by themselves, whatever else is stated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidelake.debezium import AFTER, BEFORE


@dataclass(frozen=True)
class Refusal:
    """A kind of statement that goes to the quarantine, with its message; the time waits until somebody decides."""

    reason: str
    detail: str
    holds: Callable[[Column], Column]
    """Whether it is of this kind, from a struct of data, time and diff; never null."""


def _is_negative(statement: Column) -> Column:
    return statement["diff"] < 0


def _is_without_rows(statement: Column) -> Column:
    return statement["data"][BEFORE].isNull() & statement["data"][AFTER].isNull()


_REFUSALS = {
    "append_only": (Refusal("append_only_diff", "an append-only collection takes no negative diff", _is_negative),),
    "debezium": (
        Refusal("event_diff", "a change event happened, so its diff is positive", _is_negative),
        Refusal(
            "event_without_rows",
            "an event with neither before nor after, such as a truncate, does not say what changes",
            _is_without_rows,
        ),
    ),
}

DETAIL_OF_REASON = {one.reason: one.detail for refusals in _REFUSALS.values() for one in refusals}
"""For a person, by the reason that stands in the quarantine."""


def refusals_of(envelope: str) -> tuple[Refusal, ...]:
    """What an envelope refuses, the first that holds being the reason."""
    return _REFUSALS.get(envelope, ())


def reason_against(envelope: str, statement: Column) -> Column:
    """Why a statement is refused; null where it is not."""
    refusals = refusals_of(envelope)
    if not refusals:
        return F.lit(None).cast("string")
    return F.coalesce(*(F.when(one.holds(statement), F.lit(one.reason)) for one in refusals))
