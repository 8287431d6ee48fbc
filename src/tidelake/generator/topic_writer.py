"""Writes files: a topic in the shape of Spark's Kafka source, and what stands beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tidelake.errors import RuleBroken

TOPIC_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
_FIRST_TIMESTAMP_US = 1_735_689_600_000_000  # the beginning of 2025
_US_BETWEEN_MESSAGES = 1_000


class Held(NamedTuple):
    """What a topic's folder holds: messages, files, and for each partition the next offset."""

    messages: int
    files: int
    next_offsets: dict[int, int]


def look_into(folder: Path) -> Held:
    """Tell what a topic holds; nothing where there is no folder.

    Raises:
        RuleBroken: it holds something that was not written here.
    """
    messages, files = 0, 0
    next_offsets: dict[int, int] = {}
    for path in sorted(folder.iterdir()) if folder.exists() else []:
        if not (path.name.startswith("part-") and path.suffix == ".parquet"):
            raise RuleBroken(f"{path} was not written by this generator", "take it away, or choose another name")
        table = pq.read_table(path, columns=["partition", "offset"])
        ends = table.group_by("partition").aggregate([("offset", "max")])
        for partition, last in zip(ends["partition"].to_pylist(), ends["offset_max"].to_pylist(), strict=True):
            next_offsets[partition] = max(next_offsets.get(partition, 0), last + 1)
        messages += table.num_rows
        files += 1
    return Held(messages, files, next_offsets)


def check_is_empty(folder: Path) -> None:
    """Refuse a folder with anything in it.

    Raises:
        RuleBroken: there is something.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RuleBroken(f"{folder} is not empty", "choose another name or folder, or continue the topic with --append")


def write_topic(
    folder: Path,
    values: Sequence[bytes | None],
    held: Held,
    partitions: int,
    messages_per_file: int,
    progress: Callable[[int], None],
) -> int:
    """Write messages behind what the topic holds, to the partitions by turns.

    Args:
        folder: the topic; its name is the topic's name.
        values: of the messages, in order; None is a null record.
        held: what the topic holds now.
        partitions: how many there are.
        messages_per_file: at most.
        progress: is told how many messages are written.

    Returns:
        How many files were written.
    """
    folder.mkdir(parents=True, exist_ok=True)
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
        path = folder / f"part-{held.files + files:05d}.parquet"
        _write_parquet(path, _topic_table(folder.name, rows))
        files += 1
        progress(first + len(part))
    return files


def write_beside(schema: tuple[Path, Any], updates: tuple[Path, pa.Table], summary: tuple[Path, Any]) -> None:
    """Write the record schema, the true updates and their summary, the summary last."""
    for path, _ in (schema, updates, summary):
        path.parent.mkdir(parents=True, exist_ok=True)
    _write_json(*schema)
    _write_parquet(*updates)
    _write_json(*summary)


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


def _write_parquet(path: Path, table: pa.Table) -> None:
    unfinished = path.with_name(f"_{path.name}")  # a reader of topics takes such a name for one not yet there
    pq.write_table(table, unfinished, compression="zstd")
    unfinished.replace(path)


def _write_json(path: Path, value: Any) -> None:
    unfinished = path.with_name(f"_{path.name}")
    unfinished.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    unfinished.replace(path)
