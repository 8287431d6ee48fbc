"""The keyed form: a table of statements about keys, of which the newest counts.

What arrived is stored as it is; nothing is looked up when it comes, nothing is added up and no time is advanced.
The model is `tidelake.keyed`. At one time a value beats a delete; copies are equal, so either may be kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.delta.layout import DIFF, TIME
from tidelake.delta.proof import fingerprint


def newest_rows(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """The row with the greatest position of each key.

    In:  the key's columns, _time, _diff, any others.
    Out: the same columns; the key is unique.
    Cost: one exchange of at most one row for each key and task.
    """
    position = F.struct(F.col(TIME), F.col(DIFF) > 0)
    whole = F.struct(*(F.col(f"`{name}`") for name in rows.columns))
    newest = rows.groupBy(*(f"`{name}`" for name in key)).agg(F.max_by(whole, position).alias("_newest"))
    return newest.select("_newest.*")


def keyed_contents(rows: DataFrame, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """The contents that rows at or before a time amount to.

    In:  the data's columns, _time, _diff.
    Out: `columns`, and _diff, which is 1.
    """
    needed = list(dict.fromkeys([*key, *columns]))
    newest = newest_rows(rows.select(*(f"`{name}`" for name in needed), TIME, DIFF), key)
    return newest.where(F.col(DIFF) > 0).select(*(f"`{name}`" for name in columns), F.lit(1).cast("bigint").alias(DIFF))


def merged_rows(sealed: DataFrame, key: Sequence[str], through: int, takes_all: bool) -> DataFrame:
    """What is left of sealed rows when times at or before `through` cannot be told apart any more.

    In:  the data's columns, _time, _diff.
    Out: the same columns: for each key its newest row at or before `through`, with its own time, and every later row,
         once.

    Args:
        sealed: the rows.
        key: the key's columns.
        through: the last of those times.
        takes_all: no other run holds a row at or before `through`; only then a delete hides nothing and may leave.
    """
    newest = newest_rows(sealed.where(F.col(TIME) <= through), key)
    if takes_all:
        newest = newest.where(F.col(DIFF) > 0)
    return newest.unionByName(sealed.where(F.col(TIME) > through).distinct())


def suspect_times(unsealed: DataFrame, key: Sequence[str], data: Sequence[str]) -> DataFrame:
    """The times at which a key may have two values, or a diff is neither +1 nor -1; each of them has to be looked at.

    In:  the data's columns, _time, _diff.
    Out: _time (unique). A time that is not here has no breach, unless two data share a 128-bit fingerprint; then it is
         looked at anyway, as it has fewer fingerprints than rows.
    Cost: one exchange of five longs a row.
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


def count_breaches(stated: DataFrame, key: Sequence[str], data: Sequence[str]) -> DataFrame:
    """Count breaches of the envelope by time, exactly.

    In:  the data's columns, _time, _diff (unique together), any others.
    Out: _time (unique), doubled bigint (keys with two values), large bigint (statements with another diff than +1, -1),
         evidence string (two values of one key, or one statement with such a diff); only times that have a breach.
    """
    shown = F.to_json(F.struct(*(F.col(f"`{name}`") for name in data)), {"ignoreNullFields": "false"})
    large = _is_large(F.col(DIFF))
    by_key = stated.groupBy(*(f"`{name}`" for name in key), TIME).agg(
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
