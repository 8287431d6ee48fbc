"""Holds: what each call on a read capability changes in the collection's entry. Reads no clock, and writes no file.

A hold lives as long as its holder makes a call within each lease. No process's own clock is trusted to check this: each
call raises the hold's beat, and an observer (compaction) notes the beat and the time by the store's clock. If a
later observer finds the same beat, and the store's clock is a lease ahead of the note, it commits the expiry together
with the new `since`, from the state in which it saw the beat. See docs/decisions/holds.md.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal
from unicodedata import category

from tidelake.errors import (
    ArgumentRefused,
    CapabilityDropped,
    CapabilityExpired,
    CapabilityForeign,
    CapabilityTaken,
    CapabilityUnknown,
    FrontierRegression,
    SinceError,
)
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.order import INT64_MAX
from tidelake.storage.location import Location
from tidelake.store.entry import Capability, Ended, Entry, Hold, Sighting

LEASE_MS_MAX = 366 * 86_400_000
"""The longest lease."""
PURPOSE_CHARACTERS_MAX = 200
_UNSHOWN = ("Cc", "Cs")
HOLDS_MAX = 1_000
"""Maximum number of holds of one collection: each commit to the handles writes all of them."""
ENDED_MAX = 64
"""Maximum number of ended capabilities that an entry remembers, so that errors can say how they ended."""


@dataclass(frozen=True)
class Token:
    """The right to use a hold: the holder is whoever has its token."""

    collection_id: str
    id: str
    secret: str

    def __str__(self) -> str:
        """Return the text that a holder keeps."""
        return f"{self.collection_id}.{self.id}.{self.secret}"

    def __repr__(self) -> str:
        """Return the text without the secret, for logs and tracebacks."""
        return f"Token({self.id!r})"

    @classmethod
    def parse(cls, text: str) -> Token:
        """Read the text of a token.

        Raises:
            ArgumentRefused: it is not a token. The error does not repeat it, because it may be a secret.
        """
        parts = text.strip().split(".") if isinstance(text, str) else []
        if len(parts) != 3 or not all(parts):
            rule = "but a token has three parts with periods between them"
            raise ArgumentRefused("token", "…", rule, "give the whole token, as `tidelake hold` printed it")
        return cls(*parts)

    @classmethod
    def new(cls, collection_id: str) -> Token:
        """Return the token of a new hold; its id is random, and never used again."""
        return cls(collection_id, secrets.token_hex(8), secrets.token_hex(16))

    @property
    def passed_on(self) -> Token:
        """A token with a new secret for the same hold."""
        return Token(self.collection_id, self.id, secrets.token_hex(16))

    @property
    def secret_hash(self) -> str:
        """The hash of the secret; the store keeps only this."""
        return sha256(self.secret.encode()).hexdigest()


# --- the holder's calls


def acquire(entry: Entry, token: Token, at: int, lease_ms: int, purpose: str, now_ms: int) -> Entry:
    """Add a hold.

    Args:
        entry: the entry.
        token: a new token.
        at: the first time that stays readable, at or after `since`; it can also be beyond upper.
        lease_ms: how long the hold lives after each call, in milliseconds.
        purpose: what it is for, in the words of the holder.
        now_ms: the time by this process's clock, for display.

    Raises:
        ArgumentRefused: an argument is out of its range, or there are too many holds.
        SinceError: `at` is not at or after `since`.
    """
    check_time("at", at)
    check_lease(lease_ms)
    check_purpose(purpose)
    if not entry.since_frontier.less_equal(at):
        raise SinceError(entry.shown(at), map(entry.shown, entry.since), entry.name)
    if sum(capability.kind == "read" for capability in entry.capabilities) >= HOLDS_MAX:
        rule = f"and '{entry.name}' cannot have more than that"
        raise ArgumentRefused("holds", HOLDS_MAX, rule, "release holds that are no longer needed")
    hold = Hold(
        secret_hash=token.secret_hash, purpose=purpose, lease_ms=lease_ms, acquired_at_ms=now_ms, renewed_at_ms=now_ms
    )
    added = Capability(id=token.id, kind="read", since=(at,), hold=hold)
    return entry.model_copy(update={"capabilities": (*entry.capabilities, added)})


def find(entry: Entry, token: Token, for_bearer: bool = False) -> tuple[Capability, Hold]:
    """Return the live hold of a token.

    Args:
        entry: the entry.
        token: the token of the holder.
        for_bearer: also accept the previous token, if the holder has made no call with the current token yet.

    Raises:
        CapabilityForeign: it belongs to another collection.
        CapabilityExpired, CapabilityDropped: it has ended.
        CapabilityUnknown: there is no such hold, and none that ended recently.
        CapabilityTaken: another holder has taken it over.
    """
    if token.collection_id != entry.id:
        fact = f"its token is mistyped, or belongs to a collection other than '{entry.name}'"
        raise CapabilityForeign(token.id, fact)
    for capability in entry.capabilities:
        if capability.id == token.id and capability.hold is not None:
            hold, is_previous = capability.hold, _is_hash_of(token, capability.hold.previous_hash)
            if _is_hash_of(token, hold.secret_hash) or (for_bearer and is_previous):
                return capability, hold
            if is_previous:
                detail = "it was taken over; until its new holder makes a call, this token can take it over again"
                raise CapabilityTaken(token.id, detail)
            raise CapabilityTaken(
                token.id,
                "its secret is not the current one: the token is mistyped, or another holder has taken it over",
            )
    how = {ended.id: ended.how for ended in entry.ended}.get(token.id)
    if how == "expired":
        raise CapabilityExpired(token.id, "its lease expired, because no call renewed it")
    if how == "dropped":
        raise CapabilityDropped(token.id, "it was dropped")
    fact = f"'{entry.name}' has no hold with this id: it ended long ago, or the token is mistyped"
    raise CapabilityUnknown(token.id, fact)


def renew(entry: Entry, token: Token, now_ms: int) -> Entry:
    """Renew a lease; raises what `find` raises."""
    return _called(entry, find(entry, token), now_ms)


def downgrade(entry: Entry, token: Token, to: int, now_ms: int, pinned_seq: int | None = None) -> Entry:
    """Give up the history before `to`; if the hold is already at `to`, only renew it.

    Args:
        entry: the entry.
        token: the token of the hold.
        to: a time at or after the hold's own since.
        now_ms: the time by this process's clock, for display.
        pinned_seq: the first `seq` of `updates/` that the holder reads from now on; None leaves it as it is.

    Raises:
        ArgumentRefused: `to` is not a time, or `pinned_seq` is not a `seq`.
        FrontierRegression: `to` is before the hold's own since.
    """
    check_time("to", to)
    if pinned_seq is not None and not is_natural(pinned_seq):
        raise ArgumentRefused("seq", pinned_seq, "but must be an integer of at least 0", "give the `seq` of the table")
    held, hold = find(entry, token)
    current = Antichain(held.since)
    if not current.less_equal(to):
        raise FrontierRegression(f"since of the capability '{held.id}'", current, (to,))
    pin = {} if pinned_seq is None else {"pinned_seq": pinned_seq}
    return _called(entry, (held, hold), now_ms, since=(to,), **pin)


def clone(entry: Entry, token: Token, copy: Token, lease_ms: int | None, purpose: str | None, now_ms: int) -> Entry:
    """Add a hold with the same `since` as another hold, and renew that other hold.

    Args:
        entry: the entry.
        token: the token of the hold to clone.
        copy: the new hold's token.
        lease_ms: its lease; None means that of the other hold.
        purpose: its purpose; None means that of the other hold.
        now_ms: the time by this process's clock, for display.
    """
    held, hold = find(entry, token)
    lease = hold.lease_ms if lease_ms is None else lease_ms
    text = hold.purpose if purpose is None else purpose
    return acquire(_called(entry, (held, hold), now_ms), copy, held.since[0], lease, text, now_ms)


def take_over(entry: Entry, token: Token, fresh: Token, now_ms: int) -> Entry:
    """Give a hold to the bearer of its token, with a fresh token: the earlier holder's calls are refused from now on.

    The fresh token may be lost before its bearer has it, for example if the process is killed. So until the first call
    with the fresh token, the bearer of the old token may take the hold over again, which invalidates the lost token.
    """
    found = find(entry, token, for_bearer=True)
    return _called(entry, found, now_ms, secret_hash=fresh.secret_hash, previous_hash=token.secret_hash)


def drop(entry: Entry, token: Token) -> Entry:
    """End a hold as its holder; raises what `find` raises, for example if the hold was dropped before."""
    held, _ = find(entry, token)
    return _ended(entry, {held.id: "dropped"})


def release(entry: Entry, token: Token) -> Entry:
    """End a hold as the bearer of a token with which it could be taken over; raises what `find` raises."""
    held, _ = find(entry, token, for_bearer=True)
    return _ended(entry, {held.id: "dropped"})


def _called(
    entry: Entry,
    found: tuple[Capability, Hold],
    now_ms: int,
    since: tuple[int, ...] | None = None,
    **changed: str | int,
) -> Entry:
    """Return the entry after a call on a hold: the beat rises, which renews the lease, and the given fields change."""
    held, hold = found
    update = {"beat": hold.beat + 1, "renewed_at_ms": now_ms, "sighting": None, "previous_hash": None} | changed
    renewed = held.model_copy(update={"since": since or held.since, "hold": hold.model_copy(update=update)})
    capabilities = (renewed if capability.id == held.id else capability for capability in entry.capabilities)
    return entry.model_copy(update={"capabilities": tuple(capabilities)})


# --- the observer's calls


def beats_of(entry: Entry) -> dict[str, int]:
    """Return the beat of each hold, by id. Read the store's clock after this, never before."""
    return {each.id: each.hold.beat for each in entry.capabilities if each.hold is not None}


