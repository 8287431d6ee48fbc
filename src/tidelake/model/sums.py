"""An in-memory collection whose diffs are summed, the model for stored collections of this kind.

It holds a part of a time-varying collection, and has two frontiers. At every time at or after `since` and not at or
after `upper`, a read returns the same contents as from the full history.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from tidelake.errors import FrontierRegression, SealedTime, SinceError, UpperError
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.consolidation import accumulate, consolidate
from tidelake.protocol.message import Update, Updates
from tidelake.protocol.order import Time, advance_by, less_equal


class SumCollection:
    """Updates of hashable data, with `append`, `seal`, `compact` and `read`.

    Args:
        start: the initial value of both frontiers.

    >>> tides = SumCollection(Antichain.of(0))
    >>> tides.append([("low", 1, +1), ("high", 2, +1), ("low", 2, -1)])
    >>> tides.seal(Antichain.of(3))
    >>> tides.read(1), tides.read(2)
    ({'low': 1}, {'high': 1})
    >>> tides.compact(Antichain.of(2)); tides.updates
    [Update(data='high', time=2, diff=1)]
    """

    def __init__(self, start: Antichain) -> None:
        self._since = self._upper = start
        self._updates: list[Update] = []

    @property
    def since(self) -> Antichain:
        """The read frontier: history before it is forgotten. Empty means unreadable forever."""
        return self._since

    @property
    def upper(self) -> Antichain:
        """The write frontier: further updates can only have times at or after it. Empty means closed forever."""
        return self._upper

    @property
    def is_closed(self) -> bool:
        """Whether nothing more can be appended."""
        return self._upper.is_empty

    @property
    def updates(self) -> list[Update]:
        """The updates, consolidated."""
        return consolidate(self._updates)

    def append(self, updates: Iterable[Update | Sequence[Any]]) -> None:
        """Add updates at or after `upper`, all or none.

        Raises:
            MalformedMessage: an item is not an update.
            SealedTime: an update's time is before `upper`.
        """
        batch = Updates(updates).batch
        for update in batch:
            if not self._upper.less_equal(update.time):
                raise SealedTime(update.time, self._upper)
        self._updates.extend(batch)

    def seal(self, upper: Antichain) -> None:
        """Promise that all later updates are at or after `upper`; for the same upper, do nothing.

        Raises:
            FrontierRegression: `upper` is not at or beyond the current one.
        """
        if not self._upper.less_equal_frontier(upper):
            raise FrontierRegression("upper", self._upper, upper)
        self._upper = upper

    def compact(self, since: Antichain) -> None:
        """Forget how the collection looked before `since`; for the same since, do nothing.

        An empty `since` drops all updates. Updates at or after `upper` keep their times.

        Raises:
            FrontierRegression: `since` is not at or beyond the current one.
        """
        if not self._since.less_equal_frontier(since):
            raise FrontierRegression("since", self._since, since)
        self._since = since
        if since.is_empty:
            self._updates = []
            return
        self._updates = consolidate((data, self._moved(time), diff) for data, time, diff in self._updates)

    def _moved(self, time: Time) -> Time:
        """Advance a sealed time towards `since`, but never to `upper`, which separates sealed times from others."""
        moved = advance_by(time, self._since)
        return time if self._upper.less_equal(moved) else moved

    def read(self, as_of: Time) -> dict[Hashable, int]:
        """Return the contents AS OF one time: the multiplicity by data, never 0, but possibly negative.

        Raises:
            SinceError: `as_of` is not at or after `since`.
            UpperError: `as_of` is at or after `upper`.
        """
        if not self._since.less_equal(as_of):
            raise SinceError(as_of, self._since, None)
        if self._upper.less_equal(as_of):
            raise UpperError(as_of, self._upper)
        return accumulate(update for update in self._updates if less_equal(update.time, as_of))
