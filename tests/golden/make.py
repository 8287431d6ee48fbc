"""The script that made the golden store with an earlier version; later versions have to show the same results.

    python -m tests.golden.make

Topics are written by hand; the command line and the jobs do everything else. A part of each topic (except that of
`closed`) is left unread, so that the store can be continued. Minted times come from the clock, so a second run makes a
different store.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tests.golden.shown import ARCHIVE, EXPECTED, FOLDER, Shown, command, go_on, job, unpack

MADE_AT_S = 1_767_225_600
"""The modification time of all files, so long ago that log cleanup and the sweep of dead runs always apply to them."""

Schema = dict[str, Any]


def record(name: str, /, **columns: Any) -> Schema:
    """An Avro record schema."""
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": column, "type": kind} for column, kind in columns.items()],
    }


TEXT = ["null", "string"]
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}
MOMENT = {"type": "long", "logicalType": "timestamp-micros"}
KIND = {"type": "enum", "name": "kind", "symbols": ["bought", "sold"]}
PLACE = record("place", lat="double", lon="double")

ROW = record("row", id="long", name=TEXT, price=["null", PRICE])
REVERSED = {**ROW, "fields": ROW["fields"][::-1]}
ARTICLE = record("article", shop="string", article="long", pieces="long", changed=["null", MOMENT])
MOVEMENT = record(
    "movement",
    id="long",
    name=TEXT,
    price=["null", PRICE],
    moved_at=MOMENT,
    day=["null", {"type": "int", "logicalType": "date"}],
    kind=KIND,
    tags={"type": "array", "items": "string"},
    place=["null", PLACE],
    either=["null", "long", "string"],
    weight="double",
    share="float",
    pieces="int",
    is_last="boolean",
    raw="bytes",
)
EVENT = {
    "type": "record",
    "name": "event",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "row"]},
        {"name": "op", "type": "string"},
    ],
}
NAMES = ("Möwe", "Ebbe & Flut", "海", 'a "quoted" word', "line\nbreak", "🌊", "", None)
GARBAGE = b"\x07garbage"


def row(number: int, price: str | None = "1.250") -> dict[str, Any]:
    """A row of `ROW`."""
    price_of = None if price is None else Decimal(price)
    return {"id": number, "name": NAMES[number % len(NAMES)], "price": price_of}


def movement(number: int) -> dict[str, Any]:
    """A row of `MOVEMENT`, with a wide range of the values that its types can hold."""
    return {
        **row(number, f"{number}.5" if number % 3 else None),
        "moved_at": datetime(1969 + number, 1, 31, 12, 0, 0, number, tzinfo=UTC),
        "day": date(1900 + number, 2, 28) if number % 2 else None,
        "kind": KIND["symbols"][number % 2],
        "tags": ["a", "ü"][: number % 3],
        "place": {"lat": 54.1 + number, "lon": -0.1} if number % 2 else None,
        "either": (None, number, str(number))[number % 3],
        "weight": (0.1 * number, float("nan"), float("inf"), -0.0)[number % 4],
        "share": 1.5 * number,
        "pieces": -(2**31) + number,
        "is_last": number % 2 == 0,
        "raw": bytes([number, 0, 255]),
    }


def avro(schema: Any, value: Any, schema_id: int | None = None) -> bytes:
    """The bytes of a value, preceded by the schema id if there is one."""
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), value)
    return (b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")) + written.getvalue()


class Protocol:
    """Writes CDCv2 messages whose data has a record schema."""

    def __init__(self, schema: Schema, schema_id: int | None = None) -> None:
        space = {"namespace": "com.materialize.cdc"}
        update = record("update", data=schema, time="long", diff="long") | space
        counts = record("counts", time="long", count="long")
        longs = {"type": "array", "items": "long"}
        progress = record("progress", lower=longs, upper=longs, counts={"type": "array", "items": counts}) | space
        self.schema, self.schema_id = [{"type": "array", "items": update}, progress], schema_id

    def updates(self, *triples: tuple[dict[str, Any], int, int]) -> bytes:
        """A message with updates, each as `(data, time, diff)`."""
        batch = [{"data": data, "time": time, "diff": diff} for data, time, diff in triples]
        return avro(self.schema, batch, self.schema_id)

    def progress(self, lower: int, upper: int | None, counts: Mapping[int, int]) -> bytes:
        """A progress statement; without an upper, it ends the stream."""
        entries = [{"time": time, "count": count} for time, count in counts.items()]
        ends = {"lower": [lower], "upper": [] if upper is None else [upper], "counts": entries}
        return avro(self.schema, ends, self.schema_id)


class Topic:
    """A file topic that is written by hand."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder, self.ends = folder, dict[int, int]()

    def put(self, *messages: Any, partition: int = 0) -> None:
        """Append messages as lines: bytes, None, a JSON object, or the fields of a whole line without its offset."""
        with (self.folder / f"{partition}.jsonl").open("a", encoding="utf-8") as lines:
            for offset, line in self._placed(messages, partition):
                lines.write(json.dumps({"offset": offset, "timestamp_ms": 1_767_000_000_000 + offset, **line}) + "\n")

    def put_parquet(self, *values: bytes | None, partition: int = 0) -> None:
        """Append messages as a Parquet file."""
        start = self.ends.get(partition, 0)
        self.ends[partition] = start + len(values)
        columns = {
            "key": pa.nulls(len(values), pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array([self.folder.name] * len(values)),
            "partition": pa.array([partition] * len(values), pa.int32()),
            "offset": pa.array(range(start, start + len(values)), pa.int64()),
            "timestamp": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * len(values), pa.timestamp("us", "UTC")),
        }
        pq.write_table(pa.table(columns), self.folder / f"part-{partition}-{start}.parquet", compression="zstd")

    def skip(self, offsets: int, partition: int = 0) -> None:
        """Skip offsets, as if their messages were lost."""
        self.ends[partition] = self.ends.get(partition, 0) + offsets

    def _placed(self, messages: Iterable[Any], partition: int) -> Iterator[tuple[int, dict[str, Any]]]:
        for message in messages:
            offset = self.ends.get(partition, 0)
            self.ends[partition] = offset + 1
            if isinstance(message, bytes):
                yield offset, {"value_b64": base64.b64encode(message).decode("ascii")}
            elif isinstance(message, dict) and set(message) & {"key", "key_b64", "value", "value_b64"}:
                yield offset, message
            else:
                yield offset, {"value": message}


