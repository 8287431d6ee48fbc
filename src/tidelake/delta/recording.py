"""Records topics of a broker as file topics: each record as it is, in its place; see `playing` for the way back.

A recording keeps keys, values, headers, timestamps, partitions and offsets. Its Parquet files say which offsets they
stand for, so that those without a record (of transactions, of compaction) are no gap in it either.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tidelake.delta.kafka_client import KafkaCluster, librdkafka_settings
from tidelake.delta.topic import COVERED_OFFSETS, TOPIC_IDENTITY, FileTopic
from tidelake.delta.topic_intervals import Interval
from tidelake.delta.topic_lines import parse_line
from tidelake.errors import RuleBroken, TopicUnreachable
from tidelake.generator.topic_writer import TOPIC_SCHEMA

Format = Literal["parquet", "jsonl"]
MESSAGES_PER_FILE = 50_000
_POLL_S = 1.0


@dataclass
class Copied:
    """What was recorded or played."""

    messages: int = 0
    intervals: dict[int, Interval] = field(default_factory=dict)
    """By partition, the offsets that it stands for."""


def record_topic(cluster: KafkaCluster, name: str, folder: Path, form: Format = "parquet") -> Copied:
    """Record what a topic has now and the folder does not have yet; a recording as Parquet may be continued.

    Raises:
        RuleBroken: there is no such topic; the folder holds another one, JSON lines, or more than the topic; or offsets
            without a record would have to be written as JSON lines, which cannot say so.
        TopicUnreachable: the brokers do not answer, or stop answering.

    Cost: bounded memory as Parquet; one partition at a time in memory as JSON lines.
    """
    folder.mkdir(parents=True, exist_ok=True)
    facts = cluster.topic(name)
    known = FileTopic(folder).end_offsets()
    if form == "jsonl" and known:
        raise RuleBroken(f"{folder} holds messages already, and its files never change", "record into an empty folder")
    _check_same_topic(folder, name, facts.identity)
    copied = Copied()
    for partition, (first, end) in sorted(facts.offsets.items()):
        start = max(first, known.get(partition, 0))
        if known.get(partition, 0) > end:
            raise RuleBroken(
                f"{folder} has more of partition {partition} than the topic '{name}', which ends at {end}",
                "record into an empty folder",
            )
        if start == end:
            continue
        messages = _consume(cluster, name, partition, (start, end))
        if form == "jsonl":
            copied.messages += _write_lines(folder / f"{partition}.jsonl", messages, (start, end))
        else:
            copied.messages += _write_parquet(folder, name, partition, messages, (start, end), facts.identity)
        copied.intervals[partition] = (start, end)
    return copied


def _consume(cluster: KafkaCluster, name: str, partition: int, interval: Interval) -> Iterator[Message]:
    """The committed records of an interval, in order."""
    settings = {
        **librdkafka_settings(cluster.settings),
        "group.id": "tidelake-recording",  # the client wants a name; nothing is ever stored under it
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "log_level": 0,
    }
    consumer, (start, end) = Consumer(settings), interval
    silent_s = 0.0
    try:
        consumer.assign([TopicPartition(name, partition, start)])
        while True:
            message = consumer.poll(_POLL_S)
            silent_s = silent_s + _POLL_S if message is None else 0.0
            if silent_s > cluster.settings.request_timeout_s:
                raise TopicUnreachable(name, cluster.settings.bootstrap_servers, f"no answer for {silent_s:.0f} s")
            if message is None:
                continue
            problem = message.error()
            if problem is not None and problem.code() != KafkaError._PARTITION_EOF:
                raise TopicUnreachable(name, cluster.settings.bootstrap_servers, problem.str())
            if problem is not None or message.offset() >= end:
                return
            yield message
            if message.offset() == end - 1:
                return
    finally:
        consumer.close()


def _write_parquet(
    folder: Path, name: str, partition: int, messages: Iterator[Message], interval: Interval, identity: int | None
) -> int:
    """Write an interval as files that each say which offsets they stand for; together they leave none out."""
    written, start = 0, interval[0]
    rows: list[dict[str, Any]] = []
    for message in messages:
        if len(rows) == MESSAGES_PER_FILE:
            _write_part(folder, rows, partition, (start, message.offset()), identity)
            start, rows = message.offset(), []
        rows.append(_row_of(name, message))
        written += 1
    _write_part(folder, rows, partition, (start, interval[1]), identity)
    return written


def _write_part(
    folder: Path, rows: list[dict[str, Any]], partition: int, interval: Interval, identity: int | None
) -> None:
    said = {COVERED_OFFSETS: json.dumps({partition: interval})}
    if identity is not None:
        said[TOPIC_IDENTITY] = str(identity)
    table = pa.Table.from_pylist(rows, schema=TOPIC_SCHEMA.with_metadata(said))
    path = folder / f"part-{partition:05d}-{interval[0]:019d}.parquet"
    unfinished = path.with_name(f"_{path.name}")  # a reader of topics takes such a name for one not yet there
    pq.write_table(table, unfinished, compression="zstd")
    unfinished.replace(path)


def _row_of(name: str, message: Message) -> dict[str, Any]:
    stamp = _timestamp_of(message)
    return {
        "key": message.key(),
        "value": message.value(),
        "topic": name,
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": None if stamp is None else stamp * 1000,
        "headers": _headers_of(message),
    }


def _timestamp_of(message: Message) -> int | None:
    kind, stamp = message.timestamp()
    return int(stamp) if kind else None


def _headers_of(message: Message) -> list[dict[str, Any]] | None:
    headers = message.headers()
    return None if headers is None else [{"key": key, "value": value} for key, value in headers]


def _write_lines(path: Path, messages: Iterator[Message], interval: Interval) -> int:
    """Write an interval as lines that a person can read and that give the same bytes back."""
    unfinished = path.with_name(f"_{path.name}")
    written, expected = 0, interval[0]
    with unfinished.open("w", encoding="utf-8") as lines:
        for message in messages:
            if message.offset() != expected:
                break
            lines.write(_line_of(message) + "\n")
            written, expected = written + 1, expected + 1
    if expected != interval[1]:
        unfinished.unlink()
        raise RuleBroken(
            f"offset {expected} of partition {path.stem} has no record, which JSON lines cannot say",
            "record as Parquet",
        )
    unfinished.replace(path)
    return written


def _line_of(message: Message) -> str:
    parts = [f'"offset": {message.offset()}']
    stamp, headers = _timestamp_of(message), _headers_of(message)
    if stamp is not None:
        parts.append(f'"timestamp_ms": {stamp}')
    parts += [_stated(name, data) for name, data in (("key", message.key()), ("value", message.value()))]
    if headers is not None:
        stated = [
            f'{{"key": {json.dumps(one["key"])}, {_stated("value", one["value"], text=True)}}}' for one in headers
        ]
        parts.append(f'"headers": [{", ".join(stated)}]')
    return "{" + ", ".join(parts) + "}"


def _stated(name: str, data: bytes | None, *, text: bool = False) -> str:
    """A field that gives these bytes back: as the object that they are, as text, or else in base64."""
    if data is None:
        return f'"{name}": null'
    try:
        as_text = data.decode("utf-8")
    except UnicodeDecodeError:
        return f'"{name}_b64": "{base64.b64encode(data).decode("ascii")}"'
    if not text and data.startswith(b"{") and data.endswith(b"}") and b"\n" not in data and b"\r" not in data:
        stated = f'"{name}": {as_text}'
        if _gives_back(stated, name, data):
            return stated
    return f'"{name}": {json.dumps(as_text, ensure_ascii=False)}'


def _gives_back(stated: str, name: str, data: bytes) -> bool:
    """Whether a line with this field is read as these bytes; one that is no JSON, or has a name twice, is not."""
    try:
        return bool(parse_line(f'{{"offset": 0, {stated}}}'.encode())[name] == data)
    except (ValueError, RecursionError):
        return False


def _check_same_topic(folder: Path, name: str, identity: int | None) -> None:
    """Refuse to continue the recording of a topic that was made anew."""
    for path in sorted(folder.glob("part-*.parquet"))[-1:]:
        recorded = (pq.read_schema(path).metadata or {}).get(TOPIC_IDENTITY.encode())
        if recorded is not None and identity is not None and int(recorded) != identity:
            raise RuleBroken(
                f"{folder} is of another topic '{name}', which was deleted and made anew", "record into another folder"
            )
