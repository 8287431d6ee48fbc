"""The protocol of forms: how rows give the contents, how a merge combines them, and how they can break the envelope.

An envelope says what a statement means, and so determines the form: diffs that are summed, statements about keys, or
change events. All code that reads, seals or merges a table asks its form; see `plugins.envelope`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.forms.key_states import Range
from tidelake.schema.change_events import Interval

RowFilter = Callable[[DataFrame], DataFrame]


class Form(Protocol):
    """The meaning of the rows of one collection's table. A method that only a few forms need has a default."""

    fields: list[pa.Field]
    """The columns of the contents."""
    cancels_copies: bool
    """Whether a copy would change the contents, so that seal has to cancel it."""
    breaches_stay: bool
    """Whether no later statement can undo a breach, so that it is reported at once."""
    moves_times: bool
    """Whether a merge moves rows to later times; if not, the remaining rows keep their stated times."""
    key_of_values: Sequence[str] | None
    """The columns that seal has to check, if the stored rows alone show every breach; otherwise None.

    These are the key's columns if a key may have only one value at each time, and no columns if diffs are summed.
    """
    is_additive: bool
    """Whether the contents are the sums of the diffs of equal stored rows, so that no merge changes these sums."""
    makes_base: bool
    """Whether a merge of all indistinguishable times produces a base; see `forms.base`."""

    stores_errors: bool = False
    """Whether the table has ever stored a row with an error."""

    def contents(
        self, rows: DataFrame, columns: Sequence[str], keep: RowFilter, base: DataFrame | None = None
    ) -> DataFrame:
        """Compute the contents from rows at or before a time; if there is only a base, call `base_contents` instead.

        In:  the data's columns, _time, _diff.
        Out: `columns`, and _diff, how many times a row occurs; never 0.

        Args:
            rows: the rows; with a base, those outside it.
            columns: some columns of the contents.
            keep: a filter on whole rows of the contents; applied as early as possible without changing the result.
            base: the rows of the base, all of them earlier; only if the form makes a base.
        """

    def base_contents(self, base: DataFrame, columns: Sequence[str], keep: RowFilter) -> DataFrame:
        """Compute the contents from a base and no other rows; only if the form makes a base."""
        raise AssertionError("this form makes no base")

    def merged(self, sealed: DataFrame, through: int, others: Sequence[Interval]) -> DataFrame:
        """Merge sealed rows: no reader can tell times at or before `through` apart.

        In, out: the data's columns, _time, _diff.

        Args:
            sealed: rows of the runs that are merged.
            through: the last time that no reader can tell from an earlier one; -1 if there is none.
            others: the first and last times of the runs that are not merged.
        """

    def row_updates(self, rows: DataFrame) -> DataFrame | None:
        """Return the changes made by rows in a range of times; None if these depend on earlier rows: see `key_states`.

        In:  the data's columns, _time, _diff.
        Out: the columns of the contents, _time, _diff; not added up.
        """
        return rows if self.is_additive else None

    def key_states(self, rows: Range, with_errors: bool) -> DataFrame:
        """Return the states of the keys that rows of a range of times affect; see `forms.key_states`.

        Only for forms whose contents have a key.

        Args:
            rows: the rows of the range, and how to read earlier ones.
            with_errors: whether to include every key that may be in error at `rows.after` or later.
        """
        raise AssertionError("the contents of this form have no key")

    def newest_states(self, rows: DataFrame) -> DataFrame | None:
        """Return the rows that keys have after a range of times; None if these depend on earlier rows.

        In:  the data's columns, _time, _diff: all rows of the range.
        Out: the key's columns (unique together), _row struct (the data's columns; null if the key no longer has a row).
        Cost: one exchange of at most one row for each key and task.
        """
        return None

    def suspect_times(self, unsealed: DataFrame) -> DataFrame | None:
        """Find the times (_time, unique) at which a key might break the envelope; None if there are no keys."""
        return None

    def breaches(self, grouped: DataFrame) -> DataFrame | None:
        """Count breaches of the envelope as `keyed.count_breaches` does; None if there are no keys.

        In: the result of `fingerprints.group_statements`.
        """
        return None

    def rows_brought(self) -> Column:
        """Return what an effect of +1 adds to the sum of diffs that `validate` records and finds again."""
        return F.lit(1).cast("bigint")

    def rows_by_key(self, sealed: DataFrame, effects: DataFrame) -> DataFrame | None:
        """Count the rows that each key is left with at each time; None if the diffs alone show every breach.

        In:  the stored columns; `effects` has each statement once, and its effect.
        Out: the key's columns, _time (unique together), _rows bigint: more than 1 breaks the envelope.
        """
        return None

    def keys_in_error(self, rows: DataFrame) -> DataFrame | None:
        """Find the keys whose newest row has an error; None if the table has never stored such a row."""
        return None

    def unknown_values(self, rows: DataFrame) -> DataFrame | None:
        """Find the rows of the contents that lack a value; None if the table has never stored such a row."""
        return None


def takes_all(through: int, others: Sequence[Interval]) -> bool:
    """Return whether a merge takes every run that has a row at or before a time.

    Args:
        through: the time.
        others: the first and last times of the runs that are not merged.
    """
    return not any(first <= through for first, _ in others)
