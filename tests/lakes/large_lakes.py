"""Lakes whose runs are files of several MiB, with several row groups, and many pages in each column."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from copy import copy
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.lakes.lake import Lake, encode, progress
from tests.lakes.raw_lake import RawLake
from tidelake.settings.lake import load_settings
from tidelake.store.files import HASHED_BYTES_MAX, RunFile

ROWS, LATER_ROWS = 60_000, 30_000
TEXT_BYTES = 60
WORDS = 500
"""The number of different words, which are few enough for a dictionary."""
_FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "word", "type": "string"},
    {"name": "text", "type": ["null", "string"]},
]
_SCHEMA = {"type": "record", "name": "data", "fields": _FIELDS}
_WRITING = {
    "parquet.block.size": str(1 << 20),
    "parquet.page.size": str(1 << 16),
    "parquet.page.row.count.limit": "4000",
}


def writing_session(spark: SparkSession) -> SparkSession:
    """A session that writes small row groups and pages, so that files of several MiB have many of both."""
    session = spark.newSession()
    settings = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false", **_WRITING}
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


def linked_copy(lake: Lake, root: Path) -> Lake:
    """Copy a lake. The copied files are links: tests can replace them, but must not write to them."""
    shutil.copytree(lake.root, root, copy_function=os.link)
    linked = copy(lake)
    linked.root, linked.topic, linked.file = root, root / lake.topic.relative_to(lake.root), root / lake.file.name
    linked.settings = load_settings(linked.file)
    return linked


def large_files(lake: Lake) -> list[RunFile]:
    """The files of `updates` whose digest in the log covers only their footer."""
    return [file for file in lake.table.files() if file.bytes > HASHED_BYTES_MAX]


def check_structure(lake: Lake) -> None:
    """Check that there are large files, that they have several row groups, and that one has dictionaries."""
    large = large_files(lake)
    assert len(large) >= 2, [file.bytes for file in lake.table.files()]
    metadata = [pq.read_metadata((lake.table.path / file.path).local) for file in large]
    assert all(each.num_row_groups > 1 for each in metadata), [each.num_row_groups for each in metadata]
    chunks = [each.row_group(0).column(column) for each in metadata for column in range(each.num_columns)]
    assert any(chunk.has_dictionary_page for chunk in chunks)


def _row(random: Random, number: int) -> dict[str, Any]:
    return {"id": number, "word": f"word {number * 7919 % WORDS}", "text": random.randbytes(TEXT_BYTES).hex()}


def plain(root: Path, spark: SparkSession) -> Lake:
    """Rows at the times 0 to 3, which are merged, and at 4 to 6, which are not; at time 6, some rows are deleted."""
    lake, random = Lake(root, spark, schema=_SCHEMA, keep=6), Random(1)
    rows = [_row(random, number) for number in range(ROWS + LATER_ROWS)]

    def send(numbers: range, lower: int, upper: int, gone: range = range(0)) -> None:
        counts: dict[int, int] = {}
        batch: list[dict[str, Any]] = [
            {"data": rows[number], "time": lower + number % (upper - lower), "diff": 1} for number in numbers
        ]
        batch += [{"data": rows[number], "time": upper - 1, "diff": -1} for number in gone]
        for update in batch:
            counts[update["time"]] = counts.get(update["time"], 0) + 1
        lake.send(*(encode(batch[start : start + 500], _SCHEMA) for start in range(0, len(batch), 500)))
        lake.send(progress([lower], [upper], counts))
        lake.run()

    send(range(ROWS), 0, 4)
    lake.compact()
    send(range(ROWS, ROWS + LATER_ROWS), 4, 7, gone=range(1_000))
    return lake


def upsert(root: Path, spark: SparkSession) -> Lake:
    """Rows by key, many of which are stated twice."""
    return _by_key(RawLake(root, spark, envelope="upsert", key="id", schema=_SCHEMA), lambda row, place: row)


def debezium(root: Path, spark: SparkSession) -> Lake:
    """Change events by key, in the database's own order."""

    def event(row: dict[str, Any], place: int) -> dict[str, Any]:
        sequence = json.dumps([str(place - 1), str(place)])
        source = {"connector": "postgresql", "lsn": place, "sequence": sequence, "snapshot": "false"}
        return {"before": None, "after": row, "source": source, "op": "u", "ts_ms": place}

    return _by_key(RawLake(root, spark, envelope="debezium", key="id", schema=_SCHEMA), event)


def _by_key(lake: RawLake, value_of: Callable[[dict[str, Any], int], Any]) -> Lake:
    random, place = Random(2), 1_000
    for tick, numbers in enumerate((range(ROWS), range(0, 2 * LATER_ROWS, 2))):
        records = []
        for number in numbers:
            place += 10
            row = _row(random, number)
            records.append({"key": {"id": number}, "value": value_of(row, place)})
        lake.put(*records)
        lake.ingest()
        if tick == 0:
            lake.compact()
    return lake


LARGE: dict[str, Callable[[Path, SparkSession], Lake]] = {"plain": plain, "upsert": upsert, "debezium": debezium}
