"""The laws of changes, checked against the contents that a model has at each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from tidelake.query.answer import Answer
from tidelake.read.changes import Changes, changes
from tidelake.read.subscription import Batch
from tidelake.store.entry import Collection

Rows = Mapping[str, int]
Updates = dict[tuple[str, int], int]


def updates_of(found: Changes | Batch[Any], text: Callable[[dict[str, Any]], str]) -> Updates:
    """The diff of each row and time. The updates must be consolidated. `text` names a row by its data."""
    updates: Updates = {}
    rows = found.updates.table() if isinstance(found.updates, Answer) else found.updates.toArrow()
    for row in rows.to_pylist():
        time, diff = row.pop("_time"), row.pop("_diff")
        place = text(row), time
        assert diff != 0, place
        assert place not in updates, f"{place} is not consolidated"
        updates[place] = diff
    return updates


def add_until(updates: Updates, time: int) -> dict[str, int]:
    """The contents that updates add up to at a time."""
    rows: Counter[str] = Counter()
    for (row, at), diff in updates.items():
        if at <= time:
            rows[row] += diff
    return {row: diff for row, diff in rows.items() if diff}


def check_laws(
    spark: SparkSession,
    collection: Collection,
    times: Sequence[int],
    expected: Callable[[int], Rows],
    rng: Random,
    text: Callable[[dict[str, Any]], str],
    **more: Any,
) -> Updates:
    """Check that all changes add up to the model's contents at every time, and that parts agree with the whole.

    Args:
        spark: the session.
        collection: the collection.
        times: times that can be read, in order; the first is `since`, and the last is the last readable one.
        expected: the contents of the model at a time: how many times each row occurs.
        rng: chooses the cuts.
        text: names a row by its data, as `expected` does.
        more: further arguments of `changes`.
    """
    whole = updates_of(changes(spark, collection, None, times[-1], **more), text)
    for time in times:
        assert add_until(whole, time) == dict(expected(time)), time
    cuts = sorted(rng.sample(list(times[1:-1]), min(1, len(times[1:-1]))))
    for after, through in zip([times[0], *cuts], [*cuts, times[-1]], strict=True):
        part = updates_of(changes(spark, collection, after, through, **more), text)
        assert part == {place: diff for place, diff in whole.items() if after < place[1] <= through}, (after, through)
    return whole
