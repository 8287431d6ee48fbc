"""Plays file topics to a broker: each record as it is, in its place."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tidelake.delta.kafka_client import KafkaCluster, librdkafka_settings
from tidelake.delta.recording import MESSAGES_PER_FILE, Copied
from tidelake.delta.topic import FileTopic, OffsetRange
from tidelake.delta.topic_lines import parse_lines, partition_of
from tidelake.errors import RuleBroken, TopicUnreachable

_POLL_S = 1.0
_MESSAGE_BYTES_MAX = 1_000_000_000
"""All that the client allows: the topic's own setting decides."""
_unheard = logging.Logger("tidelake.playing", logging.CRITICAL + 1)
"""Takes what the client has to say: our own errors repeat it."""


def play_topic(folder: Path, cluster: KafkaCluster, name: str, *, renumber: bool = False) -> Copied:
    """Play a file topic to a topic of a broker: what is there already is taken as played before.

    Args:
        folder: the file topic.
        cluster: where to.
        name: the topic, which must be there, with as many partitions.
        renumber: play everything, behind what is there, whatever offsets that gives.

    Raises:
        RuleBroken: there is no such topic, or it has too few partitions, or takes no record as large as one of these;
            or, unless `renumber`, records would get other offsets than they have.
        TopicGap: offsets are missing in the folder.
        TopicUnreachable: the brokers did not take a record.
    """
    ends = {partition: end for partition, (_, end) in cluster.topic(name).offsets.items()}
    topic, copied = FileTopic(folder), Copied()
    missing = sorted(set(topic.end_offsets()) - set(ends))
    if missing:
        raise RuleBroken(f"the topic '{name}' has no partition {missing[0]}", "create it with as many partitions")
    sender = _Sender(cluster, name)
    positions = {} if renumber else dict(ends)
    begun_late: list[tuple[int, int, int]] = []
    while True:
        offsets, gaps = topic.plan(positions, MESSAGES_PER_FILE, begun_late)
        if renumber and any(one.from_offset == 0 < one.to_offset for one in gaps):
            begun_late += [(one.partition, 0, one.to_offset) for one in gaps if one.from_offset == 0]
            continue
        if not offsets.intervals:
            if gaps:
                raise gaps[0]
            break
        for row in _messages_of(offsets):
            expected = ends[row["partition"]]
            if not renumber and row["offset"] != expected:
                raise RuleBroken(
                    f"partition {row['partition']} of '{name}' would give the record of offset {row['offset']} the "
                    f"offset {expected}",
                    "give --renumber where offsets may change",
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
    """Sends records in their order: behind one that was not taken no other is, which would get its offset."""

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
                "logger": _unheard,
            }
        )

    def send(self, row: Mapping[str, Any]) -> None:
        """Hand one record over; it is there for sure only behind `finish`.

        Raises: what `finish` does, of this record or an earlier one.
        """
        more: dict[str, Any] = {} if row["timestamp_ms"] is None else {"timestamp": row["timestamp_ms"]}
        if row["headers"] is not None:
            more["headers"] = [(one["key"], one["value"]) for one in row["headers"]]

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self._failed.append((error, row))

        while True:
            try:
                self._producer.produce(
                    self._name, row["value"], row["key"], row["partition"], on_delivery=delivered, **more
                )
                break
            except BufferError:
                self._poll(0.1)
            except KafkaException as error:  # the client has given up: which record is why may come yet
                self._poll(_POLL_S)
                raise self._unreachable(error.args[0].str()) from error
        self._poll(0)

    def finish(self) -> None:
        """Wait until the brokers have all.

        Raises:
            RuleBroken: a record is larger than the topic takes.
            TopicUnreachable: the brokers did not take a record, or not in time.
        """
        end = time.monotonic() + self._cluster.settings.request_timeout_s
        while len(self._producer) and time.monotonic() < end:
            self._poll(0.1)
        if left := len(self._producer):
            raise self._unreachable(f"{left} records were not taken in time")

    def _poll(self, seconds: float) -> None:
        """Hear what became of records; not by `flush`, which goes on calling back while an error is raised.

        Raises: what `finish` does.
        """
        try:
            self._producer.poll(seconds)
        except KafkaException:  # the client gives up; which record is why comes next
            self._producer.poll(_POLL_S)
        if not self._failed:
            return
        error, row = self._failed[0]
        place = f"offset {row['offset']} of partition {row['partition']}"
        if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
            raise self._unreachable(f"{place}: {error.str()}")
        size = len(row["value"] or b"")
        raise RuleBroken(
            f"{place}, with {size} bytes, is larger than the topic '{self._name}' takes",
            "raise its `max.message.bytes`, and play again: what is there stays",
        )

    def _unreachable(self, detail: str) -> TopicUnreachable:
        return TopicUnreachable(self._name, self._cluster.settings.bootstrap_servers, detail)


def _messages_of(offsets: OffsetRange) -> Iterator[dict[str, Any]]:
    """The messages of a range, in order; no two have one offset, or the range would not have been planned."""
    found: list[dict[str, Any]] = []
    readers: list[Callable[[], Iterator[dict[str, Any]]]] = [
        *(lambda path=path: _parquet_rows(path) for path in offsets.parquet),
        *(lambda path=path: _lines_rows(path) for path in offsets.json_lines),
    ]
    for read in readers:
        for row in read():
            start, end = offsets.intervals.get(row["partition"], (0, 0))
            if start <= row["offset"] < end:
                found.append(row)
    yield from sorted(found, key=lambda row: (row["partition"], row["offset"]))


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    for batch in pq.ParquetFile(path).iter_batches():
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


def _lines_rows(path: Path) -> Iterator[dict[str, Any]]:
    partition = partition_of(path)
    for row in parse_lines(path):
        yield {"partition": partition, **row}
