"""Antichains: sets of times in which no time is before another; every frontier is one.

`since`, `upper`, `lower` and `frontier` are roles of an `Antichain`, not separate types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelake.protocol.order import Time, join, less_equal, less_than, minimal_elements, width_of


class Antichain:
    """The minimal elements of a set of times; it represents every time at or after one of them.

    The empty antichain represents no time: as `upper` it means "closed, no more updates", and as `since`,
    "unreadable". It is the latest of all frontiers.

    >>> Antichain([7, 5, 9])
    Antichain([5])
    >>> Antichain([(1, 0), (0, 1), (1, 1)]).elements
    ((0, 1), (1, 0))
    >>> Antichain([]).less_equal(10**9), Antichain([]).is_empty
    (False, True)
    """

    __slots__ = ("elements",)
    elements: tuple[Time, ...]

    def __init__(self, times: Iterable[Time] = ()) -> None:
        object.__setattr__(self, "elements", minimal_elements(times))

    @staticmethod
    def of(*times: Time) -> Antichain:
        """Create an antichain of times.

        >>> Antichain.of(5)
        Antichain([5])
        """
        return Antichain(times)

    @property
    def is_empty(self) -> bool:
        """Whether this is the closed frontier."""
        return not self.elements

    @property
    def width(self) -> int | None:
        """The width of its times; None for integers, and for the empty antichain, which fits every width."""
        return width_of(self.elements[0]) if self.elements else None

    def less_equal(self, time: Time) -> bool:
        """Return whether `time` is at or after this frontier: some element is at or before `time`.

        >>> Antichain.of(5).less_equal(5), Antichain.of(5).less_equal(4)
        (True, False)
        """
        # A loop takes half as long as `any` with a generator, and a statement calls this twice for each of its times.
        for element in self.elements:  # noqa: SIM110
            if less_equal(element, time):
                return True
        return False

    def less_than(self, time: Time) -> bool:
        """Return whether `time` is after this frontier: some element is before `time`.

        >>> Antichain.of(5).less_than(5), Antichain.of(5).less_than(6)
        (False, True)
        """
        return any(less_than(element, time) for element in self.elements)

    def less_equal_frontier(self, other: Antichain) -> bool:
        """Return whether `other` is at or beyond this frontier: each element of `other` is at or after this frontier.

        >>> five, seven, closed = Antichain.of(5), Antichain.of(7), Antichain()
        >>> five.less_equal_frontier(seven), seven.less_equal_frontier(five)
        (True, False)
        >>> seven.less_equal_frontier(closed), closed.less_equal_frontier(seven)
        (True, False)
        """
        return all(self.less_equal(element) for element in other.elements)

    def join(self, other: Antichain) -> Antichain:
        """Return the frontier of the times that are at or after both frontiers; empty if either is empty.

        >>> Antichain.of((0, 1)).join(Antichain.of((1, 0)))
        Antichain([(1, 1)])
        """
        return Antichain(join(mine, theirs) for mine in self.elements for theirs in other.elements)

    def meet(self, other: Antichain) -> Antichain:
        """Return the frontier of the times that are at or after at least one of the two frontiers.

        >>> Antichain.of((0, 1)).meet(Antichain.of((1, 0)))
        Antichain([(0, 1), (1, 0)])
        """
        return Antichain((*self.elements, *other.elements))

    def __iter__(self) -> Iterator[Time]:
        return iter(self.elements)

    def __len__(self) -> int:
        return len(self.elements)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Antichain) and self.elements == other.elements

    def __hash__(self) -> int:
        return hash(self.elements)

    def __repr__(self) -> str:
        return f"Antichain({list(self.elements)!r})"

    def __reduce__(self) -> tuple[type[Antichain], tuple[tuple[Time, ...]]]:
        return Antichain, (self.elements,)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"an Antichain is immutable: cannot set {name!r}")


class MutableAntichain:
    """A multiset of times and its frontier.

    A count may be temporarily negative: an update can overtake the statement that announces it. Only times with a
    positive count bound the frontier.

    >>> times = MutableAntichain()
    >>> times.update(3, -1); times.update(5, 2); times.frontier()
    Antichain([5])
    >>> times.update(3, 2); times.frontier()
    Antichain([3])
    """

    def __init__(self, times: Iterable[Time] = ()) -> None:
        self._counts: dict[Time, int] = {}
        self._frontier: Antichain | None = None
        for time in times:
            self.update(time, 1)

    def update(self, time: Time, delta: int) -> None:
        """Add `delta` to the count of `time`; a count of 0 is removed."""
        before = self._counts.get(time, 0)
        after = before + delta
        if after:
            self._counts[time] = after
        else:
            self._counts.pop(time, None)
        if (before > 0) != (after > 0):
            self._frontier = None

    def count(self, time: Time) -> int:
        """Return the count of `time`; 0 if it has none."""
        return self._counts.get(time, 0)

    def frontier(self) -> Antichain:
        """Return the minimal elements of the times whose count is positive; empty if there are no such times.

        Cost: cached until a time is added or removed; then one sort of the times.
        """
        if self._frontier is None:
            self._frontier = Antichain(time for time, count in self._counts.items() if count > 0)
        return self._frontier