class Collection:
    """One collection while its store is made."""

    def __init__(self, root: Path, document: dict[str, Any], name: str, topics: Iterable[str] = ()) -> None:
        self.root, self.document, self.name, self.config = root, document, name, root / "collections.yaml"
        names = list(topics) or [name]
        self.topics = [Topic(root / "topics" / topic) for topic in names]
        self.topic = self.topics[0]
        self.document["collections"][name] = {"topic": names if len(names) > 1 else names[0]}
        self.decisions: list[list[str]] = []
        """The decisions that are stored when the store is continued."""

    def configure(self, schema: Schema | None = None, **settings: Any) -> None:
        """Change settings; None removes a setting. The schema is written to a file of its own."""
        block = self.document["collections"][self.name]
        block |= settings
        if schema is not None:
            block["schema"] = f"schemas/{self.name}.avsc"
            (self.root / "schemas").mkdir(exist_ok=True)
            (self.root / block["schema"]).write_text(json.dumps(schema, indent=1), encoding="utf-8")
        for setting in [setting for setting, value in block.items() if value is None]:
            del block[setting]
        text = yaml.safe_dump(self.document, sort_keys=False, allow_unicode=True)
        self.config.write_text(text, encoding="utf-8")

    def run(self, *jobs: str, status: int = 0) -> None:
        """Run jobs, and assert the exit status of each."""
        for name in jobs:
            report = job(name, self.config, self.name)
            assert report["status"] == status, report

    def resolve(self, *words: object) -> None:
        """Store a decision."""
        status, _ = command("resolve", self.name, *words, "--reason", "asked the source", "--config", self.config)
        assert status == 0, words

    def acknowledge(self, partition: int, offset: int) -> None:
        """Acknowledge a quarantined message."""
        self.resolve("--quarantined", f"{self.topic.folder.name}:{partition}:{offset}")

    def shown(self, folder: str = "", **more: Any) -> Shown:
        return Shown(self.config, self.name, folder, **more)


