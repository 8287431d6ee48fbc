"""Thousands of damaged messages go through ingest and seal: each is stored or quarantined; no time is sealed wrongly.

The core defines what is right: its codec judges each message, and its ledger each time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.lakes.lake import Lake
from tests.lakes.mutations import mutate
from tests.lakes.random_data import landed, one_form, random_datum
from tests.sweeps import seeds
from tidelake.codec.avro import AvroCodec, ConfluentCodec
from tidelake.errors import CodecError, ConflictingDiff, EnvelopeBreach, MalformedMessage
from tidelake.model.keyed import KeyedStatement, breaches, contents
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.ledger.ledger import Ledger
from tidelake.protocol.message import Message, Progress, Updates
from tidelake.read.snapshot import snapshot
from tidelake.schema.avro import resolved_schema
from tidelake.store.files import read_rows
from tidelake.store.layout import DIFF, RUN, TIME
from tidelake.store.quarantine import quarantine_rows
from tidelake.store.table_schema import updates_schema

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("any_store")]

MESSAGES = 2000
FIRST = 1_000_000
"""Messages to be damaged are about times just after this one, so that flipped bits rarely give an early time."""
GOOD_TIMES = 40

PLACE = {"type": "record", "name": "place", "fields": [{"name": "city", "type": ["null", "string"]}]}
POINT = {"type": "record", "name": "point", "fields": [{"name": "x", "type": "int"}, {"name": "on", "type": "boolean"}]}
FLAT: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "small", "type": "int"},
    {"name": "ratio", "type": "double"},
    {"name": "flag", "type": "boolean"},
    {"name": "raw", "type": "bytes"},
    {"name": "name", "type": "string"},
    {"name": "price", "type": ["null", "int"]},
]
NESTED: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "many", "type": ["null", "int", "long", "string", PLACE]},
    {"name": "two", "type": ["float", "double"]},
    {"name": "where", "type": {**PLACE, "name": "where"}},
    {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
    {"name": "deep", "type": {"type": "array", "items": {"type": "array", "items": POINT}}},
    {"name": "colour", "type": {"type": "enum", "name": "colour", "symbols": ["red", "blue", "green"]}},
    {"name": "tag", "type": {"type": "fixed", "name": "tag", "size": 4}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
]
MEASURED = [column for column in FLAT if column["name"] != "flag"]
"""Columns whose values determine the length of their encoding; see `tidelake.decode.lengths`."""
DECIMALS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "sum", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 18}]},
    {"name": "wide", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0}},
]
LATER: list[dict[str, Any]] = [
    {"name": "seen", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    {"name": "sum", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 18}]},
    {"name": "home", "type": ["null", {**PLACE, "name": "home"}]},
    {"name": "any", "type": ["null", "int", "string"]},
]
"""Columns that a writer with an earlier schema does not have."""
NO_INT = [column for column in NESTED if column["name"] not in ("many", "deep", "day")]


def without(fields: list[dict[str, Any]], names: Collection[str]) -> list[dict[str, Any]]:
    """The fields that do not have one of these names."""
    return [column for column in fields if column["name"] not in names]


def framed(*schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """The settings of a topic whose messages were written with these schemas."""
    ids = dict(zip((7, 2**31), map(record, schemas), strict=True))
    return {"encoding": "confluent", "schema_ids": ids}


def record(fields: list[dict[str, Any]]) -> dict[str, Any]:
    """A record schema of these fields."""
    return {"type": "record", "name": "data", "fields": fields}


@dataclass(frozen=True)
class Subject:
    """A kind of collection, and how the core reads its messages."""

    name: str
    fields: list[dict[str, Any]]
    family: str = "plain"
    settings: dict[str, Any] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()
    """The columns that the second writer's schema does not have."""

    @property
    def writer_schemas(self) -> dict[int, dict[str, Any]]:
        """The schemas that messages are written with, by id; a single schema if the topic is bare Avro."""
        if self.settings.get("encoding") != "confluent":
            return {0: record(self.fields)}
        if self.lacking:
            return {7: record(self.fields), 2**31: record(without(self.fields, self.lacking))}
        return {7: record(self.fields), 2**31: record(self.fields[::-1])}

    def decode(self, value: bytes) -> Message | None:
        """Decode a message with the core's codec."""
        schemas = self.writer_schemas
        if 0 in schemas:
            return AvroCodec(schemas[0]).decode(value)
        names = [column["name"] for column in self.fields]
        return ConfluentCodec(schemas.get, names).decode(value)

    def datum(self, data: dict[str, Any]) -> tuple[Any, ...]:
        """The form in which a table holds data, with sorted fields, so that equal data has equal forms."""
        kinds = {column["name"]: column["type"] for column in resolved_schema(record(self.fields))["fields"]}
        return tuple((name, landed(kinds[name], data[name])) for name in sorted(data))


