"""A process that is killed at a failpoint and restarted ends with the same tables as a process that was not killed."""

from __future__ import annotations

import re

import pytest

from orchestration.settings import PROJECT
from tests.crash.lives import Lives
from tests.crash.scenes import ONLY_ON_A_DISK
from tests.sweeps import seeds, swept
from tidelake.store.failpoints import (
    BRING_OVER_FAILPOINTS,
    EVOLUTION_FAILPOINTS,
    FAILPOINTS,
    LIFE_FAILPOINTS,
    PUBLISH_FAILPOINTS,
    RAW_FAILPOINTS,
    RETENTION_FAILPOINTS,
    TABLES,
    TRANSACTION_FAILPOINTS,
)

EVERYDAY = "commit.after_call.updates"
IN_EVERY_SWEEP = (EVERYDAY, "current.after_entry")
"""Places at which every sweep kills the process of seed 1, whatever the seeds of the sweep are."""

ON_S3 = [place for place in FAILPOINTS if place not in ONLY_ON_A_DISK]
WITH_FAULTS = 5
"""With failing requests, each seed has at most this many places: a kill there takes a minute or more."""


def places_of(seed: int) -> list[str]:
    """The places of a seed; eighteen consecutive seeds together have all places.

    >>> {place for seed in range(5, 23) for place in places_of(seed)} == set(ON_S3)
    True
    """
    rounds = -(-len(ON_S3) // WITH_FAULTS)
    return ON_S3[seed % rounds :: rounds]


def test_the_code_reaches_exactly_the_declared_failpoints() -> None:
    called: set[str] = set()
    suffixes = ("catalog", *TABLES, "bindings", "transactions")
    for files in (PROJECT / "src").rglob("*.py"), (PROJECT / "jobs").glob("*.py"):
        for path in files:
            for name, table in re.findall(r'\breach\("([a-z_.]+)"(, [a-z_.]+)?\)', path.read_text(encoding="utf-8")):
                called |= {f"{name}.{suffix}" for suffix in suffixes} if table else {name}
    declared = {*FAILPOINTS, *RAW_FAILPOINTS, *EVOLUTION_FAILPOINTS, *BRING_OVER_FAILPOINTS}
    declared |= {*LIFE_FAILPOINTS, *PUBLISH_FAILPOINTS, *TRANSACTION_FAILPOINTS, *RETENTION_FAILPOINTS}
    assert called == declared
    assert len(set(FAILPOINTS)) == len(FAILPOINTS) >= 40


@pytest.mark.spark
@pytest.mark.parametrize("place", swept(IN_EVERY_SWEEP, [EVERYDAY]))
def test_a_kill_changes_nothing(lives: dict[int, Lives], place: str) -> None:
    lives[1].kill_at(place)


@pytest.mark.spark
@pytest.mark.sweep
@pytest.mark.parametrize("place", FAILPOINTS)
@pytest.mark.parametrize("seed", seeds())
def test_a_kill_at_any_place_changes_nothing(lives: dict[int, Lives], store_kind: str, seed: int, place: str) -> None:
    if store_kind != "file" and place in ONLY_ON_A_DISK:
        pytest.skip("an object is never torn")
    lives[seed].kill_at(place)


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.sweep
@pytest.mark.parametrize(("seed", "place"), [(seed, place) for seed in seeds() for place in places_of(seed)])
def test_a_kill_changes_nothing_if_requests_fail_at_random(
    lives_with_faults: dict[int, Lives], seed: int, place: str
) -> None:
    lives_with_faults[seed].kill_at(place)
