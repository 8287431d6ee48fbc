"""Random calls, at random times, get the same answers from the in-memory model and from the store."""

from __future__ import annotations

import tempfile
import time as clock
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pyspark.sql import SparkSession

from tests.lakes.held import HeldLake
from tests.lakes.holding_scripts import MemoryShelf, Script, StoreShelf
from tidelake.storage import blobs

TIMES = st.integers(0, 12)
LEASES = st.sampled_from((10, 60, 3_600))


class Twins(RuleBasedStateMachine):
    """Two collections, one in memory and one in a store, which get the same commands (`tests.lakes.holding_scripts`).

    A name stands for a capability, or for the old token of a capability that somebody has taken over. Rules also use
    names whose capability has ended.
    """

    names = Bundle("names")
    templates: ClassVar[tuple[HeldLake, HeldLake]]
    spark: ClassVar[SparkSession | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.folder, self.patch, self.numbers = tempfile.TemporaryDirectory(), pytest.MonkeyPatch(), count()
        self.now_s = clock.time()
        self.patch.setattr(blobs, "now_s", lambda _: self.now_s)
        folder = Path(self.folder.name)
        lake, other = (template.copy(folder / template.root.name) for template in self.templates)
        self.shelf = MemoryShelf()
        self.model, self.store = Script(self.shelf), Script(StoreShelf(lake, other, self.spark, self.let_time_pass))

    def teardown(self) -> None:
        self.patch.undo()
        self.folder.cleanup()

    def let_time_pass(self, seconds: float) -> None:
        self.now_s += seconds

    def run(self, line: str) -> str:
        """Run a command on both, and return its answer."""
        wanted = self.model.replay([line])
        assert self.store.replay([line]) == wanted
        return wanted[-1]

    def named(self, command: str) -> MultipleResults[str]:
        """Run a command that makes a capability. A new name replaces `{}` in the command."""
        name = f"c{next(self.numbers)}"
        made = not self.run(command.format(name)).startswith("= !")
        return multiple(name) if made else multiple()

    # --- holders

    @rule(target=names, at=st.one_of(st.just(""), TIMES), lease=LEASES)
    def acquire(self, at: Any, lease: int) -> MultipleResults[str]:
        return self.named(f"acquire {{}} {at} lease={lease}".replace("  ", " "))

    @rule(target=names, name=names)
    def clone(self, name: str) -> MultipleResults[str]:
        return self.named(f"clone {name} {{}}")

    @rule(target=names, name=names)
    def take_over(self, name: str) -> MultipleResults[str]:
        return self.named(f"pass {name} {{}}")

    @rule(name=names, to=TIMES)
    def downgrade(self, name: str, to: int) -> None:
        self.run(f"downgrade {name} {to}")

    @rule(name=names, call=st.sampled_from(("renew", "renew-token", "drop", "release")))
    def call(self, name: str, call: str) -> None:
        self.run(f"{call} {name}")

    @rule(target=names, at=TIMES)
    def acquire_elsewhere(self, at: int) -> MultipleResults[str]:
        return self.named(f"elsewhere {{}} {at}") if not self.model.held else multiple()

    # --- the collection

    @rule(seconds=st.sampled_from((1, 9, 11, 61, -30)))
    def wait(self, seconds: int) -> None:
        self.run(f"wait {seconds}")

    @rule(keep=st.integers(0, 4))
    def compact(self, keep: int) -> None:
        self.run(f"compact {keep}")

    @precondition(lambda self: self.shelf.collection.upper)
    @rule(
        by=st.integers(0, 3),
        updates=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.sampled_from((1, -1)))),
    )
    def advance(self, by: int, updates: list[tuple[int, int, int]]) -> None:
        (upper,) = self.shelf.collection.upper
        if updates:
            self.run("append " + " ".join(f"[{row},{upper + after},{diff}]" for row, after, diff in updates))
        self.run(f"seal {upper + by}")

    @precondition(lambda self: self.shelf.collection.upper and self.shelf.collection.upper[0] > 8)
    @rule()
    def close_the_stream(self) -> None:
        self.run("seal []")

    @precondition(lambda self: self.shelf.collection.last > 10)
    @rule()
    def become_unreadable(self) -> None:
        self.run("forget")

    # --- readers, if there is a session

    @precondition(lambda self: self.spark is not None)
    @rule(as_of=TIMES)
    def read(self, as_of: int) -> None:
        self.run(f"read {as_of}")

    @precondition(lambda self: self.spark is not None)
    @rule(after=st.one_of(st.just("since"), TIMES), through=st.one_of(st.just("last"), TIMES))
    def changes(self, after: Any, through: Any) -> None:
        self.run(f"changes {after} {through}")

    @precondition(lambda self: self.spark is not None)
    @rule(
        as_of=st.one_of(st.none(), TIMES),
        how=st.sampled_from(("", " no-snapshot", " no-hold", " no-snapshot lease=10", " until=8")),
    )
    def subscribe(self, as_of: int | None, how: str) -> None:
        name = f"s{next(self.numbers)}"
        self.run(f"subscribe {name}{'' if as_of is None else f' as_of={as_of}'}{how}")

    @precondition(lambda self: self.spark is not None)
    @rule(name=names, as_of=st.one_of(st.none(), TIMES))
    def subscribe_with(self, name: str, as_of: int | None) -> None:
        self.run(f"subscribe s{next(self.numbers)} with={name}{'' if as_of is None else f' as_of={as_of}'}")

    @precondition(lambda self: self.model.subscriptions)
    @rule(data=st.data(), call=st.sampled_from(("next", "next", "next", "close")))
    def follow(self, data: st.DataObject, call: str) -> None:
        self.run(f"{call} {data.draw(st.sampled_from(sorted(self.model.subscriptions)))}")

    @invariant()
    def the_frontiers_and_the_holds_are_the_same(self) -> None:
        self.run("frontiers")
        self.run("holds")


def check_twins(root: Path, spark: SparkSession | None, examples: int) -> None:
    # Copies of one lake would have the same collection, so no capability would be foreign to it.
    Twins.templates, Twins.spark = (HeldLake.create(root / "lake"), HeldLake.create(root / "other")), spark
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        Twins,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=checks,
            phases=[Phase.generate],  # a store is too slow for shrinking
        ),
    )


@pytest.mark.parametrize("examples", [3, pytest.param(150, marks=pytest.mark.sweep)])
def test_holders_and_compactions_agree_with_the_model(tmp_path: Path, examples: int) -> None:
    check_twins(tmp_path, None, examples)


@pytest.mark.spark
@pytest.mark.sweep
def test_holders_readers_and_merges_agree_with_the_model(tmp_path: Path, interpreted: SparkSession) -> None:
    check_twins(tmp_path, interpreted, 30)
