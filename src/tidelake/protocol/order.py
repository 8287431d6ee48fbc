"""The order of times: of integers, and of products, which are tuples of integers compared element by element.

Code that takes times of both kinds calls `less_equal`, `join` and `meet`. Only code for integers alone may compare them
with `<`, `max` and `min`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelake.errors import MixedTimes

Time = int | tuple[int, ...]
"""A logical time: a non-negative int64, or a non-empty tuple of them. All times of one stream have the same width."""

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1


def width_of(time: Time) -> int | None:
    """Return the width of a time; None for an integer, which differs from a list of one integer.

    >>> width_of(7), width_of((7,)), width_of((7, 0))
    (None, 1, 2)
    """
    return len(time) if isinstance(time, tuple) else None


def minimum(width: int | None) -> Time:
    """Return the minimum time of a width.

    >>> minimum(None), minimum(2)
    (0, (0, 0))
    """
    return 0 if width is None else (0,) * width


def minimum_like(time: Time) -> Time:
    """Return the minimum time of the same width as `time`.

    >>> minimum_like((3, 4))
    (0, 0)
    """
    return minimum(width_of(time))


def less_equal(first: Time, second: Time) -> bool:
    """Return whether `second` is at or after `first`.

    Raises:
        MixedTimes: the widths differ.

    >>> less_equal(3, 3), less_equal((0, 1), (1, 1)), less_equal((0, 1), (1, 0))
    (True, True, False)
    """
    if isinstance(first, tuple):
        if isinstance(second, tuple) and len(first) == len(second):
            return all(a <= b for a, b in zip(first, second, strict=True))
    elif not isinstance(second, tuple):
        return first <= second
    raise MixedTimes(first, second)


def less_than(first: Time, second: Time) -> bool:
    """Return whether `second` is after `first`, and not equal to it.

    >>> less_than(3, 3), less_than((0, 1), (1, 1))
    (False, True)
    """
    return less_equal(first, second) and first != second


def join(first: Time, second: Time) -> Time:
    """Return the earliest time at or after both.

    >>> join(3, 5), join((0, 4), (1, 2))
    (5, (1, 4))
    """
    if isinstance(first, tuple):
        if isinstance(second, tuple) and len(first) == len(second):
            return tuple(a if a >= b else b for a, b in zip(first, second, strict=True))
    elif not isinstance(second, tuple):
        return first if first >= second else second
    raise MixedTimes(first, second)


def meet(first: Time, second: Time) -> Time:
    """Return the latest time at or before both.

    >>> meet(3, 5), meet((0, 4), (1, 2))
    (3, (0, 2))
    """
    if isinstance(first, tuple):
        if isinstance(second, tuple) and len(first) == len(second):
            return tuple(a if a <= b else b for a, b in zip(first, second, strict=True))
    elif not isinstance(second, tuple):
        return first if first <= second else second
    raise MixedTimes(first, second)


def total_order_key(time: Time) -> Time:
    """Return the sort key of a linear extension: no time sorts before a time that precedes it.

    For products, Python's order of tuples, by the first element that differs, is such an extension.

    >>> sorted([(1, 1), (1, 0), (0, 2)], key=total_order_key)
    [(0, 2), (1, 0), (1, 1)]
    """
    return time


def minimal_elements(times: Iterable[Time]) -> tuple[Time, ...]:
    """Return the times that have no earlier time among `times`, sorted and without duplicates.

    Cost: each time is compared with every minimal element; a single pass for integers.

    >>> minimal_elements([(0, 2), (1, 1), (2, 2), (1, 1)]), minimal_elements([4, 3, 9]), minimal_elements([])
    (((0, 2), (1, 1)), (3,), ())
    """
    distinct = set(times)
    if len(distinct) < 2:
        return tuple(distinct)
    minimal: list[Time] = []
    # In a linear extension, no time is before one that comes earlier in the list.
    for time in sorted(distinct, key=_mixed_safe_key):
        if not any(less_equal(element, time) for element in minimal):
            minimal.append(time)
    return tuple(minimal)


def _mixed_safe_key(time: Time) -> tuple[int, tuple[int, ...]]:
    """Return a key that sorts times of different widths without an error, so that `less_equal` reports the mixture."""
    return (len(time), time) if isinstance(time, tuple) else (0, (time,))


def advance_by(time: Time, since: Iterable[Time]) -> Time:
    """Return the latest time that no reader at or after `since` can distinguish from `time`.

    Args:
        time: a logical time.
        since: the elements of the read frontier. Empty means "unreadable": `time` stays as it is.

    Returns:
        `time` itself if it is already at or after `since`.

    Cost: one join and one meet for each element of `since`.
    Source: K-Pg, SIGMOD 2020, appendix A: the meet over `since` of the joins with `time`.

    >>> advance_by(3, since=(5,)), advance_by(7, since=(5,)), advance_by(3, since=())
    (5, 7, 3)
    >>> advance_by((0, 0), since=((2, 0), (0, 3)))
    (0, 0)
    >>> advance_by((1, 1), since=((2, 0), (0, 3)))
    (1, 1)
    """
    moved: Time | None = None
    for element in since:
        joined = join(time, element)
        moved = joined if moved is None else meet(moved, joined)
    return time if moved is None else moved
