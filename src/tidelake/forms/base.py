"""The base of a table: the rows left after merging everything up to some time; reading them needs no exchange.

No two of its rows have the same key (or the same data, if diffs are summed), and it holds no deletes. A read adds up
the few rows that came later, and sets aside the base rows that they affect. See docs/decisions/base.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidelake.spark.conditions import all_of
from tidelake.spark.equality import same_in
from tidelake.store.files import RunFile

BASE = "_base"
"""A merge splits its rows by this boolean; the files of the base are in the folder for `true`."""
_FOLDER = f"/{BASE}=true/"
LATER_ROWS_MAX = 1_000_000
"""Maximum number of rows outside the base: every task holds them, or in keyed forms their keys, in memory."""
_LATER_BYTES_MAX = 64 << 20
"""Maximum size of these rows on disk, which is at most a tenth of their size in memory."""


def split_base(files: Sequence[RunFile]) -> tuple[list[RunFile], list[RunFile]]:
    """Split files into those of the base and all others.

    The base is empty unless all other files are later than its files, and small enough for every task to hold.
    """
    base = [file for file in files if _FOLDER in f"/{file.path}"]
    later = [file for file in files if _FOLDER not in f"/{file.path}"]
    is_one_run = len({file.run for file in base}) == 1
    are_few = (
        sum(file.rows for file in later) <= LATER_ROWS_MAX and sum(file.bytes for file in later) <= _LATER_BYTES_MAX
    )
    last = max((file.reach[1] for file in base), default=-1)
    if is_one_run and are_few and all(last < file.reach[0] for file in later):
        return base, later
    return [], list(files)


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
