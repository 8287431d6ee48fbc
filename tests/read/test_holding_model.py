"""Random calls of holders and compactions agree with the model in memory: every call, at legal and illegal times."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from tests.lakes.held import HeldLake
from tests.lakes.lake import NAME
from tidelake.errors import CapabilityError, FrontierRegression, SinceError, TidelakeError
from tidelake.model.capability import MemoryCapability, meet_of
from tidelake.model.sums import SumCollection
from tidelake.protocol.antichain import Antichain
from tidelake.read.holding import ReadCapability

TIMES = st.integers(0, 12)


class Holds(RuleBasedStateMachine):
    """A collection in a store, and one in memory with its capabilities. A holder is a place in both."""

    holders = Bundle("holders")
    template: HeldLake

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.lake = self.template.copy(Path(self.folder.name) / "lake")
        self.model = SumCollection(Antichain.of(0))
        self.model.seal(Antichain.of(1))
        self.live: dict[str, MemoryCapability] = {}
        self.critical = Antichain.of(0)
        self.upper = 1

    def teardown(self) -> None:
        self.folder.cleanup()

    def both(self, model: Callable[[], object], store: Callable[[], ReadCapability | None]) -> ReadCapability | None:
        """Make a call in the model and in the store: both succeed, or both raise the same kind of error."""
        refused: type[TidelakeError] | None = None
        try:
            model()
        except (SinceError, FrontierRegression, CapabilityError) as error:
            refused = type(error)
        if refused is None:
            return store()
        with pytest.raises(refused):
            store()
        return None

    def held(self, capability: ReadCapability) -> MemoryCapability:
        """The capability in the model, if its token is still that of the holder."""
        if capability.id not in self.live:
            raise CapabilityError(capability.id, "it has ended")
        held = self.live[capability.id]
        held.check_token(capability.token)
        return held

    @rule(target=holders, at=TIMES)
    def acquire(self, at: int) -> ReadCapability | None:
        def model() -> None:
            if not self.model.since.less_equal(at):
                raise SinceError(at, self.model.since)

        capability = self.both(model, lambda: self.lake.collection.acquire(at=at))
        return self._note(capability, Antichain.of(at))

    @rule(target=holders, holder=holders)
    def clone(self, holder: ReadCapability | None) -> ReadCapability | None:
        if holder is None:
            return None
        return self._note(self.both(lambda: self.held(holder), holder.clone), Antichain.of(holder.since))

    @rule(target=holders, holder=holders)
    def take_over(self, holder: ReadCapability | None) -> ReadCapability | None:
        if holder is None:
            return None
        taken = self.both(lambda: self.held(holder), lambda: self.lake.collection.capability(holder.token))
        if taken is not None:
            assert taken.id == holder.id
            self.live[taken.id] = self.live[taken.id].taken_over(taken.token)
        return taken

    @rule(holder=holders, to=TIMES)
    def downgrade(self, holder: ReadCapability | None, to: int) -> None:
        if holder is None:
            return

        def model() -> None:
            held = self.held(holder)
            self.live[holder.id] = held.downgrade(Antichain.of(to), holder.token)

        self.both(model, lambda: holder.downgrade(to))

    @rule(holder=consumes(holders))
    def drop(self, holder: ReadCapability | None) -> None:
        if holder is None:
            return
        self.both(lambda: self.held(holder), holder.drop)
        with suppress(CapabilityError):
            self.held(holder)
            del self.live[holder.id]

    @rule(by=st.integers(0, 3))
    def seal(self, by: int) -> None:
        self.upper += by
        self.model.seal(Antichain.of(self.upper))
        self.lake.seal(self.upper)

    @rule(keep=st.integers(0, 4))
    def compact(self, keep: int) -> None:
        target = max(min(self.upper - keep, self.upper - 1), 0)
        self.critical = self.critical.join(Antichain.of(target))
        own = MemoryCapability("critical", "critical", self.critical, "")
        self.model.compact(self.model.since.join(meet_of([own, *self.live.values()])))
        self.lake.compact(keep)

    @rule()
    def become_unreadable(self) -> None:
        """Nothing can be held any more; holds that exist can only be given up."""
        if self.live or self.upper < 9:
            return
        self.model.compact(Antichain())
        self.lake.catalog.update(NAME, lambda entry: entry.model_copy(update={"since": ()}))

    @invariant()
    def the_store_agrees_with_the_model(self) -> None:
        entry = self.lake.stored.entry
        assert entry.since_frontier == self.model.since
        held = {each.id: Antichain(each.since) for each in entry.capabilities if each.kind == "read"}
        assert held == {id: capability.since for id, capability in self.live.items()}
        assert all(entry.since_frontier.less_equal_frontier(since) for since in held.values())

    def _note(self, capability: ReadCapability | None, since: Antichain) -> ReadCapability | None:
        if capability is not None:
            self.live[capability.id] = MemoryCapability(capability.id, "read", since, capability.token)
        return capability


@pytest.mark.parametrize("examples", [3, pytest.param(150, marks=pytest.mark.sweep)])
def test_holders_and_compactions_agree_with_the_model(tmp_path: Path, examples: int) -> None:
    Holds.template = HeldLake.create(tmp_path / "template", upper=1)
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        Holds,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=checks,
            phases=[Phase.generate],  # a store is too slow for shrinking
        ),
    )
