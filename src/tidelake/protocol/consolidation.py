"""Consolidation: diffs of equal data at equal times are summed, and zeros are dropped."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from tidelake.protocol.message import Update, trusted_update
from tidelake.protocol.order import Time, advance_by, total_order_key

Triple = tuple[Any, Time, int]


def consolidate(
    updates: Iterable[Update | Triple], identity: Callable[[Any], Hashable] = lambda data: data
) -> list[Update]:
    """Sum the diffs of each `(data, time)`; zeros are dropped.

    Args:
        updates: updates in any order.
        identity: returns the same hashable value for equal data.

    Returns:
        One update for each `(data, time)`, sorted by time, then by the identity's type and text, so that equal
        collections give equal lists.

    Cost: one pass, and one sort of the result.

    >>> consolidate([("b", 1, +1), ("a", 1, +2), ("b", 1, -1)])
    [Update(data='a', time=1, diff=2)]
    """
    sums: dict[tuple[Hashable, Time], list[Any]] = {}
    for data, time, diff in updates:
        entry = sums.setdefault((identity(data), time), [data, 0])
        entry[1] += diff
    totals = [(key, entry) for key, entry in sums.items() if entry[1]]
    totals.sort(key=lambda item: (total_order_key(item[0][1]), type(item[0][0]).__name__, repr(item[0][0])))
    return [trusted_update(data, time, diff) for (_, time), (data, diff) in totals]


def consolidate_to(
    updates: Iterable[Update | Triple],
    since: Sequence[Time],
    identity: Callable[[Any], Hashable] = lambda data: data,
) -> list[Update]:
    """Advance every update as far as possible without a reader at or after `since` noticing, then consolidate.

    >>> consolidate_to([("a", 1, +1), ("a", 3, -1), ("b", 2, +1), ("b", 9, +1)], since=[5])
    [Update(data='b', time=5, diff=1), Update(data='b', time=9, diff=1)]
    """
    elements = tuple(since)
    return consolidate(((data, advance_by(time, elements), diff) for data, time, diff in updates), identity)


def accumulate(
    updates: Iterable[Update | Triple], identity: Callable[[Any], Hashable] = lambda data: data
) -> dict[Hashable, int]:
    """Sum diffs by data over all times, and return the resulting multiset without zeros.

    >>> accumulate([("a", 1, +2), ("b", 1, +1), ("b", 2, -1)])
    {'a': 2}
    """
    sums: dict[Hashable, int] = {}
    for data, _, diff in updates:
        key = identity(data)
        sums[key] = sums.get(key, 0) + diff
    return {key: diff for key, diff in sums.items() if diff}
