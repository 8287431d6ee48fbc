"""Applies the changes of a range of times to a published table, and rewrites only the files that they touch.

Unless too many rows have changed, every task holds their keys (or the rows themselves, if there is no key), so that
unchanged rows need not be sorted. A scan of the columns that identify a row finds the files with rows to replace. These
files are copied without those rows, and the new rows are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidelake.errors import KeysInError, SinceError
from tidelake.plugins.envelope import form_of
from tidelake.read.changes import changes, newest_states
from tidelake.read.copies import Shape, Shaped
from tidelake.read.matching import ByKey, ByNewest, ByRow, Matching
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
from tidelake.read.words import counted
from tidelake.spark.conditions import all_of
from tidelake.spark.equality import same_in
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.failpoints import reach
from tidelake.store.layout import DIFF
from tidelake.store.published import PublishedFile
from tidelake.store.runs import spark_schema

CHANGED_SHARE_MAX = 1 / 3
"""If a larger share of the rows than this has changed, writing all rows is cheaper than finding the changed ones."""
CHANGED_ROWS_FOLLOWED = 1_000
"""If at most this many rows have changed, they are always applied, whatever their share."""


@dataclass(frozen=True)
class Followed:
    """The rows that replace the touched files."""

    since: int
    upper: int
    """Since and upper of the collection when the changes were read."""
    replaced: Sequence[PublishedFile]
    rows_changed: int
    """Number of rows added or removed; with a key, number of keys whose row was added, removed or stated again."""
    expected_rows: int | None
    """Number of rows to write; None if it is unknown until they are written."""
    contents_added: int
    """The increase in the number of rows of the contents."""
    rows: DataFrame | None
    """The rows to write, with the columns of the table; None if there are none."""
    shaped: Shaped | None = None
    """Refuses multiplicities that a bag cannot have, once the rows are written."""


@dataclass(frozen=True)
class _Net:
    """The net changes of a range of times: at most one row for each value of `matching.on`."""

    matching: Matching
    rows: DataFrame
    since: int
    upper: int


@contextmanager
def follow(
    table: PublishedTable, collection: Collection, as_of: int, shape: Shape, skip_errors: bool = False
) -> Iterator[Followed]:
    """Derive the rows to write from the changes up to a time; the caller's `with` block writes them.

    Args:
        table: the published table.
        collection: the collection.
        as_of: the time.
        shape: how the table shows multiplicities.
        skip_errors: whether to remove the rows of keys in error; if not, such keys prevent following.

    Raises:
        CannotFollow: the table has to be rebuilt.

    Cost: if only the newest row of a key counts, the files with rows in the range of times, otherwise as for `changes`.
    Then one scan of the columns that identify a row, in the files that, by their statistics, may hold a changed row.
    Rewritten: the files with such a row, and the small files if there are too many.
    """
    form = form_of(collection.entry, OpenTable(collection.paths.updates))
    names = [field.name for field in form.fields]
    check_columns(table.schema, spark_schema(pa.schema(form.fields)), shape)
    with ExitStack() as held:
        net, values = _counted_net(table, collection, as_of, shape, names, skip_errors, held)
        matching, changed = net.matching, values["changed"]
        reach("current.after_changes")
        if not changed:
            yield Followed(net.since, net.upper, (), 0, 0, 0, None)
            return
        extent = extent_of(_columns_of(net), values)
        near = [file for file in table.files if may_touch(file, extent)]
        is_few = changed <= matching.held_max
        columns = table.schema.names if shape == "diff" else matching.on
        read = table.read(near, columns, with_path=True)
        scanned = _joined(read, net, extent, is_few, "left_semi").persist()
        held.callback(scanned.unpersist)
        by_path = {each[PATH]: each["count"] for each in scanned.groupBy(PATH).count().collect()} if near else {}
        touched = table.files_at(by_path)
        rows_touched = sum(by_path.values())
        reach("current.after_scan")
        replaced = [*touched, *small_files_to_merge(table.files, touched)]
        added = matching.replacement(net.rows, scanned, rows_touched, values)
        rows, expected = added.rows, added.number
        if replaced:
            kept = table.read(replaced, table.schema.names)
            if touched:
                kept = _joined(kept, net, extent, is_few, "left_anti")
            rows = kept.unionByName(added.rows)
            if expected is not None:
                expected += sum(file.rows or 0 for file in replaced) - rows_touched
        size = sum(file.size for file in replaced) + changed * _bytes_a_row(table)
        rows = rows.coalesce(number_of_files(size, table.spark.sparkContext.defaultParallelism))
        yield Followed(net.since, net.upper, replaced, changed, expected, added.contents_added, rows, added.shaped)


def _counted_net(
    table: PublishedTable,
    collection: Collection,
    as_of: int,
    shape: Shape,
    names: Sequence[str],
    skip_errors: bool,
    held: ExitStack,
) -> tuple[_Net, dict[str, Any]]:
    """Return the net changes, which stay in memory until `held` is closed, and their number and sums.

    If too many keys have been stated, `changes` finds how many of their rows really differ.

    Raises:
        CannotFollow: too many rows have changed.
    """
    most = max(CHANGED_ROWS_FOLLOWED, CHANGED_SHARE_MAX * table.shown.rows)
    changed = 0
    net_changes = partial(_changes, skip_errors=skip_errors)
    for find in (_newest, net_changes) if shape == "key" else (net_changes,):
        net = find(table, collection, as_of, shape, names)
        if net is None:
            continue
        rows = net.rows.persist()
        held.callback(rows.unpersist)
        sums = {"changed": F.count("*"), **net.matching.totals(), **extent_aggregates(_columns_of(net))}
        row = rows.agg(*(column.alias(name) for name, column in sums.items())).first()
        assert row is not None
        values = row.asDict()
        changed = int(values["changed"])
        if changed <= most:
            return replace(net, rows=rows), values
    raise CannotFollow(f"{counted(changed, 'row has', 'rows have')} changed, of {table.shown.rows:,}")


def _newest(
    table: PublishedTable, collection: Collection, as_of: int, shape: Shape, names: Sequence[str]
) -> _Net | None:
    """Return the newest row of each key that was stated since the publication; None if that requires earlier rows.

    Raises:
        CannotFollow: `since` is after the time that the table shows.
    """
    try:
        found = newest_states(table.spark, collection, table.shown.as_of, as_of)
    except SinceError as error:
        raise _since_passed(table) from error
    return None if found is None else _Net(ByNewest(collection.entry.key), found.states, found.since, found.upper)


def _changes(
    table: PublishedTable, collection: Collection, as_of: int, shape: Shape, names: Sequence[str], skip_errors: bool
) -> _Net:
    """Return the net changes since the table was published.

    Raises:
        CannotFollow: `since` is after the time that the table shows, or keys were in error and are not left out.
    """
    try:
        found = changes(table.spark, collection, table.shown.as_of, as_of, skip_errors=skip_errors)
    except SinceError as error:
        raise _since_passed(table) from error
    except KeysInError as error:
        raise CannotFollow(f"it shows time {table.shown.as_of}, and keys were in error after that time") from error
    matching = ByKey(collection.entry.key, names) if shape == "key" else ByRow(names, shape)
    return _Net(matching, matching.net(found.updates), found.since, found.upper)


def _since_passed(table: PublishedTable) -> CannotFollow:
    return CannotFollow(f"it shows time {table.shown.as_of}, which is before since")


def _columns_of(net: _Net) -> StructType:
    """Return the columns that identify a row."""
    return StructType([net.rows.schema[name] for name in net.matching.on])


def check_columns(published: StructType, columns: StructType, shape: Shape) -> None:
    """Check that a published table has the columns of the contents in this shape.

    Raises:
        CannotFollow: the table has different columns.
    """
    wanted = {field.name: field.dataType.simpleString() for field in columns}
    if shape == "diff":
        wanted[DIFF] = "bigint"
    have = {field.name: field.dataType.simpleString() for field in published}
    if have != wanted:
        different = sorted(dict(have.items() ^ wanted.items()))
        raise CannotFollow(f"its columns are different: {', '.join(different)}")


def _joined(rows: DataFrame, net: _Net, extent: Extent, is_few: bool, how: str) -> DataFrame:
    """Return the rows that changed (`left_semi`), or those that did not (`left_anti`)."""
    on = net.matching.on
    changed = net.rows.select(*(f"`{name}`" for name in on))
    required = [name for name in on if name in extent.without_nulls]
    same = [F.col(f"_rows.`{name}`") == F.col(f"_changed.`{name}`") for name in required]
    same += [same_in("_rows", "_changed", [name]) for name in on if name not in extent.without_nulls]
    beside = F.broadcast(changed) if is_few else changed
    return rows.alias("_rows").join(beside.alias("_changed"), all_of(same), how)


def _bytes_a_row(table: PublishedTable) -> int:
    return sum(file.size for file in table.files) // max(1, table.shown.rows)
