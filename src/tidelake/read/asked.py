"""Checks the arguments of a read: an impossible read is refused before any engine starts. Needs no JVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelake.errors import ArgumentRefused, SinceError, UnknownColumn, UpperError
from tidelake.protocol.order import INT64_MAX
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.holds import check_time


@dataclass(frozen=True)
class Readable:
    """The readable times of a version of a table: [since, upper) or, if closed, every time at or after `since`."""

    collection: Collection
    times_since: tuple[int, ...]
    """Empty if the collection is unreadable."""
    upper: int
    closed: bool

    @property
    def since(self) -> int:
        """The first time that can be read; valid only once `time` or `range` has returned."""
        return self.times_since[0]

    def time(self, as_of: int | None) -> int:
        """Return the time to read: `as_of`, or the last time that can be read if `as_of` is None.

        Raises:
            ArgumentRefused: it is not a time.
            SinceError: it is before `since`.
            UpperError: it is at or after upper, or nothing is sealed yet.
        """
        if as_of is not None:
            check_time("as_of", as_of)
        at = self._last() if as_of is None else as_of
        self._check(at)
        return at

    def range(self, after: int | None, through: int | None) -> int:
        """Return the last time of a range of changes; if `through` is None, the last time that can be read.

        Raises:
            SinceError, UpperError: one of the times cannot be read.
            ArgumentRefused: one of them is not a time, or `after` is later than `through`.
        """
        for argument, time in (("after", after), ("through", through)):
            if time is not None:
                check_time(argument, time)
        end = self._last() if through is None else through
        for time in (end,) if after is None else (after, end):
            self._check(time)
        if after is not None and after > end and through is None:  # in a closed stream, later times can be read
            rule = f"but the stream is closed, and nothing changes after {end}"
            raise ArgumentRefused("after", after, rule, f"give at most {end}, or give `through` as well")
        if after is not None and after > end:
            raise ArgumentRefused("after", after, f"but must not be later than `through`, {end}", "swap the two times")
        return end

    def start(self, as_of: int | None, takes_snapshot: bool, waits: bool, until: int | None) -> int:
        """Return the time at which a subscription begins; if `as_of` is None, the last time that can be read.

        Args:
            as_of: the time of the snapshot, or the last time before the changes.
            takes_snapshot: whether the contents come first.
            waits: whether the subscription waits for times that are not sealed yet.
            until: the last time to deliver; None if there is none.

        Raises:
            SinceError: the time is before `since`.
            UpperError: the time of the snapshot is not sealed yet, and the subscription does not wait for it; or,
                without a snapshot, `as_of` is None and nothing is sealed yet.
            ArgumentRefused: `as_of` is not a time, or `until` is before the snapshot.
        """
        if as_of is not None:
            check_time("as_of", as_of)
        at = self._last() if as_of is None else as_of
        if takes_snapshot:
            check_until(until, at)
        self._check(at, may_be_later=waits if takes_snapshot else as_of is not None)
        return at

    def _last(self) -> int:
        return max(last_time(self.upper, self.closed), self.times_since[0] if self.times_since else 0)

    def _check(self, at: int, may_be_later: bool = False) -> None:
        shown = self.collection.entry.shown
        if not self.times_since or at < self.times_since[0]:
            raise SinceError(shown(at), [shown(time) for time in self.times_since], self.collection.name)
        if not self.closed and at >= self.upper and not may_be_later:
            raise UpperError(shown(at), [shown(self.upper)])


def readable(collection: Collection, table: OpenTable) -> Readable:
    """Return the times that can be read at a version of the collection's updates table."""
    return Readable(collection, *collection.readable_range(table))


def last_time(upper: int, closed: bool) -> int:
    """Return the last sealed time; for a closed stream, a time after which nothing changes."""
    return INT64_MAX if closed and upper == INT64_MAX else upper - 1


def check_until(until: int | None, snapshot: int) -> None:
    """Check that the time of the snapshot is not after the last time to deliver; raises `ArgumentRefused`."""
    if until is not None and until < snapshot:
        rule = f"but must not be before the time of the snapshot, {snapshot}"
        raise ArgumentRefused("until", until, rule, "give an earlier `as_of`, or take no snapshot")


def is_number(value: object) -> bool:
    """Return whether an argument is a number; True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def columns_asked(collection: Collection, names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return the columns to read, each once; all of `names` if none is given.

    Raises:
        UnknownColumn: the collection has no such column.
    """
    unknown = [name for name in columns if name not in names]
    if unknown:
        raise UnknownColumn(collection.name, unknown[0], names)
    return list(dict.fromkeys(columns)) or list(names)
