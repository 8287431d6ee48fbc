"""Applies the changes of a range of times to a published table, and rewrites only the files that they touch.

Unchanged rows are neither compared nor sorted. Every task holds the keys that changed (or the rows, if there is no
key); a scan of the columns that identify a row finds the files that have one of them. These files are copied without
those rows, and the new rows are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidelake.errors import KeysInError, SinceError
from tidelake.forms.sums import add_up
from tidelake.plugins.envelope import form_of
from tidelake.read.changes import Changes, changes
from tidelake.read.copies import Shape, Shaped, counted_rows
from tidelake.read.published_files import (
    PATH,
    CannotFollow,
    Extent,
    PublishedTable,
    extent_aggregates,
    extent_of,
    may_touch,
    number_of_files,
    small_files_to_merge,
)
from tidelake.spark.conditions import all_of
from tidelake.spark.equality import same_in
from tidelake.store.base import LATER_ROWS_MAX
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.failpoints import reach
from tidelake.store.layout import DIFF, TIME
from tidelake.store.published import PublishedFile
from tidelake.store.runs import spark_schema

CHANGED_SHARE_MAX = 1 / 3
"""If a larger share of the rows has changed, writing all rows is cheaper than finding the changed ones."""
CHANGED_ROWS_FOLLOWED = 1_000
"""If at most this many rows have changed, they are always applied, whatever their share."""
_HELD_ROWS_MAX = 200_000
"""Maximum number of whole changed rows that every task holds; if there are more, Spark sorts them."""
_ROW = "_row"
_WAS = "_was"


@dataclass(frozen=True)
class Followed:
    """The rows that replace the touched files."""

    found: Changes
    replaced: Sequence[PublishedFile]
    rows_changed: int
    """Number of rows that came or went; with a key, number of keys whose row came, went or changed."""
    expected_rows: int | None
    """Number of rows to write; None if only writing shows it."""
    contents_added: int
    """The growth of the number of rows of the contents."""
    rows: DataFrame | None
    """The columns of the table; None if no row is written."""
    shaped: Shaped | None = None
    """Refuses multiplicities that a bag cannot have, once the rows are written."""


class _Matching(Protocol):
    """How a row of the table is identified, and what replaces the rows that changed."""

    on: Sequence[str]
    """The columns that identify a row."""
    held_max: int
    """Maximum number of changed rows that every task holds."""

    def net(self, updates: DataFrame) -> DataFrame:
        """Return the net change that the updates make: at most one row for each value of `on`."""

    def totals(self) -> dict[str, Column]:
        """Return sums over the net changes; `contents` is the growth of the contents."""

    def after(
        self, table: PublishedTable, net: DataFrame, scanned: DataFrame, touched: int, sums: dict[str, Any]
    ) -> tuple[DataFrame, int | None, Shaped | None]:
        """Return the rows that replace the changed ones, their number, and the check that may refuse them.

        Args:
            table: the table.
            net: the net changes.
            scanned: the rows of the table that they touch, and the path of each.
            touched: how many these are.
            sums: the values of `totals`.

        Raises:
            CannotFollow: the table does not have the rows that have changed.
        """


class _ByKey:
    """Each key has one row."""

    held_max = LATER_ROWS_MAX

    def __init__(self, key: Sequence[str], names: Sequence[str]) -> None:
        self.on, self._names = key, names

    def net(self, updates: DataFrame) -> DataFrame:
        """Out: the key's columns, _row struct (null if the key no longer has a row), _was (1 if it had one, else 0)."""
        value = F.when(F.col(DIFF) > 0, F.struct(*(F.col(f"`{name}`") for name in self._names)))
        newest = F.max_by(value, F.struct(F.col(TIME), F.col(DIFF) > 0)).alias(_ROW)
        grouped = updates.groupBy(*(f"`{name}`" for name in self.on)).agg(newest, F.sum(DIFF).alias("_added"))
        was = F.col(_ROW).isNotNull().cast("bigint") - F.col("_added")
        counted = grouped.withColumn(_WAS, was).drop("_added")
        return counted.where((F.col(_WAS) > 0) | F.col(_ROW).isNotNull())

    def totals(self) -> dict[str, Column]:
        """Count the keys that had a row, and those that have one now."""
        now = F.count_if(F.col(_ROW).isNotNull())
        return {"was": F.sum(_WAS), "now": now, "contents": now - F.sum(_WAS)}

    def after(
        self, table: PublishedTable, net: DataFrame, scanned: DataFrame, touched: int, sums: dict[str, Any]
    ) -> tuple[DataFrame, int | None, Shaped | None]:
        """Return the newest row of each key."""
        if touched != sums["was"]:
            raise CannotFollow(f"it has {touched} of the {sums['was']} rows whose keys have changed")
        return net.where(F.col(_ROW).isNotNull()).select(f"{_ROW}.*"), sums["now"], None


