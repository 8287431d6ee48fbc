"""Capabilities as values: who keeps history readable, and from when.

`since` of a collection is the meet of the frontiers of its capabilities, so it never passes a live capability. This
module neither stores capabilities nor ends leases.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from tidelake.errors import CapabilityError, FrontierRegression
from tidelake.protocol.antichain import Antichain

Kind = Literal["critical", "read"]


@dataclass(frozen=True, slots=True)
class MemoryCapability:
    """The right to read a collection at every time at or after `since`.

    Args:
        id: the capability's name, which is never reused.
        kind: `critical` belongs to the collection, follows its retention rule and never expires; `read` belongs to one
            reader.
        since: the frontier that the capability holds; an empty frontier holds nothing.
        token: the current holder's secret. A caller with a different token has lost the capability to another holder.
        previous: the secret that `token` has replaced, until the first call with `token`; None afterwards.
    """

    id: str
    kind: Kind
    since: Antichain
    token: str
    previous: str | None = None

    def downgrade(self, since: Antichain, token: str) -> MemoryCapability:
        """Give up the history before `since`; for the same frontier, do nothing.

        Raises:
            CapabilityError: `token` is not the holder's.
            FrontierRegression: `since` is not at or beyond the frontier held now.

        >>> held = MemoryCapability("c1", "read", Antichain.of(3), token="t")
        >>> held.downgrade(Antichain.of(7), token="t").since
        Antichain([7])
        >>> held.downgrade(Antichain.of(2), token="t")
        Traceback (most recent call last):
        tidelake.errors.FrontierRegression: since is [3] and cannot move back to [2]
        hint: a frontier only advances: give [3] or a later one
        """
        self.check_token(token)
        if not self.since.less_equal_frontier(since):
            raise FrontierRegression("since", self.since, since)
        return replace(self, since=since)

    def check_token(self, token: str) -> None:
        """Check that the caller is the holder.

        Raises:
            CapabilityError: `token` is not the holder's.
        """
        if token != self.token:
            raise CapabilityError(self.id, "another holder has it now: the token differs")

    def taken_over(self, token: str, by: str) -> MemoryCapability:
        """Return the capability with a new holder, whose first call ends the validity of the old token.

        >>> held = MemoryCapability("c1", "read", Antichain.of(3), token="s").taken_over("t", by="s")
        >>> held.token, held.previous, held.called().previous
        ('t', 's', None)
        """
        return replace(self, token=token, previous=by)

    def called(self) -> MemoryCapability:
        """Return the capability after a call by its holder."""
        return replace(self, previous=None)


def meet_of(capabilities: Iterable[MemoryCapability]) -> Antichain:
    """Return the frontier up to which history may be forgotten; empty if there are no capabilities.

    >>> early, late = (MemoryCapability(name, "read", Antichain.of(since), "t") for name, since in (("a", 4), ("b", 9)))
    >>> meet_of([early, late])
    Antichain([4])
    >>> meet_of([])
    Antichain([])
    """
    frontier = Antichain()
    for capability in capabilities:
        frontier = frontier.meet(capability.since)
    return frontier
