"""A sorted set of integer times that adds and removes many neighbouring times at once.

Times of one message are usually neighbours, so they are added with one search and one move. That is several times
faster than adding times one by one, and receiving a stream in any order costs a reader about as much as in time order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

_LENGTH_MAX = 1000


class SortedTimes:
    """Sorted times, in lists of at most about a thousand.

    Cost: a search is O(log n); times that all belong between two neighbours are added by one move within one list.

    >>> times = SortedTimes([7, 3])
    >>> times.add_run([4, 5]); list(times), times.between(4, 7), times.floor(6)
    ([3, 4, 5, 7], [4, 5], 5)
    >>> times.drop_first(3); list(times), times.floor(6)
    ([7], None)
    """

    __slots__ = ("_lists", "_maxes")

    def __init__(self, times: Iterable[int] = ()) -> None:
        self._lists: list[list[int]] = []
        self._maxes: list[int] = []
        run = sorted(times)
        if run:
            self.add_run(run)

    def __bool__(self) -> bool:
        return bool(self._lists)

    def __iter__(self) -> Iterator[int]:
        for times in self._lists:
            yield from times

    def __contains__(self, time: int) -> bool:
        return self.floor(time) == time

    def add_run(self, run: list[int]) -> None:
        """Add at least one time; the times are sorted, distinct and new."""
        while run:
            if not self._lists:
                self._lists.append([])
                self._maxes.append(run[-1])
            index = min(bisect_left(self._maxes, run[0]), len(self._lists) - 1)
            times = self._lists[index]
            at = bisect_left(times, run[0])
            cut = len(run) if at == len(times) or run[-1] < times[at] else bisect_left(run, times[at])
            assert cut, "the time is already present"
            times[at:at] = run[:cut]
            self._maxes[index] = times[-1]
            if len(times) > _LENGTH_MAX:
                self._split(index)
            run = run[cut:]

    def _split(self, index: int) -> None:
        times = self._lists[index]
        half = max(_LENGTH_MAX // 2, 1)
        parts = [times[start : start + half] for start in range(0, len(times), half)]
        self._lists[index : index + 1] = parts
        self._maxes[index : index + 1] = [part[-1] for part in parts]

    def remove(self, time: int) -> None:
        """Remove a time that is present."""
        index = bisect_left(self._maxes, time)
        times = self._lists[index]
        del times[bisect_left(times, time)]
        if times:
            self._maxes[index] = times[-1]
        else:
            del self._lists[index], self._maxes[index]

    def drop_first(self, number: int) -> None:
        """Remove the first `number` times, or all if there are fewer."""
        whole = 0
        while whole < len(self._lists) and len(self._lists[whole]) <= number:
            number -= len(self._lists[whole])
            whole += 1
        del self._lists[:whole], self._maxes[:whole]
        if number:
            del self._lists[0][:number]

    def between(self, low: int, high: int) -> list[int]:
        """Return the times at or after `low` and before `high`."""
        result: list[int] = []
        index = bisect_left(self._maxes, low)
        while index < len(self._lists):
            times = self._lists[index]
            start = bisect_left(times, low)
            if times[-1] >= high:
                result += times[start : bisect_left(times, high)]
                break
            result += times[start:]
            index += 1
        return result

    def floor(self, time: int) -> int | None:
        """Return the last time at or before `time`; None if there is none."""
        index = bisect_left(self._maxes, time)
        if index == len(self._lists):
            return self._maxes[-1] if self._maxes else None
        times = self._lists[index]
        at = bisect_right(times, time)
        if at:
            return times[at - 1]
        return self._maxes[index - 1] if index else None
