"""Publishes a collection, mangles the messages, and reads them into another lake."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.lakes.lake import NAME, Lake
from tidelake.codec.avro import AvroCodec
from tidelake.generator.mangle import repeat_inside, repeat_messages, shuffle, split_statements
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.message import Message
from tidelake.protocol.reader import Reader
from tidelake.publish.publishing import PublishReport, Terms, publish
from tidelake.publish.target import FileTarget
from tidelake.read.snapshot import snapshot
from tidelake.storage.location import locate
from tidelake.store.entry import PublishedTopic

OUT = "prices_out"


def publish_lake(lake: Lake, name: str = OUT, **terms: Any) -> PublishReport:
    """Publish the collection of a lake to a folder next to its topics."""
    return publish(lake.spark, lake.catalog, NAME, target_of(lake, name), Terms(**terms))


def target_of(lake: Lake, name: str = OUT) -> FileTarget:
    """The folder that a lake is published to."""
    return FileTarget(locate(lake.root / "out" / name), name)


def published_of(lake: Lake) -> PublishedTopic:
    """The entry's part about a lake's only topic."""
    (found,) = lake.collection.entry.published_topics
    return found


def published_bytes(lake: Lake, name: str = OUT) -> list[bytes]:
    """The messages of a lake's topic, by partition and offset."""
    tables = [pq.read_table(path) for path in sorted((lake.root / "out" / name).glob("*.parquet"))]
    if not tables:
        return []
    table = pa.concat_tables(tables).sort_by([("partition", "ascending"), ("offset", "ascending")])
    values: list[bytes] = table["value"].to_pylist()
    return values


def published_messages(lake: Lake, name: str = OUT) -> list[Message]:
    """The messages of a lake's topic, decoded; each is well-formed."""
    codec = AvroCodec(published_of(lake).record_schema)
    decoded = [codec.decode(value) for value in published_bytes(lake, name)]
    return [message for message in decoded if message is not None]


def read_whole(messages: list[Message], codec: AvroCodec) -> Reader:
    """Read messages with the protocol's reader, and check that it reports no contradiction."""
    reader = Reader(Antichain.of(0), codec.identity)
    for message in messages:
        received = reader.receive(message)
        assert received.errors == [], received.errors
    return reader


def mangled(messages: list[Message], rng: Random) -> list[Message]:
    """Messages with the same meaning: copied, split and reordered."""
    mixed = repeat_inside(split_statements(messages, rng, 0.5), rng, 0.2)
    return shuffle(repeat_messages(mixed, rng, 0.4), rng, rng.choice(("none", "window", "full")), 6)


def other_lake(lake: Lake, root: Path, spark: SparkSession, rng: Random, key: str | None = None) -> Lake:
    """A lake in another store that has read the published messages, mangled; with `key`, as upserts."""
    record = published_of(lake).record_schema
    codec = AvroCodec(record)
    values = [codec.encode(message) for message in mangled(published_messages(lake), rng)]
    kind: dict[str, Any] = {"family": "plain"} if key is None else {"family": "upsert", "key": key}
    other = Lake(root, spark, schema=json.loads(json.dumps(record)), **kind)
    other.send(*values)
    other.run()
    return other


def rows_at(lake: Lake, as_of: int) -> dict[str, int]:
    """The contents of a lake AS OF a time: how many times each row occurs."""
    counts: Counter[str] = Counter()
    found = snapshot(lake.spark, lake.collection, as_of).contents
    for row in found.select(*sorted(found.columns)).toArrow().to_pylist():
        diff = row.pop("_diff")
        counts[repr(row)] += diff
    return dict(counts)


def check_equal(one: Lake, other: Lake, times: range) -> None:
    """Check that two lakes have the same contents AS OF each of these times."""
    for time in times:
        assert rows_at(one, time) == rows_at(other, time), time
