"""The ledger computes the frontier from statements and counts; it never sees the data.

A time is *settled* if an accepted statement covers it, the number of distinct updates counted at it is the announced
one (0 if the statement does not name the time), and nothing contradicts it. The frontier is the set of minimal
unsettled times; everything before it is settled for good. So facts may arrive in any order, statements may overlap and
repeat, and the frontier advances into an interval up to the first outstanding time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from tidelake.errors import Contradiction, MixedTimes
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.ledger.integers import IntegerBook
from tidelake.protocol.ledger.products import ProductBook
from tidelake.protocol.message import ANY_WIDTH, Progress
from tidelake.protocol.order import Time, width_of


class Book(Protocol):
    """Stores open times; the implementation depends on the order of the times."""

    settled_times: list[Time]

    @property
    def frontier(self) -> Antichain: ...  # noqa: D102
    @property
    def coverage(self) -> list[tuple[Antichain, Antichain]]: ...  # noqa: D102
    def announce(self, progress: Progress) -> list[Contradiction]: ...  # noqa: D102
    def count_all(self, counts: Iterable[tuple[Time, int]]) -> list[Contradiction]: ...  # noqa: D102
    def contradict(self, error: Contradiction) -> None: ...  # noqa: D102
    def decide(self, time: Time, count: int) -> list[Contradiction]: ...  # noqa: D102
    def advance(self) -> None: ...  # noqa: D102
    def announced(self, time: Time) -> int | None: ...  # noqa: D102
    def outstanding(self) -> list[tuple[Time, int | None, int]]: ...  # noqa: D102
    def contradictions(self) -> dict[Time, list[Contradiction]]: ...  # noqa: D102
    def save(self) -> dict[str, Any]: ...  # noqa: D102


class Ledger:
    """Compares announced counts with counted updates, and returns the frontier that they prove.

    Contradictions are returned when new facts reveal them, and never again for a copy of the same facts. A contradicted
    time stays unsettled until an operator decides; other times continue to settle.

    Args:
        start: the initial frontier. If its times are integers, all times are; if they are lists of integers, all times
            are lists of the same length.

    Cost: for integers, O(log n) amortised for each fact and each time that settles, where n is the number of open times
        and gaps between statements. For lists of integers, one visit to every open time for each statement.

    >>> ledger = Ledger(Antichain.of(0))
    >>> ledger.announce(Progress([3], [10], [(4, 1)])), ledger.advance()
    ([], Antichain([0]))
    >>> ledger.announce(Progress([0], [3])), ledger.advance()
    ([], Antichain([4]))
    >>> ledger.count(4, 1), ledger.advance()
    ([], Antichain([10]))
    """

    def __init__(self, start: Antichain) -> None:
        self._width = start.width
        self._book: Book = IntegerBook(start) if start.elements and self._width is None else ProductBook(start)

    @property
    def frontier(self) -> Antichain:
        """The minimal unsettled times, as of the last `advance`."""
        return self._book.frontier

    @property
    def settled_times(self) -> list[Time]:
        """The times that the last `advance` settled and that have updates, in a linear extension of their order."""
        return self._book.settled_times

    @property
    def coverage(self) -> list[tuple[Antichain, Antichain]]:
        """The covered intervals `(lower, upper)` at or after the frontier; for integers, merged and in order."""
        return self._book.coverage

    def announce(self, progress: Progress) -> list[Contradiction]:
        """Accept a statement, even if its lower is beyond the frontier; counts before the frontier are ignored.

        Returns:
            `ConflictingCount` if it disagrees with an earlier statement, `OverCount` if more has been counted than it
            announces.
        """
        if progress.width != ANY_WIDTH and progress.width != self._width and self._book.frontier.elements:
            raise MixedTimes(self._book.frontier.elements[0], next(iter((*progress.lower, *progress.upper)), None))
        return self._book.announce(progress)

    def announce_all(self, statements: Iterable[Progress]) -> list[Contradiction]:
        """Accept several statements."""
        return [error for progress in statements for error in self.announce(progress)]

    def count(self, time: Time, distinct: int) -> list[Contradiction]:
        """Add new distinct updates at a time; a time before the frontier is ignored.

        Returns:
            `OverCount` if the total is more than any statement announces.
        """
        if width_of(time) != self._width and self._book.frontier.elements:
            raise MixedTimes(self._book.frontier.elements[0], time)
        return self._book.count_all([(time, distinct)])

    def count_all(self, counts: Iterable[tuple[Time, int]]) -> list[Contradiction]:
        """Add new distinct updates at many times; `counts` must not name a time twice."""
        return self._book.count_all(counts)

    def contradict(self, error: Contradiction) -> None:
        """Prevent the time of `error` from settling, whatever is counted; a time before the frontier is ignored."""
        self._book.contradict(error)

    def decide(self, time: Time, count: int) -> list[Contradiction]:
        """Replace every count that statements announce for `time`, now and later, with `count`.

        This clears contradictions between counts, not those between updates; a statement still has to cover the time. A
        time before the frontier is ignored.

        Returns:
            `OverCount` if more than `count` has been counted.
        """
        return self._book.decide(time, count)

    def advance(self) -> Antichain:
        """Advance the frontier as far as times are settled, and forget everything before it."""
        self._book.advance()
        return self._book.frontier

    def announced(self, time: Time) -> int | None:
        """Return the number of updates announced for a time at or after the frontier; None if nothing covers it.

        If statements disagree, it is the greatest number; if there is a decision, it is the decided number.
        """
        return self._book.announced(time)

    def outstanding(self) -> list[tuple[Time, int | None, int]]:
        """Return `(time, announced or None, counted)` for known unsettled times, in order.

        The frontier is waiting for these times. They include each element of the frontier that no statement covers,
        even if nothing was counted there.

        Cost: one visit to every open time.
        """
        return self._book.outstanding()

    def contradictions(self) -> Mapping[Time, list[Contradiction]]:
        """Return the current contradictions, by time.

        Cost: one visit to every open time.
        """
        return self._book.contradictions()

    def save(self) -> dict[str, Any]:
        """Return the whole state as JSON values."""
        return {"width": self._width, **self._book.save()}

    @staticmethod
    def restore(state: Mapping[str, Any]) -> Ledger:
        """Create a ledger that continues exactly from a saved state.

        >>> ledger = Ledger(Antichain.of(0))
        >>> ledger.announce(Progress([2], [5], [(3, 1)]))
        []
        >>> Ledger.restore(ledger.save()).save() == ledger.save()
        True
        """
        ledger = Ledger.__new__(Ledger)
        ledger._width = state["width"]
        ledger._book = (IntegerBook if state["book"] == "integers" else ProductBook).restore(state)
        return ledger
