"""Writers turn updates into messages that a reader can prove complete.

A `Writer` states a whole stream on its own; redundant writers may state the same stream in different batches. Shards of
a group write one stream together: each shard writes its updates and reports their number, and one statement announces
the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from tidelake.errors import ArgumentRefused, FrontierRegression, SealedTime
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.consolidation import consolidate
from tidelake.protocol.message import Message, Progress, Update, Updates
from tidelake.protocol.order import Time, total_order_key

UPDATES_PER_MESSAGE_MAX = 1000


class ShardWriter:
    """Writes a part of a stream's updates and counts them; it makes no progress statements.

    Args:
        start: the frontier at which the stream begins.
        updates_per_message_max: the maximum size of a batch, at least 1.
        identity: returns the same hashable value for equal data.
    """

    def __init__(
        self,
        start: Antichain,
        updates_per_message_max: int = UPDATES_PER_MESSAGE_MAX,
        identity: Callable[[Any], Hashable] = lambda data: data,
    ) -> None:
        if updates_per_message_max < 1:
            raise ArgumentRefused(
                "updates_per_message_max", updates_per_message_max, "but must be at least 1", "raise it"
            )
        self._upper = start
        self._identity = identity
        self._updates_per_message_max = updates_per_message_max
        self._waiting: list[Update] = []

    @property
    def upper(self) -> Antichain:
        """The write frontier: all updates not at or after it have been written."""
        return self._upper

    def add(self, updates: Iterable[Update | Sequence[Any]]) -> None:
        """Add updates at or after `upper`, all or none; diffs of the same `(data, time)` are summed.

        Raises:
            MalformedMessage: an item is not an update.
            SealedTime: an update's time is before `upper`.
        """
        batch = Updates(updates).batch
        for update in batch:
            if not self._upper.less_equal(update.time):
                raise SealedTime(update.time, self._upper)
        self._waiting.extend(batch)

    def advance(self, upper: Antichain) -> tuple[list[Updates], dict[Time, int]]:
        """Write all updates not at or after `upper`, consolidated.

        Returns:
            The messages, and the number of updates that they hold at each time.

        Raises:
            FrontierRegression: `upper` is not at or beyond the current one.
        """
        if not self._upper.less_equal_frontier(upper):
            raise FrontierRegression("upper", self._upper, upper)
        self._upper = upper
        done = consolidate((update for update in self._waiting if not upper.less_equal(update.time)), self._identity)
        self._waiting = [update for update in self._waiting if upper.less_equal(update.time)]
        size = self._updates_per_message_max
        messages = [Updates(done[first : first + size]) for first in range(0, len(done), size)]
        return messages, combine_counts([count_by_time(done)])


class Writer:
    """Writes a whole stream: updates, and statements of their number.

    Args:
        start: the frontier at which the stream begins.
        updates_per_message_max: the maximum size of a batch, at least 1.
        identity: returns the same hashable value for equal data.

    >>> writer = Writer(Antichain.of(0))
    >>> writer.add([("a", 1, +1), ("a", 1, +1), ("b", 2, +1), ("b", 2, -1)])
    >>> writer.advance(Antichain.of(3))
    [Updates([Update(data='a', time=1, diff=2)]), Progress([0], [3], [(1, 1)])]
    >>> writer.close()
    [Progress([3], [], [])]
    """

    def __init__(
        self,
        start: Antichain,
        updates_per_message_max: int = UPDATES_PER_MESSAGE_MAX,
        identity: Callable[[Any], Hashable] = lambda data: data,
    ) -> None:
        self._shard = ShardWriter(start, updates_per_message_max, identity)

    @property
    def upper(self) -> Antichain:
        """The upper of the last statement."""
        return self._shard.upper

    def add(self, updates: Iterable[Update | Sequence[Any]]) -> None:
        """Add updates at or after `upper`; see `ShardWriter.add`."""
        self._shard.add(updates)

    def advance(self, upper: Antichain) -> list[Message]:
        """Write all updates not at or after `upper`, and state that they are complete; for the same upper, do nothing.

        Raises:
            FrontierRegression: `upper` is not at or beyond the current one.
        """
        lower = self._shard.upper
        messages, counts = self._shard.advance(upper)
        return [*messages, *_statement(lower, upper, counts)]

    def close(self) -> list[Message]:
        """Write the remaining updates, and close the stream."""
        return self.advance(Antichain())


class ShardGroup:
    """The coordinator of shards: states one count for all shards once each of them has advanced.

    Args:
        start: the frontier at which the stream begins.
        shards: the number of shards, at least 1.

    >>> group = ShardGroup(Antichain.of(0), shards=2)
    >>> group.report(0, Antichain.of(5), {1: 2})
    []
    >>> group.report(1, Antichain.of(3), {1: 1})
    [Progress([0], [3], [(1, 3)])]
    """

    def __init__(self, start: Antichain, shards: int) -> None:
        if shards < 1:
            raise ArgumentRefused("shards", shards, "but must be at least 1", "raise it")
        self._upper = start
        self._uppers = [start] * shards
        self._counts: dict[Time, int] = {}

    @property
    def upper(self) -> Antichain:
        """The upper of the last statement."""
        return self._upper

    def report(self, shard: int, upper: Antichain, counts: dict[Time, int]) -> list[Message]:
        """Record that a shard has written everything before `upper`.

        Args:
            shard: the number of the shard, from 0.
            upper: the shard's write frontier.
            counts: by time, the number of updates that the shard has written since its last report.

        Returns:
            A statement, if the slowest shard has advanced; otherwise nothing.

        Raises:
            FrontierRegression: `upper` is not at or beyond the shard's last report.
        """
        if not self._uppers[shard].less_equal_frontier(upper):
            raise FrontierRegression("upper", self._uppers[shard], upper)
        self._uppers[shard] = upper
        self._counts = combine_counts([self._counts, counts])
        reached = self._uppers[0]
        for other in self._uppers[1:]:
            reached = reached.meet(other)
        ready = {time: count for time, count in self._counts.items() if not reached.less_equal(time)}
        self._counts = {time: count for time, count in self._counts.items() if reached.less_equal(time)}
        lower, self._upper = self._upper, reached
        return _statement(lower, reached, ready)


def count_by_time(updates: Iterable[Update]) -> dict[Time, int]:
    """Count updates at each time."""
    counts: dict[Time, int] = {}
    for update in updates:
        counts[update.time] = counts.get(update.time, 0) + 1
    return counts


def combine_counts(parts: Iterable[dict[Time, int]]) -> dict[Time, int]:
    """Sum the counts of shards, in time order. Equal data must never be in two shards: it would be counted twice.

    >>> combine_counts([{3: 1, 1: 2}, {3: 4}])
    {1: 2, 3: 5}
    """
    sums: dict[Time, int] = {}
    for counts in parts:
        for time, count in counts.items():
            sums[time] = sums.get(time, 0) + count
    return {time: sums[time] for time in sorted(sums, key=total_order_key)}


def _statement(lower: Antichain, upper: Antichain, counts: dict[Time, int]) -> list[Message]:
    if lower == upper:
        return []
    return [Progress(lower.elements, upper.elements, list(counts.items()))]
