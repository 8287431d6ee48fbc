"""Holding a time through the public interface: valid arguments, errors, and compactions, which never pass a hold."""

from __future__ import annotations

import re
import time as clock
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tests.lakes.held import HeldLake
from tests.lakes.lake import NAME
from tidelake import open_lake
from tidelake.errors import (
    ArgumentRefused,
    CapabilityDropped,
    CapabilityError,
    CapabilityExpired,
    CapabilityForeign,
    CapabilityTaken,
    CapabilityUnknown,
    FrontierRegression,
    LakeReadOnly,
    SinceError,
    UnknownCollection,
)
from tidelake.protocol.order import INT64_MAX
from tidelake.read.holding import ReadCapability, held_too_long
from tidelake.store.commit import OpenTable
from tidelake.store.failpoints import on_reach
from tidelake.store.state import SINCE


class Killed(BaseException):
    """Stands for the death of the process."""


def killed_after_commit(call: Callable[[], object]) -> None:
    """Make a call that dies right after its commit."""

    def die(failpoint: str) -> None:
        if failpoint == "catalog.after_commit":
            raise Killed

    on_reach(die)
    try:
        call()
    finally:
        on_reach(None)


@pytest.fixture
def lake(held_lake: HeldLake) -> HeldLake:
    """A collection without rows, sealed up to 10."""
    return held_lake


def test_compaction_stops_at_the_earliest_hold_and_continues_when_it_is_dropped(lake: HeldLake) -> None:
    early, late = lake.collection.acquire(at=3), lake.collection.acquire(at=5)
    assert lake.compact() == 3
    early.drop()
    assert lake.compact() == 5
    late.downgrade(7)
    assert (lake.compact(), late.since) == (7, 7)
    late.drop()
    assert lake.compact() == 9


def test_a_hold_is_at_the_last_readable_time_unless_it_says_otherwise(lake: HeldLake) -> None:
    assert lake.collection.acquire().since == 9
    assert HeldLake.create(lake.root / "empty").collection.acquire().since == 0


def test_a_hold_may_be_beyond_upper(lake: HeldLake) -> None:
    held = lake.collection.acquire(at=INT64_MAX)
    assert (held.since, lake.compact()) == (INT64_MAX, 9)


def test_a_clone_lives_on_when_its_original_is_dropped(lake: HeldLake) -> None:
    held = lake.collection.acquire(at=4, lease=timedelta(hours=2), purpose="report")
    clone = held.clone()
    assert (clone.since, clone.lease, clone.purpose) == (4, timedelta(hours=2), "report")
    assert clone.id != held.id and clone.token != held.token
    held.drop()
    assert lake.compact() == 4
    other = clone.clone(lease=timedelta(minutes=1), purpose="page")
    assert (other.lease, other.purpose) == (timedelta(minutes=1), "page")


def test_a_token_hands_a_capability_to_one_other_holder(lake: HeldLake) -> None:
    held = lake.collection.acquire(at=4)
    passed = held.token
    taken = lake.collection.capability(passed)
    assert (taken.id, taken.since) == (held.id, 4)
    taken.renew()
    calls: list[Callable[[], object]] = [
        lambda: held.downgrade(5),
        held.renew,
        held.clone,
        held.drop,
        lambda: lake.collection.capability(passed),
        lambda: lake.collection.release(passed),
        lambda: lake.collection.renew(passed),
    ]
    for call in calls:
        with pytest.raises(
            CapabilityTaken,
            match="its secret is not the current one: the token is mistyped, or another holder has taken it over",
        ):
            call()
    lake.collection.renew(taken.token)
    lake.collection.release(taken.token)
    assert lake.collection.holds() == []


