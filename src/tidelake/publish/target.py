"""The topics that a collection can be published to: a folder of files, or a topic of a Kafka cluster.

Several publishers may append to the same topic at once. The headers of messages say who wrote them, and which shards a
progress statement covers.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from tidelake.errors import FolderMissing, MalformedTopic, TopicUnwritable
from tidelake.read.words import counted
from tidelake.spark.engine_errors import engine_fact
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.topic.files import FileTopic
from tidelake.topic.recorded_file import write_recorded_file
from tidelake.topic.shape import TOPIC_SCHEMA
from tidelake.topic.topic import Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelake.topic.cluster import KafkaCluster

MARKER = "_published.json"
"""The name of the file that identifies the topic in a folder. Readers of topics skip this file."""
SCHEMA_FILE = "_schema.avsc"
_CHUNK_BYTES = 128 * 1024 * 1024
"""Approximate size of the messages that the driver holds at a time."""

Headers = Mapping[str, str]


class Target(Protocol):
    """A topic to publish to."""

    source: str
    """`files` or `kafka`."""
    name: str
    """The name, path or URI under which the entry of a collection remembers the topic."""
    takes_values: bool
    """Whether `write_few` is cheaper than `write` for messages that this process already has in memory."""

    def identify(self, creates: bool = False) -> str | None:
        """Return what distinguishes the topic from others of the same name; None if nothing does.

        Args:
            creates: whether to make the folder a topic if it is not one yet.

        Raises:
            TopicMissing, TopicUnreachable: the brokers have no such topic, or do not answer.
            StoreUnreadable: the folder cannot be written.
        """

    def topic(self) -> Topic:
        """Return the topic for reading."""

    def offsets(self) -> dict[int, tuple[int, int]]:
        """Return the first offset and the end of each partition; empty if the folder does not exist."""

    def write(self, messages: DataFrame, size: int, headers: Headers, partition: int) -> None:
        """Append messages; they are durable afterwards. After an error, some of them may be in the topic.

        In: `value` binary, never null.

        Args:
            messages: the messages.
            size: their approximate size in bytes.
            headers: the headers of each message.
            partition: for files, the partition to append to; in Kafka, the producer chooses partitions itself.

        Raises:
            TopicUnwritable, StoreUnreadable: the messages could not be written.
        """

    def write_few(self, values: list[bytes], headers: Headers, partition: int) -> None:
        """Append a few messages as `write` does."""


class FileTarget:
    """A folder in the format of file topics. Each file is created under a name that only one publisher can create."""

    source, takes_values = "files", True

    def __init__(self, folder: Location, name: str) -> None:
        """Take the folder, and the name that the collection's entry remembers; nothing is read yet."""
        self.folder, self.name = folder, name
        self._topic = FileTopic(folder)

    def identify(self, creates: bool = False) -> str | None:
        """See `Target.identify`. The identity is in a file that only the first publisher can create."""
        marker = self.folder / MARKER
        if creates and not blobs.exists(marker):
            blobs.make_folder(self.folder)
            with suppress(FileExistsError):
                blobs.create(marker, json.dumps({"id": secrets.token_hex(16)}).encode())
        try:
            return str(json.loads(blobs.read(marker))["id"])
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            fix = "restore it, or publish to a new topic"
            raise MalformedTopic(str(marker), "does not identify a published topic", fix) from error

    def topic(self) -> Topic:
        """See `Target.topic`."""
        return self._topic

    def offsets(self) -> dict[int, tuple[int, int]]:
        """See `Target.offsets`."""
        try:
            return self._topic.held_offsets()
        except FolderMissing:
            return {}

    def write(self, messages: DataFrame, size: int, headers: Headers, partition: int) -> None:
        """See `Target.write`. The driver numbers the messages, one part at a time."""
        from pyspark.sql import functions as F

        parts = max(1, -(-size // _CHUNK_BYTES))
        if parts == 1:
            self._append(messages.select("value").toArrow(), headers, partition)
            return
        for part in range(parts):
            # The frame has already been computed and does not change, so each message is in exactly one part.
            chosen = messages.where(F.pmod(F.xxhash64("value"), F.lit(parts)) == part)
            self._append(chosen.select("value").toArrow(), headers, partition)

    def write_few(self, values: list[bytes], headers: Headers, partition: int) -> None:
        """See `Target.write_few`."""
        self._append(pa.table({"value": pa.array(values, pa.binary())}), headers, partition)

    def _append(self, messages: pa.Table, headers: Headers, partition: int) -> None:
        rows = messages.num_rows
        if not rows:
            return
        own = [{"key": key, "value": value.encode()} for key, value in headers.items()]
        kind = TOPIC_SCHEMA.field("headers").type
        while True:
            start = self._topic.end_offsets().get(partition, 0)
            columns = {
                "key": pa.nulls(rows, pa.binary()),
                "value": messages["value"].cast(pa.binary()),
                "topic": pa.repeat(pa.scalar(self.folder.name), rows),
                "partition": pa.repeat(pa.scalar(partition, pa.int32()), rows),
                "offset": pa.array(range(start, start + rows), pa.int64()),
                "timestamp": pa.nulls(rows, TOPIC_SCHEMA.field("timestamp").type),
                "headers": pa.repeat(pa.scalar(own, kind), rows),
            }
            path = self.folder / f"part-{partition:05d}-{start:019d}.parquet"
            table = pa.Table.from_arrays([columns[name] for name in TOPIC_SCHEMA.names], schema=TOPIC_SCHEMA)
            try:
                write_recorded_file(path, table, {partition: (start, start + rows)}, None)
            except FileExistsError:  # another publisher was faster: number these messages after its own
                continue
            blobs.make_names_durable([self.folder])
            return


class KafkaTarget:
    """An existing topic of a Kafka cluster."""

    source, takes_values = "kafka", False

    def __init__(self, cluster: KafkaCluster, name: str) -> None:
        """Take the cluster and the topic's name; nothing is requested yet."""
        from tidelake.topic.kafka import KafkaTopic

        self.cluster, self.name = cluster, name
        self._topic = KafkaTopic(cluster, name)

    def identify(self, creates: bool = False) -> str | None:
        """See `Target.identify`. The cluster gives each topic an id when it is created."""
        identity = self.cluster.topic(self.name).identity
        return None if identity is None else str(identity)

    def topic(self) -> Topic:
        """See `Target.topic`."""
        return self._topic

    def offsets(self) -> dict[int, tuple[int, int]]:
        """See `Target.offsets`."""
        return self.cluster.topic(self.name).offsets

    def write(self, messages: DataFrame, size: int, headers: Headers, partition: int) -> None:
        """See `Target.write`. Spark's tasks send the messages, and wait until all in-sync replicas have them."""
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F

        from tidelake.topic.cluster import java_settings

        pairs = [
            F.struct(F.lit(key).alias("key"), F.lit(value).cast("binary").alias("value"))
            for key, value in headers.items()
        ]
        writer = messages.select("value", F.array(*pairs).alias("headers")).write.format("kafka")
        settings = java_settings(self.cluster.settings)
        limits = {"acks": "all", "max.request.size": "1000000000", "buffer.memory": "134217728"}
        for key, value in (settings | limits).items():
            writer = writer.option(f"kafka.{key}", value)
        try:
            writer.option("topic", self.name).option("includeHeaders", "true").save()
        except PySparkException as error:
            servers = self.cluster.settings.bootstrap_servers
            raise TopicUnwritable(self.name, servers, engine_fact(error)) from error

    def write_few(self, values: list[bytes], headers: Headers, partition: int) -> None:
        """See `Target.write_few`."""
        from confluent_kafka import KafkaException, Producer

        from tidelake.topic.cluster import librdkafka_settings

        failed: list[str] = []
        options = {"enable.idempotence": True, "message.max.bytes": 1_000_000_000, "log_level": 0}
        producer = Producer({**librdkafka_settings(self.cluster.settings), **options})
        pairs = [(key, value.encode()) for key, value in headers.items()]
        try:
            for value in values:
                producer.produce(
                    self.name,
                    value,
                    headers=pairs,
                    on_delivery=lambda error, _: failed.append(error.str()) if error is not None else None,
                )
                producer.poll(0)
            left = producer.flush(self.cluster.settings.request_timeout_s)
        except KafkaException as error:
            failed.append(error.args[0].str())
            left = 0
        if failed or left:
            detail = failed[0] if failed else f"{counted(left, 'message was', 'messages were')} not accepted in time"
            raise TopicUnwritable(self.name, self.cluster.settings.bootstrap_servers, detail)
