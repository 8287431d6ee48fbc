"""Random histories that are published while they grow, and read back in another store."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from tests.lakes.generated import FORMS, Tide, text_of
from tests.lakes.lake import NAME, Lake
from tests.lakes.raw_lake import RawLake
from tests.lakes.round_trip import (
    Schemas,
    check_equal,
    other_lake,
    publish_lake,
    published_messages,
    published_of,
    read_whole,
)
from tests.lakes.transaction_lake import TransactionLake, end, event
from tests.lakes.upserts import ITEM, gone, item
from tidelake.codec.avro import AvroCodec
from tidelake.publish.schema import column_names
from tidelake.read.snapshot import snapshot

HISTORIES = (*FORMS, "reclocked upserts", "reclocked events", "transactions", "upserts with new columns")
COLUMNS: dict[str, Any] = {
    "note": "string",
    "seen": {"type": "long", "logicalType": "timestamp-micros"},
    "weight": "double",
}
"""Columns that a collection gets while it is published."""


def check_round_trip(root: Path, spark: SparkSession, history: str, seed: str, size: tuple[int, int]) -> None:
    """Publish a history while it grows; another lake then has the same contents AS OF every time."""
    rng = Random(f"{history}/{seed}")
    if history in FORMS:
        _check_stream(root, spark, history, rng, size)
    else:
        _check_records(root, spark, history, rng, size[1])


def _check_stream(root: Path, spark: SparkSession, form: str, rng: Random, size: tuple[int, int]) -> None:
    tide = Tide(root / "one", spark, form, rng, size, ("all", 2))
    begins = rng.random() < 0.5
    while tide.files:
        tide.arrive(rng.randint(1, len(tide.files)))
        tide.lake.run()
        if begins or not tide.files:
            publish_lake(tide.lake, rows_max=rng.choice((1, 1_000)))
        begins = begins or rng.random() < 0.5
        if rng.random() < 0.5:
            tide.lake.compact(full=rng.random() < 0.5)
    key = tide.key if rng.random() < 0.5 else None
    other = other_lake(tide.lake, root / "other", spark, rng, key)
    first, upper = published_of(tide.lake).published_from, tide.lake.table.value("upper") or 0
    assert other.table.value("upper") == tide.readable.stop or not upper or other.table.value("closed")
    for time in range(first, tide.readable.stop):
        found: Counter[str] = Counter()
        for row in snapshot(spark, other.collection, time).contents.toArrow().to_pylist():
            found[text_of(row)] += row.pop("_diff")
        assert dict(found) == tide.expected(time), time


def _check_records(root: Path, spark: SparkSession, history: str, rng: Random, ticks: int) -> None:
    lake = _RECORDS[history](root / "one", spark)
    terms: dict[str, Any] = {}
    if history == "upserts with new columns":
        terms = {"is_confluent": True, "register": Schemas().register}
    values: dict[int, int] = {}
    for tick in range(1, ticks + 1):
        if terms and rng.random() < 0.5:
            add_column(lake)
        _grow(lake, history, rng, tick, values)
        lake.run()
        if rng.random() < 0.6:
            publish_lake(lake, rows_max=rng.choice((1, 1_000)), **terms)
        if rng.random() < 0.4:
            lake.compact()
    publish_lake(lake, **terms)
    is_keyed = history != "reclocked events" and rng.random() < 0.5
    other = other_lake(lake, root / "other", spark, rng, "id" if is_keyed else None)
    upper = lake.table.value("upper") or 0
    assert other.table.value("upper") == upper
    since = lake.collection.entry.since[0]
    times = {message.time for each in published_messages(lake) for message in getattr(each, "batch", ())}
    for time in sorted({since, upper - 1, *(time for time in times if since <= time)}):
        check_equal(lake, other, range(time, time + 1))
    read_whole(published_messages(lake), AvroCodec(published_of(lake).versions[-1].record_schema))


def _grow(lake: Lake, history: str, rng: Random, tick: int, values: dict[int, int]) -> None:
    """Write a few changes to a few keys; `values` has the value of each key."""
    if history == "transactions":
        assert isinstance(lake, TransactionLake)
        events, before = [], 100 * (tick - 1)
        for order in range(1, rng.randint(1, 4) + 1):
            key, price = rng.randrange(3), rng.choice((None, rng.randrange(9)))
            old = None if key not in values else (key, values[key])
            new = None if price is None and old is not None else (key, price or 0)
            events.append(event(str(700 + tick), order, old, new, before))
            _set(values, key, None if new is None else new[1])
        lake.events(*events)
        lake.marks(end(str(700 + tick), 100 * tick, len(events)))
        return
    assert isinstance(lake, RawLake)
    for _ in range(rng.randint(1, 4)):
        key, price = rng.randrange(3), rng.choice((None, rng.randrange(9)))
        if "upserts" in history:
            lake.put(gone(key) if price is None else random_item(lake, rng, key, price))
            _set(values, key, price)
        else:
            lake.put({"value": {"id": key, "page": None if price is None else str(price)}})


def add_column(lake: Lake) -> None:
    """Add the next of `COLUMNS` to the schema of a collection; do nothing if the schema has them all."""
    assert isinstance(lake, RawLake)
    schema = lake.document["collections"][NAME]["schema"]
    known = column_names(schema)
    name = next((name for name in COLUMNS if name not in known), None)
    if name is not None:
        lake.configure(schema=schema | {"fields": [*schema["fields"], {"name": name, "type": ["null", COLUMNS[name]]}]})


def random_item(lake: Lake, rng: Random, key: int, price: int) -> dict[str, Any]:
    """An upsert with a value, or null, in each column that was added."""
    added = [name for name in column_names(lake.document["collections"][NAME]["schema"]) if name in COLUMNS]
    choices: dict[str, list[Any]] = {"note": ["a", "b"], "seen": [0, 1_700_000_000_000_000], "weight": [0.5, -1.5]}
    whole = item(key, price)
    whole["value"] |= {name: rng.choice([None, *choices[name]]) for name in added}
    return whole


def _set(values: dict[int, int], key: int, value: int | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


def _upserts(root: Path, spark: SparkSession) -> RawLake:
    return RawLake(root, spark, envelope="upsert", key="id", schema=ITEM)


def growing_lake(root: Path, spark: SparkSession) -> RawLake:
    """A lake of upserts that can get new columns."""
    return RawLake(root, spark, envelope="upsert", key="id", schema=ITEM, evolution="additive")


_RECORDS: dict[str, Any] = {
    "reclocked upserts": _upserts,
    "reclocked events": RawLake,
    "transactions": TransactionLake,
    "upserts with new columns": growing_lake,
}
