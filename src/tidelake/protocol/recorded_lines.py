"""Writes updates in the order of their times as a recorded stream, which the reader and `replay` read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Any

from tidelake.protocol.json_values import to_text
from tidelake.protocol.order import INT64_MAX

UPDATES_IN_LINE_MAX = 1_000


def recorded_times(
    updates: Iterable[tuple[int, Any, int]], lower: int, through: int, closed: bool = False
) -> Iterator[tuple[int, Iterator[str]]]:
    r"""Write complete times, each as its own lines: its updates, and a progress statement that completes it.

    Args:
        updates: `(time, data, diff)`, consolidated and in the order of their times, which are from `lower` through
            `through`.
        lower: the first time that no earlier line has completed.
        through: the last time that the lines complete.
        closed: whether the stream ends after `through`.

    Yields:
        A time and its lines, without line breaks. Consume the lines of a time before asking for the next one. The last
        time is `through`, which may have no updates.

    >>> for time, lines in recorded_times([(1, "a", 1), (3, "a", -1)], 0, 4):
    ...     print(time, *lines, sep="\n")
    1
    {"updates":[["a",1,1]]}
    {"progress":{"lower":[0],"upper":[2],"counts":[[1,1]]}}
    3
    {"updates":[["a",3,-1]]}
    {"progress":{"lower":[2],"upper":[4],"counts":[[3,1]]}}
    4
    {"progress":{"lower":[4],"upper":[5],"counts":[]}}
    """
    done, last = lower, -1
    for time, group in groupby(updates, key=lambda update: update[0]):
        yield time, _lines_of(group, done, time, closed and time == through)
        done, last = time + 1, time
    if last != through and (closed or done <= through):
        yield through, iter((_progress(done, through, [], closed),))


def _lines_of(group: Iterable[tuple[int, Any, int]], lower: int, time: int, closed: bool) -> Iterator[str]:
    count, triples = 0, ([data, at, diff] for at, data, diff in group)
    while batch := list(islice(triples, UPDATES_IN_LINE_MAX)):
        count += len(batch)
        yield to_text({"updates": batch})
    yield _progress(lower, time, [[time, count]], closed)


def _progress(lower: int, through: int, counts: list[list[int]], closed: bool) -> str:
    upper = [] if closed or through == INT64_MAX else [through + 1]
    return to_text({"progress": {"lower": [lower], "upper": upper, "counts": counts}})
