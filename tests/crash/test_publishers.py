"""Two publishers that are killed anywhere, while the shards or the columns change, state the same facts."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.crash.harness import Nursery
from tests.lakes.lake import Lake, progress, updates
from tests.lakes.places import Stores
from tests.lakes.round_trip import (
    check_equal,
    other_lake,
    published_bytes,
    published_messages,
    published_of,
    read_whole,
)
from tests.lakes.upserts import gone
from tests.publish.histories import add_column, growing_lake, random_item
from tests.services.registry import Registry
from tests.sweeps import command, seeds
from tidelake.codec.avro import AvroCodec
from tidelake.store.failpoints import PUBLISH_FAILPOINTS
from tidelake.store.published_topics import reshard

pytestmark = pytest.mark.spark

PLACES = (*PUBLISH_FAILPOINTS, "commit.before_call.handles", "commit.after_call.handles", "commit.after_sync.handles")
ROUNDS = 4


def order_of(lake: Lake, name: str, stop: str | None, passing: int, **terms: Any) -> dict[str, Any]:
    """An order for a victim: publish and, if `stop` is given, die at that failpoint."""
    order: dict[str, Any] = {"config": str(lake.file), "said": str(lake.root / f"{name}.said")}
    order["steps"] = [f"publish:{json.dumps(terms)}"]
    return order if stop is None else order | {"stop": stop, "passing": passing}


def grow(lake: Lake, rng: Random, round: int) -> None:
    """Add two times, each with a few updates of a few rows."""
    counts: dict[int, int] = {}
    for time in (2 * round, 2 * round + 1):
        rows = rng.sample(range(9), rng.randint(0, 4))
        counts[time] = len(rows)
        lake.send(updates(*((row, time, rng.choice((1, 2, -1))) for row in rows)))
    lake.send(progress([2 * round], [2 * round + 2], {time: count for time, count in counts.items() if count}))
    lake.run()


def publish_under_kills(root: Path, spark: SparkSession, nursery: Nursery, rng: Random) -> None:
    lake = Lake(root / "one", spark, keep=rng.choice(("all", 0, 1)))
    shards, log = 1, lake.root / "a.log"
    for round in range(ROUNDS):
        grow(lake, rng, round)
        victims = []
        for name in ("a", "b"):
            stop = rng.choice((None, *PLACES))
            alone = {"shard": rng.randrange(shards)} if round and rng.random() < 0.6 else {}
            victims.append(nursery.start(order_of(lake, f"{name}", stop, rng.randrange(3), **alone)))
        codes = [nursery.wait(victim) for victim in victims]
        assert set(codes) <= {0, -9}, (codes, log.read_text() if log.exists() else "")
        if rng.random() < 0.5 and lake.collection.entry.published_topics:
            shards = rng.choice((1, 2, 3))
            known, number = published_of(lake), shards
            lake.catalog.update(lake.collection.name, lambda entry: reshard(entry, known, number))  # noqa: B023
        if rng.random() < 0.6:
            lake.compact()
    lake.send(progress([2 * ROUNDS], []))
    lake.run()
    assert nursery.run(order_of(lake, "last", None, 0)) == 0
    published = published_of(lake)
    assert published.closed
    codec = AvroCodec(published.record_schema)
    messages = [codec.decode(value) for value in published_bytes(lake)]
    reader = read_whole([message for message in messages if message is not None], codec)
    assert reader.frontier.is_empty
    other = other_lake(lake, root / "other", spark, rng)
    since = max(lake.collection.entry.since[0], published.published_from)
    check_equal(lake, other, range(since, 2 * ROUNDS + 1))


def publish_while_columns_are_added(
    root: Path, spark: SparkSession, nursery: Nursery, registry: Registry, rng: Random
) -> None:
    """Kill two publishers anywhere, while the collection grows and columns are added; check what they have stated."""
    lake = growing_lake(root / "one", spark)
    lake.document["registry"] = {"url": registry.url, "cache": "cache"}
    lake.settings = lake.written()
    log = lake.root / "a.log"

    def grow_lake() -> None:
        if rng.random() < 0.5:
            add_column(lake)
        keys = (rng.randrange(4) for _ in range(rng.randint(1, 3)))
        lake.put(*(gone(key) if rng.random() < 0.2 else random_item(lake, rng, key, rng.randrange(9)) for key in keys))
        lake.run()

    for _ in range(ROUNDS):
        grow_lake()
        # The first publisher of a round often dies after it has claimed a version, and before anybody uses the version.
        is_early = rng.random() < 0.4
        stop = "publish.after_claim" if is_early else rng.choice((None, *PLACES))
        passing = 0 if is_early else rng.randrange(3)
        orders = (("a", stop, passing), ("b", rng.choice((None, *PLACES)), rng.randrange(3)))
        victims = [nursery.start(order_of(lake, *order, confluent=True)) for order in orders]
        if rng.random() < 0.5:
            grow_lake()
        codes = [nursery.wait(victim) for victim in victims]
        assert set(codes) <= {0, -9}, (codes, log.read_text() if log.exists() else "")
        if rng.random() < 0.5:
            lake.compact()
    grow_lake()
    assert nursery.run(order_of(lake, "last", None, 0, confluent=True)) == 0
    published = published_of(lake)
    assert published.frontier == lake.table.value("upper")
    read_whole(published_messages(lake), AvroCodec(published.versions[-1].record_schema))
    other = other_lake(lake, root / "other", spark, rng)
    assert other.quarantined() == []
    assert other.table.value("upper") == published.frontier
    for time in (each.time for each in lake.times if each.time >= published.published_from):
        check_equal(lake, other, range(time, time + 1))


@pytest.mark.services
@pytest.mark.sweep
@pytest.mark.usefixtures("any_store")
def test_publishers_that_are_killed_while_columns_are_added_state_the_same_facts(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, registry: Registry
) -> None:
    publish_while_columns_are_added(tmp_path, spark, nursery, registry, Random("every day"))


@pytest.mark.services
@pytest.mark.sweep
@pytest.mark.parametrize("number", range(20))
@pytest.mark.parametrize("seed", seeds())
def test_publishers_that_are_killed_often_while_columns_are_added_state_the_same_facts(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, registry: Registry, seed: int, number: int
) -> None:
    print(command(seed, "tests/crash/test_publishers.py"))
    publish_while_columns_are_added(tmp_path, spark, nursery, registry, Random(f"{seed}/{number}"))


@pytest.mark.usefixtures("any_store")
def test_publishers_that_are_killed_state_the_same_facts(tmp_path: Path, spark: SparkSession, nursery: Nursery) -> None:
    publish_under_kills(tmp_path, spark, nursery, Random("every day"))


@pytest.mark.sweep
@pytest.mark.parametrize("number", range(20))
@pytest.mark.parametrize("seed", seeds())
def test_publishers_that_are_killed_often_state_the_same_facts(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, seed: int, number: int
) -> None:
    print(command(seed, "tests/crash/test_publishers.py"))
    publish_under_kills(tmp_path, spark, nursery, Random(f"{seed}/{number}"))


@pytest.mark.services
@pytest.mark.sweep
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("seed", seeds())
def test_publishers_that_are_killed_on_s3_state_the_same_facts(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, stores_by_kind: dict[str, Stores], seed: int, number: int
) -> None:
    publish_under_kills(stores_by_kind["s3"].hold(tmp_path), spark, nursery, Random(f"{seed}/{number}"))
