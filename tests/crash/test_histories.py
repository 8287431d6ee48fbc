"""Random histories of arrivals, ticks, merges, kills, races and sleepers end as if no process had been disturbed.

At each readable time, the contents are those of the in-memory model, or follow from the records in the topic.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.crash.harness import WAIT_MAX_S, Nursery, check_acknowledged, check_steps, has_ended, is_stopped, said
from tests.crash.raw_life import ENVELOPES, RawLife
from tests.crash.scenes import CYCLE
from tests.lakes.generated import FORMS, Tide
from tests.lakes.lake import Lake
from tests.sweeps import seeds
from tidelake.store.failpoints import FAILPOINTS, RAW_FAILPOINTS
from tidelake.store.state import CLOSED, UPPER

pytestmark = pytest.mark.spark

ACTIONS = 8
_SIZE = (24, 5)
_TICKS: tuple[tuple[str, ...], ...] = (
    ("ingest", "seal"),
    ("ingest", "seal", "merge"),
    ("ingest", "seal", "compact"),
    ("validate", "compact"),
    CYCLE,
)
_PLACES = tuple(place for place in FAILPOINTS if not place.startswith("table.after_create"))


class History:
    """The history of one lake: each action is one of `_ACTIONS`, on steps and failpoints that a seed chooses."""

    def __init__(self, nursery: Nursery, lake: Lake, rng: Random, places: Iterable[str]) -> None:
        self.nursery, self.lake, self.rng, self.places = nursery, lake, rng, tuple(places)
        self.happened: list[str] = []
        self.processes = 0

    def next_action(self) -> None:
        """Take one action, and check that everything acknowledged is still there."""
        action = self.rng.choice(sorted(_ACTIONS))
        steps = self.rng.choice(_TICKS)
        self.happened.append(f"{action} {' '.join(steps)}")
        _ACTIONS[action](self, steps)
        self.check()

    def run(self, steps: tuple[str, ...]) -> None:
        """Run jobs to their end."""
        who, process = self._start(steps)
        assert self.nursery.wait(process) == 0
        check_steps(self._said(who))

    def kill(self, steps: tuple[str, ...]) -> None:
        """Run jobs, and kill them at a failpoint if they reach it."""
        _, process = self._start(steps, **self._stop())
        assert self.nursery.wait(process) in (0, -signal.SIGKILL)

    def race(self, steps: tuple[str, ...]) -> None:
        """Run the same jobs twice at the same time."""
        started = [self._start(_shared(steps)) for _ in range(2)]
        assert [self.nursery.wait(process) for _, process in started] == [0, 0]
        for who, _ in started:
            check_steps(self._said(who))

    def oversleep(self, steps: tuple[str, ...]) -> None:
        """Stop a process at a failpoint if it reaches one, run jobs in another process, and wake the first."""
        who, sleeper = self._start(_shared(steps), **self._stop(), signal="SIGSTOP")
        end = time.monotonic() + WAIT_MAX_S
        while not (is_stopped(sleeper) or has_ended(sleeper)):
            assert time.monotonic() < end, "it neither ends nor stops"
            time.sleep(0.01)
        self.run(_shared(self.rng.choice(_TICKS)))
        if is_stopped(sleeper):
            os.kill(sleeper, signal.SIGCONT)
        assert self.nursery.wait(sleeper) == 0, self._said(who)

    def check(self) -> None:
        """Check that the logs have no gaps, and contain everything that was acknowledged."""
        check_acknowledged(self.lake, [message for who in range(self.processes) for message in self._said(who)])

    def _start(self, steps: tuple[str, ...], **more: Any) -> tuple[int, int]:
        who, self.processes = self.processes, self.processes + 1
        order = {"config": str(self.lake.file), "said": str(self._words(who)), "steps": steps}
        return who, self.nursery.start(order | more)

    def _stop(self) -> dict[str, Any]:
        place = self.rng.choice(self.places)
        self.happened[-1] += f" at {place}"
        return {"stop": place, "passing": self.rng.randrange(2)}

    def _words(self, who: int) -> Path:
        return self.lake.root / f"process-{who}.jsonl"

    def _said(self, who: int) -> list[dict[str, Any]]:
        return said(self._words(who))


def _shared(steps: tuple[str, ...]) -> tuple[str, ...]:
    """The steps that several processes may take at the same time: all but `current`, which has a single writer."""
    return tuple(step for step in steps if step != "current")


_ACTIONS = {"run": History.run, "kill": History.kill, "race": History.race, "oversleep": History.oversleep}


def check_history(root: Path, spark: SparkSession, nursery: Nursery, form: str, seed: str, actions: int) -> None:
    """Send a generated topic while processes are killed, race and sleep; check that every answer is the model's."""
    rng = Random(f"history {form} {seed}")
    tide = Tide(root, spark, form, rng, _SIZE)
    history = History(nursery, tide.lake, rng, _PLACES)
    tide.arrive(1)
    history.run(("ingest", "seal"))
    for left in range(actions, 0, -1):
        tide.arrive(rng.randint(0, 2 * len(tide.files) // left + 1))
        history.next_action()
        if tide.readable:
            tide.check(rng.choice(tide.readable))
    tide.arrive(len(tide.files))
    history.run(CYCLE)
    for as_of in tide.readable:
        tide.check(as_of)
    tide.check_refused_before_since()
    truth, table = tide.made.truth, tide.lake.table
    assert (table.value(UPPER), bool(table.value(CLOSED))) == (truth.upper, truth.closed), history.happened
    assert len(tide.lake.quarantined()) == truth.quarantined_messages, history.happened
    assert not tide.lake.validate(full=True).damaged, history.happened


def check_raw_history(
    root: Path, spark: SparkSession, nursery: Nursery, envelope: str, seed: int, actions: int
) -> None:
    """As `check_history`, but with records that state no times: each minted time stands for its offsets."""
    life = RawLife(root, spark, nursery, seed, envelope)
    history = History(nursery, life.lake, life.rng, (*_PLACES, *RAW_FAILPOINTS))
    life.put()
    history.run(("ingest",))
    for _ in range(actions):
        life.put()
        history.next_action()
        life.check_read()
    history.run(CYCLE)
    life.check()
    assert not life.lake.validate(full=True).damaged, history.happened


@pytest.mark.sweep
@pytest.mark.parametrize("form", ["debezium without a key"])
def test_a_history_of_kills_and_races_leaves_no_trace(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, form: str
) -> None:
    check_history(tmp_path, spark, nursery, form, "every day", 2)


@pytest.mark.sweep
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", seeds())
def test_histories_of_kills_and_races_leave_no_trace(
    tmp_path: Path, interpreted: SparkSession, nursery: Nursery, seed: int, form: str
) -> None:
    check_history(tmp_path, interpreted, nursery, form, str(seed), ACTIONS)


@pytest.mark.sweep
@pytest.mark.parametrize("envelope", ENVELOPES)
@pytest.mark.parametrize("seed", seeds())
def test_histories_of_kills_and_races_leave_no_trace_in_minted_times(
    tmp_path: Path, interpreted: SparkSession, nursery: Nursery, seed: int, envelope: str
) -> None:
    check_raw_history(tmp_path, interpreted, nursery, envelope, seed, ACTIONS)
