"""The form of sums: the diffs of equal rows are summed, exactly, whatever their size."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.forms.base import rows_with, rows_without
from tidelake.forms.form import Form, RowFilter
from tidelake.schema.change_events import Interval
from tidelake.schema.columns import column_types
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Entry
from tidelake.store.layout import DIFF, TIME
from tidelake.store.table_schema import data_fields


class SumForm(Form):
    """Diffs are summed. A merge moves times up to `since`, so that equal rows meet and zeros vanish."""

    cancels_copies = True
    breaches_stay = True
    moves_times = True
    is_additive = True
    makes_base = True
    key_of_values: Sequence[str] | None = ()

    def __init__(self, entry: Entry, table: OpenTable | None = None) -> None:
        """Take the columns from a collection's entry."""
        self.fields = data_fields(entry.record_schema)
        self.data = [field.name for field in self.fields]
        self.nullable = frozenset(column.name for column in column_types(entry.record_schema) if column.nullable)

    def contents(
        self, rows: DataFrame, columns: Sequence[str], keep: RowFilter, base: DataFrame | None = None
    ) -> DataFrame:
        """Add up diffs; see `Form.contents`. Filtering whole rows commutes with the sum."""
        selected = [*(f"`{name}`" for name in columns), DIFF]
        few = keep(rows).select(*selected)
        if base is None:
            return add_up(few, columns)
        many = keep(base).select(*selected)
        if not self._identify_rows(columns):
            return add_up(many.unionByName(few), columns)
        changed = add_up(few.unionByName(rows_with(many, few, columns, self.nullable)), columns)
        return rows_without(many, few, columns, self.nullable).unionByName(changed)

    def base_contents(self, base: DataFrame, columns: Sequence[str], keep: RowFilter) -> DataFrame:
        """Take the rows of the base unchanged if no two of them can be equal in these columns."""
        rows = keep(base).select(*(f"`{name}`" for name in columns), DIFF)
        return rows if self._identify_rows(columns) else add_up(rows, columns)

    def _identify_rows(self, columns: Sequence[str]) -> bool:
        """Return whether no two rows of the base can be equal in these columns; equal rows have to be added up."""
        return set(self.data) <= set(columns)

    def merged(self, sealed: DataFrame, through: int, others: Sequence[Interval]) -> DataFrame:
        """Move all rows at or before `through` to this time, and add up diffs."""
        moved = F.greatest(F.col(TIME), F.lit(through).cast("bigint"))
        return add_up(sealed.withColumn(TIME, moved), [*self.data, TIME])


def add_up(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Sum `_diff` by `keys` exactly; zeros vanish. A sum beyond int64 becomes several rows that add up to it."""
    # Sums of 32-bit halves cannot overflow.
    grouped = rows.groupBy(*(f"`{name}`" for name in keys)).agg(
        F.sum(F.shiftright(DIFF, 32)).alias("_high"), F.sum(F.col(DIFF).bitwiseAND(F.lit(0xFFFFFFFF))).alias("_low")
    )
    carried = grouped.select(
        *(f"`{name}`" for name in keys),
        (F.col("_high") + F.shiftright("_low", 32)).alias("_high"),
        F.col("_low").bitwiseAND(F.lit(0xFFFFFFFF)).alias("_low"),
    )
    fits = (F.col("_high") >= -(2**31)) & (F.col("_high") < 2**31)
    total = F.shiftleft("_high", 32).bitwiseOR(F.col("_low"))
    return (
        carried.where((F.col("_high") != 0) | (F.col("_low") != 0))
        .select(
            *(f"`{name}`" for name in keys),
            F.explode(F.when(fits, F.array(total)).otherwise(_pieces(F.col("_high"), F.col("_low")))).alias(DIFF),
        )
        .where(F.col(DIFF) != 0)
    )


def _pieces(high: Column, low: Column) -> Column:
    """Return int64 numbers that add up to `high * 2**32 + low`, for a `high` that does not fit in 32 bits."""
    step = F.lit(2**30)
    whole = F.expr("cast(_high div 1073741824 as int)")
    rest = high - whole.cast("bigint") * step
    piece = F.when(high < 0, F.lit(-(2**62))).otherwise(F.lit(2**62))
    return F.concat(F.array_repeat(piece, F.abs(whole)), F.array(F.shiftleft(rest, 32).bitwiseOR(low)))
