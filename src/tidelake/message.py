"""The two messages of the protocol, which cannot be born wrong.

An `Updates` batch states facts, a `Progress` states how many of them there are. Either is valid in itself, or its
constructor raises a `MalformedMessage` that names every problem. Whether messages contradict each other is for the
ledger and the reader to find.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tidelake.antichain import Antichain
from tidelake.errors import MalformedMessage
from tidelake.order import INT64_MAX, INT64_MIN, Time, width_of

ANY_WIDTH = -1
"""What a message may be expected to be as wide as: `ANY_WIDTH`, None for integers, or the width of products."""


class _UpdateFields(NamedTuple):
    data: Any
    time: Time
    diff: int


class Update(_UpdateFields):
    """One fact: at `time` the multiplicity of `data` changes by `diff`.

    Args:
        data: opaque; hashable, or given an identity by the reader.
        time: a time, or a list of integers, which becomes a tuple.
        diff: an int64 other than 0.

    Raises:
        MalformedMessage: `zero_diff`, `bad_diff`, `negative_time`, `bad_time`.

    >>> Update("a", 3, +1).time
    3
    """

    __slots__ = ()

    def __new__(cls, data: Any, time: Time | Sequence[int], diff: int) -> Update:
        """Make an update whose time and diff are checked."""
        problems = Problems()
        checked = problems.check_time(time)
        problems.check_diff(diff, time)
        problems.raise_if_any()
        assert checked is not None
        return trusted_update(data, checked, diff)


def trusted_update(data: Any, time: Time, diff: int) -> Update:
    """Make an update from values that were checked before; it costs a third of checking them again."""
    return tuple.__new__(Update, (data, time, diff))


class Problems:
    """Collects what is wrong with one message: each `(kind, time)` once, in order of appearance.

    It also keeps the width of the message: that of its first well-formed time, unless one was expected.
    """

    def __init__(self, width: int | None = ANY_WIDTH) -> None:
        self.width = width
        self._found: list[tuple[str, object]] = []
        self._keys: set[tuple[str, object, object]] = set()

    def add(self, kind: str, time: object = None) -> None:
        """Note a problem, unless it is there already."""
        given: object = tuple(time) if isinstance(time, list) else time
        types = tuple(map(type, given)) if isinstance(given, tuple) else type(given)  # 1 and True are equal in Python
        try:
            key = (kind, types, given)
            if key in self._keys:
                return
            self._keys.add(key)
        except (TypeError, RecursionError):  # not hashable, so it cannot be compared with the others
            pass
        self._found.append((kind, time))

    def check_time(self, time: object) -> Time | None:
        """Give the time in its one form, or None where it is none, which is then noted."""
        if type(time) is int:
            if 0 <= time <= INT64_MAX:
                if self.width is None:
                    return time
                return self._check_width(time, time)
            self.add("negative_time" if time < 0 else "bad_time", time)
            return None
        if isinstance(time, (list, tuple)) and time and all(type(element) is int for element in time):
            if any(element < 0 for element in time):
                self.add("negative_time", time)
            elif any(element > INT64_MAX for element in time):
                self.add("bad_time", time)
            else:
                return self._check_width(tuple(time), time)
            return None
        self.add("bad_time", time)
        return None

    def _check_width(self, time: Time, given: object) -> Time | None:
        width = width_of(time)
        if self.width == ANY_WIDTH:
            self.width = width
        if self.width == width:
            return time
        self.add("bad_time", given)
        return None

    def check_diff(self, diff: object, time: object) -> None:
        """Note a diff that is none."""
        if type(diff) is not int or not INT64_MIN <= diff <= INT64_MAX:
            self.add("bad_diff", time)
        elif diff == 0:
            self.add("zero_diff", time)

    def raise_if_any(self) -> None:
        """Raise a `MalformedMessage` with all that was noted, if anything was."""
        if self._found:
            raise MalformedMessage(self._found)

    @property
    def found(self) -> bool:
        """Whether anything was noted."""
        return bool(self._found)


class Updates:
    """A batch of facts. How facts are batched means nothing.

    A copy of an update in the batch is legal, it counts once. Two diffs for one `(data, time)` are legal here, too:
    they are a contradiction between facts, and the reader finds it.

    Args:
        batch: `(data, time, diff)` triples, or updates.
        width: what every time has to be as wide as; by default as the first.

    Raises:
        MalformedMessage: with every problem of the batch.

    >>> Updates([("a", 3, +1), ("a", 3, +1)]).batch[0]
    Update(data='a', time=3, diff=1)
    >>> Updates([("a", 3, 0), ("b", -1, 2)])
    Traceback (most recent call last):
    tidelake.errors.MalformedMessage: an update has diff 0 (at time 3); a time is negative (at time -1)
    """

    __slots__ = ("batch", "width")

    def __init__(self, batch: Iterable[Sequence[Any]], width: int | None = ANY_WIDTH) -> None:
        problems = Problems(width)
        checked: list[Update] = []
        for item in batch:
            if not isinstance(item, (tuple, list)) or len(item) != 3:
                problems.add("bad_message")
                continue
            data, time, diff = item
            good_time = problems.check_time(time)
            problems.check_diff(diff, time)
            if good_time is not None:
                checked.append(trusted_update(data, good_time, diff))
        problems.raise_if_any()
        self.batch = tuple(checked)
        self.width = problems.width

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Updates) and self.batch == other.batch

    def __hash__(self) -> int:
        return hash(self.batch)

    def __repr__(self) -> str:
        return f"Updates({list(self.batch)!r})"


class Progress:
    """For every time at or after `lower` and not at or after `upper`: how many distinct updates there are.

    Args:
        lower: times; only the minimal ones matter.
        upper: times at or beyond `lower`; empty means that nothing more will ever come.
        counts: `(time, count)`, each time once and in the interval. A time in the interval that is left out has no
            update; a count of 0 says the same.
        width: what every time has to be as wide as; by default as the first.

    Raises:
        MalformedMessage: with every problem of the statement.

    >>> Progress([0], [3], [(1, 2), (2, 0)]).counts
    {1: 2}
    >>> Progress([3], [0], [])
    Traceback (most recent call last):
    tidelake.errors.MalformedMessage: upper is not at or beyond lower
    """

    __slots__ = ("counts", "lower", "upper", "width")

    def __init__(
        self,
        lower: Sequence[Any] | Antichain,
        upper: Sequence[Any] | Antichain,
        counts: Sequence[Sequence[Any]] = (),
        width: int | None = ANY_WIDTH,
    ) -> None:
        problems = Problems(width)
        lower_frontier = _check_frontier(problems, lower)
        upper_frontier = _check_frontier(problems, upper)
        if lower_frontier is not None and upper_frontier is not None:
            if lower_frontier.less_equal_frontier(upper_frontier):
                checked = _check_counts(problems, counts, (lower_frontier, upper_frontier))
            else:
                problems.add("bad_interval")
                checked = _check_counts(problems, counts, None)
        else:
            checked = _check_counts(problems, counts, None)
        problems.raise_if_any()
        assert lower_frontier is not None
        assert upper_frontier is not None
        self.lower, self.upper = lower_frontier, upper_frontier
        self.counts: dict[Time, int] = checked
        self.width = problems.width

    def covers(self, time: Time) -> bool:
        """Tell whether this statement speaks of `time`."""
        return self.lower.less_equal(time) and not self.upper.less_equal(time)

    def _key(self) -> tuple[Antichain, Antichain, frozenset[tuple[Time, int]]]:
        return self.lower, self.upper, frozenset(self.counts.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Progress) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"Progress({list(self.lower)!r}, {list(self.upper)!r}, {list(self.counts.items())!r})"


Message = Updates | Progress


def _check_frontier(problems: Problems, times: Sequence[Any] | Antichain) -> Antichain | None:
    """Give the antichain of well-formed times; None where one of them is not, which is then noted."""
    if not isinstance(times, (list, tuple, Antichain)):
        problems.add("bad_message")
        return None
    checked = [problems.check_time(time) for time in times]
    good = [time for time in checked if time is not None]
    return Antichain(good) if len(good) == len(checked) else None


def _check_counts(
    problems: Problems, counts: Sequence[Sequence[Any]], interval: tuple[Antichain, Antichain] | None
) -> dict[Time, int]:
    """Give the counts that are not 0; against the interval only where it is one."""
    seen: dict[Time, int] = {}
    if not isinstance(counts, (list, tuple)):
        problems.add("bad_message")
        return seen
    for item in counts:
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            problems.add("bad_message")
            continue
        given, count = item
        time = problems.check_time(given)
        if type(count) is not int or count > INT64_MAX:
            problems.add("bad_message")
        elif count < 0:
            problems.add("negative_count", given)
        if time is None:
            continue
        if time in seen:
            problems.add("duplicate_count", given)
        seen[time] = count
        if interval and not (interval[0].less_equal(time) and not interval[1].less_equal(time)):
            problems.add("count_outside_interval", given)
    return seen if problems.found else {time: count for time, count in seen.items() if count}
