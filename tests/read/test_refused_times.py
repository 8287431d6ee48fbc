"""Times that a read or a hold refuses: the error names what the caller gave. No JVM is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import invoke
from tests.lakes.shared_times import RECLOCKED, SharedTimes
from tidelake.errors import ArgumentRefused, CollectionForgot, FrontierRegression, SinceError
from tidelake.lake import LakeCollection
from tidelake.protocol.order import INT64_MAX


@pytest.fixture
def shared(tmp_path: Path) -> SharedTimes:
    """A closed stream that has forgotten the time 0, and whose last time is 3."""
    shared = SharedTimes(tmp_path, ended={})
    shared.close("ended", 3)
    shared.forget("ended", 1)
    return shared


@pytest.fixture
def ended(shared: SharedTimes) -> LakeCollection:
    return shared.lake.collection("ended")


def test_a_time_after_a_closed_stream_is_refused_without_a_word_of_the_other_time(ended: LakeCollection) -> None:
    wanted = rf"after is {INT64_MAX}, but the stream is closed, and nothing changes after 3\nhint: give at most 3, or"
    with pytest.raises(ArgumentRefused, match=wanted):
        ended.updates(after=INT64_MAX)
    with pytest.raises(ArgumentRefused, match="must not be later than `through`, 3"):
        ended.updates(after=4, through=3)
    assert ended.updates(after=3).rows.count() == ended.updates(after=4, through=INT64_MAX).rows.count() == 0


def test_a_difference_names_the_time_that_is_not_a_time(ended: LakeCollection) -> None:
    for first, last, wrong in ((-1, 3, "first"), (3, -1, "last"), (True, 3, "first"), (3, "x", "last")):
        with pytest.raises(ArgumentRefused, match=f"{wrong} is .*, but must be an integer between 0 and"):
            ended.rows_between(first, last)  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_the_command_names_the_option_that_is_not_a_time(shared: SharedTimes, option: str) -> None:
    other = ({"--from", "--to"} - {option}).pop()
    refused = invoke("diff", "ended", option, "-1", other, "3", "--config", str(shared.file))
    assert refused.exit_code == 2
    assert f"'{option}': '-1' is not in" in " ".join(refused.stderr.split())


def test_a_forgotten_time_is_refused_with_the_name_of_the_collection(ended: LakeCollection) -> None:
    for refused in (
        lambda: ended.rows(0),
        lambda: ended.rows_between(0, 3),
        lambda: ended.updates(0),
        lambda: ended.acquire(at=0),
        lambda: ended.subscribe(as_of=0),
        lambda: ended.subscribe(as_of=0, lease=None),
    ):
        with pytest.raises(
            SinceError, match=r"time 0 is not at or after since \[1\] of 'ended'\nhint: read at or after"
        ):
            refused()


def test_a_forgotten_time_that_was_minted_is_also_shown_in_utc(tmp_path: Path) -> None:
    lake = SharedTimes(tmp_path, visits=RECLOCKED)
    lake.seal(visits=9_000)
    lake.forget("visits", 2_000)
    visits = lake.lake.collection("visits")
    minted = r"time 5 \(1970-01-01T00:00:00\.005Z\).* since (is )?\[2000 \(1970-01-01T00:00:02\.000Z\)\]"
    for refused in (
        lambda: visits.rows(5),
        lambda: visits.acquire(at=5),
        lambda: visits.subscribe(as_of=5),
        lambda: visits.subscribe(as_of=5, lease=None),
        lambda: lake.lake.at(5, "visits"),
    ):
        with pytest.raises((SinceError, CollectionForgot), match=minted):
            refused()


@pytest.mark.parametrize(
    "command", ["read ended --as-of", "changes ended --after", "compare {} ended {} ended --as-of"]
)
@pytest.mark.parametrize("time", [-1, 2**63])
def test_the_command_names_the_range_of_times(shared: SharedTimes, command: str, time: int) -> None:
    config = [] if command.startswith("compare") else ["--config", str(shared.file)]
    refused = invoke(*command.format(shared.file, shared.file).split(), str(time), *config)
    assert refused.exit_code == 2
    said = " ".join(refused.stderr.replace("│", " ").split())
    assert f"'{time}' is not in the range 0<=x<={INT64_MAX}" in said


def test_a_hold_that_would_move_back_says_where_it_can_move(ended: LakeCollection) -> None:
    with ended.acquire(at=2) as held, pytest.raises(FrontierRegression) as refused:
        held.downgrade(1)
    assert refused.value.hint == "a frontier only advances: give [2] or a later one"