def test_a_process_that_is_killed_when_it_has_taken_a_capability_over_loses_nothing(lake: HeldLake) -> None:
    token = lake.collection.acquire(at=4).token
    with pytest.raises(Killed):
        killed_after_commit(lambda: lake.collection.capability(token))
    with pytest.raises(CapabilityTaken, match="until its new holder makes a call, this token can take it over again"):
        lake.collection.renew(token)
    taken = lake.collection.capability(token)
    taken.renew()
    with pytest.raises(
        CapabilityTaken,
        match="its secret is not the current one: the token is mistyped, or another holder has taken it over",
    ):
        lake.collection.capability(token)
    with pytest.raises(Killed):
        killed_after_commit(lambda: lake.collection.capability(taken.token))
    lake.collection.release(taken.token)
    assert lake.collection.holds() == []


def test_a_capability_is_dropped_at_the_end_of_a_with_statement(lake: HeldLake) -> None:
    with lake.collection.acquire(at=4) as held:
        assert (held.since, lake.compact()) == (4, 4)
    assert lake.compact() == 9
    with lake.collection.acquire() as held:
        held.drop()  # the end of the block has nothing left to do
    with pytest.raises(CapabilityDropped), lake.collection.acquire() as held:
        lake.collection.release(held.token)  # by somebody else, so the hold ends before the block does


def test_a_capability_that_was_dropped_refuses_every_call(lake: HeldLake) -> None:
    held = lake.collection.acquire(at=4)
    held.drop()
    for call in calls_of(lake, held):
        with pytest.raises(CapabilityDropped, match=f"capability '{held.id}': it was dropped"):
            call()


def test_an_expired_capability_is_dead_for_good(lake: HeldLake) -> None:
    held = lake.collection.acquire(at=4, lease=timedelta(milliseconds=1))
    assert lake.compact() == 4  # sees the hold for the first time
    clock.sleep(0.01)
    assert lake.compact() == 9  # sees it again, more than a lease later
    for call in calls_of(lake, held):
        with pytest.raises(CapabilityExpired, match="its lease expired, because no call renewed it\nhint: acquire a"):
            call()
    assert lake.collection.holds() == []


@pytest.mark.parametrize(
    "call",
    [
        lambda lake, held: held.renew(),
        lambda lake, held: held.downgrade(4),
        lambda lake, held: held.clone(),
        lambda lake, held: lake.collection.capability(held.token),
        lambda lake, held: lake.collection.renew(held.token),
    ],
    ids=["renew", "downgrade", "clone", "capability", "token"],
)
def test_every_call_renews_a_lease(lake: HeldLake, call: Callable[[HeldLake, ReadCapability], object]) -> None:
    held = lake.collection.acquire(at=4, lease=timedelta(milliseconds=1))
    lake.compact()
    clock.sleep(0.01)
    call(lake, held)
    assert lake.compact() == 4
    assert held.id in {hold.id for hold in lake.collection.holds()}


def test_the_clock_of_a_process_does_not_end_a_lease(lake: HeldLake, monkeypatch: pytest.MonkeyPatch) -> None:
    held = lake.collection.acquire(at=4)
    real = clock.time
    for ahead_s in (10**9, -(10**9)):
        monkeypatch.setattr(clock, "time", lambda ahead_s=ahead_s: real() + ahead_s)
        assert [lake.compact() for _ in range(3)] == [4, 4, 4]
    monkeypatch.undo()
    held.drop()


def test_a_hold_before_since_is_refused(lake: HeldLake) -> None:
    lake.compact(keep=3)
    assert lake.since == 7
    with pytest.raises(SinceError, match=r"time 6 is not at or after since \[7\]"):
        lake.collection.acquire(at=6)
    assert lake.collection.acquire(at=7).since == 7


def test_a_hold_before_the_since_of_the_table_is_refused_even_if_the_handles_are_an_older_copy(
    lake: HeldLake,
) -> None:
    OpenTable(lake.stored.paths.updates).commit({SINCE: 8})
    with pytest.raises(SinceError, match=r"time 7 is not at or after since \[8\]"):
        lake.collection.acquire(at=7)
    assert lake.collection.acquire(at=8).since == 8


