"""The keyed form: statements about keys. Only the newest statement of each key has an effect.

Statements are stored as they arrive: nothing is looked up, nothing is added up, and no time moves. Among a key's
statements at the same time, a value beats a delete; copies are equal, so any of them may stay. The model is
`tidelake.model.keyed`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.forms.base import rows_without
from tidelake.forms.form import Form, RowFilter, takes_all
from tidelake.forms.key_states import Range, newest_states, rows_of_keys, states_by_time
from tidelake.schema.change_events import Interval
from tidelake.schema.columns import column_types
from tidelake.spark.equality import fingerprint
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Entry
from tidelake.store.layout import DIFF, TIME
from tidelake.store.table_schema import data_fields


class KeyedForm(Form):
    """Statements about keys. Only the newest statement of each key has an effect."""

    cancels_copies = False
    breaches_stay = True
    moves_times = False
    is_additive = False
    makes_base = True

    def __init__(self, entry: Entry, table: OpenTable | None = None) -> None:
        """Take the columns and the key from a collection's entry."""
        self.fields = data_fields(entry.record_schema)
        self.data = [field.name for field in self.fields]
        self.nullable = frozenset(column.name for column in column_types(entry.record_schema) if column.nullable)
        self.key: Sequence[str] = entry.key
        self.key_of_values: Sequence[str] | None = entry.key

    def contents(
        self, rows: DataFrame, columns: Sequence[str], keep: RowFilter, base: DataFrame | None = None
    ) -> DataFrame:
        """Take the newest row of each key; see `Form.contents`."""
        # A filter on values applies to the newest row of a key, so it is applied once that row is known.
        few = keep(keyed_contents(rows, self.key, self.data)).select(*(f"`{name}`" for name in columns), DIFF)
        if base is None:
            return few
        return _once_each(rows_without(keep(base), rows, self.key, self.nullable), columns).unionByName(few)

    def base_contents(self, base: DataFrame, columns: Sequence[str], keep: RowFilter) -> DataFrame:
        """Take the rows of the base unchanged: it has one row for each key."""
        return _once_each(keep(base), columns)

    def key_states(self, rows: Range, with_errors: bool) -> DataFrame:
        """Take the newest row of each touched key; see `Form.key_states`."""
        touched = rows.between.select(*(f"`{name}`" for name in self.key))
        earlier = rows_of_keys(rows.earlier(touched), touched, self.key, self.nullable, rows.few)
        return states_by_time(rows.between.unionByName(earlier), self.key, self.data, rows.after)

    def newest_states(self, rows: DataFrame) -> DataFrame:
        """Take the newest row of each key: only it has an effect; see `Form.newest_states`."""
        return newest_states(rows, self.key, self.data)

    def merged(self, sealed: DataFrame, through: int, others: Sequence[Interval]) -> DataFrame:
        """Keep the newest row of each key at or before `through`, and all rows after `through`."""
        return merged_rows(sealed, self.key, through, takes_all(through, others))

    def suspect_times(self, unsealed: DataFrame) -> DataFrame:
        """See the function `suspect_times`."""
        return suspect_times(unsealed, self.key, self.data)

    def breaches(self, grouped: DataFrame) -> DataFrame:
        """See `count_breaches`."""
        return count_breaches(grouped.where(~F.col("_discarded")), self.key, self.data)


