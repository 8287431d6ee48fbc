"""The reader turns messages, in any order and with any copies, into updates in time order and a proven frontier.

It drops copies, detects updates that disagree, and publishes an update once its time is settled, never earlier. Its
state can be saved at any moment; a restored reader continues as if it had never stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from tidelake.errors import ConflictingDiff, Contradiction, MixedTimes
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.ledger.ledger import Ledger
from tidelake.protocol.ledger.saved import time_from_json, time_to_json
from tidelake.protocol.message import ANY_WIDTH, Message, Update, Updates, trusted_update
from tidelake.protocol.order import Time, total_order_key


class Received(NamedTuple):
    """The effect of one message.

    Attributes:
        updates: the updates published now, in time order, and within a time in the order of identities.
        frontier: the minimal unsettled times.
        errors: the contradictions that this message reveals, each kind and time once, in time order.
    """

    updates: list[Update]
    frontier: Antichain
    errors: list[Contradiction]


def data_itself(data: Any) -> Hashable:
    """Use the data as its own identity; it must be hashable."""
    return data  # type: ignore[no-any-return]


class Reader:
    """Reads one stream.

    Args:
        start: the initial frontier; times before it count as settled.
        identity: returns a hashable value: the same for equal data, and different values for different data. Values of
            one sortable type are best.

    Cost: unsettled updates are held in memory; each fact is processed once on arrival and once when published.

    >>> from tidelake.protocol.message import Progress
    >>> reader = Reader(Antichain.of(0))
    >>> reader.receive(Updates([("a", 0, +1), ("a", 0, +1)])).updates
    []
    >>> reader.receive(Progress([0], [3], [(0, 1)]))
    Received(updates=[Update(data='a', time=0, diff=1)], frontier=Antichain([3]), errors=[])
    """

    def __init__(self, start: Antichain, identity: Callable[[Any], Hashable] = data_itself) -> None:
        self._identity = identity
        self._ledger = Ledger(start)
        # The only update of a time is stored without a dictionary: dictionaries are large, and most times of a
        # fine-grained stream have one update.
        self._pending: dict[Time, Update | dict[Hashable, Update]] = {}
        self._further_diffs: dict[tuple[Time, Hashable], list[int]] = {}
        self.late = 0
        """Number of updates ignored because their time was already settled."""
        self.copies = 0
        """Number of updates recognised as copies of a pending update."""

    @property
    def frontier(self) -> Antichain:
        """The minimal unsettled times."""
        return self._ledger.frontier

    @property
    def ledger(self) -> Ledger:
        """The ledger, which knows what the frontier is waiting for."""
        return self._ledger

    def receive(self, message: Message) -> Received:
        """Receive one message, either entirely or not at all.

        Raises:
            MixedTimes: the message's times differ in width from the frontier's; nothing was received.
        """
        frontier = self._ledger.frontier
        if frontier.elements and message.width not in (ANY_WIDTH, frontier.width):
            raise MixedTimes(frontier.elements[0], _some_time(message))
        errors = (
            self._take_updates(message.batch, frontier)
            if isinstance(message, Updates)
            else self._ledger.announce(message)
        )
        return self._publish(errors)

    def decide(self, time: Time, count: int) -> Received:
        """Replace every announced count for `time` with `count`; see `Ledger.decide`."""
        return self._publish(self._ledger.decide(time, count))

    def _take_updates(self, batch: Iterable[Update], frontier: Antichain) -> list[Contradiction]:
        errors: dict[Time, Contradiction] = {}
        fresh: dict[Time, int] = {}
        for update in batch:
            time = update.time
            waiting = self._pending.get(time)
            if waiting is None:
                if frontier.less_equal(time):
                    self._pending[time] = update
                    fresh[time] = 1
                else:
                    self.late += 1
                continue
            if not isinstance(waiting, dict):
                waiting = self._pending[time] = {self._identity(waiting.data): waiting}
            identity = self._identity(update.data)
            pending = waiting.get(identity)
            if pending is None:
                waiting[identity] = update
                fresh[time] = fresh.get(time, 0) + 1
            elif pending.diff == update.diff:
                self.copies += 1
            else:
                conflict = self._note_further_diff(pending, identity, update.diff)
                if conflict:
                    errors.setdefault(time, conflict)
        for error in errors.values():
            self._ledger.contradict(error)
        return [*errors.values(), *self._ledger.count_all(fresh.items())]

    def _note_further_diff(self, pending: Update, identity: Hashable, diff: int) -> ConflictingDiff | None:
        """Record a diff that disagrees with the first one, and return the conflict; None if it is recorded already."""
        further = self._further_diffs.setdefault((pending.time, identity), [])
        if diff in further:
            self.copies += 1
            return None
        further.append(diff)
        return ConflictingDiff(pending.time, pending.diff, diff)

    def _publish(self, errors: list[Contradiction]) -> Received:
        frontier = self._ledger.advance()
        published: list[Update] = []
        for time in self._ledger.settled_times:
            waiting = self._pending.pop(time)
            if isinstance(waiting, dict):
                published.extend(waiting[identity] for identity in _in_order(waiting))
            else:
                published.append(waiting)
        return Received(published, frontier, sorted(errors, key=lambda error: total_order_key(error.time)))

    def save(self) -> dict[str, Any]:
        """Return the whole state, as JSON values if the data consists of JSON values."""
        return {
            "ledger": self._ledger.save(),
            "late": self.late,
            "copies": self.copies,
            "pending": [
                [
                    time_to_json(time),
                    [
                        [update.data, update.diff, *self._further_diffs.get((time, identity), ())]
                        for identity, update in (
                            waiting.items() if isinstance(waiting, dict) else [(None, waiting)]  # no further diffs
                        )
                    ],
                ]
                for time, waiting in self._pending.items()
            ],
        }

    @staticmethod
    def restore(state: Mapping[str, Any], identity: Callable[[Any], Hashable] = data_itself) -> Reader:
        """Create a reader that continues exactly from a saved state; `identity` must be the same function."""
        reader = Reader(Antichain(), identity)
        reader._ledger = Ledger.restore(state["ledger"])
        reader.late, reader.copies = state["late"], state["copies"]
        for saved_time, saved in state["pending"]:
            time = time_from_json(saved_time)
            waiting = {identity(data): trusted_update(data, time, diff) for data, diff, *_ in saved}
            reader._pending[time] = waiting
            for data, _, *further in saved:
                if further:
                    reader._further_diffs[(time, identity(data))] = further
        return reader


def _some_time(message: Message) -> Time | None:
    if isinstance(message, Updates):
        return message.batch[0].time
    return next(iter((*message.lower, *message.upper)), None)


def _in_order(identities: Iterable[Hashable]) -> list[Any]:
    """Sort identities, even if their types cannot be compared."""
    ordered: list[Any] = list(identities)
    if len(ordered) > 1:
        try:
            ordered.sort()
        except TypeError:
            ordered.sort(key=lambda identity: (type(identity).__name__, repr(identity)))
    return ordered
