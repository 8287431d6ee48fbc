"""Scripts about reads and holds get the same answers from the in-memory model and from the store, wherever it is."""

from __future__ import annotations

import time as clock
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.lakes.held import HeldLake
from tests.lakes.holding_scripts import MemoryShelf, Script, StoreShelf
from tests.lakes.places import Stores
from tests.lakes.scripts import Case, read_cases
from tests.sweeps import some_of_each_kind
from tidelake.storage import blobs

HOLDING, FOLLOWING = list(read_cases("holding")), list(read_cases("following"))


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory, stores: Stores) -> tuple[HeldLake, HeldLake]:
    """The collection of a case, and the one whose capabilities are foreign to it; tests copy both."""
    folder = stores.hold(tmp_path_factory.mktemp("shelves"))
    return HeldLake.create(folder / "lake"), HeldLake.create(folder / "other")


@pytest.fixture
def shelf(templates: tuple[HeldLake, HeldLake], any_store: Path, monkeypatch: pytest.MonkeyPatch) -> StoreShelf:
    """A collection in a store whose clock is moved only by `wait`."""
    now_s = [clock.time()]
    monkeypatch.setattr(blobs, "now_s", lambda _: now_s[0])

    def move(seconds: float) -> None:
        now_s[0] += seconds

    lake, other = (template.copy(any_store / template.root.name) for template in templates)
    return StoreShelf(lake, other, None, move)


@pytest.mark.parametrize("case", HOLDING + FOLLOWING, ids=[case.title for case in HOLDING + FOLLOWING])
def test_the_in_memory_model_gives_the_answers_written_in_a_script(case: Case) -> None:
    for slack_ms in (0, 1_000):  # a disk states milliseconds, an object store whole seconds
        assert Script(MemoryShelf(slack_ms)).replay(case.lines) == case.lines


@pytest.mark.parametrize("case", some_of_each_kind(HOLDING))
def test_a_store_gives_the_answers_written_in_a_script_about_holds(shelf: StoreShelf, case: Case) -> None:
    assert Script(shelf).replay(case.lines) == case.lines


@pytest.mark.spark
@pytest.mark.parametrize("case", some_of_each_kind(FOLLOWING, every=None))
def test_a_store_gives_the_answers_written_in_a_script_about_reads(
    shelf: StoreShelf, spark: SparkSession, case: Case
) -> None:
    shelf.spark = spark
    assert Script(shelf).replay(case.lines) == case.lines


def test_no_title_of_a_script_about_reads_or_holds_appears_twice() -> None:
    assert len({case.title for case in HOLDING + FOLLOWING}) == len(HOLDING) + len(FOLLOWING) > 60