GROWN = [*NESTED, *LATER]
SUBJECTS = (
    Subject("flat", FLAT),
    Subject("nested", NESTED),
    Subject("no_int", NO_INT, "append_only"),
    Subject("confluent", NESTED, settings=framed(NESTED, NESTED[::-1])),
    Subject("reversed", FLAT, settings=framed(FLAT, FLAT[::-1])),
    Subject("grown", GROWN, settings=framed(GROWN, NESTED), lacking=tuple(column["name"] for column in LATER)),
    Subject("grown_flat", FLAT, settings=framed(FLAT, without(FLAT, ["price"])), lacking=("price",)),
    Subject("grown_elsewhere", NESTED, settings=framed(NESTED, without(NESTED, ["many"])), lacking=("many",)),
    Subject("keyed", FLAT, "upsert", {"key": ["id"]}),
    Subject("measured", MEASURED),
    Subject("decimals", DECIMALS),
    Subject("measured_append_only", MEASURED, "append_only"),
)


def good_messages(subject: Subject, random: Random) -> tuple[list[bytes], list[bytes]]:
    """A stream that is sealed up to its end, and a mixture of messages to be damaged."""
    first, *_ = subject.writer_schemas.values()
    resolved = resolved_schema(first)

    def batch(times: list[int]) -> Updates:
        diffs = (1,) if subject.family != "plain" else (1, 1, -1, 2)
        return Updates([(random_datum(random, resolved), time, random.choice(diffs)) for time in times])

    def statement(lower: int, upper: int, counts: dict[int, int]) -> Progress:
        return Progress([lower], [upper], list(counts.items()))

    stream: list[Message] = [batch([time] * (time % 3)) for time in range(GOOD_TIMES)]
    stream.append(statement(0, GOOD_TIMES, {time: time % 3 for time in range(GOOD_TIMES)}))
    mixture: list[Message] = [batch([FIRST + random.randrange(500) for _ in range(size % 4)]) for size in range(200)]
    for _ in range(60):
        lower = FIRST + random.randrange(500)
        upper = lower + random.randint(1, 40)
        mixture.append(statement(lower, upper, {random.randrange(lower, upper): random.randrange(3) for _ in "abc"}))
    return tuple([encoded(subject, random, message) for message in part] for part in (stream, mixture))  # type: ignore[return-value]


def encoded(subject: Subject, random: Random, message: Message) -> bytes:
    """The bytes of a message, encoded with a random one of the topic's schemas."""
    schemas = subject.writer_schemas
    if 0 in schemas:
        return AvroCodec(schemas[0]).encode(message)
    chosen = random.choice(list(schemas))
    if chosen != 7 and isinstance(message, Updates):
        names = {column["name"] for column in schemas[chosen]["fields"]}
        message = Updates([({name: data[name] for name in names}, time, diff) for data, time, diff in message.batch])
    return ConfluentCodec(schemas.get).encode(message, chosen)


@dataclass
class Expected:
    """The results that the core computes for a topic."""

    refused: dict[tuple[int, int], set[str]] = field(default_factory=dict)
    """By partition and offset: the reasons, any of which may be given."""
    facts: set[tuple[Any, int, int]] = field(default_factory=set)
    statements: list[Progress] = field(default_factory=list)
    breaches: set[int] = field(default_factory=set)

    def seal(self) -> tuple[int | None, set[tuple[str, int]]]:
        """The frontier (None if closed) and the contradictions after all facts."""
        ledger = Ledger(Antichain.of(0))
        ledger.announce_all(self.statements)
        diffs: dict[int, dict[Any, set[int]]] = defaultdict(lambda: defaultdict(set))
        for data, time, diff in self.facts:
            diffs[time][data].add(diff)
        ledger.count_all((time, len(by_data)) for time, by_data in diffs.items())
        for time, by_data in diffs.items():
            for stated_diffs in by_data.values():
                if len(stated_diffs) > 1:
                    ledger.contradict(ConflictingDiff(time, min(stated_diffs), max(stated_diffs)))
        for time in self.breaches:
            ledger.contradict(EnvelopeBreach(time, ""))
        frontier = ledger.advance()
        contradictions = {
            (error.kind, int(str(time))) for time, errors in ledger.contradictions().items() for error in errors
        }
        return (int(str(frontier.elements[0])) if frontier.elements else None), contradictions


def expect(subject: Subject, topic: dict[tuple[int, int], bytes]) -> Expected:
    """Read a topic with the core."""
    expected = Expected()
    for place, value in topic.items():
        try:
            message = subject.decode(value)
        except CodecError as error:
            expected.refused[place] = {error.reason}
            continue
        except MalformedMessage as error:
            expected.refused[place] = {kind for kind, _ in error.problems}
            continue
        if isinstance(message, Progress):
            expected.statements.append(message)
        elif message is not None:
            facts = {(subject.datum(data), int(str(time)), diff) for data, time, diff in message.batch}
            refused = {fact for fact in facts if subject.family == "append_only" and fact[2] < 0}
            expected.breaches |= {time for _, time, _ in refused}
            expected.facts |= facts - refused
            if refused:
                expected.refused[place] = {"append_only_diff"}
    if subject.family == "upsert":
        expected.breaches |= breaches(statements_of(expected.facts))
    return expected


