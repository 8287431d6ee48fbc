"""Plays file topics to a broker. Records keep their bytes and, unless they are renumbered, their offsets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tidelake.errors import CopyRefused, TopicUnwritable
from tidelake.settings.object_store import ObjectStorePlace
from tidelake.storage.location import Location, Place
from tidelake.topic.cluster import KafkaCluster, librdkafka_settings
from tidelake.topic.files import FileTopic, open_listed
from tidelake.topic.lines import parse_lines, partition_of
from tidelake.topic.recording import MESSAGES_PER_FILE, Copied
from tidelake.topic.topic import OffsetRange

_POLL_S = 1.0
_MESSAGE_BYTES_MAX = 1_000_000_000
"""The client's maximum, so that the topic's own limit applies."""
_silent_log = logging.Logger("tidelake.playing", logging.CRITICAL + 1)
"""Discards the client's log, because Tidelake's own errors repeat what it says."""


def play_topic(folder: Place | ObjectStorePlace, cluster: KafkaCluster, name: str, *, renumber: bool = False) -> Copied:
    """Play a file topic to a Kafka topic. Unless `renumber`, records that the Kafka topic has are not sent again.

    Args:
        folder: the file topic.
        cluster: the cluster to play to.
        name: the topic; it must exist and have at least as many partitions as the folder.
        renumber: whether to append everything to what the topic has, under new offsets.

    Raises:
        TopicMissing: the topic does not exist.
        CopyRefused: the topic has too few partitions, or a record is larger than the topic accepts; or, unless
            `renumber`, records would get different offsets.
        TopicGap: offsets are missing in the folder.
        TopicUnreachable: the brokers do not answer, or refuse access.
        TopicUnwritable: the brokers did not accept a record.
    """
    ends = {partition: end for partition, (_, end) in cluster.topic(name).offsets.items()}
    topic, copied = FileTopic(folder), Copied()
    missing = sorted(set(topic.end_offsets()) - set(ends))
    if missing:
        hint = "create it with as many partitions as the folder has"
        raise CopyRefused(f"the topic '{name}' has no partition {missing[0]}", hint)
    sender = _Sender(cluster, name)
    positions = {} if renumber else dict(ends)
    missing_starts: list[tuple[int, int, int]] = []
    while True:
        offsets, gaps = topic.plan(positions, MESSAGES_PER_FILE, missing_starts)
        if renumber and any(gap.from_offset == 0 < gap.to_offset for gap in gaps):
            missing_starts += [(gap.partition, 0, gap.to_offset) for gap in gaps if gap.from_offset == 0]
            continue
        if not offsets.intervals:
            if gaps:
                raise gaps[0]
            break
        for row in _messages_of(offsets):
            expected = ends[row["partition"]]
            if not renumber and row["offset"] != expected:
                raise CopyRefused(
                    f"the record at offset {row['offset']} of partition {row['partition']} would get the offset "
                    f"{expected} in '{name}'",
                    "give --renumber if offsets may change",
                )
            sender.send(row)
            ends[row["partition"]] += 1
            copied.messages += 1
        for partition, (start, end) in offsets.intervals.items():
            copied.intervals[partition] = (copied.intervals.get(partition, (start, end))[0], end)
            positions[partition] = end
    sender.finish()
    return copied


class _Sender:
    """Sends records in order. It stops after a rejected record, whose offset the next record would get."""

    def __init__(self, cluster: KafkaCluster, name: str) -> None:
        self._cluster, self._name = cluster, name
        self._failed: list[tuple[KafkaError, Mapping[str, Any]]] = []
        self._producer = Producer(
            {
                **librdkafka_settings(cluster.settings),
                "enable.idempotence": True,
                "enable.gapless.guarantee": True,
                "message.max.bytes": _MESSAGE_BYTES_MAX,
                "linger.ms": 20,
                "log_level": 0,
                "logger": _silent_log,
            }
        )

    def send(self, row: Mapping[str, Any]) -> None:
        """Pass one record to the client. Only `finish` ensures that the brokers have it.

        Raises: what `finish` raises, for this record or an earlier one.
        """
        optional: dict[str, Any] = {} if row["timestamp_ms"] is None else {"timestamp": row["timestamp_ms"]}
        if row["headers"] is not None:
            optional["headers"] = [(header["key"], header["value"]) for header in row["headers"]]

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self._failed.append((error, row))

        while True:
            try:
                self._producer.produce(
                    self._name, row["value"], row["key"], row["partition"], on_delivery=delivered, **optional
                )
                break
            except BufferError:
                self._poll(0.1)
            except KafkaException as error:  # the client has given up; the report that names the record may still come
                self._poll(_POLL_S)
                raise self._unwritable(error.args[0].str()) from error
        self._poll(0)

    def finish(self) -> None:
        """Wait until the brokers have all records.

        Raises:
            CopyRefused: a record is larger than the topic accepts.
            TopicUnwritable: the brokers did not accept a record, or not in time.
        """
        end = time.monotonic() + self._cluster.settings.request_timeout_s
        while len(self._producer) and time.monotonic() < end:
            self._poll(0.1)
        if left := len(self._producer):
            records = "1 record was" if left == 1 else f"{left} records were"
            raise self._unwritable(f"{records} not accepted in time")

    def _poll(self, seconds: float) -> None:
        """Receive delivery reports. `flush` is not used: it would keep calling back after an error was raised.

        Raises: what `finish` raises.
        """
        try:
            self._producer.poll(seconds)
        except KafkaException:  # the client gives up; the report that names the record comes next
            self._producer.poll(_POLL_S)
        if not self._failed:
            return
        error, row = self._failed[0]
        place = f"offset {row['offset']} of partition {row['partition']}"
        if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
            raise self._unwritable(f"{place}: {error.str()}")
        size = len(row["value"] or b"")
        raise CopyRefused(
            f"the record at {place}, with {size} bytes, is larger than the topic '{self._name}' accepts",
            "raise the topic's `max.message.bytes`, and play again: records that were already played stay in the topic",
        )

    def _unwritable(self, detail: str) -> TopicUnwritable:
        return TopicUnwritable(self._name, self._cluster.settings.bootstrap_servers, detail)


def _messages_of(offsets: OffsetRange) -> Iterator[dict[str, Any]]:
    """Yield the messages of a range, in order. Planning the range ensured that offsets are unique."""
    messages: list[dict[str, Any]] = []
    readers: list[Callable[[], Iterator[dict[str, Any]]]] = [
        *(lambda path=path: _parquet_rows(path) for path in offsets.parquet),
        *(lambda path=path: _lines_rows(path) for path in offsets.json_lines),
    ]
    for read in readers:
        for row in read():
            start, end = offsets.intervals.get(row["partition"], (0, 0))
            if start <= row["offset"] < end:
                messages.append(row)
    yield from sorted(messages, key=lambda row: (row["partition"], row["offset"]))


def _parquet_rows(path: Location) -> Iterator[dict[str, Any]]:
    for batch in pq.ParquetFile(open_listed(path)).iter_batches():
        for row in batch.to_pylist():
            stamp = row.get("timestamp")
            yield {
                "partition": row["partition"],
                "offset": row["offset"],
                "timestamp_ms": None if stamp is None else round(stamp.timestamp() * 1000),
                "key": row.get("key"),
                "value": row["value"],
                "headers": row.get("headers"),
            }


def _lines_rows(path: Location) -> Iterator[dict[str, Any]]:
    partition = partition_of(path)
    for row in parse_lines(path):
        yield {"partition": partition, **row}
