"""Makes recordings of Kafka topics, as file topics with the same bytes and offsets; `producing` plays them back.

A recording keeps keys, values, headers, timestamps, partitions and offsets. Its Parquet files state which offsets they
cover, so offsets without a record (because of transactions or compaction) leave no gap.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Message

from tidelake.errors import CopyRefused
from tidelake.protocol.intervals import Interval
from tidelake.settings.object_store import ObjectStorePlace
from tidelake.storage import blobs
from tidelake.storage.location import Location, Place
from tidelake.store.sweep import delete_unfinished
from tidelake.topic.cluster import KafkaCluster
from tidelake.topic.consuming import consume
from tidelake.topic.files import FileTopic, open_listed
from tidelake.topic.lines import LINE_BYTES_MAX, parse_line
from tidelake.topic.recorded_file import TOPIC_IDENTITY, write_recorded_file
from tidelake.topic.shape import TOPIC_SCHEMA

Format = Literal["parquet", "jsonl"]
MESSAGES_PER_FILE = 50_000
_UNFINISHED_S = 3600
"""The age from which an unfinished file counts as left by a killed recording; writing a file takes seconds."""
_BUFFER_BYTES = 1 << 20
_PART_NAME = re.compile(r"part-.*\.parquet", re.DOTALL)


@dataclass
class Copied:
    """The result of recording or playing."""

    messages: int = 0
    intervals: dict[int, Interval] = field(default_factory=dict)
    """The offsets covered, by partition."""


def record_topic(cluster: KafkaCluster, name: str, place: Place | ObjectStorePlace, form: Format = "parquet") -> Copied:
    """Record those messages of a topic that the folder does not have yet. Recordings in Parquet can be continued.

    Raises:
        TopicMissing: the topic does not exist.
        CopyRefused: the folder holds an earlier topic of this name, or more of a partition than the topic has; another
            process has recorded the same offsets into the folder in the meantime; or, for JSON lines, the folder
            already holds messages, an offset has no record, or a line is too long.
        TopicUnreachable: the brokers do not answer, or stop answering.

    Cost: as Parquet, bounded memory; as JSON lines, one partition at a time in memory.
    """
    folder = blobs.root_of(place)
    blobs.make_folder(folder)
    _sweep(folder)
    facts = cluster.topic(name)
    recorded = {} if blobs.is_empty(folder) else FileTopic(folder).end_offsets()
    if form == "jsonl" and recorded:
        raise CopyRefused(f"{folder} already holds messages, and its files never change", "record into an empty folder")
    _check_same_topic(folder, name, facts.identity)
    copied = Copied()
    for partition, (first, end) in sorted(facts.offsets.items()):
        start = max(first, recorded.get(partition, 0))
        if recorded.get(partition, 0) > end:
            raise CopyRefused(
                f"{folder} has more of partition {partition} than the topic '{name}', which ends at {end}",
                "record into an empty folder",
            )
        if start == end:
            continue
        messages = consume(cluster, name, partition, (start, end))
        if form == "jsonl":
            copied.messages += _write_lines(folder, partition, messages, (start, end))
        else:
            copied.messages += _write_parquet(folder, name, partition, messages, (start, end), facts.identity)
        copied.intervals[partition] = (start, end)
    return copied


def _sweep(folder: Location) -> None:
    """Delete the unfinished files of recordings that were killed. An object store has none."""
    if folder.is_local:
        delete_unfinished(blobs.list_folder(folder).blobs, blobs.now_s(folder) - _UNFINISHED_S)


def _write_parquet(
    folder: Location, name: str, partition: int, messages: Iterator[Message], interval: Interval, identity: int | None
) -> int:
    """Write an interval as files that together cover each of its offsets."""
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
    folder: Location, rows: list[dict[str, Any]], partition: int, interval: Interval, identity: int | None
) -> None:
    path = folder / f"part-{partition:05d}-{interval[0]:019d}.parquet"
    with _refusing_second_recorder(path):
        write_recorded_file(path, pa.Table.from_pylist(rows, schema=TOPIC_SCHEMA), {partition: interval}, identity)


@contextmanager
def _refusing_second_recorder(path: Location) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise CopyRefused(
            f"another process has just recorded {path}",
            "record again: the recording then continues after these messages",
        ) from error


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


def _write_lines(folder: Location, partition: int, messages: Iterator[Message], interval: Interval) -> int:
    """Write an interval as readable lines that parse to the same bytes."""
    expected = interval[0]
    path = folder / f"{partition}.jsonl"
    with _refusing_second_recorder(path), blobs.creating(path) as sink:
        lines = pa.BufferedOutputStream(sink, _BUFFER_BYTES)
        for message in messages:
            if message.offset() != expected:
                break
            line = _line_of(message).encode()
            if len(line) > LINE_BYTES_MAX:
                raise CopyRefused(
                    f"offset {expected} of partition {partition} needs a line of {len(line)} bytes, more than "
                    f"{LINE_BYTES_MAX}",
                    "record as Parquet",
                )
            lines.write(line + b"\n")
            expected += 1
        if expected != interval[1]:
            raise CopyRefused(
                f"offset {expected} of partition {partition} has no record, which JSON lines cannot express",
                "record as Parquet",
            )
        lines.flush()
    return expected - interval[0]


def _line_of(message: Message) -> str:
    parts = [f'"offset": {message.offset()}']
    stamp, headers = _timestamp_of(message), _headers_of(message)
    if stamp is not None:
        parts.append(f'"timestamp_ms": {stamp}')
    parts += [_field(name, data) for name, data in (("key", message.key()), ("value", message.value()))]
    if headers is not None:
        objects = [
            f'{{"key": {json.dumps(header["key"])}, {_field("value", header["value"], text=True)}}}'
            for header in headers
        ]
        parts.append(f'"headers": [{", ".join(objects)}]')
    return "{" + ", ".join(parts) + "}"


def _field(name: str, data: bytes | None, *, text: bool = False) -> str:
    """Return a field that parses to these bytes: an object if possible and `text` is false; else text or base64."""
    if data is None:
        return f'"{name}": null'
    try:
        as_text = data.decode("utf-8")
    except UnicodeDecodeError:
        return f'"{name}_b64": "{base64.b64encode(data).decode("ascii")}"'
    if not text and data.startswith(b"{") and data.endswith(b"}") and b"\n" not in data and b"\r" not in data:
        as_object = f'"{name}": {as_text}'
        if _parses_to(as_object, name, data):
            return as_object
    return f'"{name}": {json.dumps(as_text, ensure_ascii=False)}'


def _parses_to(field: str, name: str, data: bytes) -> bool:
    """Return whether a line with this field parses to these bytes; false if the field is invalid or repeats a name."""
    try:
        return bool(parse_line(f'{{"offset": 0, {field}}}'.encode())[name] == data)
    except (ValueError, RecursionError):
        return False


def _check_same_topic(folder: Location, name: str, identity: int | None) -> None:
    """Refuse to continue the recording of a topic that was recreated."""
    parts = [blob.location for blob in blobs.list_folder(folder).blobs if _PART_NAME.fullmatch(blob.location.name)]
    for path in parts[-1:]:
        recorded = (pq.read_schema(open_listed(path)).metadata or {}).get(TOPIC_IDENTITY.encode())
        if recorded is not None and identity is not None and int(recorded) != identity:
            raise CopyRefused(
                f"{folder} is a recording of an earlier topic '{name}', which was deleted and recreated",
                "record into a different folder",
            )