def statements_of(facts: set[tuple[Any, int, int]]) -> list[KeyedStatement]:
    """Facts as statements of the keyed model, with the key `id`."""
    return [KeyedStatement(dict(data)["id"], data, time, diff) for data, time, diff in facts]


def rows_of(table: pa.Table) -> list[tuple[Any, int | None, int]]:
    """`(data, time, diff)` of each row; dates and timestamps are numbers, because some are beyond Python's range."""
    for index, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type) or pa.types.is_date32(column.type):
            number = pa.int64() if pa.types.is_timestamp(column.type) else pa.int32()
            table = table.set_column(index, column.name, table[column.name].cast(number))
    rows = []
    for row in table.to_pylist():
        time, diff = row.pop(TIME, None), row.pop(DIFF)
        rows.append((tuple((name, one_form(row[name])) for name in sorted(row)), time, diff))
    return rows


def check(subject: Subject, lake: Lake, topic: dict[tuple[int, int], bytes]) -> None:
    """Ingest and seal, and compare the results with those that the core computes from the same bytes."""
    expected = expect(subject, topic)
    ingested = lake.ingest()
    quarantined = {(row["partition"], row["offset"]): row for row in quarantine_rows(lake.collection)}
    assert quarantined.keys() == expected.refused.keys()
    for place, row in quarantined.items():
        assert row["reason"] in expected.refused[place], (place, topic[place].hex())
        assert row["value"] == topic[place], place
    assert ingested.messages == len(topic)
    assert ingested.quarantined == len(quarantined)
    assert ingested.progress_statements == len(expected.statements)
    paths, schema = lake.collection.paths, updates_schema(lake.collection.entry.record_schema)
    stored = rows_of(read_rows(paths.updates, lake.table.files(), schema).drop_columns([RUN]))
    assert set(stored) == expected.facts

    sealed = lake.seal()
    frontier, contradictions = expected.seal()
    assert (None if sealed.closed else sealed.upper) == frontier
    assert {(error.kind, error.time) for error in sealed.contradictions} == contradictions
    # A progress statement with a flipped bit may also contradict the counts of an early time.
    assert sealed.upper >= min([GOOD_TIMES, *(time for _, time in contradictions)])
    shown = Counter[Any]()
    for data, _, diff in rows_of(snapshot(lake.spark, lake.collection).contents.toArrow()):
        shown[data] += diff
    proven = {fact for fact in expected.facts if frontier is None or fact[1] < frontier}
    assert shown == contents_of(subject, proven)
    assert not lake.validate(full=True).damaged


def contents_of(subject: Subject, proven: set[tuple[Any, int, int]]) -> Counter[Any]:
    """The multiplicity of each datum, from the facts that are proven."""
    if subject.family == "upsert":
        return Counter(contents(statements_of(proven), FIRST**3).values())
    sums = Counter[Any]()
    for data, _, diff in proven:
        sums[data] += diff
    return Counter({data: diff for data, diff in sums.items() if diff})


def is_about_an_early_time(subject: Subject, value: bytes) -> bool:
    """Whether a message states an update at a time of the good stream, which it would contradict."""
    try:
        message = subject.decode(value)
    except (CodecError, MalformedMessage):
        return False
    return isinstance(message, Updates) and any(int(str(time)) < GOOD_TIMES for _, time, _ in message.batch)


def run(tmp_path: Path, spark: SparkSession, subject: Subject, seed: int) -> None:
    """Send the messages of a seed to two partitions in turn, and check the results."""
    random = Random(f"{subject.name} {seed}")
    stream, mixture = good_messages(subject, random)
    damaged = mutate(random, mixture, MESSAGES)
    values = [*stream, *(value for value in damaged if not is_about_an_early_time(subject, value))]
    lake = Lake(tmp_path, spark, subject.family, schema=record(subject.fields), **subject.settings)
    for partition in range(2):
        lake.send(*values[partition::2], partition=partition, at=0)
    topic = {(number % 2, number // 2): value for number, value in enumerate(values)}
    check(subject, lake, topic)


@pytest.mark.parametrize("subject", SUBJECTS[:1], ids=lambda subject: subject.name)
def test_a_damaged_message_is_stored_or_quarantined_and_no_time_is_sealed_wrongly(
    tmp_path: Path, spark: SparkSession, subject: Subject
) -> None:
    run(tmp_path, spark, subject, seed=0)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_a_damaged_message_of_any_seed_is_stored_or_quarantined_and_no_time_is_sealed_wrongly(
    tmp_path: Path, spark: SparkSession, subject: Subject, seed: int
) -> None:
    run(tmp_path, spark, subject, 1 + seed)
