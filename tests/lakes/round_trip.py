"""Publishes a collection, mangles the messages, and reads them into another lake."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.lakes.lake import NAME, Lake
from tidelake.codec.avro import AvroCodec, ConfluentCodec
from tidelake.generator.mangle import repeat_inside, repeat_messages, shuffle, split_statements
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.message import Message, Progress, Updates
from tidelake.protocol.reader import Reader
from tidelake.publish.publishing import PublishReport, Terms, publish
from tidelake.publish.schema import column_names
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
    """What the collection's entry says about its only published topic."""
    (found,) = lake.collection.entry.published_topics
    return found


class Schemas:
    """Schemas with ids, as a registry gives them: an equal schema has the same id."""

    def __init__(self) -> None:
        self.by_id: dict[int, Any] = {}

    def register(self, schema: Any) -> int:
        """Return the id of a schema."""
        known = next((id for id, registered in self.by_id.items() if registered == schema), None)
        id = len(self.by_id) + 1 if known is None else known
        self.by_id[id] = schema
        return id


def framed_codec(published: PublishedTopic) -> ConfluentCodec:
    """The codec of a topic with schema ids; data has the columns of the last version."""
    schemas = {version.schema_id: version.record_schema for version in published.versions if version.schema_id}
    return ConfluentCodec(lambda schema_id: schemas.get(schema_id), column_names(published.versions[-1].record_schema))


def encoded(published: PublishedTopic, message: Message) -> bytes:
    """The bytes of a message, in the schema in force at the message's times or, without schema ids, in the last one."""
    last = published.versions[-1].record_schema
    if published.encoding == "avro":
        return AvroCodec(last).encode(message)
    times = [*message.lower] if isinstance(message, Progress) else [update.time for update in message.batch]
    ids = {published.version_at(int(str(time)))[0].schema_id for time in times} or {published.schema_id}
    assert len(ids) == 1, "a message is about the times of two versions"
    version = next(each for each in published.versions if each.schema_id in ids)
    if isinstance(message, Updates):
        names, left_out = column_names(version.record_schema), set(column_names(last))
        left_out -= {*names}
        assert all(update.data[name] is None for update in message.batch for name in left_out)
        rows = [({name: data[name] for name in names}, time, diff) for data, time, diff in message.batch]
        message = Updates(rows)
    assert version.schema_id is not None
    return framed_codec(published).encode(message, version.schema_id)


def published_bytes(lake: Lake, name: str = OUT) -> list[bytes]:
    """The messages of the topic that a lake was published to, in order of partition and offset."""
    tables = [pq.read_table(path) for path in sorted((lake.root / "out" / name).glob("*.parquet"))]
    if not tables:
        return []
    table = pa.concat_tables(tables).sort_by([("partition", "ascending"), ("offset", "ascending")])
    values: list[bytes] = table["value"].to_pylist()
    return values


def published_messages(lake: Lake, name: str = OUT) -> list[Message]:
    """The messages of the topic that a lake was published to, decoded, with the columns of the last version.

    A message that is not well-formed raises an error.
    """
    published = published_of(lake)
    is_framed = published.encoding == "confluent"
    codec = framed_codec(published) if is_framed else AvroCodec(published.record_schema)
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
    """Another lake, which has read the published messages after they were mangled: as upserts if there is a `key`."""
    published = published_of(lake)
    values = [encoded(published, message) for message in mangled(published_messages(lake), rng)]
    kind: dict[str, Any] = {"family": "plain"} if key is None else {"family": "upsert", "key": key}
    if published.encoding == "confluent":
        kind["encoding"] = "confluent"
        kind["schema_ids"] = {version.schema_id: deepcopy(version.record_schema) for version in published.versions}
    other = Lake(root, spark, schema=deepcopy(published.versions[-1].record_schema), **kind)
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
