"""Divides the rows of a base, in Spark: those that match one of the few rows outside the base, and all others.

A read takes the others unchanged. `store.base` says which files are the base; see docs/decisions/base.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidelake.spark.conditions import all_of
from tidelake.spark.equality import same_in


def rows_without(base: DataFrame, other: DataFrame, names: Sequence[str], nullable: Collection[str]) -> DataFrame:
    """Return the base rows that match no row of `other` in these columns; `other` is broadcast.

    Args:
        base: the rows of the base.
        other: a few rows.
        names: the columns.
        nullable: the columns among them that may be null; the others are compared faster.
    """
    return _joined(base, other, names, nullable, "left_anti")


def rows_with(base: DataFrame, other: DataFrame, names: Sequence[str], nullable: Collection[str]) -> DataFrame:
    """Return the base rows that match some row of `other` in these columns; see `rows_without`."""
    return _joined(base, other, names, nullable, "left_semi")


def _joined(base: DataFrame, other: DataFrame, names: Sequence[str], nullable: Collection[str], how: str) -> DataFrame:
    few = F.broadcast(other.select(*(f"`{name}`" for name in names)))
    required = [name for name in names if name not in nullable]
    same = [F.col(f"_base.`{name}`") == F.col(f"_beside.`{name}`") for name in required]
    same += [same_in("_base", "_beside", [name]) for name in names if name in nullable]
    return base.alias("_base").join(few.alias("_beside"), all_of(same), how)