def discard(data: Mapping[str, Any], diff: int) -> str:
    """A statement to discard, as `resolve --discard` accepts it."""
    return json.dumps({"data": data, "diff": diff})


# Topics in the protocol's own framing.


def plain(collection: Collection) -> None:
    """All types, many commits and a checkpoint, four kinds of decisions, a gap, late statements, retention."""
    protocol, topic = Protocol(MOVEMENT), collection.topic
    collection.configure(MOVEMENT, family="plain", keep=5, messages_per_tick_max=1)
    for time in range(1, 18):
        data = movement(time)
        topic.put(protocol.updates((data, time, 2), (movement(time - 1), time, -1)), partition=time % 2)
        topic.put(protocol.progress(time if time > 1 else 0, time + 1, {time: 2}))
        if time % 4 == 0:
            topic.put(protocol.updates((data, time, 2)))
    collection.run("ingest")  # a commit for each message: after 32 of them there is a checkpoint
    collection.configure(messages_per_tick_max=None)
    topic.put(GARBAGE, None)
    quarantined = topic.ends[0] - 2
    collection.run("ingest", "seal", "validate", "compact", "current")
    collection.acknowledge(0, quarantined)

    # A time with two counts, and an update with two diffs.
    topic.put(protocol.updates((movement(30), 20, 1), (movement(31), 20, 1)), protocol.progress(18, 21, {20: 2}))
    topic.put(protocol.progress(18, 21, {20: 3}), partition=1)
    topic.put(
        protocol.updates((movement(36), 22, 1)),
        protocol.updates((movement(36), 22, 4)),
        protocol.progress(21, 24, {22: 1}),
    )
    collection.run("ingest", "seal")
    collection.resolve("--time", 20, "--count", 2)
    collection.run("seal")
    collection.resolve("--time", 22, "--discard", discard(_read(movement(36)), 4))
    collection.run("seal")

    # Late: a copy, two contradictions (one is settled), and an update at a time that compaction has merged.
    topic.put(
        protocol.updates((movement(30), 20, 1), (movement(33), 21, 1), (movement(34), 19, 1), (movement(35), 3, 1))
    )
    topic.skip(3)
    topic.put(protocol.updates((movement(40), 25, 3), (movement(41), 26, 1)))
    collection.run("ingest", status=1)
    collection.resolve("--accept-gap", f"plain:0:{topic.ends[0] - 4}-{topic.ends[0] - 1}")
    collection.run("ingest", "seal", "validate")
    collection.resolve("--time", 21, "--discard", discard(_read(movement(33)), 1))
    topic.put(protocol.updates((movement(40), 25, 3)), protocol.progress(24, 30, {25: 1, 26: 2}), GARBAGE + b"2")
    collection.run("ingest", "seal", "compact")
    collection.configure(messages_per_tick_max=40)

    # These messages are not read until the store is continued.
    topic.put(
        protocol.updates((movement(42), 26, 5), (movement(41), 26, 1)),
        protocol.updates((movement(20), 3, 1)),
        b"\x07more",
    )
    topic.put(
        protocol.updates((movement(43), 31, 1), (movement(40), 31, -2)),
        protocol.updates((movement(44), 33, 1)),
        partition=1,
    )
    topic.put(protocol.progress(30, 33, {31: 2}), protocol.updates((movement(41), 26, 1)), partition=1)


