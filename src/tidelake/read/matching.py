"""How rows of a published table are identified, and how the changes of a range of times affect them.

With a key, the newest row of each key replaces the one that the table has. Without a key, whole rows are compared, and
their diffs are added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.forms.key_states import ROW
from tidelake.forms.sums import add_up
from tidelake.read.copies import Shape, Shaped, counted_rows
from tidelake.read.published_files import CannotFollow
from tidelake.read.words import counted
from tidelake.store.base import LATER_ROWS_MAX
from tidelake.store.layout import DIFF, TIME

HELD_ROWS_MAX = 200_000
"""Maximum number of whole changed rows that every task holds; if there are more, Spark sorts them."""
_WAS = "_was"


@dataclass(frozen=True)
class Replacement:
    """The rows that replace those that the changes touch."""

    rows: DataFrame
    number: int | None
    """The number of these rows; None if it is unknown until they are written."""
    contents_added: int
    """The increase in the number of rows of the contents."""
    shaped: Shaped | None = None
    """Refuses multiplicities that a bag cannot have, once the rows are written."""


class Matching(Protocol):
    """How a row of the table is identified, and what replaces the rows that changed."""

    on: Sequence[str]
    """The columns that identify a row."""

    @property
    def held_max(self) -> int:
        """Maximum number of changed rows that every task holds."""

    def totals(self) -> dict[str, Column]:
        """Return sums over the net changes, for `replacement`."""

    def replacement(self, net: DataFrame, scanned: DataFrame, touched: int, sums: Mapping[str, Any]) -> Replacement:
        """Return the rows that replace the changed ones.

        Args:
            net: the net changes: at most one row for each value of `on`.
            scanned: the rows of the table that these changes touch.
            touched: the number of these rows.
            sums: the values of `totals`, and the number of net changes as `changed`.

        Raises:
            CannotFollow: the table does not have the rows that have changed.
        """


class ByNewest:
    """Each key has one row. The changes say which row each key has now, but nothing about an earlier row."""

    def __init__(self, key: Sequence[str]) -> None:
        """Take the key's columns."""
        self.on = key

    @property
    def held_max(self) -> int:
        """The limit for keys, which are small."""
        return LATER_ROWS_MAX

    def totals(self) -> dict[str, Column]:
        """Count the keys that have a row now."""
        return {"now": F.count_if(F.col(ROW).isNotNull())}

    def replacement(self, net: DataFrame, scanned: DataFrame, touched: int, sums: Mapping[str, Any]) -> Replacement:
        """Return the newest row of each key. In: the key's columns, _row struct (null if the key has none)."""
        if touched > sums["changed"]:
            raise CannotFollow(f"it has {counted(touched, 'row')} for {counted(sums['changed'], 'key')}")
        newest = net.where(F.col(ROW).isNotNull()).select(f"{ROW}.*")
        return Replacement(newest, sums["now"], sums["now"] - touched)


class ByKey(ByNewest):
    """Each key has one row. The changes say which row each key has now, and whether it had one before."""

    def __init__(self, key: Sequence[str], names: Sequence[str]) -> None:
        """Take the key's columns, and those of the contents."""
        super().__init__(key)
        self._names = names

    def net(self, updates: DataFrame) -> DataFrame:
        """Return the net change that the updates make.

        Out: the key's columns, _row struct (null if the key no longer has a row), _was (1 if it had one, else 0).
        """
        value = F.when(F.col(DIFF) > 0, F.struct(*(F.col(f"`{name}`") for name in self._names)))
        newest = F.max_by(value, F.struct(F.col(TIME), F.col(DIFF) > 0)).alias(ROW)
        grouped = updates.groupBy(*(f"`{name}`" for name in self.on)).agg(newest, F.sum(DIFF).alias("_added"))
        was = F.col(ROW).isNotNull().cast("bigint") - F.col("_added")
        with_was = grouped.withColumn(_WAS, was).drop("_added")
        return with_was.where((F.col(_WAS) > 0) | F.col(ROW).isNotNull())

    def totals(self) -> dict[str, Column]:
        """Count the keys that had a row, and those that have one now."""
        return {"was": F.sum(_WAS), **super().totals()}

    def replacement(self, net: DataFrame, scanned: DataFrame, touched: int, sums: Mapping[str, Any]) -> Replacement:
        """Return the newest row of each key, if the table has the rows that these keys had."""
        if touched != sums["was"]:
            raise CannotFollow(f"it has {counted(touched, 'row')} for the changed keys instead of {sums['was']:,}")
        return super().replacement(net, scanned, touched, sums)


class ByRow:
    """Whole rows are compared, and their diffs are added up."""

    def __init__(self, names: Sequence[str], shape: Shape) -> None:
        """Take the columns of the contents, and how the table shows multiplicities."""
        self.on, self._shape = names, shape

    @property
    def held_max(self) -> int:
        """The limit for whole rows, which may be large."""
        return HELD_ROWS_MAX

    def net(self, updates: DataFrame) -> DataFrame:
        """Return the net change that the updates make. Out: the data's columns, _diff (never 0)."""
        return add_up(updates.select(*(f"`{name}`" for name in self.on), DIFF), self.on)

    def totals(self) -> dict[str, Column]:
        """Add up the diffs."""
        return {"contents": F.sum(F.col(DIFF).cast("decimal(38,0)"))}

    def replacement(self, net: DataFrame, scanned: DataFrame, touched: int, sums: Mapping[str, Any]) -> Replacement:
        """Add the diffs of the net changes to those of the table's rows."""
        rows = net
        if touched:
            rows = add_up(counted_rows(scanned, self.on, self._shape).unionByName(net), self.on)
        shaped = Shaped(rows, self._shape)
        return Replacement(shaped.rows, None, int(sums["contents"] or 0), shaped if self._shape == "bag" else None)
