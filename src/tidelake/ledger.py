"""The ledger: from statements and counts to the frontier; it knows no data.

A time is *settled* when an accepted statement covers it, as many distinct updates were seen at it as the statement
announces (0 where it names none), and nothing contradicts it. The frontier is the set of the minimal times that are
not settled; what lies before it is settled for good. So the order in which facts arrive means nothing, statements may
overlap and repeat, and the frontier moves into an interval as far as the first time that is still outstanding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from tidelake.antichain import Antichain
from tidelake.errors import Contradiction, MixedTimes
from tidelake.ledger_integers import IntegerBook
from tidelake.ledger_products import ProductBook
from tidelake.message import ANY_WIDTH, Progress
from tidelake.order import Time, width_of


class Book(Protocol):
    """How open times are kept; chosen once, by the order of the times."""

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
    """Compares what was announced with what was counted, and says up to where that is a proof.

    Contradictions are returned when new facts make them evident, never again for a copy of the same facts. A
    contradicted time is unsettled until somebody decides; other times go on.

    Args:
        start: the frontier to begin with. Its times decide the order: integers, or products of its width.

    Cost: for integers O(log n) amortised for each fact and each time that becomes settled, n being the open times and
        the gaps between statements. For products, a look at every open time for each statement.

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
        """The times with updates that the last `advance` settled, each after those that are before it."""
        return self._book.settled_times

    @property
    def coverage(self) -> list[tuple[Antichain, Antichain]]:
        """The intervals `(lower, upper)` at or after the frontier that are covered; for integers merged, in order."""
        return self._book.coverage

    def announce(self, progress: Progress) -> list[Contradiction]:
        """Accept a statement, also one whose lower is ahead; what it says about times before the frontier is ignored.

        Returns:
            `ConflictingCount` where it disagrees with an earlier statement, `OverCount` where more has been counted.
        """
        if progress.width != ANY_WIDTH and progress.width != self._width and self._book.frontier.elements:
            raise MixedTimes(self._book.frontier.elements[0], next(iter((*progress.lower, *progress.upper)), None))
        return self._book.announce(progress)

    def announce_all(self, statements: Iterable[Progress]) -> list[Contradiction]:
        """Accept several statements."""
        return [error for progress in statements for error in self.announce(progress)]

    def count(self, time: Time, distinct: int) -> list[Contradiction]:
        """Add newly seen distinct updates at a time; ignored where the time is before the frontier.

        Returns:
            `OverCount` where that is more than any statement announces.
        """
        if width_of(time) != self._width and self._book.frontier.elements:
            raise MixedTimes(self._book.frontier.elements[0], time)
        return self._book.count_all([(time, distinct)])

    def count_all(self, counts: Iterable[tuple[Time, int]]) -> list[Contradiction]:
        """Add newly seen distinct updates at many times; each time at most once in one call."""
        return self._book.count_all(counts)

    def contradict(self, error: Contradiction) -> None:
        """Mark the time of `error` as one that cannot settle, whatever is counted; ignored before the frontier."""
        self._book.contradict(error)

    def decide(self, time: Time, count: int) -> list[Contradiction]:
        """Let `count` stand for whatever statements announce for `time`, now and later.

        It clears the contradictions between counts, not those of data; a statement still has to cover the time. Ignored
        where the time is before the frontier.

        Returns:
            `OverCount` where more than `count` has been counted.
        """
        return self._book.decide(time, count)

    def advance(self) -> Antichain:
        """Move the frontier as far as times are settled, and forget what lies before it."""
        self._book.advance()
        return self._book.frontier

    def announced(self, time: Time) -> int | None:
        """Give the number of updates announced for a time at or after the frontier; None where nothing covers it.

        Where statements disagree it is the greatest number; where somebody decided, what was decided.
        """
        return self._book.announced(time)

    def outstanding(self) -> list[tuple[Time, int | None, int]]:
        """Tell what the frontier waits for: `(time, announced or None, counted)` for known unsettled times, in order.

        An element of the frontier that no statement covers is in it, even when nothing was counted there.

        Cost: a look at every open time.
        """
        return self._book.outstanding()

    def contradictions(self) -> Mapping[Time, list[Contradiction]]:
        """Give what is contradictory now, by time.

        Cost: a look at every open time.
        """
        return self._book.contradictions()

    def save(self) -> dict[str, Any]:
        """Give the whole state as JSON values."""
        return {"width": self._width, **self._book.save()}

    @staticmethod
    def restore(state: Mapping[str, Any]) -> Ledger:
        """Make a ledger that goes on exactly where the saved one stood.

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
