"""Follows a collection: the contents AS OF a time, then the changes after it, as the collection advances.

A subscription is built on `snapshot` and `changes` alone. Its token is a time: a reader that knows the contents AS OF
that time continues from there, whatever was merged in between. A hold at that time keeps compaction from passing it.
"""

from __future__ import annotations

import time as clock
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from threading import Event
from typing import Generic, NamedTuple, TypeVar

from tidelake.catalog.absence import absence
from tidelake.catalog.catalog import Catalog
from tidelake.catalog.handles import read_handles
from tidelake.errors import (
    ArgumentRefused,
    CapabilityDropped,
    CapabilityError,
    CapabilityExpired,
    CapabilityUnknown,
    KeysInError,
    SinceError,
    SubscriptionLapsed,
    UpperError,
    show_frontier,
)
from tidelake.protocol.order import INT64_MAX
from tidelake.read.asked import check_until, is_number, last_time
from tidelake.read.batch_ends import last_time_within
from tidelake.read.holding import ReadCapability, acquire
from tidelake.read.source import Selection, Source
from tidelake.storage import blobs
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.holds import check_time
from tidelake.store.state import CLOSED, UPPER

T = TypeVar("T")
"""What an engine returns: a Spark DataFrame, or an `Answer` from DuckDB."""
ROWS_MAX = 1_000_000
"""The maximum number of stored rows whose times are in one batch, unless a single time has more."""
POLL_S = 1.0
WAIT_S_MAX = 366 * 86_400.0
_ENDED = (CapabilityExpired, CapabilityUnknown)
"""The errors for a hold whose lease has ended: the second one if many other holds have ended since."""


@dataclass(frozen=True)
class Progress:
    """Progress after a batch: each time at or before `through` was delivered in full, and no part of a later one."""

    after: int | None
    """The last time before the batch; None if the batch is the snapshot."""
    through: int
    """The token: a subscription `as_of` this time, without a snapshot, continues after this batch."""
    closed: bool
    """Whether no batch follows, because the stream is closed."""
    is_empty: bool
    """Whether the batch certainly has no updates: only the times have advanced."""


class Batch(NamedTuple, Generic[T]):
    """The updates of one or more complete times, and the progress after them."""

    updates: T
    """The requested columns, `_time` and `_diff`, consolidated as in `changes`, and in the order of `_time`. The
    snapshot's updates have the time of its contents. Updates can be evaluated until the next batch is requested."""
    progress: Progress


@dataclass(frozen=True)
class Bounds:
    """How long a subscription waits, how far it goes, and how much it takes at once."""

    wait_s: float | None = 0.0
    poll_s: float = POLL_S
    until: int | None = None
    rows_max: int = ROWS_MAX

    def check(self) -> None:
        """Check the values.

        Raises:
            ArgumentRefused: one of them is out of its range.
        """
        if self.wait_s is not None and not (is_number(self.wait_s) and 0 <= self.wait_s <= WAIT_S_MAX):
            rule = "but must be between 0 and 31622400 seconds, or None to wait forever"
            raise ArgumentRefused("wait_s", self.wait_s, rule, "give a number of seconds")
        if not (is_number(self.poll_s) and 0.001 <= self.poll_s <= 86_400):
            raise ArgumentRefused("poll_s", self.poll_s, "but must be between 0.001 and 86400", "give a second or so")
        if not isinstance(self.rows_max, int) or isinstance(self.rows_max, bool) or self.rows_max < 1:
            raise ArgumentRefused("rows_max", self.rows_max, "but must be an integer of at least 1", "leave it out")
        if self.until is not None:
            check_time("until", self.until)


