"""Capabilities that are unknown or gone."""

from __future__ import annotations

from tidelake.errors.base import TidelakeError


class CapabilityError(TidelakeError):
    """A capability is unknown, expired, dropped, or somebody else's."""

    capability_id: str
    detail: str
    fact = "capability {capability_id!r}: {detail}"
    hint = "acquire a new capability; its since may be later than that of the lost one"


class CapabilityExpired(CapabilityError):
    """The lease of a capability has ended: its id is never valid again, and the times that it held may be forgotten."""

    hint = (
        "acquire a new capability, whose since may be later than that of the lost one; a longer lease, or a call "
        "within each lease, keeps it alive"
    )


class CapabilityDropped(CapabilityError):
    """The capability has already been dropped: its id is never valid again."""

    hint = "acquire a new capability, whose since may be later; drop a capability only once, after its last use"


class CapabilityTaken(CapabilityError):
    """The secret of the token is not the current one: another bearer has the capability, or the token is mistyped."""

    hint = "check that the token is whole; use a token in one place only, or clone the capability for each reader"


class CapabilityForeign(CapabilityError):
    """The token belongs to a capability of another collection, or is mistyped."""

    hint = (
        "use the whole token, with the collection that it was acquired from; if that was dropped, `tidelake release` "
        "still accepts it"
    )


class CapabilityUnknown(CapabilityError):
    """The collection does not have this capability, and did not have it recently."""

    hint = "check that the token is whole; otherwise acquire a new capability, whose since may be later"


class SubscriptionLapsed(CapabilityError):
    """A subscription made no call for longer than its lease, and compaction has forgotten the time it had reached."""

    hint = "subscribe again with a snapshot, which replaces what was delivered so far; a longer lease prevents this"
