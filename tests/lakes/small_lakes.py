"""Small lakes, one of each form, with messages that cannot be decoded and, in one, a late row and a decision."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from tests.lakes.change_events import EVENT, events
from tests.lakes.change_events import progress as event_progress
from tests.lakes.lake import Lake, progress, updates
from tests.lakes.raw_lake import RawLake
from tests.lakes.upserts import ITEM, gone, item


def plain(root: Path, spark: SparkSession) -> Lake:
    lake = Lake(root, spark, keep=2)
    lake.send(progress([0], [1]))
    for time in range(1, 6):
        lake.send(updates(*(((10 * time + row, time), time, 1) for row in range(8)), ((10 * time, time), time, 1)))
        lake.send(progress([time], [time + 1], {time: 8}), b"\x07 garbage")
        lake.run()
    lake.send(updates(((99, 9), 2, 1)))
    lake.run()
    lake.decide(time=6, count=3)
    return lake


def upsert(root: Path, spark: SparkSession) -> Lake:
    lake = Lake(root, spark, "upsert", key="id")
    lake.send(progress([0], [1]))
    for time in range(1, 6):
        lake.send(updates(*(((row, 10 * time), time, 1) for row in range(time, time + 4))))
        lake.send(progress([time], [time + 1], {time: 4}), b"\x07 garbage")
        lake.run()
    return lake


def debezium(root: Path, spark: SparkSession) -> Lake:
    lake = Lake(root, spark, "debezium", key="id", schema=EVENT)
    lake.send(events(*((None, (key, 0), 1) for key in range(6))))
    for time in range(2, 6):
        lake.send(events(((time, 0), (time, 7), time)))
        lake.run()
    lake.send(event_progress([0], [6], {1: 6, **dict.fromkeys(range(2, 6), 1)}), b"\x07")
    lake.run()
    return lake


def reclocked(root: Path, spark: SparkSession) -> Lake:
    lake = RawLake(root, spark, envelope="upsert", key="id", schema=ITEM)
    for tick in range(4):
        lake.put(
            *(item(key, 10 * tick) for key in range(tick, tick + 4)),
            gone(tick),
            {"value_b64": "AAA=", "key": {"id": 1}},
        )
        lake.ingest()
    return lake


LAKES: dict[str, Callable[[Path, SparkSession], Lake]] = {
    "plain": plain,
    "upsert": upsert,
    "debezium": debezium,
    "reclocked": reclocked,
}
