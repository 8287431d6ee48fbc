"""Many conditions as one."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F


def all_of(conditions: Iterable[Column]) -> Column:
    """Whether every one of the conditions holds; true where there are none."""
    found = list(conditions)
    return reduce(lambda one, other: one & other, found) if found else F.lit(True)


def any_of(conditions: Iterable[Column]) -> Column:
    """Whether one of the conditions holds; false where there are none."""
    found = list(conditions)
    return reduce(lambda one, other: one | other, found) if found else F.lit(False)
