"""The statements that an envelope refuses, regardless of all other statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F


@dataclass(frozen=True)
class Refusal:
    """A kind of statement that is quarantined with its message; the time waits until an operator decides."""

    reason: str
    detail: str
    holds: Callable[[Column], Column]
    """Whether a struct of data, time and diff is of this kind; the result is never null."""


def is_negative(statement: Column) -> Column:
    """Return whether a statement removes something."""
    return statement["diff"] < 0


def reason_against(refusals: Sequence[Refusal], statement: Column) -> Column:
    """Return the reason of the first refusal that applies to a statement; null if none applies."""
    if not refusals:
        return F.lit(None).cast("string")
    return F.coalesce(*(F.when(refusal.holds(statement), F.lit(refusal.reason)) for refusal in refusals))
