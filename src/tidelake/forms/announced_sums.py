"""The form of tables that have no key and whose source announces transactions: diffs of equal rows are summed.

An event that changes a row is stored as two rows: the old row with the diff -1, and the new row with +1. Each row has
the position of its event, which identifies copies, so seal cancels copies of an event, but not equal rows of different
events. A merge adds up the rows at times that no reader can tell apart; later rows keep their positions, which
`validate` counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidelake.forms.sums import SumForm
from tidelake.schema.change_events import Interval
from tidelake.store.layout import ERROR, POSITION, TIME, UNAVAILABLE


class AnnouncedSumForm(SumForm):
    """Diffs are summed; rows have the positions of their events until they are merged."""

    makes_base = False
    key_of_values: Sequence[str] | None = None

    def merged(self, sealed: DataFrame, through: int, others: Sequence[Interval]) -> DataFrame:
        """Add up the rows at or before `through`, and move them to this time; later rows stay as they are."""
        old, later = sealed.where(F.col(TIME) <= through), sealed.where(F.col(TIME) > through)
        added = super().merged(old, through, others)
        without_event = {
            POSITION: F.lit(None).cast("array<bigint>"),
            UNAVAILABLE: F.lit(None).cast("array<string>"),
            ERROR: F.lit(None).cast("string"),
        }
        return added.withColumns(without_event).unionByName(later)