class Subscription(Generic[T]):
    """The batches of a collection, one after the other: complete times, in order, each exactly once.

    Iterating ends when nothing new has been sealed for `wait_s` seconds, when `until` is reached, or when the stream is
    closed; another loop continues where the last one ended. As a context manager, the subscription is closed on
    exit. It is for one thread, but any thread may close it. It stays with its collection if that is renamed, and never
    continues with another collection that gets its name.
    """

    def __init__(
        self,
        source: Source[T],
        catalog: Catalog,
        collection: Collection,
        start: int,
        takes_snapshot: bool,
        selection: Selection,
        bounds: Bounds,
        capability: ReadCapability | None,
        owns: bool,
    ) -> None:
        """Take what `subscribe` has checked."""
        self._source, self._catalog = source, catalog
        self._name, self._paths = collection.name, collection.paths
        self._selection, self._bounds = selection, bounds
        self._capability, self._owns = capability, owns
        self._through, self._needs_snapshot = start, takes_snapshot
        self._is_over, self._closed = False, Event()
        self._note_call()

    @property
    def token(self) -> int:
        """The last time that was delivered; before the first batch, the time at which the subscription begins."""
        return self._through

    @property
    def capability(self) -> ReadCapability | None:
        """The hold that follows the subscription; None if there is none: compaction may then pass the token."""
        return self._capability

    @property
    def is_complete(self) -> bool:
        """Whether no further batch can come: the stream is closed, `until` is reached, or `close` was called."""
        return self._is_over or self._closed.is_set()

    def next(self) -> Batch[T] | None:
        """Wait for the next batch and return it; None if there is none after `wait_s` seconds, or none can come.

        This call marks the previous batch as processed: the hold moves to its last time.

        Raises:
            SubscriptionLapsed: the lease has ended, and compaction has passed the token in the meantime.
            CapabilityError: the capability that the caller gave has ended, or its token was used by another holder.
            SinceError: the subscription holds nothing, and compaction has passed the token.
            UpperError: the time of the snapshot is still not sealed.
            KeysInError: there are keys in error at the next time, and `skip_errors` is not set.
            CollectionDropped: the collection was dropped.
            UnknownColumn, PredicateRefused: as for `snapshot`.
        """
        self._source.release()
        waits = self._bounds.wait_s
        end_s = INT64_MAX if waits is None else clock.monotonic() + waits
        while not self.is_complete:
            batch = self._advance()
            if batch is not None:
                return batch
            self._let_go()
            left_s = end_s - clock.monotonic()
            if self.is_complete:
                break
            self.renew()  # also if `wait_s` is 0, because the caller does the waiting
            if left_s <= 0:
                break
            self._closed.wait(min(self._bounds.poll_s, left_s))
        if self._needs_snapshot and not self._closed.is_set():
            collection = self._collection()
            upper = OpenTable(collection.paths.updates).value(UPPER) or 0
            shown = collection.entry.shown
            raise UpperError(shown(self._through), [shown(upper)])
        if self._is_over and not self._owns and not self._closed.is_set():
            self._let_go()
        return None

    def renew(self) -> None:
        """Renew the hold if a third of its lease has passed since it was last moved or renewed; otherwise, do nothing.

        `next` does this while it waits, but nothing does it while you process a batch. If that may take as long as the
        lease, call this as often as you like, for example after each row: it does not move the hold, and the files of
        the batch are kept.

        Raises:
            CapabilityError: the capability that the caller gave has ended, or its token was used by another holder. If
                the subscription's own hold has ended, the next batch finds out whether anything was forgotten.

        Cost: a look at the clock and, about three times in the duration of a lease, a commit to the handles.
        """
        if self._capability is None or self._closed.is_set() or clock.monotonic() < self._due_s:
            return
        try:
            self._capability.renew()
        except _ENDED:
            if not self._owns:
                raise
        except CapabilityDropped:
            if not self._closed.is_set():  # another thread may have closed it in the meantime
                raise
        self._note_call()

    def __iter__(self) -> Iterator[Batch[T]]:
        while (batch := self.next()) is not None:
            yield batch

    def close(self) -> None:
        """End the subscription, and release its hold. A capability that the caller gave stays as it is."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._owns and self._capability is not None:
            try:
                self._capability.drop()
            except _ENDED:
                return

    def __enter__(self) -> Subscription[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._source.release()  # not in `close`, which another thread may call while this one reads a batch

    def __repr__(self) -> str:
        return f"Subscription({self._name!r}, token={self._through})"

    # --- one step

    def _advance(self) -> Batch[T] | None:
        """Return the next batch; None if its times are not sealed yet, or if `until` is reached."""
        table = OpenTable(self._collection().paths.updates)
        upper, closed = table.value(UPPER) or 0, bool(table.value(CLOSED))
        last = last_time(upper, closed)
        if self._needs_snapshot:
            if self._through > last and not closed:
                return None
            self._hold_at(table.seq)
            return self._snapshot(closed and self._through >= last)
        target = last if self._bounds.until is None else min(last, self._bounds.until)
        if target <= self._through:
            if self._bounds.until is not None and self._through >= self._bounds.until:
                self._is_over = True
                return None
            if not closed:
                return None
            target = self._through
        self._hold_at(table.seq)
        if target > self._through:
            target = last_time_within(table.path, table.files(), self._through, target, self._bounds.rows_max)
        return self._changes(target, closed and target >= last)

    def _snapshot(self, closed: bool) -> Batch[T]:
        updates = self._source.contents(self._collection(), self._through, self._selection)
        self._needs_snapshot, self._is_over = False, closed
        return Batch(updates, Progress(None, self._through, closed, False))

    def _changes(self, through: int, closed: bool) -> Batch[T]:
        after, collection = self._through, self._collection()
        # Both reads use one version: without a hold, a merge between them may move rows of this batch to a later time.
        table = OpenTable(collection.paths.updates)

        def is_empty() -> bool:
            return not any(file.reach[0] <= through and file.reach[1] > after for file in table.files())

        def read() -> T:
            in_order = not is_empty() and through > after + 1
            return self._source.changes(collection, table, after, through, self._selection, in_order)

        try:
            updates = read()
        except KeysInError as error:
            if not after < error.as_of - 1 < through:
                raise
            through, closed = error.as_of - 1, False  # the times before the error can be read
            updates = read()
        self._through, self._is_over = through, closed
        return Batch(updates, Progress(after, through, closed, is_empty()))

    def _collection(self) -> Collection:
        """Return the collection as it is now; its earlier name may now belong to another collection.

        Raises:
            CollectionDropped: it was dropped.
        """
        found = self._catalog.get(self._name)
        if found is not None and found.paths == self._paths:
            return found
        entry = read_handles(self._paths)
        if entry.dropped is not None:
            raise absence(self._catalog.store, entry.name, entry, has_successor=found is not None)
        self._name = entry.name
        return Collection(entry, self._paths)

    # --- its hold

    def _hold_at(self, seq: int) -> None:
        """Move the hold to the token, and pin the files of the reads that are planned from now on.

        Raises:
            SubscriptionLapsed: the lease has ended, and compaction has passed the token.
        """
        if self._capability is None:
            return
        try:
            self._capability.pin(seq, max(self._through, self._capability.since))
        except _ENDED as error:
            if not self._owns:
                raise
            self._hold_again(seq, self._capability, error)
        self._note_call()

    def _let_go(self) -> None:
        """Move the hold although there is no next batch: the previous batch counts as processed."""
        if self._capability is None or self._needs_snapshot or self._capability.since >= self._through:
            return
        self._hold_at(OpenTable(self._collection().paths.updates).seq)

    def _hold_again(self, seq: int, ended: ReadCapability, error: CapabilityError) -> None:
        """Acquire a new hold after the lease has ended; it is as good as the old one if nothing was forgotten."""
        try:
            held = self._collection()
            self._capability = acquire(
                self._catalog, held.name, self._through, ended.lease, ended.purpose, id=held.entry.id
            )
            self._capability.pin(seq, self._through)
        except SinceError as lost:
            since = f"since of '{self._name}' is now {show_frontier(lost.since)}"
            fact = f"its lease expired while its subscription was at time {self._through}, and {since}"
            raise SubscriptionLapsed(ended.id, fact) from error

    def _note_call(self) -> None:
        """Compute when the hold has to be renewed, now that a call has renewed it."""
        lease = timedelta() if self._capability is None else self._capability.lease
        self._due_s = clock.monotonic() + lease / timedelta(seconds=3)


def subscribe(
    source: Source[T],
    catalog: Catalog,
    name: str,
    as_of: int | None,
    takes_snapshot: bool,
    selection: Selection,
    bounds: Bounds,
    lease: timedelta | None,
    capability: ReadCapability | None,
    purpose: str,
) -> Subscription[T]:
    """Begin a subscription; `LakeCollection.subscribe` says what the arguments mean and what is raised."""
    bounds.check()
    if capability is not None and not isinstance(capability, ReadCapability):
        fix = "pass what `acquire` or `capability` returns; for a token, `collection.capability(token)`"
        raise ArgumentRefused("capability", "…", "but must be a read capability", fix)  # a token is a secret
    if as_of is not None:
        check_time("as_of", as_of)
    collection = catalog.find(name)
    if capability is not None:
        capability.check_collection(collection)
        # The capability may come from another lake object, which may write although this one is read-only.
        blobs.check_writable(collection.paths.handles)
        if as_of is not None and as_of < capability.since:
            rule = f"but must not be before the since of the capability, {capability.since}"
            raise ArgumentRefused("as_of", as_of, rule, "leave it out: the capability says where to continue")
        start = capability.since if as_of is None else as_of
        if takes_snapshot:
            check_until(bounds.until, start)
        return Subscription(source, catalog, collection, start, takes_snapshot, selection, bounds, capability, False)
    table = OpenTable(collection.paths.updates)
    since, upper, closed = collection.readable_range(table)
    if as_of is None and not takes_snapshot and not upper and not closed:
        raise UpperError(0, [upper])
    start = max(upper - 1, *since, 0) if as_of is None else as_of
    if takes_snapshot:
        check_until(bounds.until, start)
    if lease is not None:
        held = acquire(catalog, collection.name, as_of, lease, purpose, id=collection.entry.id)
        found = Subscription(source, catalog, collection, held.since, takes_snapshot, selection, bounds, held, True)
        try:
            if takes_snapshot:
                check_until(bounds.until, held.since)  # a later time may have been sealed since `upper` was read
        except ArgumentRefused:
            found.close()
            raise
        return found
    if not since or start < since[0]:
        shown = collection.entry.shown
        raise SinceError(shown(start), map(shown, since), collection.name)
    return Subscription(source, catalog, collection, start, takes_snapshot, selection, bounds, None, False)