def test_no_time_of_an_unreadable_collection_can_be_held(lake: HeldLake) -> None:
    held = lake.collection.acquire()
    lake.catalog.update(NAME, lambda entry: entry.model_copy(update={"since": ()}))
    for at in (None, 0, 9):
        with pytest.raises(SinceError, match=r"since \[\] of 'prices'\nhint: the collection is permanently unreadable"):
            lake.collection.acquire(at=at)
    with pytest.raises(SinceError):
        held.clone()
    held.drop()


def test_a_capability_does_not_move_back(lake: HeldLake) -> None:
    held = lake.collection.acquire(at=4)
    held.downgrade(4)
    with pytest.raises(FrontierRegression, match=rf"since of the capability '{held.id}' is \[4\] and cannot move back"):
        held.downgrade(3)
    held.downgrade(INT64_MAX)
    assert held.since == INT64_MAX


@pytest.mark.parametrize("time", [-1, 2**63, 1.5, "3", True])
def test_a_value_that_is_not_a_time_is_refused(lake: HeldLake, time: object) -> None:
    with pytest.raises(ArgumentRefused, match=f"at is {time!r}, but must be an integer between 0 and {INT64_MAX}"):
        lake.collection.acquire(at=time)  # type: ignore[arg-type]
    with pytest.raises(ArgumentRefused, match=f"to is {time!r}, but must be an integer"):
        lake.collection.acquire().downgrade(time)  # type: ignore[arg-type]


def test_a_lease_and_a_purpose_out_of_range_are_refused(lake: HeldLake) -> None:
    for lease in (timedelta(0), timedelta(seconds=-1), timedelta(days=367)):
        with pytest.raises(ArgumentRefused, match=r"lease is .*, but must be between 0.001 and 31622400 seconds"):
            lake.collection.acquire(lease=lease)
    with pytest.raises(ArgumentRefused, match=r"lease is 0\.0005, but"):
        lake.collection.acquire(lease=timedelta(microseconds=500))
    with pytest.raises(ArgumentRefused, match="lease is 60, but must be a `timedelta`"):
        lake.collection.acquire(lease=60)  # type: ignore[arg-type]
    with pytest.raises(ArgumentRefused, match="but must have at most 200 characters"):
        lake.collection.acquire(purpose="x" * 201)
    for purpose in ("two\nlines", "\x1b[2J", "\ud800", 5, None):
        refused = re.escape(f"purpose is {purpose!r}, but must be one line of text, without control characters")
        with pytest.raises(ArgumentRefused, match=refused):
            lake.collection.acquire(purpose=purpose)  # type: ignore[arg-type]
    assert lake.collection.holds() == []


def test_an_invalid_token_and_a_token_of_another_collection_are_refused(lake: HeldLake, tmp_path: Path) -> None:
    other = HeldLake.create(tmp_path / "other", upper=10)
    foreign = other.collection.acquire().token
    mistyped = "its token is mistyped, or belongs to a collection other than 'prices'"
    ended = "'prices' has no hold with this id: it ended long ago, or the token is mistyped"
    for call in (lake.collection.capability, lake.collection.release, lake.collection.renew):
        with pytest.raises(CapabilityForeign, match=mistyped):
            call(foreign)
        for text in ("", "a", "a.b", "a.b.c.d", "a..c"):
            with pytest.raises(ArgumentRefused, match="but a token has three parts"):
                call(text)
        with pytest.raises(CapabilityUnknown, match=ended):
            call(f"{lake.stored.entry.id}.0123.4567")


def test_a_collection_that_was_never_ingested_has_no_holds(tmp_path: Path) -> None:
    lake = HeldLake.create(tmp_path)
    lake.file.write_text(lake.file.read_text().replace("store: store", "store: elsewhere"), encoding="utf-8")
    for call in (lake.collection.acquire, lake.collection.holds):
        with pytest.raises(UnknownCollection):
            call()


