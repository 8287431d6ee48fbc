"""Conditions joined by *and* and *or*."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F


def all_of(conditions: Iterable[Column]) -> Column:
    """Return whether all conditions hold; true if there are none."""
    parts = list(conditions)
    return reduce(lambda left, right: left & right, parts) if parts else F.lit(True)


def any_of(conditions: Iterable[Column]) -> Column:
    """Return whether any condition holds; false if there are none."""
    parts = list(conditions)
    return reduce(lambda left, right: left | right, parts) if parts else F.lit(False)
