"""Counts the rows at sealed times by grouping them in Spark, independently of the fingerprints that seal uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.forms.form import Form
from tidelake.settings.terms import envelope_terms
from tidelake.spark.row_hash import weighted_names, weighted_sum, weighted_sums
from tidelake.store.entry import Collection
from tidelake.store.layout import DIFF, EVENT_POSITION_SIZES, POSITION, RUN, TIME
from tidelake.store.table_schema import data_fields
from tidelake.validate.hashes import hash_of

_TIME = pa.field(TIME, pa.int64())
_NUMBERS = ("recounted", "diff_min", "diff_sum")
_TIMES, _CONTENTS = "_times", "_contents"


def recount_statements(sealed: DataFrame, collection: Collection, form: Form) -> list[dict[str, Any]]:
    """Count distinct statements by time; if seal cancels copies, only those with an effect.

    Cost: one exchange of the rows, and one more if keys may be left with two rows.
    """
    recount = _recount_diffs if form.cancels_copies else _recount_keyed
    return recount(sealed, collection, form)


def recount_rows(sealed: DataFrame, collection: Collection, form: Form) -> list[dict[str, Any]]:
    """Count rows by time.

    If diffs are summed, each row counts as often as its diff says, because a merge turns equal rows of a time into one
    row with the sum of their diffs. Otherwise, each row counts once, whatever its diff.
    """
    weight = F.col(DIFF) if form.is_additive else F.lit(1).cast("bigint")
    stored = [field for field in collection.updates_schema() if field.name != RUN]
    data = [field for field in stored if field.name not in (TIME, DIFF)]
    statement = [field for field in stored if field.name != DIFF] if form.is_additive else stored
    by_time = sealed.groupBy(TIME).agg(
        F.sum(weight).alias("recounted"),
        F.min(weight).alias("diff_min"),
        F.sum(weight).alias("diff_sum"),
        *_left(collection, weight, F.sum(F.when(weight < 0, weight))),
        *_hashes(statement, data if form.is_additive else None, weight),
    )
    return [
        {"time": row[TIME], **{name: int(row[name]) for name in _NUMBERS}, **_left_of(row), **_hashes_of(row)}
        for row in by_time.toArrow().to_pylist()
    ]


def recount_positions(sealed: DataFrame, collection: Collection, form: Form) -> list[dict[str, Any]]:
    """Count distinct positions of events by time: an event and its copies count as one event.

    If diffs are summed, all rows are hashed, weighted by their diffs, because seal has cancelled the copies. Otherwise,
    an event and its copies are hashed once.
    """
    stored = [field for field in collection.updates_schema() if field.name != RUN]
    counted = F.when(F.size(POSITION).isin(*EVENT_POSITION_SIZES), F.col(POSITION))
    if form.is_additive:
        aggregates = _hashes([*form.fields, _TIME], form.fields, F.col(DIFF))
        totals = (
            F.count_distinct(counted).alias("recounted"),
            F.lit(1).alias("diff_min"),
            F.sum(DIFF).alias("diff_sum"),
        )
        return [
            {"time": row[TIME], **{name: int(row[name]) for name in _NUMBERS}, **_hashes_of(row)}
            for row in sealed.groupBy(TIME).agg(*totals, *aggregates).toArrow().to_pylist()
        ]
    by_time = (
        sealed.select(*(f"`{field.name}`" for field in stored))
        .distinct()
        .groupBy(TIME)
        .agg(
            F.count_distinct(counted).alias("recounted"),
            F.lit(1).alias("diff_min"),
            F.sum(DIFF).alias("diff_sum"),
            *_hashes(stored, None, F.lit(1).cast("bigint")),
        )
    )
    return [
        {"time": row[TIME], **{name: int(row[name]) for name in _NUMBERS}, **_hashes_of(row)}
        for row in by_time.toArrow().to_pylist()
    ]


def _recount_diffs(sealed: DataFrame, collection: Collection, form: Form) -> list[dict[str, Any]]:
    """Count, by time, the statements that have an effect, and find the minimum and the sum of the effects."""
    data = [field.name for field in data_fields(collection.entry.record_schema)]
    effects = (
        sealed.groupBy(*(f"`{name}`" for name in data), TIME)
        .agg(F.sum(F.col(DIFF).cast("decimal(38,0)")).alias("_effect"))
        .where(F.col("_effect") != 0)
    )
    fields = data_fields(collection.entry.record_schema)
    by_time = effects.groupBy(TIME).agg(
        F.count(F.lit(1)).alias("recounted"),
        F.min("_effect").alias("diff_min"),
        F.sum(F.col("_effect") * form.rows_brought()).alias("diff_sum"),
        *_left(collection, F.col("_effect"), F.count_if(F.col("_effect") < 0)),
        *_hashes([*fields, _TIME], fields if form.is_additive else None, F.col("_effect")),
    )
    rows_by_key = form.rows_by_key(sealed, effects)
    doubled = None if rows_by_key is None else _doubled(rows_by_key)
    recounted = []
    for counts in by_time.toArrow().to_pylist():
        time = counts[TIME]
        numbers = {name: int(counts[name]) for name in _NUMBERS}
        row = {"time": time, **numbers, **_left_of(counts), **_hashes_of(counts)}
        recounted.append(row if doubled is None else row | {"doubled": doubled.get(time, 0)})
    return recounted


def _doubled(rows_by_key: DataFrame) -> dict[int, int]:
    """Count, for each time, the keys that are left with more than one row."""
    by_time = rows_by_key.where(F.col("_rows") > 1).groupBy(TIME).agg(F.count(F.lit(1)).alias("doubled"))
    return {row[TIME]: row["doubled"] for row in by_time.toArrow().to_pylist()}


def _recount_keyed(sealed: DataFrame, collection: Collection, form: Form) -> list[dict[str, Any]]:
    """Count, for each time, the distinct data that was stated, and the keys that have two values."""
    data = [field.name for field in data_fields(collection.entry.record_schema)]
    key = [f"`{name}`" for name in collection.entry.key]
    fields = data_fields(collection.entry.record_schema)
    distinct = sealed.groupBy(*(f"`{name}`" for name in data), TIME).agg(F.max(DIFF).alias("_effect"))
    by_key = distinct.groupBy(*key, TIME).agg(
        F.count(F.lit(1)).alias("_stated"),
        F.count_if(F.col("_effect") > 0).alias("_values"),
        *_hashes([*fields, _TIME], None, F.col("_effect")),
    )
    by_time = by_key.groupBy(TIME).agg(
        F.sum("_stated").alias("recounted"),
        F.count_if(F.col("_values") > 1).alias("doubled"),
        *(F.sum(name).alias(name) for name in weighted_names(_TIMES)),
    )
    return [
        {
            "time": row[TIME],
            "recounted": row["recounted"],
            "diff_min": 0,
            "diff_sum": 0,
            "doubled": row["doubled"],
            **_hashes_of(row),
        }
        for row in by_time.toArrow().to_pylist()
    ]


def _left(collection: Collection, effect: Column, recounted: Column) -> list[Column]:
    """Return the aggregates for `_left_of`; none if statements may remove rows.

    Args:
        collection: the collection.
        effect: by how much a row changes the contents.
        recounted: the part of the aggregate `recounted` that comes from rows with a negative effect.
    """
    if not envelope_terms(collection.entry.envelope).only_adds:
        return []
    return [
        F.sum(F.when(effect < 0, -effect)).alias("left"),
        recounted.alias("left_recounted"),
        F.min(F.when(effect > 0, effect)).alias("added_min"),
    ]


def _left_of(counts: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of rows removed, their part of `recounted`, and the least positive effect, if computed."""
    return {name: int(counts[name] or 0) for name in ("left", "left_recounted", "added_min") if name in counts}


def _hashes(statement: Sequence[pa.Field], contents: Sequence[pa.Field] | None, weight: Column) -> list[Column]:
    """Return the aggregates for `_hashes_of`: of whole statements and, if diffs are summed, of the rows they add."""
    aggregates = weighted_sums(hash_of(statement), weight, _TIMES)
    return aggregates if contents is None else aggregates + weighted_sums(hash_of(contents), weight, _CONTENTS)


def _hashes_of(sums: Mapping[str, Any]) -> dict[str, Any]:
    has_contents = any(name.startswith(_CONTENTS) for name in sums)
    return {
        "times_hash": weighted_sum(sums, _TIMES),
        "contents_hash": weighted_sum(sums, _CONTENTS) if has_contents else None,
    }
