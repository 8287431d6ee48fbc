"""An in-memory collection that can be held and followed: the model of every call that readers make.

It has the calls of `LakeCollection` that take part in the agreement between readers and compaction: holds with leases,
reads AS OF a time, changes and subscriptions. Clocks are arguments, and ids are sequential, so every answer is
deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

from tidelake.errors import (
    ArgumentRefused,
    CapabilityDropped,
    CapabilityExpired,
    CapabilityForeign,
    CapabilityTaken,
    CapabilityUnknown,
    SinceError,
    SubscriptionLapsed,
    UpperError,
)
from tidelake.model.capability import MemoryCapability, meet_of
from tidelake.model.sums import SumCollection
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.message import Update
from tidelake.protocol.order import INT64_MAX

LEASE_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class _Lease:
    """A lease; each call of the holder advances its beat.

    The hold expires once two sightings of the same beat are at least `ms` plus the clock's slack apart.
    """

    ms: int
    beat: int = 0
    sighting: tuple[int, int] | None = None
    """A beat that was seen, and when."""


class HeldCollection:
    """Updates, and the capabilities that keep `since` from moving.

    Args:
        id: the collection's id, which is in each of its tokens.
        slack_ms: the possible error of the clock that compactions read.

    >>> prices = HeldCollection("7f")
    >>> prices.append([("a", 1, +1), ("b", 2, +1)]); prices.seal(4)
    >>> held = prices.acquire(at=1)
    >>> prices.compact(keep=0), prices.read(1)
    ((1,), {'a': 1})
    >>> held.drop()
    >>> prices.compact(keep=0), prices.changes(None, 3)
    ((3,), [Update(data='a', time=3, diff=1), Update(data='b', time=3, diff=1)])
    """

    def __init__(self, id: str, slack_ms: int = 0) -> None:
        self.id, self._slack_ms = id, slack_ms
        self._sums = SumCollection(Antichain.of(0))
        self._critical = MemoryCapability("critical", "critical", Antichain.of(0), "")
        self._live: dict[str, MemoryCapability] = {}
        self._leases: dict[str, _Lease] = {}
        self._ended: dict[str, str] = {}
        self._last = -1
        self._count = 0

    # --- frontiers

    @property
    def since(self) -> tuple[int, ...]:
        """The first time that can be read; empty if the collection is unreadable."""
        return _ints(self._sums.since)

    @property
    def upper(self) -> tuple[int, ...]:
        """The first time that is not sealed; empty if the stream is closed."""
        return _ints(self._sums.upper)

    def append(self, updates: list[tuple[Hashable, int, int]]) -> None:
        """Add updates at or after upper; raises what `SumCollection.append` raises."""
        self._sums.append(updates)
        self._last = max([self._last, *(time for _, time, _ in updates)])

    def seal(self, upper: int | None) -> None:
        """Move upper; None closes the stream. Raises what `SumCollection.seal` raises."""
        self._last = max(self._last, upper - 1) if upper is not None else max(self._last, self.last)
        self._sums.seal(Antichain() if upper is None else Antichain.of(upper))

    @property
    def last(self) -> int:
        """The last sealed time, or -1.

        If the stream is closed, it is the last time that has an update or was sealed before the closing, whichever is
        later.
        """
        return self._last if self._sums.is_closed else self.upper[0] - 1

    def forget(self) -> None:
        """Make the collection unreadable, as if it were dropped: its readers can only release their holds."""
        self._sums.compact(Antichain())

    def compact(self, keep: int, now_ms: int = 0) -> tuple[int, ...]:
        """End expired leases, move `since` to the meet of all capabilities, and forget the history before it.

        Args:
            keep: the distance before upper within which times stay readable even if nobody holds them.
            now_ms: the store's clock.

        Returns:
            The new since.
        """
        self._observe(now_ms)
        target = Antichain.of(max(0, min(self.last + 1 - keep, self.last)))
        self._critical = replace(self._critical, since=self._critical.since.join(target))
        self._sums.compact(self._sums.since.join(meet_of([self._critical, *self._live.values()])))
        return self.since

    def _observe(self, now_ms: int) -> None:
        for id, lease in list(self._leases.items()):
            seen = lease.sighting
            if seen is None or seen[0] != lease.beat or now_ms < seen[1]:
                self._leases[id] = replace(lease, sighting=(lease.beat, now_ms))
            elif now_ms - seen[1] >= lease.ms + self._slack_ms:
                self._end(id, "expired")

    # --- capabilities

    def acquire(self, at: int | None = None, lease_ms: int = LEASE_MS) -> MemoryHold:
        """Hold a time at or after since; by default the last one that can be read.

        Raises:
            ArgumentRefused: `at` is not a time.
            SinceError: `at` is not at or after since.
        """
        if at is not None:
            _check_time("at", at)
        time = max(*self.since, 0, self.last) if at is None else at
        if not self._sums.since.less_equal(time):
            raise SinceError(time, self.since, None)
        self._count += 1
        held = MemoryCapability(f"c{self._count}", "read", Antichain.of(time), self._secret())
        self._live[held.id], self._leases[held.id] = held, _Lease(lease_ms)
        return MemoryHold(self, held.id, held.token)

    def capability(self, token: str) -> MemoryHold:
        """Take a capability over by its token; raises a `CapabilityError` if that is not possible.

        The capability then has a new token. The first call with the new token invalidates the old one, `token`.
        """
        held = self._find(token, for_bearer=True).taken_over(self._secret(), by=token.split(".")[2])
        self._renewed(held)
        return MemoryHold(self, held.id, held.token)

    def renew(self, token: str) -> None:
        """Renew the lease of a capability by its token."""
        self._call(token, lambda held: held)

    def release(self, token: str) -> None:
        """Drop a capability by its token; like `capability`, this also accepts the previous token."""
        self._end(self._find(token, for_bearer=True).id, "dropped")

    def drop(self, token: str) -> None:
        """Drop a capability as its holder."""
        self._end(self._find(token).id, "dropped")

    def holds(self) -> list[int]:
        """Return the times that are held, in order."""
        return sorted(time for held in self._live.values() for time in _ints(held.since))

    def _secret(self) -> str:
        self._count += 1
        return f"s{self._count}"

    def _find(self, token: str, for_bearer: bool = False) -> MemoryCapability:
        collection, id, secret = token.split(".")
        if collection != self.id:
            raise CapabilityForeign(id, "its token belongs to another collection")
        if id in self._live:
            held = self._live[id]
            if secret != held.token and not (for_bearer and secret == held.previous):
                raise CapabilityTaken(
                    id, "its secret is not the current one: the token is mistyped, or another holder has taken it over"
                )
            return held
        ends = {"dropped": CapabilityDropped, "expired": CapabilityExpired}
        raise ends.get(self._ended.get(id, ""), CapabilityUnknown)(id, "it has ended, or never existed")

    def _call(self, token: str, change: Callable[[MemoryCapability], MemoryCapability]) -> MemoryCapability:
        """Change a capability; every call that succeeds renews its lease."""
        held = change(self._find(token)).called()
        self._renewed(held)
        return held

    def _renewed(self, held: MemoryCapability) -> None:
        lease = self._leases[held.id]
        self._live[held.id], self._leases[held.id] = held, replace(lease, beat=lease.beat + 1, sighting=None)

    def _end(self, id: str, how: str) -> None:
        del self._live[id], self._leases[id]
        self._ended[id] = how

    # --- reads

    def read(self, as_of: int) -> dict[Hashable, int]:
        """Return the contents AS OF a time; raises what `SumCollection.read` raises, or `ArgumentRefused`."""
        _check_time("as_of", as_of)
        return self._sums.read(as_of)

    def changes(self, after: int | None, through: int | None = None) -> list[Update]:
        """Return the consolidated updates after a time, up to and including another.

        Both times may be None, as in `LakeCollection.changes`.

        Raises:
            SinceError, UpperError: one of the times cannot be read.
            ArgumentRefused: `after` is later than `through`, or one of them is not a time.
        """
        for name, time in (("after", after), ("through", through)):
            if time is not None:
                _check_time(name, time)
        end = max(*self.since, 0, self.last) if through is None else through
        for time in (end,) if after is None else (after, end):
            self._sums.read(time)
        if after is not None and after > end:
            raise ArgumentRefused("after", after, f"but must not be later than `through`, {end}", "swap the two times")
        start = self.since[0] if after is None else after
        updates = [update for update in self._sums.updates if isinstance(update.time, int)]
        later = [update for update in updates if start < int(str(update.time)) <= end]
        first = [Update(data, start, diff) for data, diff in self.read(start).items()] if after is None else []
        return first + later

    def subscribe(
        self,
        as_of: int | None = None,
        snapshot: bool = True,
        until: int | None = None,
        lease_ms: int | None = LEASE_MS,
        capability: MemoryHold | None = None,
    ) -> MemorySubscription:
        """Follow the collection; the arguments are those of `LakeCollection.subscribe`, and so are the errors."""
        for name, time in (("as_of", as_of), ("until", until)):
            if time is not None:
                _check_time(name, time)
        if capability is not None:
            if capability.collection is not self:
                raise CapabilityForeign(capability.id, "it belongs to another collection")
            if as_of is not None and as_of < capability.since:
                raise ArgumentRefused("as_of", as_of, "but must not be before the capability", "leave it out")
            start = capability.since if as_of is None else as_of
        else:
            if as_of is None and not snapshot and self.last < 0 and self.upper:
                raise UpperError(0, self.upper)
            start = max(*self.since, 0, self.last) if as_of is None else as_of
        if snapshot and until is not None and until < start:
            raise ArgumentRefused("until", until, "but must not be before the snapshot", "give an earlier `as_of`")
        if not self._sums.since.less_equal(start) and capability is None:
            raise SinceError(start, self.since, None)
        owns = capability is None and lease_ms is not None
        held = self.acquire(start, lease_ms) if owns and lease_ms is not None else capability
        return MemorySubscription(self, start, snapshot, until, held, owns, lease_ms or LEASE_MS)


class MemoryHold:
    """A capability, as its holder uses it."""

    def __init__(self, collection: HeldCollection, id: str, secret: str) -> None:
        self.collection, self.id, self._secret = collection, id, secret
        self._since = collection._live[id].since

    @property
    def token(self) -> str:
        """The token with which another holder can take it over."""
        return f"{self.collection.id}.{self.id}.{self._secret}"

    @property
    def since(self) -> int:
        """The first time that it keeps readable."""
        return _ints(self._since)[0]

    def renew(self) -> None:
        """Renew its lease."""
        self.collection.renew(self.token)

    def downgrade(self, to: int) -> None:
        """Give up the history before `to`, which must be at or after `since`.

        Raises:
            ArgumentRefused, FrontierRegression, CapabilityError: as for `ReadCapability.downgrade`.
        """
        _check_time("to", to)
        change = Antichain.of(to)
        self._since = self.collection._call(self.token, lambda held: held.downgrade(change, held.token)).since

    def clone(self) -> MemoryHold:
        """Acquire another capability that holds the same time, with the same lease."""
        held = self.collection._find(self.token)
        copy = self.collection.acquire(self.since, self.collection._leases[held.id].ms)
        self.renew()
        return copy

    def drop(self) -> None:
        """Give up the capability; its token is then no longer valid."""
        self.collection.drop(self.token)


class MemorySubscription:
    """The batches of a collection: whole times, in order, each once."""

    def __init__(
        self,
        collection: HeldCollection,
        start: int,
        takes_snapshot: bool,
        until: int | None,
        held: MemoryHold | None,
        owns: bool,
        lease_ms: int,
    ) -> None:
        self._lease_ms = lease_ms
        self._collection, self._until, self._held, self._owns = collection, until, held, owns
        self._needs_snapshot, self._through = takes_snapshot, start
        self.is_complete = False

    def next(self) -> tuple[int | None, int, list[Update]] | None:
        """Return the time before the next batch (None if it is a snapshot), the batch's last time and its updates.

        If no batch is ready, the result is None.

        Raises:
            SubscriptionLapsed, CapabilityError, SinceError, UpperError: as for `Subscription.next`.
        """
        collection = self._collection
        last, closed = collection.last, not collection.upper
        if self.is_complete:
            self._wait()
            return None
        if self._needs_snapshot:
            if self._through > last and not closed:
                raise UpperError(self._through, collection.upper)
            self._move_hold()
            contents = collection.read(self._through)
            self._needs_snapshot, self.is_complete = False, closed and self._through >= last
            return None, self._through, [Update(data, self._through, diff) for data, diff in contents.items()]
        target = last if self._until is None else min(last, self._until)
        if target <= self._through:
            self.is_complete = self._until is not None and self._through >= self._until
            if self.is_complete or not closed:
                self._wait()
                return None
            target = self._through
        self._move_hold()
        after, updates = self._through, collection.changes(self._through, target)
        self._through, self.is_complete = target, closed and target >= last
        return after, target, updates

    def close(self) -> None:
        """End the subscription, and release its hold unless a caller passed it in."""
        if self._owns and self._held is not None and not self._has_ended():
            self._held.drop()
        self.is_complete, self._owns = True, False

    def _wait(self) -> None:
        """Move the hold although there is no next batch: the previous batch counts as processed."""
        if self._held is not None and self._held.since < self._through and not (self.is_complete and self._owns):
            self._move_hold()

    def _move_hold(self) -> None:
        if self._held is None:
            return
        if not self._owns or not self._has_ended():
            self._held.downgrade(max(self._through, self._held.since))
            return
        try:
            self._held = self._collection.acquire(self._through, self._lease_ms)
        except SinceError as lost:
            raise SubscriptionLapsed(self._held.id, f"since is {lost.since} now") from lost

    def _has_ended(self) -> bool:
        assert self._held is not None
        try:
            self._collection._find(self._held.token)
        except CapabilityExpired:
            return True
        return False


def _ints(frontier: Antichain) -> tuple[int, ...]:
    return tuple(int(str(time)) for time in frontier)


def _check_time(name: str, time: Any) -> None:
    if not isinstance(time, int) or isinstance(time, bool) or not 0 <= time <= INT64_MAX:
        raise ArgumentRefused(name, time, f"but must be an integer between 0 and {INT64_MAX}", "give a time")
