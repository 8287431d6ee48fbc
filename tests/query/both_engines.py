"""Asks both engines the same questions, and compares their rows, value by value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidelake.errors import TidelakeError
from tidelake.query import contents as duck
from tidelake.read.changes import changes
from tidelake.read.diff import count_keys, difference
from tidelake.read.snapshot import describe_unknown, snapshot
from tidelake.store.entry import Collection
from tidelake.store.layout import DIFF
from tidelake.store.rows_at import with_numbers


def check_equal(ours: pa.Table, theirs: pa.Table, about: object) -> None:
    """Compare the rows of both engines, whatever their order."""
    found, wanted = (Counter(map(repr, with_numbers(table).to_pylist())) for table in (ours, theirs))
    assert found == wanted, f"{about}: only DuckDB has {found - wanted}, and only Spark has {wanted - found}"


def check_distinct(table: pa.Table) -> None:
    """Check that no two rows are equal except for `_diff`."""
    rows = Counter(map(repr, with_numbers(table.drop_columns([DIFF])).to_pylist()))
    assert not [row for row, times in rows.items() if times > 1]


def check_read(spark: SparkSession, collection: Collection, as_of: int | None, **more: Any) -> None:
    """Compare the contents AS OF a time, or the errors."""
    try:
        theirs = snapshot(spark, collection, as_of, **more)
    except TidelakeError as error:
        check_refused(error, lambda: duck.contents(collection, as_of, **more))
        return
    ours = duck.contents(collection, as_of, **more)
    check_equal(ours.rows.table(), theirs.contents.toArrow(), (as_of, more))
    if more.get("columns"):
        check_distinct(ours.rows.table())
    assert (ours.as_of, ours.since, ours.upper, ours.closed) == (
        theirs.as_of,
        theirs.since,
        theirs.upper,
        theirs.closed,
    )
    lacking, named = describe_unknown(theirs)
    assert (ours.lacking, list(ours.lacking_named)) == (lacking, named)
    ours.rows.close()


def check_diff(spark: SparkSession, collection: Collection, first: int, last: int, **more: Any) -> None:
    """Compare the difference between two times, or the errors."""
    try:
        theirs = difference(spark, collection, (first, last), **more)
    except TidelakeError as error:
        check_refused(error, lambda: duck.difference(collection, first, last, **more))
        return
    ours = duck.difference(collection, first, last, **more)
    check_equal(ours.rows.table(), theirs.rows.toArrow(), (first, last, more))
    keys = count_keys(theirs)
    assert (ours.keys and vars(ours.keys)) == (keys and vars(keys))
    ours.rows.close()


def check_changes(spark: SparkSession, collection: Collection, after: int | None, through: int, **more: Any) -> None:
    """Compare the changes of a range, or the errors."""
    try:
        theirs = changes(spark, collection, after, through, **more)
        wanted = theirs.updates.select(*_in_our_order(theirs.updates.columns)).toArrow()
    except TidelakeError as error:
        check_refused(error, lambda: duck.updates(collection, after, through, **more))
        return
    ours = duck.updates(collection, after, through, **more)
    check_equal(ours.rows.table(), wanted, (after, through, more))
    if more.get("columns"):
        check_distinct(ours.rows.table())
    assert (ours.files_read, ours.rows_read) == (theirs.files_read, theirs.rows_read)
    ours.rows.close()


def check_refused(error: TidelakeError, ask: Any) -> None:
    """Check that a call is refused with the same error."""
    with pytest.raises(type(error)) as refused:
        ask()
    assert str(refused.value) == str(error)


def check_all(
    spark: SparkSession, collection: Collection, times: Sequence[int], rng: Random, few: Sequence[str], where: str
) -> None:
    """Compare reads, differences and changes at some of the times, with and without columns and a predicate.

    Reads right before the first and right after the last time are compared as well.
    """
    chosen = sorted({times[0], times[-1], *rng.sample(list(times), min(2, len(times)))})
    for time in (*chosen, times[0] - 1, times[-1] + 1):
        check_read(spark, collection, time)
    at = rng.choice(chosen)
    check_read(spark, collection, at, columns=few, where=where, skip_errors=True)
    first, last = rng.choice(times), rng.choice(times)
    check_diff(spark, collection, first, last, skip_errors=rng.random() < 0.5)
    check_diff(spark, collection, last, first, columns=few, where=where, skip_errors=True)
    begin, end = min(first, last), max(first, last)
    check_changes(spark, collection, begin, end)
    check_changes(spark, collection, None, times[-1], skip_errors=True)
    check_changes(spark, collection, begin, end, columns=few, where=where, skip_errors=True)


def _in_our_order(names: Sequence[str]) -> list[str]:
    return ["_time", *(f"`{name}`" for name in names if name != "_time")]
