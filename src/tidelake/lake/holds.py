"""Holding a time of one collection, so that compaction does not pass it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from tidelake.lake.base import StoredCollection, engine_errors
from tidelake.lake.reads import LEASE

if TYPE_CHECKING:
    from tidelake.read.holding import HeldTime, ReadCapability


class Holds(StoredCollection):
    """The read capabilities of a collection."""

    def acquire(self, at: int | None = None, lease: timedelta = LEASE, purpose: str = "") -> ReadCapability:
        """Hold a time: the collection stays readable at every time at or after it, whatever compaction does.

        Args:
            at: a time at or after `since`; it may also be after upper. By default, the last one that can be read.
            lease: how long the capability lives after each call, from a millisecond to 366 days.
            purpose: what it is for, in at most 200 characters; it is shown with the hold.

        Returns:
            A read capability: `since`, `token`, `downgrade(to)`, `renew()`, `clone()` and `drop()`.

        Raises:
            ArgumentRefused: an argument is out of its range, or there are too many holds.
            SinceError: `at` is not at or after `since`.

        Cost: one commit to the collection's handles.
        """
        from tidelake.read.holding import acquire

        with engine_errors():
            return acquire(self._catalog, self.name, at, lease, purpose)

    def capability(self, token: str) -> ReadCapability:
        """Take over the capability of this token, which another holder has passed on.

        From now on, that holder's calls are refused. The first call with the new token invalidates this one. If the new
        token is lost before that, for example because this process is killed, repeat this call: of the new tokens, only
        the last is valid.

        Raises:
            ArgumentRefused: it is not a token.
            CapabilityError: the capability has ended, belongs to another collection, or was already taken over.

        Cost: one commit to the collection's handles.
        """
        from tidelake.read.holding import take_over

        with engine_errors():
            return take_over(self._catalog.store, self.name, token)

    def renew(self, token: str) -> None:
        """Renew the lease of the capability of this token; the capability stays with its holder.

        Raises:
            ArgumentRefused: it is not a token.
            CapabilityError: the capability has ended, belongs to another collection, or was taken over.
        """
        from tidelake.read.holding import renew

        with engine_errors():
            renew(self._catalog.store, self.name, token)

    def release(self, token: str) -> bool:
        """Drop the capability of this token; any token that `capability` would still accept works.

        The files of a dropped collection are deleted only when its last hold has ended. So this call also accepts a
        token of a dropped collection, even if another collection has the name by now; no other call does.

        Returns:
            Whether the collection of the capability has been dropped.

        Raises:
            ArgumentRefused: it is not a token.
            CapabilityError: the capability has ended, belongs to another collection, or was taken over.
        """
        from tidelake.read.holding import release

        with engine_errors():
            return release(self._catalog.store, self.name, token)

    def holds(self) -> list[HeldTime]:
        """Return the holds of the collection, the earliest time first: the holder, the end, and the cost.

        Cost: the log of the table, and one column of each file that has both held rows and other rows.
        """
        from tidelake.read.holding import held_times

        with engine_errors():
            return held_times(self._stored())
