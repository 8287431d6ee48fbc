"""Reading: the contents AS OF a time in [since, upper), from the version of the table that the reader planned on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.delta import positioned
from tidelake.delta.base import part_base
from tidelake.delta.catalog import Collection
from tidelake.delta.commit import OpenTable
from tidelake.delta.files import RunFile
from tidelake.delta.forms import contents_fields, form_of, shape_of
from tidelake.delta.layout import TIME, UNAVAILABLE
from tidelake.delta.runs import read_files
from tidelake.delta.types import ROW_TEXT, updates_schema
from tidelake.delta.values import CLOSED, HAS_ERRORS, HAS_UNAVAILABLE, SINCE, UPPER
from tidelake.errors import KeysInError, RuleBroken, SinceError, UpperError
from tidelake.order import INT64_MAX

_KEYS_NAMED_MAX = 10


@dataclass(frozen=True)
class Snapshot:
    """Contents AS OF a time.

    `contents` has the columns of the contents (or those asked for) and `_diff`, how often each row is there; never 0.
    """

    as_of: int
    since: int
    upper: int
    closed: bool
    version: int
    contents: DataFrame
    unknown: DataFrame | None = None
    """Positioned form: the keys of rows that lack a value which nobody has stated, and in `_unavailable` the columns.

    None where no row ever lacked one."""


def readable_range(collection: Collection, table: OpenTable) -> tuple[tuple[int, ...], int, bool]:
    """Since (empty where unreadable), upper, and whether the stream is closed, as this version has them."""
    since = collection.entry.since
    if since:
        since = (max(since[0], table.value(SINCE) or 0),)
    return since, table.value(UPPER) or 0, bool(table.value(CLOSED))


def last_time(upper: int, closed: bool) -> int:
    """The last time that is sealed; of a closed stream, one at which nothing changes any more."""
    return INT64_MAX if closed and upper == INT64_MAX else upper - 1


def snapshot(
    spark: SparkSession,
    collection: Collection,
    as_of: int | None = None,
    columns: Sequence[str] = (),
    where: str | None = None,
    skip_errors: bool = False,
) -> Snapshot:
    """Read the contents AS OF a time; by default the last time before upper.

    Args:
        spark: the session.
        collection: what to read, with its newest catalog entry.
        as_of: a time in [since, upper); any time at or after since where the stream is closed.
        columns: which columns of the contents; all where empty. Rows that differ only in others add up.
        where: a Spark SQL predicate on the columns of the contents. Where rows add up it commutes with that, so the
            scan takes it.
        skip_errors: leave keys in error out, whose newest record could not be decoded.

    Raises:
        KeysInError: there are such keys at that time, and they are not to be left out.
        SinceError: `as_of` is before since.
        UpperError: `as_of` is at or after upper; or nothing is sealed yet.
        RuleBroken: a column is not there, or the predicate is none.
    """
    table = OpenTable(collection.paths.updates)
    since, upper, closed = readable_range(collection, table)
    at = as_of if as_of is not None else max(last_time(upper, closed), since[0] if since else 0)
    if not since or at < since[0]:
        raise SinceError(at, since)
    if not closed and at >= upper:
        raise UpperError(at, [upper])
    names = [one.name for one in contents_fields(collection.entry)]
    unknown = [name for name in columns if name not in names]
    if unknown:
        raise RuleBroken(f"'{collection.name}' has no column '{unknown[0]}'", f"its columns are: {', '.join(names)}")
    files = [file for file in table.files() if file.time_min is None or file.time_min <= at]
    form = form_of(collection)
    schema = updates_schema(collection.entry.record_schema, collection.entry.positioned)
    # Of a column that was added since the entry was read nobody asks: rows of the base that differ there alone add up.
    knows_all = len(schema) == len(table.schema())
    whole, beside = part_base(files) if form.makes_base and knows_all else ([], files)
    rows = _rows_until(spark, collection, beside, schema, at)
    if table.value(HAS_ERRORS) and not skip_errors:
        _refuse_errors(collection, rows, at)
    kept = list(dict.fromkeys(columns)) or names

    def filtered(all_columns: DataFrame) -> DataFrame:
        return all_columns if where is None else _filtered(all_columns, where, names)

    base = _rows_until(spark, collection, whole, schema, at) if whole else None
    if base is not None and not beside:
        contents = form.base_contents(base, kept, filtered)
    else:
        contents = form.contents(rows, kept, filtered, base)
    lacking = positioned.unknown_values(rows, shape_of(collection)) if table.value(HAS_UNAVAILABLE) else None
    return Snapshot(at, since[0], upper, closed, table.version, contents, lacking)


def unknown_texts(taken: Snapshot) -> tuple[int, list[str]]:
    """How many rows lack a value that nobody has stated, and some of them: the key as JSON, and the columns.

    Cost: nothing where no row ever lacked one; else one more reduction of the rows.
    """
    if taken.unknown is None:
        return 0, []
    key = [name for name in taken.unknown.columns if name != UNAVAILABLE]
    text = F.concat(
        F.to_json(F.struct(*(f"`{name}`" for name in key)), ROW_TEXT), F.lit(": "), F.array_join(UNAVAILABLE, ", ")
    )
    shown = taken.unknown.select(text.alias("text")).persist()
    try:
        named = [row["text"] for row in shown.orderBy("text").limit(_KEYS_NAMED_MAX).collect()]
        return shown.count(), named
    finally:
        shown.unpersist()


def _rows_until(
    spark: SparkSession, collection: Collection, files: Sequence[RunFile], schema: pa.Schema, at: int
) -> DataFrame:
    """The rows of these files at or before a time; where the files say that this is all, nothing is compared.

    A comparison with another number at each read would be compiled anew each time.
    """
    rows = read_files(spark, collection.paths.updates, files, schema)
    if all(file.time_max is not None and file.time_max <= at for file in files):
        return rows
    return rows.where(F.col(TIME) <= at)


def _refuse_errors(collection: Collection, rows: DataFrame, at: int) -> None:
    """Raise where keys are in error; asked only of a table that has ever stored one."""
    shape = shape_of(collection)
    found = positioned.keys_in_error(rows, shape)
    text = F.to_json(F.struct(*(f"`{name}`" for name in shape.key)), ROW_TEXT)
    named = found.select(text.alias("key")).orderBy("key").limit(_KEYS_NAMED_MAX).collect()
    if named:
        raise KeysInError(collection.name, at, found.count(), [row["key"] for row in named])


def _filtered(rows: DataFrame, where: str, names: Sequence[str]) -> DataFrame:
    """Apply a predicate on the columns of the contents; the system's columns are not there for it."""
    try:
        # Once for its errors alone, on a frame that has no `_time` and `_diff`: a predicate on those would not commute
        # with adding up. Spark would find them below a mere projection.
        bare = rows.select(*(f"`{name}`" for name in names)).schema
        rows.sparkSession.createDataFrame([], bare).where(where)
        return rows.where(where)
    except (AnalysisException, ParseException) as error:
        fact = str(error).splitlines()[0]
        raise RuleBroken(f"the predicate {where!r} does not fit: {fact}", f"columns are: {', '.join(names)}") from error
