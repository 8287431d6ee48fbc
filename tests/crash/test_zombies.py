"""After a pause before its commit, a process changes nothing if others have done its work in the meantime."""

from __future__ import annotations

from typing import Any

import pytest

from tests.crash.lives import Lives
from tests.crash.scenes import CYCLE
from tests.lakes.lake import NAME
from tests.sweeps import seeds

pytestmark = pytest.mark.spark

PLACES = ("commit.before_call.updates", "seal.after_proofs", "compact.after_write")
"""Failpoints of an ingest, a seal and a compaction, each before the commit to the table of updates."""
STEPS = ("ingest", "seal", "compact")


def errors_of(step: str, messages: list[dict[str, Any]]) -> dict[str, str]:
    (report,) = [message["report"] for message in messages if message.get("step") == step]
    errors: dict[str, str] = report["errors"]
    return errors


@pytest.mark.sweep
def test_a_process_that_was_fenced_while_it_was_paused_commits_nothing(lives: dict[int, Lives]) -> None:
    messages = lives[1].wake_late(PLACES[0], ("fence",))
    assert "was fenced by epoch 1" in errors_of("ingest", messages)[NAME]
    steps = [message.get("step") for message in messages]
    assert not [message for message in messages[: steps.index("ingest")] if "nonce" in message]


@pytest.mark.sweep
@pytest.mark.parametrize(("step", "place"), [("ingest", PLACES[0])])
def test_a_process_whose_files_were_swept_while_it_was_paused_writes_them_again(
    lives: dict[int, Lives], step: str, place: str
) -> None:
    check_swept(lives[1], step, place)


@pytest.mark.sweep
@pytest.mark.parametrize(("step", "place"), list(zip(STEPS, PLACES, strict=True)))
@pytest.mark.parametrize("seed", seeds())
def test_a_process_of_any_step_whose_files_were_swept_while_it_was_paused_writes_them_again(
    lives: dict[int, Lives], seed: int, step: str, place: str
) -> None:
    check_swept(lives[seed], step, place)


def check_swept(lives: Lives, step: str, place: str) -> None:
    messages = lives.wake_late(place, ("sweep",))
    assert errors_of(step, messages) == {}


@pytest.mark.sweep
@pytest.mark.parametrize("meanwhile", [CYCLE, ("fence", *CYCLE), ("fence",)])
@pytest.mark.parametrize(("step", "place"), list(zip(STEPS, PLACES, strict=True)))
@pytest.mark.parametrize("seed", seeds())
def test_a_process_that_wakes_up_late_changes_nothing(
    lives: dict[int, Lives], seed: int, step: str, place: str, meanwhile: tuple[str, ...]
) -> None:
    messages = lives[seed].wake_late(place, meanwhile)
    steps = [message.get("step") for message in messages]
    own = [message for message in messages[: steps.index(step)] if message.get("table", "").endswith("updates")]
    assert not own, "the other processes have already done the work"
    errors = errors_of(step, messages)
    if meanwhile == ("fence",):
        assert "was fenced by epoch 1" in errors[NAME]
    else:
        assert not errors or "was fenced" in errors[NAME]
