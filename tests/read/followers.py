"""A consumer that is killed at random, and the sweep that it has to survive."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from tests.lakes.early_sweeps import sweep_early
from tests.read.change_laws import Rows, Updates, add_until, updates_of
from tidelake.catalog.handles import read_handles
from tidelake.read.subscription import Batch, Subscription
from tidelake.store.holds import oldest_pin
from tidelake.store.layout import CollectionPaths


def sweep_unpinned(paths: CollectionPaths) -> int:
    """Delete every file that neither the current version nor a pin needs."""
    return sweep_early(paths.updates, pinned_seq=oldest_pin(read_handles(paths)))


class Follower:
    """A consumer that is killed at random and resumes from its token, with either engine."""

    def __init__(
        self, begin: Callable[[int | None], Subscription[Any]], rng: Random, text: Callable[[dict[str, Any]], str]
    ):
        self.begin, self.rng, self.text = begin, rng, text
        self.subscription: Subscription[Any] | None = None
        self.delivered: Updates = {}
        self.start: int | None = None
        self.token: int | None = None

    def take(self, meanwhile: Callable[[], object] = lambda: None) -> bool:
        """Take a batch, call `meanwhile`, and then evaluate the batch; return whether there was a batch."""
        if self.subscription is None:
            self.subscription = self.begin(self.token)
        batch = self.subscription.next()
        if batch is None:
            return False
        meanwhile()
        found = updates_of(batch, self.text)
        if self.rng.random() < 0.3:  # killed before it has kept the batch
            self.subscription = None
            return True
        self.keep(batch, found)
        if self.rng.random() < 0.3:
            self.subscription.close()
            self.subscription = None
        return True

    def keep(self, batch: Batch[Any], found: Updates) -> None:
        after, through = batch.progress.after, batch.progress.through
        assert after == self.token
        if after is None:
            self.start = through
        times = {time for _, time in found}
        assert all(time == through if after is None else after < time <= through for time in times)
        assert not (batch.progress.is_empty and times)
        self.delivered |= found
        self.token = through

    def take_all(self) -> None:
        while self.take():
            pass

    def check(self, times: Iterable[int], expected: Callable[[int], Rows]) -> None:
        """Check that the delivered updates add up to the model's contents at each of these times from `start` on."""
        assert self.start is not None and self.token is not None
        for time in times:
            if time >= self.start:
                assert add_until(self.delivered, time) == dict(expected(time)), time
