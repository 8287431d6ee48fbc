"""Read capabilities as values: who may hold history back, and how far.

`since` of a collection is the meet of the frontiers of its capabilities; it never passes one that is alive. Where the
capabilities are stored, and when a lease is over, is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from tidelake.antichain import Antichain
from tidelake.errors import CapabilityError, FrontierRegression

Kind = Literal["critical", "read"]


@dataclass(frozen=True, slots=True)
class Capability:
    """The right to read a collection at every time at or after `since`.

    Args:
        id: its name, never used again for another one.
        kind: `critical` belongs to the collection and follows its retention rule, it never expires; `read` belongs to
            one reader.
        since: the frontier it holds; empty holds nothing.
        token: a secret of its holder. Where it differs, another holder has taken the capability over.
    """

    id: str
    kind: Kind
    since: Antichain
    token: str

    def downgrade(self, since: Antichain, token: str) -> Capability:
        """Give up the history before `since`; the same frontier is a no-op.

        Raises:
            CapabilityError: `token` is not the holder's.
            FrontierRegression: `since` is not at or beyond the frontier held now.

        >>> held = Capability("c1", "read", Antichain.of(3), token="t")
        >>> held.downgrade(Antichain.of(7), token="t").since
        Antichain([7])
        >>> held.downgrade(Antichain.of(2), token="t")
        Traceback (most recent call last):
        tidelake.errors.FrontierRegression: since is [3] and never goes back to [2]
        """
        self.check_token(token)
        if not self.since.less_equal_frontier(since):
            raise FrontierRegression("since", self.since, since)
        return replace(self, since=since)

    def check_token(self, token: str) -> None:
        """Refuse everybody but the holder.

        Raises:
            CapabilityError: `token` is not the holder's.
        """
        if token != self.token:
            raise CapabilityError(self.id, "somebody else holds it now: the token differs")

    def taken_over(self, token: str) -> Capability:
        """Give it to a new holder: what the old one does with its token is refused from now on."""
        return replace(self, token=token)


def meet_of(capabilities: Iterable[Capability]) -> Antichain:
    """Give the frontier up to which history may be forgotten; empty where nobody holds anything.

    >>> meet_of([Capability("a", "read", Antichain.of(9), "t"), Capability("b", "critical", Antichain.of(4), "t")])
    Antichain([4])
    >>> meet_of([])
    Antichain([])
    """
    frontier = Antichain()
    for capability in capabilities:
        frontier = frontier.meet(capability.since)
    return frontier
