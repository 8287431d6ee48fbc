"""Holds a time of a collection: acquires, uses and lists read capabilities. Needs no JVM.

Each call that changes a capability is one commit to the collection's handles, where compaction also commits `since`. If
an acquisition and a move of `since` start from the same state, only one of them succeeds.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

from tidelake.catalog.absence import absence
from tidelake.catalog.catalog import Catalog
from tidelake.catalog.handles import change_handles, read_handles
from tidelake.errors import ArgumentRefused, CapabilityForeign, DamagedTable, SinceError
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.iso_times import iso_to_the_second
from tidelake.read.words import duration
from tidelake.storage.arrow import integers
from tidelake.storage.location import Location
from tidelake.store import holds
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Capability, Collection, Entry
from tidelake.store.files import RunFile, read_file
from tidelake.store.holds import Token
from tidelake.store.layout import COLLECTION_ID, TIME, CollectionPaths, Store
from tidelake.store.state import SINCE, UPPER
from tidelake.store.sweep import pinned_bytes
from tidelake.store.table_log import newest_version


class ReadCapability:
    """The right to read a collection at every time at or after `since`, until this right is dropped or its lease ends.

    The lease ends if no call has been made for its duration, by the clock of the store; any call renews it. A call
    raises a `CapabilityError` if the capability has ended, or was taken over by the bearer of its token. Use a
    capability in one thread only, and clone it for other threads. As a context manager, it is dropped on exit.
    """

    def __init__(self, paths: CollectionPaths, entry: Entry, token: Token) -> None:
        """Take a capability that is in the entry; to get one, call `acquire` or `take_over`."""
        self._paths, self._name, self._token = paths, entry.name, token
        self._is_dropped = False
        self._set(entry)

    @property
    def id(self) -> str:
        """Its id, which is never used again."""
        return self._token.id

    @property
    def token(self) -> str:
        """A secret: `collection.capability(token)` takes over the capability, and replaces the token.

        To pass the capability on, or to continue in another process, save the token before the next call: the first
        call with a new token invalidates the previous token.
        """
        return str(self._token)

    @property
    def since(self) -> int:
        """The first time that it keeps readable."""
        return self._held.since[0]

    @property
    def lease(self) -> timedelta:
        """How long it lives after each call."""
        return timedelta(milliseconds=self._hold.lease_ms)

    @property
    def purpose(self) -> str:
        """Its purpose, in the words of its holder."""
        return self._hold.purpose

    def renew(self) -> None:
        """Renew the lease, and change nothing else.

        Raises:
            CapabilityError: it has ended, or another holder has it.
        """
        self._call(lambda entry: holds.renew(entry, self._token, _now_ms()))

    def downgrade(self, to: int) -> None:
        """Give up the history before a time; if `since` already is this time, only renew the lease.

        Args:
            to: a time at or after `since`; it may also be after upper.

        Raises:
            ArgumentRefused: `to` is not a time.
            FrontierRegression: `to` is before `since`.
            CapabilityError: it has ended, or another holder has it.
        """
        self._call(lambda entry: holds.downgrade(entry, self._token, to, _now_ms()))

    def pin(self, seq: int, to: int) -> None:
        """Downgrade, and keep the files of all versions of `updates/` at or after a `seq` until the next pin.

        Plan the reads after this call. They can then take as long as the capability lives: no sweep deletes a file that
        they need, even if merges have replaced it.

        Args:
            seq: the current `seq` of the table.
            to: as for `downgrade`.

        Raises:
            ArgumentRefused, FrontierRegression, CapabilityError: as for `downgrade`.
        """
        self._call(lambda entry: holds.downgrade(entry, self._token, to, _now_ms(), seq))

    def clone(self, lease: timedelta | None = None, purpose: str | None = None) -> ReadCapability:
        """Acquire another capability for the same time, with an id and a token of its own.

        Args:
            lease: its lease; by default that of this one.
            purpose: its purpose; by default that of this one.

        Raises:
            ArgumentRefused: the lease or the purpose is too long, or there are too many holds.
            CapabilityError: this one has ended, or another holder has it.
            CollectionDropped: the collection was dropped; this one still keeps its files.
        """
        lease_ms = None if lease is None else _milliseconds(lease)
        copy = Token.new(self._token.collection_id)
        store = self._paths.store

        def add(entry: Entry) -> Entry:
            # checked first: the error that says how this capability ended says more than `CollectionDropped`
            holds.find(entry, self._token)
            if entry.dropped is not None:
                has_successor = Catalog(store).get(self._name) is not None
                raise absence(store, self._name, entry, has_successor=has_successor)
            return holds.clone(entry, self._token, copy, lease_ms, purpose, _now_ms())

        entry = self._call(add)
        return ReadCapability(self._paths, entry, copy)

    def drop(self) -> None:
        """Release the hold: compaction may forget the times that it kept, unless other holds keep them.

        Raises:
            CapabilityError: it has already ended, or another holder has it.
        """
        change_handles(self._paths, lambda entry: holds.drop(entry, self._token))
        self._is_dropped = True

    def __enter__(self) -> ReadCapability:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_dropped:
            self.drop()

    def __repr__(self) -> str:
        return f"ReadCapability({self._name!r}, id={self.id!r}, since={self.since})"

    def check_collection(self, collection: Collection) -> None:
        """Check that it holds a time of this collection.

        Raises:
            CapabilityForeign: it belongs to another collection.
        """
        if self._token.collection_id != collection.entry.id:
            raise CapabilityForeign(self.id, f"it belongs to a collection other than '{collection.name}'")

    def _call(self, change: Callable[[Entry], Entry]) -> Entry:
        entry = change_handles(self._paths, change)  # by path: the name may have changed
        self._set(entry)
        return entry

    def _set(self, entry: Entry) -> None:
        self._held, self._hold = holds.find(entry, self._token)


def acquire(
    catalog: Catalog, name: str, at: int | None, lease: timedelta, purpose: str, *, id: str | None = None
) -> ReadCapability:
    """Acquire a read capability; `LakeCollection.acquire` says what the arguments mean and what is raised.

    Args:
        catalog: the catalog.
        name: the name of the collection.
        at: the time to hold.
        lease: how long the capability lives after each call.
        purpose: what it is for.
        id: the id of the collection; another collection of this name is refused. None accepts any.
    """
    lease_ms, unbound = _milliseconds(lease), Token.new("")
    opened: list[OpenTable] = []  # opened once, even if another change of the handles comes first and `add` is repeated

    def add(entry: Entry) -> Entry:
        if id is not None and entry.id != id:  # the name was bound to another collection in the meantime
            earlier = read_handles(catalog.store.collection(id))
            raise absence(catalog.store, name, earlier, has_successor=True)
        table = opened[0] if opened else OpenTable(catalog.store.collection(entry.id).updates)
        opened[:] = [table]
        # The table's own since is later than that of the handles only if these were restored from an older copy.
        lowest, newest = table.value(SINCE) or 0, max(0, (table.value(UPPER) or 0) - 1)
        if at is not None:
            holds.check_time("at", at)
        if not entry.since:
            raise SinceError(entry.shown(newest if at is None else at), (), entry.name)
        low = max(entry.since[0], lowest)
        time = max(low, newest) if at is None else at
        if time < low:
            raise SinceError(entry.shown(time), (entry.shown(low),), entry.name)
        return holds.acquire(entry, replace(unbound, collection_id=entry.id), time, lease_ms, purpose, _now_ms())

    if newest_version(catalog.store.log_of_name(name)) < 0:
        catalog.find(name)  # refuses an unknown name, before `update` divides the catalog of an earlier release
    entry = catalog.update(name, add)
    return ReadCapability(catalog.store.collection(entry.id), entry, replace(unbound, collection_id=entry.id))


def take_over(store: Store, name: str, text: str) -> ReadCapability:
    """Take over a capability by its token. This can be repeated until the first call with the new token."""
    token = Token.parse(text)
    fresh = token.passed_on
    entry = _change_held(store, name, token, lambda entry: holds.take_over(entry, token, fresh, _now_ms()))
    return ReadCapability(store.collection(token.collection_id), entry, fresh)


def renew(store: Store, name: str, text: str) -> None:
    """Renew the lease of a capability by its token."""
    token = Token.parse(text)
    _change_held(store, name, token, lambda entry: holds.renew(entry, token, _now_ms()))


def release(store: Store, name: str, text: str) -> bool:
    """Drop a capability by its token; like `take_over`, this also accepts the previous token.

    Returns:
        Whether its collection has been dropped. Another collection may have the name by now.
    """
    token = Token.parse(text)
    entry = _change_held(store, name, token, lambda entry: holds.release(entry, token), has_successor=True)
    return entry.dropped is not None


def _change_held(
    store: Store, name: str, token: Token, change: Callable[[Entry], Entry], has_successor: bool = False
) -> Entry:
    """Change the entry of the collection that a token belongs to, even if the collection was dropped.

    Args:
        store: the store.
        name: the name of the collection.
        token: the token.
        change: the change.
        has_successor: whether to accept that the collection was dropped and another one has its name by now.

    Raises:
        CapabilityForeign: the store has no such collection, the collection has another name, or `has_successor` is
            false and the collection has such a successor.
    """
    id = token.collection_id
    if not COLLECTION_ID.fullmatch(id) or newest_version(store.collection(id).handles) < 0:
        raise CapabilityForeign(token.id, f"its token is mistyped, or belongs to a collection other than '{name}'")

    def checked(entry: Entry) -> Entry:
        if entry.name != name:
            fact = f"its token belongs to the collection '{entry.name}', not to '{name}'"
            raise CapabilityForeign(token.id, fact)
        if entry.dropped is not None and not has_successor and Catalog(store).get(name) is not None:
            fact = f"its token belongs to a collection that was dropped; another collection is now called '{name}'"
            raise CapabilityForeign(token.id, fact)
        return change(entry)

    return change_handles(store.collection(id), checked)


@dataclass(frozen=True)
class HeldTime:
    """A hold of a collection, and what it costs."""

    id: str
    purpose: str
    since: int
    """The first time that it keeps readable."""
    acquired_at_ms: int
    renewed_at_ms: int
    """The time of its last call, by the clock of its holder."""
    lease_s: float | None
    """How long it lives after each call; None if forever."""
    rows: int
    """Number of stored rows after its `since` whose times compaction could merge if no hold existed.

    If the collection was dropped, the number of all stored rows, because the hold keeps all files.
    """
    bytes: int
    """The size of these rows: whole files, and a share of the files that have other rows as well."""
    pinned_seq: int | None = None
    """It keeps the files of all versions of `updates/` at or after this `seq`; None if it pins no files."""
    pinned_bytes: int = 0
    """The size of the files that are no longer in the newest version, but stay because of the pin."""

    @property
    def until_ms(self) -> int | None:
        """When its lease ends at the earliest, if nobody renews it; None if never."""
        return None if self.lease_s is None else self.renewed_at_ms + int(self.lease_s * 1000)

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self) | {"until_ms": self.until_ms}


def held_times(collection: Collection) -> list[HeldTime]:
    """Return the holds of a collection, sorted by `since`.

    A hold keeps the rows after its own `since`, up to the time to which the collection's `since` would move if there
    were no holds, as the last compaction computed it. Several holds may keep the same rows.

    A hold that pins files, such as a subscription's, also keeps the pinned files that merges have replaced. A hold on a
    dropped collection keeps all rows of that collection.

    Cost: the log of the table, and one column of the files that have both held rows and other rows. If a hold pins
        files, also the listings of the table's folder and of the runs that are only pinned.
    """
    entry, updates = collection.entry, collection.paths.updates
    readers = [capability for capability in entry.capabilities if capability.kind == "read"]
    if entry.dropped is not None:
        rows, size = _all_of_dropped(updates)
        return _in_order(_held(entry, capability, rows, size, updates) for capability in readers)
    table, own = OpenTable(updates), Antichain()
    for capability in entry.capabilities:
        if capability.kind == "critical":
            own = own.meet(Antichain(capability.since))
    last = max((time for time in own.elements if isinstance(time, int)), default=0)
    last = min(last, max(0, (table.value(UPPER) or 0) - 1))
    files, found = table.files(), []
    for capability in readers:
        rows, size = _between(updates, files, capability.since[0], last)
        found.append(_held(entry, capability, rows, size, updates))
    return _in_order(found)


def _in_order(found: Iterable[HeldTime]) -> list[HeldTime]:
    return sorted(found, key=lambda held: (held.since, held.acquired_at_ms))


def _all_of_dropped(updates: Location) -> tuple[int, int]:
    """Return the number and the size of all rows of a dropped collection; 0 if they are damaged or deleted."""
    try:
        files = OpenTable(updates).files()
    except DamagedTable:
        return 0, 0
    return sum(file.rows for file in files), sum(file.bytes for file in files)


def held_too_long(collection: Collection, age_max_s: int) -> list[str]:
    """Return a sentence for each hold that is older than this age, the oldest first."""
    now_ms, sentences = _now_ms(), []
    live = [(each.hold.acquired_at_ms, each) for each in collection.entry.capabilities if each.hold is not None]
    for acquired_at_ms, capability in sorted(live, key=lambda pair: pair[0]):
        age_s = (now_ms - acquired_at_ms) / 1000
        if age_s > age_max_s:
            sentences.append(
                f"{holds.label_of(capability)} has held time {capability.since[0]} for {duration(age_s)}, since "
                f"{iso_to_the_second(acquired_at_ms)}"
            )
    return sentences


def _held(entry: Entry, capability: Capability, rows: int, size: int, updates: Location) -> HeldTime:
    hold = capability.hold
    pin = None if hold is None else hold.pinned_seq
    topics = (topic.topic for topic in entry.published_topics if topic.id == capability.id)
    purpose = next((f"published to {topic}" for topic in topics), "")
    return HeldTime(
        id=capability.id,
        purpose=purpose if hold is None else hold.purpose,
        since=capability.since[0],
        acquired_at_ms=entry.created_at_ms if hold is None else hold.acquired_at_ms,
        renewed_at_ms=entry.created_at_ms if hold is None else hold.renewed_at_ms,
        lease_s=None if hold is None else hold.lease_ms / 1000,
        rows=rows,
        bytes=size,
        pinned_seq=pin,
        pinned_bytes=0 if pin is None or entry.dropped is not None else pinned_bytes(updates, pin),
    )


def _between(table: Location, files: list[RunFile], after: int, through: int) -> tuple[int, int]:
    """Return the number and the size of the rows after one time, up to and including another."""
    rows, size = 0, 0
    if after >= through:
        return rows, size
    for file in files:
        low, high = file.reach
        if high <= after or low > through or not file.rows:
            continue
        matching = file.rows
        if low <= after or high > through:
            times = integers(read_file(table, file, [TIME])[TIME])
            matching = int(((times > after) & (times <= through)).sum())
        rows += matching
        size += file.bytes * matching // file.rows
    return rows, size


def _milliseconds(lease: timedelta) -> int:
    if not isinstance(lease, timedelta):
        raise ArgumentRefused("lease", lease, "but must be a `timedelta`", "write `timedelta(hours=1)`")
    holds.check_lease(lease / timedelta(milliseconds=1))
    return lease // timedelta(milliseconds=1)


def _now_ms() -> int:
    return int(clock.time() * 1000)