def append_only(collection: Collection) -> None:
    """A Parquet topic with two partitions, two schema ids, a retraction, and a decision that the next seal applies."""
    protocol, backwards = Protocol(ROW, 1), Protocol(REVERSED, 2)
    collection.configure(
        ROW,
        family="append_only",
        keep=4,
        encoding="confluent",
        schema_ids={1: _file(collection, "row", ROW), 2: REVERSED},
    )
    put = collection.topic.put_parquet
    put(protocol.updates(*((row(number), number // 3, 1) for number in range(12))))
    put(backwards.updates(*((row(number), number // 3, 1) for number in range(6, 15))), partition=1)
    put(protocol.progress(0, 5, dict.fromkeys(range(5), 3)))
    collection.run("ingest", "seal", "compact", "validate")
    put(backwards.updates(*((row(number, None), 5 + number % 4, 2) for number in range(20, 28))), b"\1\2\3")
    put(protocol.progress(5, 9, dict.fromkeys(range(5, 9), 2)), protocol.updates((row(3), 1, 1)), partition=1)
    collection.run("ingest", "seal", "compact", "validate", "current")
    put(
        protocol.updates((row(30), 9, 1), (row(31), 10, 1)),
        protocol.updates((row(30), 9, -1)),
        protocol.progress(9, 11, {9: 2, 10: 1}),
    )
    collection.run("ingest", "seal")
    collection.resolve("--time", 9, "--count", 1)
    put(
        protocol.updates((row(32), 11, 1), (row(33), 12, 7), (row(31), 10, 1)),
        protocol.progress(11, 14, {11: 1, 12: 1}),
    )
    put(protocol.updates((row(34), 14, 1), (row(5), 1, 1), (row(99), 2, 1)), b"", partition=1)


def upsert(collection: Collection) -> None:
    """A key of two columns, replacements, deletes, and a time that waits for a decision."""

    def item(article: int, pieces: int) -> dict[str, Any]:
        return {"shop": f"shop {article % 2}", "article": article, "pieces": pieces, "changed": None}

    protocol, topic = Protocol(ARTICLE), collection.topic
    collection.configure(ARTICLE, family="upsert", key=["shop", "article"], keep=3)
    topic.put(*(protocol.updates(*((item(number, time), time, 1) for number in range(time, 8))) for time in range(5)))
    topic.put(protocol.updates((item(7, 4), 4, 1)), protocol.progress(0, 5, {time: 8 - time for time in range(5)}))
    collection.run("ingest", "seal", "compact", "current", "validate")
    topic.put(
        protocol.updates((item(1, 1), 5, -1), (item(2, 2), 6, -1), (item(2, 20), 6, 1)),
        protocol.progress(5, 8, {5: 1, 6: 2}),
    )
    topic.put(
        GARBAGE, protocol.updates((item(3, 30), 9, 1)), protocol.updates((item(3, 31), 9, 1), (item(9, 1), 10, 1))
    )
    topic.put(protocol.progress(8, 11, {9: 2, 10: 1}))
    collection.run("ingest", "seal")
    topic.put(protocol.updates((item(7, 4), 4, 1), (item(6, 66), 6, 1)))
    collection.run("ingest", "validate")
    collection.acknowledge(0, 9)
    topic.put(
        protocol.updates((item(9, 1), 10, -1), (item(9, 2), 12, 1), (item(4, 4), 12, -1)),
        protocol.progress(11, 14, {12: 2}),
    )
    topic.put(protocol.updates((item(1, 100), 13, 1)), protocol.updates((item(3, 33), 9, 1)))
    collection.decisions = [
        ["--time", "9", "--discard", discard(item(3, 30), 1)],
        ["--time", "9", "--discard", discard(item(3, 33), 1)],
        ["--time", "9", "--count", "1"],
        ["--time", "10", "--discard", discard(item(9, 1), -1)],
        ["--time", "13", "--count", "1"],
    ]


def _changes(collection: Collection, close: bool, whole: bool = True, **settings: Any) -> None:
    """The life of a few rows as change events; the stream may be closed at the end."""

    def event(before: Any, after: Any, time: int, diff: int = 1) -> tuple[dict[str, Any], int, int]:
        rows = {name: pair and row(*pair) for name, pair in (("before", before), ("after", after))}
        if not whole and before is not None:
            rows["before"] = {"id": before[0], "name": None, "price": None}
        return {**rows, "op": "c" if before is None else "d" if after is None else "u"}, time, diff

    protocol, topic = Protocol(EVENT), collection.topic
    collection.configure(EVENT, family="debezium", **settings)
    first = [event(None, (number, "1"), number // 4) for number in range(8)]
    topic.put(protocol.updates(*first[:5]), protocol.updates(*first[3:]), protocol.progress(0, 2, {0: 4, 1: 4}))
    collection.run("ingest", "seal", "validate")
    changed = [event((number, "1"), (number, "2.5"), 2 + number) for number in range(4)]
    topic.put(protocol.updates(*changed), protocol.updates(event((4, "1"), None, 4), event((5, "1"), (15, "1"), 5)))
    topic.put(protocol.updates(*changed[:2]), protocol.progress(2, 7, {2: 1, 3: 1, 4: 2, 5: 2}), GARBAGE)
    twice = [event((0, "2.5"), (0, "3"), 7), event((0, "3"), (0, None), 7)]
    at_seven = twice if whole else [event((0, "2.5"), (0, None), 7)]
    topic.put(protocol.updates(*at_seven), protocol.progress(7, 9, {7: len(at_seven)}))
    collection.run("ingest", "seal", "compact", "current")
    topic.put(
        protocol.updates(event((6, "1"), (6, "6"), 9), event((7, "1"), None, 10)),
        protocol.progress(9, 11, {9: 1, 10: 2}),
    )
    topic.put(protocol.updates(changed[0], at_seven[0], event(None, (50, "1"), 8)))
    collection.run("ingest", "seal", "validate")
    topic.put(protocol.updates(event(None, (20, "0.001"), 10), event(None, (21, "9"), 12)))
    topic.put(protocol.updates(first[0], first[0], at_seven[0], event(None, (51, "1"), 8)))
    topic.put(protocol.updates(event((6, "6"), (6, "7"), 12), event((7, "1"), None, 10)), b"\x01")
    topic.put(protocol.progress(11, None if close else 14, {12: 2}))
    if not close:
        topic.put(protocol.updates(event(None, (30, "1"), 14)))


def debezium(collection: Collection) -> None:
    """Change events with a key."""
    _changes(collection, close=False, key="id", keep=3)


def debezium_before_key(collection: Collection) -> None:
    """Change events whose `before` is just the key."""
    _changes(collection, close=False, whole=False, key="id", before="key", keep=2)


def debezium_summed(collection: Collection) -> None:
    """Change events without a key, so rows are summed; the end of the stream is still unread."""
    _changes(collection, close=True, keep=7)


def closed(collection: Collection) -> None:
    """A closed stream that was read to its end."""
    protocol = Protocol(ROW)
    collection.configure(ROW, family="plain")
    collection.topic.put_parquet(protocol.updates((row(1), 0, 1), (row(2), 3, 2), (row(1), 4, -1)))
    collection.topic.put(protocol.updates((row(1), 0, 1)), protocol.progress(0, None, {0: 1, 3: 1, 4: 1}), partition=1)
    collection.run("ingest", "seal", "validate", "compact", "current")


# Reclocked topics, whose times are minted.

CLICK = record("click", page="string", seconds=["null", "double"])
WIDER_CLICK = record("click", page="string", seconds=["null", "double"], price=["null", PRICE], seen=["null", MOMENT])
SALE = record("sale", id="long", kind=KIND, price=PRICE, sold_at=MOMENT, tags={"type": "array", "items": "string"})
WIDER_SALE = {**SALE, "fields": [*SALE["fields"], {"name": "note", "type": TEXT, "default": None}]}
ITEM = record("item", id="long", name=TEXT, price=["null", "int"])
STOCK_KEY = record("stock_key", shop="string", article="long")
STOCK = record("stock", pieces="int", price=["null", PRICE])
WIDER_STOCK = record("stock", pieces="int", price=["null", PRICE], counted=["null", MOMENT])


def raw_append_only_json(collection: Collection) -> None:
    """Two topics, metadata, more than 32 ticks and a checkpoint, new columns from the settings and from a message."""
    eu, us = collection.topics
    raw = {"framing": "reclock", "envelope": "append_only", "format": "json", "evolution": "additive"}
    metadata = {
        "topic": "origin",
        "partition": "part",
        "offset": "place",
        "timestamp": "sent_at",
        "headers": "sent_with",
    }
    collection.configure(CLICK, **raw, metadata=metadata, messages_per_tick_max=2)
    for number in range(34):
        eu.put({"value": {"page": f"/{number}", "seconds": number / 8}, "headers": {"trace": f"t{number}"}})
        us.put({"page": f"/{number}"}, partition=number % 2)
    collection.run("ingest")
    collection.configure(messages_per_tick_max=None)
    collection.run("validate", "compact", "current")
    eu.put("nonsense", None, {"page": "/same", "seconds": 0.1}, {"page": "/same", "seconds": 0.1})
    collection.run("ingest")
    collection.acknowledge(0, 34)
    collection.configure(WIDER_CLICK)
    us.put({"page": "海", "price": "12.5", "seen": "2026-01-31T12:00:00.000001Z"}, {"page": "🌊", "seconds": 1e-9})
    us.skip(2)
    us.put({"page": "behind a gap"})
    collection.run("ingest", status=1)
    collection.resolve("--accept-gap", f"clicks.us:0:{us.ends[0] - 3}-{us.ends[0] - 1}")
    collection.run("ingest")
    collection.configure({**WIDER_CLICK, "fields": [*WIDER_CLICK["fields"], {"name": "browser", "type": TEXT}]})
    text = {"type": "string", "optional": True}
    columns = [{"field": "page", "type": "string", "optional": False}, {"field": "browser", **text}]
    wrapped = {"type": "struct", "fields": columns, "optional": True, "name": "click"}
    eu.put(
        {"page": "/last", "price": "0.001"}, {"value": {"schema": wrapped, "payload": {"page": "/x", "browser": "b"}}}
    )
    us.put({"seconds": 1}, None, {"page": "/last", "seen": "1969-12-31T23:59:59Z"}, partition=1)


def raw_append_only_avro(collection: Collection) -> None:
    """Two schema ids, the second with a new column; all runs are merged, and `since` does not move."""

    def sale(number: int, schema_id: int = 1) -> bytes:
        data = {"id": number, "kind": KIND["symbols"][number % 2], "price": Decimal(number) / 8, "note": f"n {number}"}
        data |= {
            "sold_at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=number),
            "tags": ["x"] * (number % 3),
        }
        return avro((SALE, WIDER_SALE)[schema_id - 1], data, schema_id)

    raw = {"framing": "reclock", "envelope": "append_only", "format": "avro", "evolution": "additive"}
    collection.configure(SALE, **raw, encoding="confluent", schema_ids={1: _file(collection, "sale-1", SALE)})
    collection.topic.put(*(sale(number) for number in range(6)), sale(3), b"\0\0\0\0\1broken")
    collection.run("ingest", "validate", "current")
    collection.configure(schema_ids={1: "schemas/sale-1.avsc", 2: _file(collection, "sale-2", WIDER_SALE)})
    collection.topic.put(*(sale(number, 1 + number % 2) for number in range(10, 16)), b"\0\0\0\0\x09" + sale(1)[5:])
    collection.run("ingest")
    collection.topic.put(sale(20, 2), partition=3)
    collection.run("ingest", "validate", "compact")
    collection.topic.put(sale(21, 2), sale(22), GARBAGE, partition=3)
    collection.topic.put(None, *(sale(number, 2) for number in range(30, 33)))


def raw_upsert_json(collection: Collection) -> None:
    """Keys in error, a healed key, tombstones, and a compaction that keeps only the last time."""

    def item(key: int, price: int | None) -> dict[str, Any]:
        return {"key": {"id": key}, "value": {"id": key, "name": NAMES[key % 8], "price": price}}

    raw = {"framing": "reclock", "envelope": "upsert", "format": "json", "key": "id"}
    collection.configure(ITEM, **raw, keep=0)
    topic = collection.topic
    topic.put(item(1, 10), item(1, 11), item(2, 20), item(3, 30), {"key": {"id": 3}, "value": None}, item(5, 50))
    topic.put(item(2, 21), {"key": {"id": 7}, "value": {"id": 7, "price": "dear"}}, item(6, None), partition=1)
    collection.run("ingest")
    topic.put(item(8, 80), {"key": {"id": 1}, "value": None}, {"key": None, "value": {"id": 4}}, item(9, 90))
    collection.run("ingest", "compact", "validate")
    topic.put({"key": {"id": 8}, "value": "{"}, item(2, 22), item(10, 100))
    collection.run("ingest")
    topic.put({"key": {"id": 9}, "value": None}, item(6, 61), {"key": {"id": 5}, "value": {"id": 6, "price": 1}})
    collection.run("ingest", "validate")
    collection.acknowledge(0, 8)
    topic.put(item(7, 70), item(1, 12), {"key": "{", "value": None}, {"key": {"id": 10}, "value": None}, partition=1)
    topic.put(item(8, 81), item(11, 110), item(5, 51))


def raw_upsert_avro(collection: Collection) -> None:
    """A key schema, bare Avro, and a new column from the settings."""

    def stock(schema: Schema, article: int, pieces: int | None) -> dict[str, Any]:
        key = avro(STOCK_KEY, {"shop": "海", "article": article})
        data = {"pieces": pieces, "price": Decimal(article) / 4, "counted": datetime(2026, 2, 1, tzinfo=UTC)}
        message = {"key_b64": base64.b64encode(key).decode("ascii"), "value": None}
        if pieces is not None:
            del message["value"]
            message["value_b64"] = base64.b64encode(avro(schema, data)).decode("ascii")
        return message

    raw = {"framing": "reclock", "envelope": "upsert", "format": "avro", "key": ["shop", "article"]}
    collection.configure(STOCK, **raw, key_schema=STOCK_KEY, evolution="additive")
    topic = collection.topic
    topic.put(*(stock(STOCK, article, article * 10) for article in range(6)), stock(STOCK, 2, None))
    collection.run("ingest", "current")
    collection.configure(WIDER_STOCK)
    topic.put(stock(WIDER_STOCK, 3, 33), stock(WIDER_STOCK, 4, None), stock(WIDER_STOCK, 9, 90), {"key_b64": "AQ=="})
    collection.run("ingest", "validate", "compact")
    collection.configure(keep=0)
    topic.put(stock(WIDER_STOCK, 3, 34), stock(WIDER_STOCK, 5, None), stock(WIDER_STOCK, 2, 22), partition=1)
    collection.run("ingest")
    topic.put(stock(WIDER_STOCK, 0, None), stock(WIDER_STOCK, 11, 110), {"key": None, "value": "x"})
    topic.put(stock(WIDER_STOCK, 3, 35), stock(WIDER_STOCK, 3, 36), partition=1)


PERSON = record(
    "row",
    id="int",
    name="string",
    big=TEXT,
    bin=["null", "bytes"],
    price=["null", PRICE],
    seen=["null", {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}],
    day=["null", {"type": "int", "connect.name": "io.debezium.time.Date"}],
    note=TEXT,
)
CAPTURE = FOLDER.parent / "captures" / "snapshots"
MOMENTS = ({0: 24, 1: 14}, {0: 50, 1: 27}, {0: 62, 1: 33}, {0: 76, 1: 40})
"""The end offsets up to which the capture is sent at each moment; the last part stays unread."""


def raw_debezium(collection: Collection) -> None:
    """The first change events of a table as Debezium wrote them, with placeholders for values that were not sent."""
    raw = {"framing": "reclock", "envelope": "debezium", "format": "json", "key": "id"}
    collection.configure(PERSON, **raw)
    topic, folder = collection.topic, CAPTURE / "topics" / "snapshots.public.people"
    captured = {at: gzip.decompress((folder / f"{at}.jsonl.gz").read_bytes()).decode().splitlines() for at in (0, 1)}

    def arrive(moment: int) -> None:
        for partition, end in MOMENTS[moment].items():
            with (topic.folder / f"{partition}.jsonl").open("a", encoding="utf-8") as lines:
                lines.writelines(f"{line}\n" for line in captured[partition][topic.ends.get(partition, 0) : end])
            topic.ends[partition] = end

    arrive(0)
    collection.run("ingest", "validate", "current")
    arrive(1)
    topic.put({"key": {"id": 77}, "value": "no event"}, "stray", None, partition=2)
    collection.run("ingest", "compact")
    collection.acknowledge(2, 1)
    arrive(2)
    collection.configure(keep=0)
    collection.run("ingest", "validate")
    arrive(3)
    topic.put({"key": {"id": 77}, "value": None}, "another stray", partition=2)


MADE: dict[Callable[[Collection], None], tuple[str, ...]] = {
    plain: (),
    append_only: (),
    upsert: (),
    debezium: (),
    debezium_before_key: (),
    debezium_summed: (),
    closed: (),
    raw_append_only_json: ("clicks.eu", "clicks.us"),
    raw_append_only_avro: (),
    raw_upsert_json: (),
    raw_upsert_avro: (),
    raw_debezium: (),
}
"""By the function that makes a collection, the names of the collection's topics. If there are none, the collection has
one topic, with the collection's name."""


def _file(collection: Collection, name: str, schema: Schema) -> str:
    """Write a schema next to the settings, and return its path as the settings state it."""
    (collection.root / "schemas").mkdir(exist_ok=True)
    (collection.root / "schemas" / f"{name}.avsc").write_text(json.dumps(schema, indent=1), encoding="utf-8")
    return f"schemas/{name}.avsc"


def _read(data: Mapping[str, Any]) -> dict[str, Any]:
    """Data as `tidelake read --json` prints it; `price` and `either` are not converted, so they have to be null."""
    day, weight = data["day"], data["weight"]
    assert data["price"] is data["either"] is None
    return {
        **data,
        "moved_at": f"{data['moved_at']:%Y-%m-%dT%H:%M:%S.%fZ}",
        "day": None if day is None else day.isoformat(),
        "weight": "NaN" if weight != weight else weight,
        "raw": {"b64": base64.b64encode(data["raw"]).decode("ascii")},
    }


def pack(root: Path) -> None:
    """Pack a folder; the same files always give the same archive."""

    def plainly(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime, member.uid, member.gid, member.uname, member.gname = MADE_AT_S, 0, 0, "", ""
        return member

    with (
        ARCHIVE.open("wb") as file,
        gzip.GzipFile("", "wb", 9, file, MADE_AT_S) as whole,
        tarfile.open(fileobj=whole, mode="w") as archive,
    ):
        for path in sorted(root.rglob("*")):
            archive.add(path, path.relative_to(root), recursive=False, filter=plainly)


def make() -> None:
    """Make the store, and record what users see of it before and after the jobs continue a copy."""
    made: list[Collection] = []
    folders: dict[str, str] = {}
    with TemporaryDirectory() as scratch:
        root = Path(scratch)
        document: dict[str, Any] = {"store": "store", "topics": "topics", "data_docs": "docs", "collections": {}}
        for story, topics in MADE.items():
            made.append(Collection(root, document, story.__name__, topics))
            story(made[-1])
            (new,) = {path.name for path in (root / "store" / "c").iterdir()} - set(folders.values())
            folders[made[-1].name] = new
        pack(root)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True, cwd=FOLDER).stdout
    expected: dict[str, Any] = {"made_by": commit.strip(), "collections": {}}
    with TemporaryDirectory() as scratch:
        config = unpack(Path(scratch))
        for collection in made:
            name, folder = collection.name, folders[collection.name]
            before = Shown(config, name, folder).everything()
            jobs = go_on(config, name, collection.decisions)
            minted = [bound["time"] for bound in before["times"] or []]
            after = Shown(config, name, folder, minted, words=False).everything()
            expected["collections"][name] = {
                "folder": folder,
                "decisions": collection.decisions,
                "before": before,
                "jobs": jobs,
                "after": after,
            }
    EXPECTED.write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    make()