class _ByRow:
    """Whole rows are compared, and their diffs are added up."""

    held_max = _HELD_ROWS_MAX

    def __init__(self, names: Sequence[str], shape: Shape) -> None:
        self.on, self._shape = names, shape

    def net(self, updates: DataFrame) -> DataFrame:
        """Out: the data's columns, _diff, not 0."""
        return add_up(updates.select(*(f"`{name}`" for name in self.on), DIFF), self.on)

    def totals(self) -> dict[str, Column]:
        """Add up the diffs."""
        return {"contents": F.sum(F.col(DIFF).cast("decimal(38,0)"))}

    def after(
        self, table: PublishedTable, net: DataFrame, scanned: DataFrame, touched: int, sums: dict[str, Any]
    ) -> tuple[DataFrame, int | None, Shaped | None]:
        """Add the diffs of rows that the table has to those that came."""
        rows = net
        if touched:
            rows = add_up(counted_rows(scanned, self.on, self._shape).unionByName(net), self.on)
        shaped = Shaped(rows, self._shape)
        return shaped.rows, None, shaped if self._shape == "bag" else None


@contextmanager
def follow(table: PublishedTable, collection: Collection, as_of: int, shape: Shape) -> Iterator[Followed]:
    """Derive from the changes up to a time what has to be written; the block writes it.

    Raises:
        CannotFollow: the table has to be rebuilt.

    Cost: `changes`; then one scan of the columns that identify a row, in the files whose statistics allow one of the
    changed rows, unless none does. To write: the files with such a row, and small files if there are too many.
    """
    try:
        found = changes(table.spark, collection, table.shown.as_of, as_of)
    except SinceError as error:
        raise CannotFollow(f"since is beyond time {table.shown.as_of}, which it shows") from error
    except KeysInError as error:
        raise CannotFollow(f"keys were in error after time {table.shown.as_of}, which it shows") from error
    form = form_of(collection.entry, OpenTable(collection.paths.updates))
    names = [field.name for field in form.fields]
    check_columns(table.schema, spark_schema(pa.schema(form.fields)), shape)
    matching: _Matching = _ByKey(collection.entry.key, names) if shape == "key" else _ByRow(names, shape)
    with ExitStack() as held:
        net = matching.net(found.updates).persist()
        held.callback(net.unpersist)
        schema = StructType([net.schema[name] for name in matching.on])
        sums = {"changed": F.count("*"), **matching.totals(), **extent_aggregates(schema)}
        row = net.agg(*(column.alias(name) for name, column in sums.items())).first()
        assert row is not None
        values = row.asDict()
        changed = int(values["changed"])
        reach("current.after_changes")
        if changed > max(CHANGED_ROWS_FOLLOWED, CHANGED_SHARE_MAX * table.shown.rows):
            raise CannotFollow(f"{changed:,} rows have changed, of {table.shown.rows:,}")
        if not changed:
            yield Followed(found, (), 0, 0, 0, None)
            return
        extent = extent_of(schema, values)
        near = [file for file in table.files if may_touch(file, extent)]
        is_few = changed <= matching.held_max
        columns = table.schema.names if shape == "diff" else matching.on
        read = table.read(near, columns, with_path=True)
        scanned = _joined(read, net, matching.on, extent, is_few, "left_semi").persist()
        held.callback(scanned.unpersist)
        by_path = {each[PATH]: each["count"] for each in scanned.groupBy(PATH).count().collect()} if near else {}
        touched = table.files_at(by_path)
        reach("current.after_scan")
        replaced = [*touched, *small_files_to_merge(table.files, touched)]
        added, expected, shaped = matching.after(table, net, scanned, sum(by_path.values()), values)
        rows = added
        if replaced:
            kept = table.read(replaced, table.schema.names)
            if touched:
                kept = _joined(kept, net, matching.on, extent, is_few, "left_anti")
            rows = kept.unionByName(added)
            if expected is not None:
                expected += sum(file.rows or 0 for file in replaced) - sum(by_path.values())
        size = sum(file.size for file in replaced) + changed * _bytes_a_row(table)
        rows = rows.coalesce(number_of_files(size, table.spark.sparkContext.defaultParallelism))
        yield Followed(found, replaced, changed, expected, int(values["contents"] or 0), rows, shaped)


def check_columns(published: StructType, columns: StructType, shape: Shape) -> None:
    """Check that a published table has the columns of the contents, and in this shape.

    Raises:
        CannotFollow: it has others.
    """
    wanted = {field.name: field.dataType.simpleString() for field in columns}
    if shape == "diff":
        wanted[DIFF] = "bigint"
    have = {field.name: field.dataType.simpleString() for field in published}
    if have != wanted:
        different = sorted(dict(have.items() ^ wanted.items()))
        raise CannotFollow(f"its columns are different: {', '.join(different)}")


def _joined(rows: DataFrame, net: DataFrame, on: Sequence[str], extent: Extent, is_few: bool, how: str) -> DataFrame:
    """Return the rows that changed (`left_semi`), or the others (`left_anti`)."""
    changed = net.select(*(f"`{name}`" for name in on))
    required = [name for name in on if name in extent.without_nulls]
    same = [F.col(f"_rows.`{name}`") == F.col(f"_changed.`{name}`") for name in required]
    same += [same_in("_rows", "_changed", [name]) for name in on if name not in extent.without_nulls]
    beside = F.broadcast(changed) if is_few else changed
    return rows.alias("_rows").join(beside.alias("_changed"), all_of(same), how)


def _bytes_a_row(table: PublishedTable) -> int:
    return sum(file.size for file in table.files) // max(1, table.shown.rows)