def observe(entry: Entry, seen: Mapping[str, int], now_ms: int, slack_ms: int = 0) -> Entry:
    """Note the beats that were seen, and end each hold that had no call for the length of its lease.

    Args:
        entry: the newest entry, which may be newer than what was seen.
        seen: the beats that were read before the clock.
        now_ms: the time by the store's own clock, read after the beats.
        slack_ms: how inexact that clock is.
    """
    capabilities: list[Capability] = []
    ended: dict[str, Literal["dropped", "expired"]] = {}
    for capability in entry.capabilities:
        hold = capability.hold
        if hold is None or seen.get(capability.id) != hold.beat:  # it had a call in the meantime
            capabilities.append(capability)
            continue
        first = hold.sighting
        if first is None or first.beat != hold.beat or now_ms < first.at_ms:  # a clock that went back proves nothing
            noted = hold.model_copy(update={"sighting": Sighting(beat=hold.beat, at_ms=now_ms)})
            capabilities.append(capability.model_copy(update={"hold": noted}))
            continue
        if now_ms - first.at_ms >= hold.lease_ms + slack_ms:
            ended[capability.id] = "expired"
        capabilities.append(capability)
    return _ended(entry.model_copy(update={"capabilities": (*capabilities,)}), ended)


def clock_slack_ms(folder: Location) -> int:
    """Return the inaccuracy of a store's clock: an object store's clock counts whole seconds."""
    return 0 if folder.is_local else 1_000