def _once_each(base: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the contents, given a base that has one row for each key."""
    return base.select(*(f"`{name}`" for name in columns), F.lit(1).cast("bigint").alias(DIFF))


def newest_rows(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the newest row of each key; of rows with equal times, a value is newer than a delete.

    In:  the key's columns, _time, _diff, any others.
    Out: the same columns; the key is unique.
    Cost: one exchange of at most one row for each key and task.
    """
    rank = F.struct(F.col(TIME), F.col(DIFF) > 0)
    whole = F.struct(*(F.col(f"`{name}`") for name in rows.columns))
    newest = rows.groupBy(*(f"`{name}`" for name in key)).agg(F.max_by(whole, rank).alias("_newest"))
    return newest.select("_newest.*")


def keyed_contents(rows: DataFrame, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Compute the contents from rows at or before a time.

    In:  the data's columns, _time, _diff.
    Out: `columns`, and _diff, which is 1.
    """
    needed = list(dict.fromkeys([*key, *columns]))
    newest = newest_rows(rows.select(*(f"`{name}`" for name in needed), TIME, DIFF), key)
    return newest.where(F.col(DIFF) > 0).select(*(f"`{name}`" for name in columns), F.lit(1).cast("bigint").alias(DIFF))


def merged_rows(sealed: DataFrame, key: Sequence[str], through: int, takes_all: bool) -> DataFrame:
    """Merge sealed rows: no reader can tell times at or before `through` apart.

    In:  the data's columns, _time, _diff.
    Out: the same columns: the newest row of each key at or before `through`, with its own time, and every later row
         once.

    Args:
        sealed: the rows.
        key: the key's columns.
        through: the last time that no reader can tell from an earlier one.
        takes_all: whether no other run holds a row at or before `through`; only then may a delete be dropped, because
            every row that it hides is dropped as well.
    """
    newest = newest_rows(sealed.where(F.col(TIME) <= through), key)
    if takes_all:
        newest = newest.where(F.col(DIFF) > 0)
    return newest.unionByName(sealed.where(F.col(TIME) > through).distinct())


def suspect_times(unsealed: DataFrame, key: Sequence[str], data: Sequence[str]) -> DataFrame:
    """Find the times at which a key might have two values, or a diff is neither +1 nor -1.

    In:  the data's columns, _time, _diff.
    Out: _time (unique). Any other time has no breach, unless different data has the same 128-bit fingerprint. Seal
         notices that too: the time then has fewer fingerprints than rows, so seal compares the rows themselves.
    Cost: one exchange of five longs per row.
    """
    high, low = fingerprint(unsealed, key)
    marked = unsealed.select(
        TIME,
        high.alias("_high"),
        low.alias("_low"),
        F.when(F.col(DIFF) > 0, F.struct(*fingerprint(unsealed, data))).alias("_value"),
        F.col(DIFF).alias("_stated"),
    )
    by_key = marked.groupBy(TIME, "_high", "_low").agg(
        (F.min("_value") != F.max("_value")).alias("_two"), F.max(_is_large(F.col("_stated"))).alias("_large")
    )
    return by_key.where(F.coalesce(F.col("_two"), F.lit(False)) | F.col("_large")).select(TIME).distinct()


def count_breaches(statements: DataFrame, key: Sequence[str], data: Sequence[str]) -> DataFrame:
    """Count breaches of the envelope by time, exactly.

    In:  the data's columns, _time, _diff (unique together), any others.
    Out: _time (unique), doubled bigint (keys with two values), large bigint (statements with a diff other than +1 or
         -1), evidence string (two values of one key, or one statement with such a diff); only times that have a breach.
    """
    shown = F.to_json(F.struct(*(F.col(f"`{name}`") for name in data)), {"ignoreNullFields": "false"})
    large = _is_large(F.col(DIFF))
    by_key = statements.groupBy(*(f"`{name}`" for name in key), TIME).agg(
        F.count_if(F.col(DIFF) > 0).alias("_values"),
        F.count_if(large).alias("_large"),
        F.sort_array(F.collect_set(F.when(F.col(DIFF) > 0, shown))).alias("_set"),
        F.sort_array(F.collect_set(F.when(large, shown))).alias("_shown"),
    )
    breach = (F.col("_values") > 1) | (F.col("_large") > 0)
    evidence = F.array_join(
        F.slice(F.when(F.col("_values") > 1, F.col("_set")).otherwise(F.col("_shown")), 1, 2), " and "
    )
    return (
        by_key.where(breach)
        .groupBy(TIME)
        .agg(
            F.count_if(F.col("_values") > 1).alias("doubled"),
            F.sum("_large").alias("large"),
            F.max_by(evidence, F.col("_values")).alias("evidence"),
        )
    )


def _is_large(diff: Column) -> Column:
    return (diff > 1) | (diff < -1)
