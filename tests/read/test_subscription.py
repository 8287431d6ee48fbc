"""A subscription delivers complete times, each once, whatever is merged, swept or killed in the meantime."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.lakes.held import HeldLake
from tests.lakes.lake import NAME, Lake, progress, updates
from tests.lakes.raw_lake import RawLake
from tests.lakes.upserts import ITEM, gone, item
from tests.read.followers import sweep_unpinned
from tidelake import open_lake
from tidelake.catalog.handles import read_handles
from tidelake.errors import (
    ArgumentRefused,
    CapabilityExpired,
    CapabilityForeign,
    CapabilityTaken,
    CollectionDropped,
    KeysInError,
    SinceError,
    SubscriptionLapsed,
    UpperError,
)
from tidelake.lake import LakeCollection
from tidelake.read import spark_source
from tidelake.read.changes import changes
from tidelake.read.holding import acquire
from tidelake.read.subscription import Batch
from tidelake.store import holds

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("followed"), spark, keep=0)
    for time in range(1, 4):
        lake.send(updates((time, time, 1)), progress([0 if time == 1 else time], [time + 1], {time: 1}))
        lake.run()
    return lake


@pytest.fixture
def lake(prepared: Lake, tmp_path: Path) -> Lake:
    """A collection sealed up to 4, with a row at each of the times 1 to 3; compaction keeps only the last time."""
    return prepared.copy(tmp_path / "followed")


def collection_of(lake: Lake, **more: Any) -> LakeCollection:
    return open_lake(lake.file, **more).collection(NAME)


def ids(batch: Batch[Any] | None) -> list[tuple[int, int, int]]:
    assert batch is not None
    return sorted((row["_time"], row["id"], row["_diff"]) for row in batch.updates.collect())


@pytest.mark.sweep
def test_the_hold_follows_the_processed_batches_and_ends_with_the_subscription(lake: Lake) -> None:
    collection = collection_of(lake)
    with collection.subscribe(lake.spark, as_of=1, rows_max=1, purpose="a mirror") as subscription:
        assert ids(subscription.next()) == [(1, 1, 1)]
        assert ids(subscription.next()) == [(2, 2, 1)]
        assert ids(subscription.next()) == [(3, 3, 1)]
        assert lake.compact().since == (2,)
        (held,) = collection.holds()
        assert (held.since, held.purpose) == (2, "a mirror")  # the last batch is not processed yet
        assert subscription.next() is None
        assert (subscription.token, subscription.is_complete) == (3, False)
        assert [held.since for held in collection.holds()] == [3]  # the last batch now counts as processed
    assert collection.holds() == []
    assert lake.compact().since == (3,)
    subscription.close()
    assert (subscription.next(), subscription.is_complete) == (None, True)


def test_files_that_a_batch_reads_outlive_sweeps_until_the_next_batch(lake: Lake) -> None:
    paths = lake.collection.paths
    with collection_of(lake).subscribe(lake.spark, as_of=1, snapshot=False) as subscription:
        batch = subscription.next()
        lake.compact()
        assert sweep_unpinned(paths) == 0
        assert ids(batch) == [(2, 2, 1), (3, 3, 1)]
        lake.send(updates((4, 4, 1)), progress([4], [5], {4: 1}))
        lake.run()
        assert ids(subscription.next()) == [(4, 4, 1)]
        assert sweep_unpinned(paths) == 3
    assert lake.contents(4) == {(row, None): 1 for row in range(1, 5)}


def lapse(lake: Lake) -> None:
    """Compact twice, so that leases of one millisecond end, and `since` passes the times that they held."""
    for _ in range(2):
        lake.compact()


@pytest.mark.sweep
def test_a_subscription_whose_lease_ended_continues_if_nothing_was_forgotten(lake: Lake) -> None:
    with collection_of(lake).subscribe(lake.spark, lease=timedelta(milliseconds=1)) as subscription:
        first = subscription.capability
        lapse(lake)
        assert ids(subscription.next()) == [(3, 1, 1), (3, 2, 1), (3, 3, 1)]
        assert subscription.capability is not first


def test_a_subscription_whose_lease_ended_names_the_forgotten_times(lake: Lake) -> None:
    subscription = collection_of(lake).subscribe(lake.spark, as_of=1, snapshot=False, lease=timedelta(milliseconds=1))
    lapse(lake)
    with pytest.raises(SubscriptionLapsed, match=r"was at time 1, and since of 'prices' is now \[3\]"):
        subscription.next()
    with pytest.raises(SinceError, match="time 1 is not at or after since"):
        collection_of(lake).subscribe(lake.spark, as_of=1, snapshot=False)


def test_a_hold_of_the_caller_determines_where_to_continue_and_stays(lake: Lake) -> None:
    collection = collection_of(lake)
    held = collection.acquire(at=1)
    with collection.subscribe(lake.spark, snapshot=False, capability=held, rows_max=1) as subscription:
        assert ids(subscription.next()) == [(2, 2, 1)]
        assert ids(subscription.next()) == [(3, 3, 1)]  # now the first batch counts as processed
    taken = collection.capability(held.token)
    with collection.subscribe(lake.spark, snapshot=False, capability=taken) as subscription:
        assert ids(subscription.next()) == [(3, 3, 1)]
    with pytest.raises(CapabilityTaken), collection.subscribe(lake.spark, capability=held) as subscription:
        subscription.next()
    with pytest.raises(ArgumentRefused, match="must not be before the since of the capability, 2"):
        collection.subscribe(lake.spark, as_of=1, capability=taken)
    short = collection.acquire(at=2, lease=timedelta(milliseconds=1))
    subscription = collection.subscribe(lake.spark, capability=short)
    lapse(lake)
    with pytest.raises(CapabilityExpired):
        subscription.next()


@pytest.mark.sweep
def test_compaction_passes_a_subscription_without_a_hold(lake: Lake) -> None:
    for collection in (collection_of(lake), collection_of(lake, read_only=True)):
        more: dict[str, Any] = {} if collection.lake.read_only else {"lease": None}
        subscription = collection.subscribe(lake.spark, as_of=1, **more)
        assert subscription.capability is None
        assert collection.holds() == []
    assert ids(subscription.next()) == [(1, 1, 1)]
    lake.compact()
    with pytest.raises(SinceError):
        subscription.next()


def test_a_hold_of_another_collection_is_refused_and_left_alone(lake: Lake) -> None:
    other = HeldLake.create(lake.root / "other", upper=10)
    held = other.collection.acquire(at=1)
    before = other.stored.entry
    with pytest.raises(CapabilityForeign, match="it belongs to a collection other than 'prices'"):
        collection_of(lake).subscribe(lake.spark, as_of=3, capability=held)
    assert other.stored.entry == before


def test_a_subscription_does_not_continue_with_another_collection_of_the_same_name(lake: Lake) -> None:
    collection = collection_of(lake)
    subscription = collection.subscribe(lake.spark, as_of=2, snapshot=False)
    lake.catalog.drop(NAME)
    lake.catalog.open_or_create(collection.settings.spec())
    lake.send(updates((9, 3, 1)), progress([0], [4], {3: 1}))
    with pytest.raises(
        CollectionDropped, match=r"\(id \w+\) was dropped at .*\nhint: another collection has this name"
    ):
        subscription.next()
    subscription.close()
    assert collection.holds() == []


def test_a_subscription_stays_with_a_collection_that_is_renamed(lake: Lake) -> None:
    collection = collection_of(lake)
    with collection.subscribe(lake.spark, as_of=2, snapshot=False) as subscription:
        lake.catalog.rename(NAME, "costs")
        lake.catalog.open_or_create(collection.settings.spec())
        assert ids(subscription.next()) == [(3, 3, 1)]
        assert subscription.next() is None


def test_no_hold_is_acquired_if_the_name_is_bound_to_another_collection_meanwhile(lake: Lake) -> None:
    stored = lake.collection
    lake.catalog.drop(NAME)
    fresh = lake.catalog.open_or_create(collection_of(lake).settings.spec())
    with pytest.raises(CollectionDropped, match="another collection has this name now"):
        acquire(lake.catalog, stored.name, 3, timedelta(hours=1), "", id=stored.entry.id)
    assert not read_handles(fresh.paths).is_held


def test_the_hold_of_the_caller_is_at_the_last_batch_when_the_loop_ends(lake: Lake) -> None:
    collection = collection_of(lake)
    held = collection.acquire(at=1)
    with collection.subscribe(lake.spark, snapshot=False, capability=held, until=2) as subscription:
        assert [ids(batch) for batch in subscription] == [[(2, 2, 1)]]
    assert held.since == 2
    with collection.subscribe(lake.spark, snapshot=False, capability=held) as subscription:
        assert [ids(batch) for batch in subscription] == [[(3, 3, 1)]]
    assert held.since == 3


@pytest.mark.sweep
def test_a_lease_that_ended_long_ago_is_treated_like_one_that_has_just_ended(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holds, "ENDED_MAX", 1)  # the handles remember only the last hold that ended
    collection = collection_of(lake)
    subscription = collection.subscribe(lake.spark, as_of=2, snapshot=False, lease=timedelta(milliseconds=1))
    passed = collection.subscribe(lake.spark, as_of=1, snapshot=False, lease=timedelta(milliseconds=1))
    closed = collection.subscribe(lake.spark, lease=timedelta(milliseconds=1))
    keeper = collection.acquire(at=2)
    lapse(lake)
    keeper.clone().drop()
    assert ids(subscription.next()) == [(3, 3, 1)]
    with pytest.raises(SubscriptionLapsed, match=r"was at time 1, and since of 'prices' is now \[2\]"):
        passed.next()
    closed.close()
    subscription.close()


@pytest.mark.sweep
def test_a_batch_whose_rows_a_merge_moves_is_not_empty(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    subscription = collection_of(lake).subscribe(lake.spark, as_of=1, snapshot=False, until=2, lease=None)

    def overtaken(*arguments: Any, **more: Any) -> Any:
        found = changes(*arguments, **more)
        lake.compact()  # moves both since and the row at time 2 to time 3
        return found

    monkeypatch.setattr(spark_source, "changes", overtaken)
    batch = subscription.next()
    assert ids(batch) == [(2, 2, 1)]
    assert batch is not None and not batch.progress.is_empty


# --- where a subscription begins and ends


def test_a_subscription_waits_for_a_bounded_time_and_can_loop_again(lake: Lake) -> None:
    subscription = collection_of(lake).subscribe(lake.spark, wait_s=0.2, poll_s=0.05)
    assert [batch.progress.through for batch in subscription] == [3]
    assert list(subscription) == []
    lake.send(progress([4], [6]), updates((7, 6, 2)), progress([6], [], {6: 1}))
    lake.run()
    last = list(subscription)
    assert [batch.progress for batch in last] == [batch.progress for batch in last if batch.progress.closed]
    assert ids(last[-1]) == [(6, 7, 2)]
    assert subscription.is_complete
    again = collection_of(lake).subscribe(lake.spark, as_of=6, snapshot=False)
    (end,) = list(again)
    assert (end.progress.closed, end.progress.is_empty, ids(end)) == (True, True, [])


def test_a_snapshot_is_refused_until_its_time_is_sealed(lake: Lake) -> None:
    subscription = collection_of(lake).subscribe(lake.spark, as_of=4, until=5)
    with pytest.raises(UpperError, match=r"time 4 is not before upper \[4\]"):
        subscription.next()
    lake.send(updates((4, 4, 1), (5, 5, 1), (6, 6, 1)), progress([4], [7], {4: 1, 5: 1, 6: 1}))
    lake.run()
    assert [batch.progress.through for batch in subscription] == [4, 5]
    assert subscription.is_complete


def test_columns_and_a_predicate_apply_to_the_snapshot_and_to_the_changes(lake: Lake) -> None:
    subscription = collection_of(lake).subscribe(lake.spark, as_of=2, columns=["id"], where="id <> 1")
    assert [ids(batch) for batch in subscription] == [[(2, 2, 1)], [(3, 3, 1)]]


def test_arguments_out_of_range_are_refused(lake: Lake, tmp_path: Path) -> None:
    collection = collection_of(lake)
    wrongs: list[dict[str, Any]] = [
        *({"wait_s": value} for value in (-1, float("nan"), "1", True)),
        *({"poll_s": value} for value in (0, "1")),
        *({"rows_max": value} for value in (0, 1.5)),
        *({name: value} for name in ("until", "as_of") for value in (-1, 1.5, "3", True, 2**63)),
        *({"lease": value} for value in (3600, timedelta(0))),
    ]
    for wrong in wrongs:
        with pytest.raises(ArgumentRefused):
            collection.subscribe(lake.spark, **wrong)
    with pytest.raises(ArgumentRefused, match="until is 2, but must not be before the time of the snapshot, 3"):
        collection.subscribe(lake.spark, until=2)
    assert collection.holds() == []
    assert list(collection.subscribe(lake.spark, as_of=3, snapshot=False, until=2)) == []
    empty = Lake(tmp_path / "empty", lake.spark)
    empty.send(updates((1, 0, 1)))
    empty.run()
    with pytest.raises(UpperError, match="nothing is sealed yet"):
        collection_of(empty).subscribe(lake.spark, snapshot=False)


def test_times_before_a_key_in_error_are_delivered(tmp_path: Path, spark: SparkSession) -> None:
    lake = RawLake(tmp_path, spark, envelope="upsert", key="id", schema=ITEM)
    for records in ([item(1, 1)], [item(1, 2)], [gone(1)], [{"value_b64": "AAA=", "key": {"id": 1}}]):
        lake.put(*records)
        lake.ingest()
    first, *_, bad = (binding.time for binding in lake.times)
    subscription = collection_of(lake).subscribe(spark, as_of=first, snapshot=False)
    batch = subscription.next()
    assert [diff for _, _, diff in ids(batch)] == [-1, 1, -1]
    assert batch is not None and batch.progress.through == bad - 1
    with pytest.raises(KeysInError):
        subscription.next()