def test_every_call_of_a_holder_is_one_commit_to_the_handles_and_does_not_start_a_jvm(lake: HeldLake) -> None:
    held = lake.collection.acquire(at=4)
    calls: list[Callable[[], object]] = [
        lambda: lake.collection.acquire(at=4),
        held.renew,
        lambda: held.downgrade(5),
        held.clone,
        lambda: lake.collection.renew(held.token),
        held.drop,
    ]
    handles, others = lake.stored.paths.handles, lake.stored.tables
    for call in calls:
        before, versions = OpenTable(handles).version, [OpenTable(table).version for table in others]
        call()
        assert OpenTable(handles).version == before + 1
        assert [OpenTable(table).version for table in others] == versions
    before = OpenTable(handles).version
    assert len(lake.collection.holds()) == 2
    assert OpenTable(handles).version == before


def test_a_read_only_lake_refuses_every_call_with_a_token(lake: HeldLake) -> None:
    held = lake.collection.acquire(at=4)
    collection = open_lake(lake.file, read_only=True).collection(NAME)
    before = lake.stored.entry
    for call in (collection.capability, collection.renew, collection.release):
        with pytest.raises(LakeReadOnly):
            call(held.token)
    assert lake.stored.entry == before


def test_a_read_only_lake_does_not_move_a_capability_of_a_writable_one(lake: HeldLake) -> None:
    held = lake.collection.acquire(at=4)
    collection = open_lake(lake.file, read_only=True).collection(NAME)
    before, files = lake.stored.entry, sorted(lake.root.rglob("*"))
    for more in ({}, {"lease": None}, {"as_of": 6, "snapshot": False}):
        with pytest.raises(LakeReadOnly, match=r"so .*/handles cannot be written"):
            list(collection.subscribe(capability=held, **more))
    assert (lake.stored.entry, sorted(lake.root.rglob("*")), held.since) == (before, files, 4)


def test_holds_are_listed_with_their_holders(lake: HeldLake) -> None:
    before_ms = int(clock.time() * 1000)
    late = lake.collection.acquire(at=8, purpose="late")
    early = lake.collection.acquire(at=4, lease=timedelta(minutes=5), purpose="early")
    first, second = lake.collection.holds()
    assert [(hold.id, hold.since, hold.purpose) for hold in (first, second)] == [
        (early.id, 4, "early"),
        (late.id, 8, "late"),
    ]
    assert before_ms <= first.acquired_at_ms == first.renewed_at_ms <= int(clock.time() * 1000)
    assert first.until_ms == first.renewed_at_ms + 300_000
    assert first.as_json()["lease_s"] == 300.0


def test_a_hold_that_is_older_than_the_limit_is_reported(lake: HeldLake, monkeypatch: pytest.MonkeyPatch) -> None:
    held = lake.collection.acquire(at=4, purpose="report")
    assert held_too_long(lake.stored, 3600) == []
    real = clock.time
    monkeypatch.setattr(clock, "time", lambda: real() + 2 * 86_400)
    (sentence,) = held_too_long(lake.stored, 3600)
    assert sentence.startswith(f"'report' ({held.id}) has held time 4 for 2 days, since 20")


def calls_of(lake: HeldLake, held: ReadCapability) -> list[Callable[[], object]]:
    """Every call that a holder can make."""
    return [
        held.renew,
        lambda: held.downgrade(9),
        held.clone,
        held.drop,
        lambda: lake.collection.capability(held.token),
        lambda: lake.collection.renew(held.token),
        lambda: lake.collection.release(held.token),
    ]


def test_every_loss_is_a_capability_error() -> None:
    for error in (CapabilityExpired, CapabilityDropped, CapabilityTaken, CapabilityForeign, CapabilityUnknown):
        assert issubclass(error, CapabilityError)


def test_a_subscription_that_is_polled_in_vain_renews_its_hold(lake: HeldLake) -> None:
    handles, lease = lake.catalog.find(NAME).paths.handles, timedelta(milliseconds=600)
    with lake.collection.subscribe(snapshot=False, wait_s=0, lease=lease) as subscription:
        assert subscription.next() is None
        before = OpenTable(handles).seq
        clock.sleep(lease.total_seconds() / 2)
        assert subscription.next() is None
        assert OpenTable(handles).seq > before
