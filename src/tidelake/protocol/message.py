"""The two messages of the protocol; an invalid one cannot be constructed.

An `Updates` batch states facts, and a `Progress` states their number. Each message is checked on its own: if it is
invalid, its constructor raises a `MalformedMessage` that names every problem. Whether messages contradict each other is
for the ledger and the reader to detect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tidelake.errors import MalformedMessage
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.order import INT64_MAX, INT64_MIN, Time, width_of

ANY_WIDTH = -1
"""As an expected width: any. As the width of a message: there are no times in it.

Any other width is None, if times are integers, or their length, if they are lists of integers.
"""


class _UpdateFields(NamedTuple):
    data: Any
    time: Time
    diff: int


class Update(_UpdateFields):
    """One fact: at `time` the multiplicity of `data` changes by `diff`.

    Attributes:
        data: any value. It must be hashable, unless the reader has a function that gives it an identity.
        time: a time, or a list of integers, which becomes a tuple.
        diff: an int64 other than 0.

    Raises:
        MalformedMessage: `zero_diff`, `bad_diff`, `negative_time`, `bad_time`.

    >>> Update("a", 3, +1).time
    3
    """

    __slots__ = ()

    def __new__(cls, data: Any, time: Time | Sequence[int], diff: int) -> Update:
        """Create an update after checking its time and diff."""
        problems = Problems()
        checked = problems.check_time(time)
        problems.check_diff(diff, time)
        problems.raise_if_any()
        assert checked is not None
        return trusted_update(data, checked, diff)


def trusted_update(data: Any, time: Time, diff: int) -> Update:
    """Create an update from values that have already been checked, in a third of the time that checking takes."""
    return tuple.__new__(Update, (data, time, diff))


class Problems:
    """Collects the problems of one message: each `(kind, time)` once, in order of appearance.

    It also keeps the width of the message: that of its first well-formed time, unless a width is expected.
    """

    def __init__(self, width: int | None = ANY_WIDTH) -> None:
        self.width = width
        self._noted: list[tuple[str, object]] = []
        self._keys: set[tuple[str, object, object]] = set()

    def add(self, kind: str, time: object = None) -> None:
        """Record a problem unless it has already been recorded."""
        key_time: object = tuple(time) if isinstance(time, list) else time
        # Types are part of the key, as 1 and True are equal in Python.
        types = tuple(map(type, key_time)) if isinstance(key_time, tuple) else type(key_time)
        try:
            key = (kind, types, key_time)
            if key in self._keys:
                return
            self._keys.add(key)
        except (TypeError, RecursionError):  # not hashable, so it cannot be compared with the others
            pass
        self._noted.append((kind, time))

    def check_time(self, time: object) -> Time | None:
        """Return the time in canonical form; if it is not a time of the right width, record that and return None."""
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

    def _check_width(self, time: Time, original: object) -> Time | None:
        width = width_of(time)
        if self.width == ANY_WIDTH:
            self.width = width
        if self.width == width:
            return time
        self.add("bad_time", original)
        return None

    def check_diff(self, diff: object, time: object) -> None:
        """Record an invalid diff."""
        if type(diff) is not int or not INT64_MIN <= diff <= INT64_MAX:
            self.add("bad_diff", time)
        elif diff == 0:
            self.add("zero_diff", time)

    def raise_if_any(self) -> None:
        """Raise a `MalformedMessage` with all recorded problems, if there are any."""
        if self._noted:
            raise MalformedMessage(self._noted)

    @property
    def found(self) -> bool:
        """Whether a problem was recorded."""
        return bool(self._noted)


class Updates:
    """A batch of facts. Batching has no meaning.

    An update may be repeated in the batch; it still counts once. Two diffs for one `(data, time)` are legal here, too:
    they are a contradiction between facts, which the reader detects.

    Args:
        batch: `(data, time, diff)` triples, or updates.
        width: the width of every time; by default, the width of the first time.

    Raises:
        MalformedMessage: names every problem of the batch.

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
    """The number of distinct updates at every time at or after `lower` and not at or after `upper`.

    Args:
        lower: times; only the minimal ones matter.
        upper: times at or beyond `lower`; empty means that the stream is closed.
        counts: `(time, count)` pairs. Every time must be in the interval, and may be in only one pair. A time in the
            interval that is left out has no update; a count of 0 says the same.
        width: the width of every time; by default, the width of the first time.

    Raises:
        MalformedMessage: names every problem of the statement.

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
        """Return whether this statement covers `time`."""
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
    """Return the antichain of the times; if a time is malformed, record that and return None."""
    if not isinstance(times, (list, tuple, Antichain)):
        problems.add("bad_message")
        return None
    checked = [problems.check_time(time) for time in times]
    good = [time for time in checked if time is not None]
    return Antichain(good) if len(good) == len(checked) else None


def _check_counts(
    problems: Problems, counts: Sequence[Sequence[Any]], interval: tuple[Antichain, Antichain] | None
) -> dict[Time, int]:
    """Return the non-zero counts, checked against the interval if it is valid."""
    seen: dict[Time, int] = {}
    if not isinstance(counts, (list, tuple)):
        problems.add("bad_message")
        return seen
    for item in counts:
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            problems.add("bad_message")
            continue
        stated_time, count = item
        time = problems.check_time(stated_time)
        if type(count) is not int or count > INT64_MAX:
            problems.add("bad_message")
        elif count < 0:
            problems.add("negative_count", stated_time)
        if time is None:
            continue
        if time in seen:
            problems.add("duplicate_count", stated_time)
        seen[time] = count
        if interval and not (interval[0].less_equal(time) and not interval[1].less_equal(time)):
            problems.add("count_outside_interval", stated_time)
    return seen if problems.found else {time: count for time, count in seen.items() if count}
