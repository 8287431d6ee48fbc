"""The base of a table: what a merge of everything up to a time leaves, which reads let pass without an exchange.

In it no two rows are of one key (or have the same data, where diffs add up), and nothing is deleted. So a read has to
add up the few rows that came since, and of the base leaves out what those are about. See docs/decisions/base.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidelake.delta.conditions import all_of
from tidelake.delta.files import RunFile
from tidelake.delta.proof import same_in

BASE = "_base"
"""A merge parts its rows by this boolean; the files of the base are the ones in the folder where it is true."""
_FOLDER = f"/{BASE}=true/"
_ROWS_BESIDE_MAX = 1_000_000
_BYTES_BESIDE_MAX = 64 << 20
"""Every task has these rows in memory, of keyed forms their keys; on disk they take a tenth of that or less."""


def part_base(files: Sequence[RunFile]) -> tuple[list[RunFile], list[RunFile]]:
    """The files of the base, and all others; no base where others are not later, or too many to go to every task."""
    base = [file for file in files if _FOLDER in f"/{file.path}"]
    beside = [file for file in files if _FOLDER not in f"/{file.path}"]
    is_one = len({file.run for file in base}) == 1
    are_few = (
        sum(file.rows for file in beside) <= _ROWS_BESIDE_MAX
        and sum(file.bytes for file in beside) <= _BYTES_BESIDE_MAX
    )
    last = max((file.reach[1] for file in base), default=-1)
    if is_one and are_few and all(last < file.reach[0] for file in beside):
        return base, beside
    return [], list(files)


def rows_without(base: DataFrame, other: DataFrame, names: Sequence[str], nullable: Collection[str]) -> DataFrame:
    """The rows of the base that agree with none of the others in these columns; those go to every task.

    Args:
        base: the rows of the base.
        other: a few rows.
        names: the columns.
        nullable: which of them may be null; to compare one that never is takes less.
    """
    return _joined(base, other, names, nullable, "left_anti")


def rows_with(base: DataFrame, other: DataFrame, names: Sequence[str], nullable: Collection[str]) -> DataFrame:
    """The rows of the base that agree with one of the others in these columns; see `rows_without`."""
    return _joined(base, other, names, nullable, "left_semi")


def _joined(base: DataFrame, other: DataFrame, names: Sequence[str], nullable: Collection[str], how: str) -> DataFrame:
    few = F.broadcast(other.select(*(f"`{name}`" for name in names)))
    told = [name for name in names if name not in nullable]
    met = [F.col(f"_base.`{name}`") == F.col(f"_beside.`{name}`") for name in told]
    met += [same_in("_base", "_beside", [name]) for name in names if name in nullable]
    return base.alias("_base").join(few.alias("_beside"), all_of(met), how)
