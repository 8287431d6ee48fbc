"""The demo's six topics, and the `collections.yaml` that describes them.

`prices` is the protocol's published example. `people` has the events that Debezium wrote for a real PostgreSQL table
while sessions changed it; the connector forgot its offset and took a second snapshot. The other four are generated, one
for each family, and mangled in many ways.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tidelake.codec.avro import AvroCodec
from tidelake.codec.json import AvroJsonCodec
from tidelake.generator.generate import generate
from tidelake.generator.options import GenerateOptions
from tidelake.generator.truth import Truth
from tidelake.protocol.replay import split_lines

EXAMPLES = Path(__file__).parents[1]
PUBLISHED = EXAMPLES / "published" / "stream.avro.jsonl"
CAPTURE = EXAMPLES / "demo" / "people"

PRICE: dict[str, Any] = {
    "type": "record",
    "name": "data",
    "fields": [{"name": "id", "type": "long"}, {"name": "price", "type": ["null", "int"]}],
}
PERSON: dict[str, Any] = {
    "type": "record",
    "name": "person",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": "string"},
        {"name": "big", "type": ["null", "string"]},
        {"name": "bin", "type": ["null", "bytes"]},
        {
            "name": "price",
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}],
        },
        {"name": "seen", "type": ["null", {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}]},
        {"name": "day", "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}]},
        {"name": "note", "type": ["null", "string"]},
    ],
}

LARGE = {"orders": "plain", "visits": "append_only", "stock": "upsert", "accounts": "debezium"}
"""The generated topics, each with its family."""
MANGLED: dict[str, Any] = {
    "times": 1_000,
    "writers": 2,
    "copies": 0.3,
    "shuffle": "full",
    "split": 0.3,
    "undecodable": 24,
    "nulls": 6,
    "partitions": 2,
    "empty_times": 0.0,
}
"""Two redundant writers with batches of their own; messages are shuffled, 30% are repeated, some are unusable."""


def write_config(folder: Path, names: Iterable[str] = ()) -> Path:
    """Write `collections.yaml` with the small collections and with the large ones in `names`."""
    large = {
        name: {
            "family": family,
            "topic": name,
            "schema": f"{name}.avsc",
            "messages_per_tick_max": 3_000,
            **({"key": "id"} if family in ("upsert", "debezium") else {}),
        }
        for name, family in LARGE.items()
        if name in names
    }
    document = {
        "store": "store",
        "topics": "topics",
        "data_docs": "data_docs",
        "collections": {
            "prices": {"family": "plain", "topic": "prices", "schema": PRICE},
            "people": {
                "framing": "reclock",
                "envelope": "debezium",
                "topic": "people",
                "format": "json",
                "key": "id",
                "schema": PERSON,
            },
            **large,
        },
    }
    path = folder / "collections.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path


def write_published(topics: Path) -> int:
    """Write the published example as a file topic of bare Avro; return the number of its messages."""
    reader, writer = AvroJsonCodec(PRICE), AvroCodec(PRICE)
    values = [writer.encode(reader.decode(line)) for line in split_lines(PUBLISHED.read_bytes())]
    folder = topics / "prices"
    folder.mkdir(parents=True)
    columns = {
        "key": pa.array([None] * len(values), pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array(["prices"] * len(values)),
        "partition": pa.array([0] * len(values), pa.int32()),
        "offset": pa.array(range(len(values)), pa.int64()),
        "timestamp": pa.array([0] * len(values), pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(columns), folder / "part-0.parquet")
    return len(values)


def moments() -> list[dict[str, Any]]:
    """Return the end offsets of the captured topic at three moments, and the rows that PostgreSQL had then."""
    recorded: list[dict[str, Any]] = json.loads(gzip.decompress((CAPTURE / "moments.json.gz").read_bytes()))
    return recorded


def write_capture_until(topics: Path, moment: int) -> int:
    """Add the messages that were captured between the previous moment and this one; return their number."""
    folder = topics / "people"
    folder.mkdir(parents=True, exist_ok=True)
    ends = [recorded["offsets"] for recorded in moments()]
    written = 0
    for partition, end in ends[moment].items():
        start = ends[moment - 1][partition] if moment else 0
        lines = gzip.decompress((CAPTURE / f"{partition}.jsonl.gz").read_bytes()).splitlines(keepends=True)[start:end]
        # An existing file must not change, so each moment has its own files; leading zeros do not change the partition.
        (folder / f"{partition.zfill(moment + 1)}.jsonl").write_bytes(b"".join(lines))
        written += len(lines)
    return written


def write_large(folder: Path, name: str, updates: int, progress: Callable[[str, int, int], None]) -> Truth:
    """Generate a mangled topic and its ground truth."""
    options = GenerateOptions(
        name=name,
        family=LARGE[name],  # type: ignore[arg-type]
        seed=list(LARGE).index(name),
        updates=updates,
        keys=max(1, updates // 4),
        **MANGLED,
    )
    return generate(options, folder / "topics", folder, progress).truth