def oldest_pin(entry: Entry) -> int | None:
    """Return the first `seq` of `updates/` that a live hold pins; None if none does."""
    pins = (each.hold.pinned_seq for each in entry.capabilities if each.hold is not None)
    return min((pin for pin in pins if pin is not None), default=None)


def holding_back(entry: Entry) -> list[Capability]:
    """Return the holds that stop `since` from moving: those at `since` itself, oldest first."""
    own = Antichain()
    for capability in entry.capabilities:
        if capability.kind == "critical":
            own = own.meet(Antichain(capability.since))
    if not entry.since or entry.since_frontier == own or not entry.since_frontier.less_equal_frontier(own):
        return []
    at_since = [each for each in entry.capabilities if each.kind == "read" and each.since == entry.since]
    return sorted(at_since, key=lambda each: 0 if each.hold is None else each.hold.acquired_at_ms)


def held_text(entry: Entry) -> str | None:
    """Say why `since` cannot move, as `since stays at 7: held by '…'`; None if no hold stops it."""
    holds = holding_back(entry)
    if not holds:
        return None
    others = f" and {len(holds) - 1} more" if len(holds) > 1 else ""
    return f"since stays at {entry.since[0]}: held by {label_of(holds[0])}{others}"


def label_of(capability: Capability) -> str:
    """Return the label of a hold: its purpose, and its id."""
    purpose = "" if capability.hold is None else capability.hold.purpose
    return f"'{purpose}' ({capability.id})" if purpose else capability.id


def _is_hash_of(token: Token, digits: str | None) -> bool:
    return digits is not None and secrets.compare_digest(digits, token.secret_hash)


def _ended(entry: Entry, ended: Mapping[str, Literal["dropped", "expired"]]) -> Entry:
    """Remove holds, and remember how they ended."""
    if not ended:
        return entry
    left = tuple(each for each in entry.capabilities if each.id not in ended)
    notes = (*entry.ended, *(Ended(id=id, how=how) for id, how in ended.items()))[-ENDED_MAX:]
    return entry.model_copy(update={"capabilities": left, "ended": notes})


# --- arguments


def check_time(name: str, time: object) -> None:
    """Check that an argument is a time.

    Raises:
        ArgumentRefused: it is not an integer, is negative, or does not fit in 64 bits.
    """
    if not is_natural(time):
        raise ArgumentRefused(
            name, time, f"but must be an integer between 0 and {INT64_MAX}", "give a time of the collection"
        )


def is_natural(value: object) -> bool:
    """Return whether a value is an integer of at least 0 that fits in 64 bits, as times and `seq` are."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT64_MAX


def check_lease(lease_ms: float) -> None:
    """Check the length of a lease.

    Raises:
        ArgumentRefused: it is not between a millisecond and 366 days.
    """
    if not 1 <= lease_ms <= LEASE_MS_MAX:
        rule = "but must be between 0.001 and 31622400 seconds (366 days)"
        raise ArgumentRefused("lease", lease_ms / 1000, rule, "use a lease of hours; every call renews it")


def check_purpose(purpose: str) -> None:
    """Check that a purpose can be stored, and shown in a line.

    Raises:
        ArgumentRefused: it is too long, is not text, or has control characters or lone surrogates.
    """
    if not isinstance(purpose, str) or any(category(character) in _UNSHOWN for character in purpose):
        rule = "but must be one line of text, without control characters"
        raise ArgumentRefused("purpose", purpose, rule, "say it in a few words")
    if len(purpose) > PURPOSE_CHARACTERS_MAX:
        rule = f"but must have at most {PURPOSE_CHARACTERS_MAX} characters"
        raise ArgumentRefused("purpose", purpose, rule, "say it in a few words")
