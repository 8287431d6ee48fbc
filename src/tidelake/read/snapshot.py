"""Reads the contents AS OF a time in [since, upper), from the version of the table for which the read was planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.decode.landing import ROW_TEXT
from tidelake.errors import KeysInError
from tidelake.forms.sums import add_up
from tidelake.plugins.envelope import form_of
from tidelake.read.asked import columns_asked, readable
from tidelake.read.predicate import check_predicate
from tidelake.store.base import split_base
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import RunFile
from tidelake.store.layout import TIME, UNAVAILABLE
from tidelake.store.runs import read_files, spark_schema

_KEYS_NAMED_MAX = 10


@dataclass(frozen=True)
class Snapshot:
    """Contents AS OF a time.

    `contents` has the requested columns and `_diff`, which says how many times each row occurs; never 0.
    """

    as_of: int
    since: int
    upper: int
    closed: bool
    version: int
    contents: DataFrame
    unknown: DataFrame | None = None
    """The keys of rows with a value that was never stated, and, in `_unavailable`, the columns that lack a value.

    None if no row ever lacked a value."""


def snapshot(
    spark: SparkSession,
    collection: Collection,
    as_of: int | None = None,
    columns: Sequence[str] = (),
    where: str | None = None,
    skip_errors: bool = False,
    table: OpenTable | None = None,
) -> Snapshot:
    """Read the contents AS OF a time; by default the last time before upper.

    Args:
        spark: the session.
        collection: the collection, with its newest catalog entry.
        as_of: a time in [since, upper); any time at or after since if the stream is closed.
        columns: columns of the contents; all if empty. Diffs of rows that are equal in these columns are summed.
        where: a Spark SQL predicate on the columns of the contents. It is pushed down if the collection has no key.
        skip_errors: leave out keys in error, whose newest record cannot be used.
        table: the updates table at the version to read; by default the newest one.

    Raises:
        KeysInError: there are keys in error at that time, and `skip_errors` is false.
        SinceError: `as_of` is before `since`.
        UpperError: `as_of` is at or after upper, or nothing is sealed yet.
        ArgumentRefused: `as_of` is not a time.
        UnknownColumn: the collection has no such column.
        PredicateRefused: the predicate is invalid for the columns, or its value could depend on anything else.
    """
    table = table if table is not None else OpenTable(collection.paths.updates)
    times = readable(collection, table)
    at = times.time(as_of)
    form = form_of(collection.entry, table)
    names = [field.name for field in form.fields]
    selected = columns_asked(collection, names, columns)
    if where is not None:
        # Only on the columns of the contents: a predicate on `_time` or `_diff` would not commute with summing.
        check_predicate(spark, where, spark_schema(pa.schema(form.fields)))
    files = [file for file in table.files() if file.time_min is None or file.time_min <= at]
    schema = collection.updates_schema()
    # A column added after the entry was read is unknown here: diffs of rows that differ only in that column are summed.
    has_all_columns = len(schema) == len(table.schema())
    whole, later = split_base(files) if form.makes_base and has_all_columns else ([], files)
    rows = _rows_until(spark, collection, later, schema, at)
    errors = None if skip_errors else form.keys_in_error(rows)
    if errors is not None:
        refuse_errors(collection, errors, at)

    def filtered(all_columns: DataFrame) -> DataFrame:
        return all_columns if where is None else all_columns.where(where)

    base = _rows_until(spark, collection, whole, schema, at) if whole else None
    if base is not None and not later:
        contents = form.base_contents(base, selected, filtered)
    else:
        contents = form.contents(rows, selected, filtered, base)
    if not form.is_additive and not set(collection.entry.key) <= set(selected):
        contents = add_up(contents, selected)  # without the key, several rows may be equal
    unknown = form.unknown_values(rows)
    return Snapshot(at, times.since, times.upper, times.closed, table.version, contents, unknown)


def describe_unknown(snapshot: Snapshot) -> tuple[int, list[str]]:
    """Count the rows with a value that was never stated, and show some: the key as JSON, and the columns.

    Cost: nothing if no row ever lacked a value; else one more reduction of the rows.
    """
    if snapshot.unknown is None:
        return 0, []
    key = [name for name in snapshot.unknown.columns if name != UNAVAILABLE]
    text = F.concat(
        F.to_json(F.struct(*(f"`{name}`" for name in key)), ROW_TEXT), F.lit(": "), F.array_join(UNAVAILABLE, ", ")
    )
    shown = snapshot.unknown.select(text.alias("text")).persist()
    try:
        named = [row["text"] for row in shown.orderBy("text").limit(_KEYS_NAMED_MAX).collect()]
        return shown.count(), named
    finally:
        shown.unpersist()


def _rows_until(
    spark: SparkSession, collection: Collection, files: Sequence[RunFile], schema: pa.Schema, at: int
) -> DataFrame:
    """Read the rows of these files at or before a time, without a comparison if no file has later rows.

    The comparison is avoided because Spark compiles it again for each new number.
    """
    rows = read_files(spark, collection.paths.updates, files, schema)
    if all(file.time_max is not None and file.time_max <= at for file in files):
        return rows
    return rows.where(F.col(TIME) <= at)


def refuse_errors(collection: Collection, errors: DataFrame, at: int) -> None:
    """Raise if there are keys in error."""
    text = F.to_json(F.struct(*(f"`{name}`" for name in collection.entry.key)), ROW_TEXT)
    named = errors.select(text.alias("key")).orderBy("key").limit(_KEYS_NAMED_MAX).collect()
    if named:
        raise KeysInError(collection.name, at, errors.count(), [row["key"] for row in named])
