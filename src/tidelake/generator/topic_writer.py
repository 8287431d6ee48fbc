"""Writes a file topic in the schema of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tidelake.errors import GeneratorRefused
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.topic.shape import TOPIC_SCHEMA

_FIRST_TIMESTAMP_US = 1_735_689_600_000_000  # the beginning of 2025
_US_BETWEEN_MESSAGES = 1_000


class TopicContents(NamedTuple):
    """The state of a topic's folder: the number of messages and of files, and the next offset of each partition."""

    messages: int
    files: int
    next_offsets: dict[int, int]


def read_contents(folder: Location) -> TopicContents:
    """Return the contents of a topic; an absent folder has none.

    Raises:
        GeneratorRefused: the folder holds something that this module did not write.
    """
    messages, files = 0, 0
    next_offsets: dict[int, int] = {}
    listing = blobs.list_folder(folder)
    for path in sorted([*(blob.location for blob in listing.blobs), *listing.folders, *listing.others]):
        if not (path.name.startswith("part-") and path.suffix == ".parquet"):
            raise GeneratorRefused(f"{path} was not written by this generator", "remove it, or choose another name")
        table = pq.read_table(blobs.open_file(path), columns=["partition", "offset"])
        ends = table.group_by("partition").aggregate([("offset", "max")])
        for partition, last in zip(ends["partition"].to_pylist(), ends["offset_max"].to_pylist(), strict=True):
            next_offsets[partition] = max(next_offsets.get(partition, 0), last + 1)
        messages += table.num_rows
        files += 1
    return TopicContents(messages, files, next_offsets)


def check_is_empty(folder: Location) -> None:
    """Check that a folder is empty or absent.

    Raises:
        GeneratorRefused: the folder is not empty.
    """
    if blobs.exists(folder) or blobs.list_names(folder):
        raise GeneratorRefused(
            f"{folder} is not empty", "choose another name or folder, or continue the topic with --append"
        )


def write_topic(
    folder: Location,
    values: Sequence[bytes | None],
    held: TopicContents,
    partitions: int,
    messages_per_file: int,
    progress: Callable[[int], None],
) -> int:
    """Append messages to the topic, distributed round-robin over its partitions.

    Args:
        folder: the topic's folder; its name is that of the topic.
        values: the values of the messages, in order; None is a null record.
        held: the topic's current contents.
        partitions: the number of partitions.
        messages_per_file: the maximum number of messages in a file.
        progress: receives the number of messages written so far.

    Returns:
        The number of files written.
    """
    blobs.make_folder(folder)
    next_offsets = dict(held.next_offsets)
    files = 0
    for first in range(0, len(values), messages_per_file):
        part = values[first : first + messages_per_file]
        rows = []
        for number, value in enumerate(part, start=first):
            partition = number % partitions
            offset = next_offsets.get(partition, 0)
            next_offsets[partition] = offset + 1
            rows.append((partition, offset, held.messages + number, value))
        rows.sort(key=lambda row: row[:2])
        with blobs.writing(folder / f"part-{held.files + files:05d}.parquet") as sink:
            pq.write_table(_topic_table(folder.name, rows), sink, compression="zstd", write_page_checksum=True)
        files += 1
        progress(first + len(part))
    return files


def _topic_table(name: str, rows: list[tuple[int, int, int, bytes | None]]) -> pa.Table:
    stamps = [_FIRST_TIMESTAMP_US + number * _US_BETWEEN_MESSAGES for _, _, number, _ in rows]
    columns = [
        pa.nulls(len(rows), pa.binary()),
        pa.array([value for _, _, _, value in rows], pa.binary()),
        pa.array([name] * len(rows), pa.string()),
        pa.array([partition for partition, _, _, _ in rows], pa.int32()),
        pa.array([offset for _, offset, _, _ in rows], pa.int64()),
        pa.array(stamps, pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.nulls(len(rows), TOPIC_SCHEMA.field("headers").type),
    ]
    return pa.table(columns, schema=TOPIC_SCHEMA)
