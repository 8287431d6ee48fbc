"""The fast path for plain change events: it reads them as the careful path does, and accepts no others."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tests.lakes.changes import Changes
from tests.sweeps import seeds
from tidelake.decode.debezium.fast_json import read_plain_changes
from tidelake.decode.debezium.json import read_changes
from tidelake.decode.debezium.shape import ChangeShape
from tidelake.decode.json import TEXT_CHARACTERS_MAX
from tidelake.schema.connect import wire_types
from tidelake.topic.topic import RAW_SCHEMA

pytestmark = pytest.mark.spark

_NULLABLE: dict[str, Any] = {
    "whole": "int",
    "long": "long",
    "real": "double",
    "narrow": "float",
    "yes": "boolean",
    "text": "string",
    "bytes": "bytes",
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
    "seen": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"},
    "amount": {"type": "double", "logicalType": "decimal", "precision": 38, "scale": 0},
    "list": {"type": "array", "items": ["null", "int"]},
    "words": {"type": "array", "items": "string"},
    "inner": {"type": "record", "name": "inner", "fields": [{"name": "x", "type": ["null", "long"]}]},
}
ROW = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": "long"},
        *({"name": name, "type": ["null", kind]} for name, kind in _NULLABLE.items()),
    ],
}
SHAPE = ChangeShape(wire_types(ROW), ("id",))
PLAIN_VALUES = {
    "whole": ["-5", "2147483647", "null"],
    "long": ["-9223372036854775808", "0", "null"],
    "real": ["0.1", "-1e-300", "12345678901234567890123", "-0.0", "null"],
    "narrow": ["0.1", "16777217", "1.00000017881393432617187499", '"NaN"', "null"],
    "yes": ["true", "false", "null"],
    "text": [
        '"M\\u00f6we \\ud83c\\udf0a"',
        '"Möwe 🌊"',
        '"\ufffd"',
        '""',
        '"}"',
        '"__debezium_unavailable_value"',
        "null",
    ],
    "bytes": ['"AP/+"', "null"],
    "price": ['"AeJA"', "null"],
    "seen": ["-1", "1709208000123000", "null"],
    "amount": ["9007199254740993", "-1", "null"],
    "list": ["[1, null, -3]", "[]", "null"],
    "words": ['["why?", "\\ud83c\\udf0a"]', '["\\\\ud800"]', "null"],
    "inner": ['{"x": 5}', '{"x": "5"}', "{}", "null"],
}
"""Plain values: the fast path reads each of them as the careful path does."""
UNFIT_VALUES = {
    "narrow": ["1e39", '"1d"'],
    "bytes": ['"not base64!"'],
    "price": ['"AeJAAeJAAeJAAeJAAeJA"'],
    "list": ['["a"]'],
    "words": ['["a", null]'],
    "inner": ['{"x": "a"}', "[]"],
}
"""Well-formed values that do not fit their type: only the careful path says why."""
NOT_PLAIN_VALUES = ['"5"', "5.0", "1e3", "99999999999999999999", '"NaN"', "NaN", "'a'", "[1]", '{"a": 1}', "tru", ""]


def event(row: str, op: str = "c") -> bytes:
    source = '{"connector":"postgresql","lsn":7,"sequence":"[null,\\"7\\"]","snapshot":"false"}'
    return f'{{"before":null,"after":{row},"source":{source},"op":"{op}","ts_ms":1}}'.encode()


def row_of(values: dict[str, str]) -> str:
    return f"{{{','.join(f'{json.dumps(name)}:{value}' for name, value in values.items())}}}"


def both(spark: SparkSession, values: list[bytes | None]) -> list[tuple[bool, dict[str, Any], dict[str, Any]]]:
    """For each record: whether the fast path has read it, and the results of the fast and of the careful path."""
    rows = [(0, at, 0, b'{"id": 3}', value, None) for at, value in enumerate(values)]
    raw = spark.createDataFrame(rows, RAW_SCHEMA).coalesce(1)
    names: list[str | Column] = ["offset", *(F.to_json(F.struct(name)).alias(name) for name in ("_row", "_left"))]
    names += ["_kind", "_error", "_unavailable", "_reason", "_detail", "_committed", "_lsn", "_processed_ms"]
    plain = [
        row.asDict() for row in read_plain_changes(raw, SHAPE).select("_unread", *names).orderBy("offset").collect()
    ]
    careful = [row.asDict() for row in read_changes(raw, SHAPE).select(*names).orderBy("offset").collect()]
    for row in (*plain, *careful):
        if row["_kind"] not in ("value", "delete"):  # no row, so the fast path does not look for a key
            del row["_row"]
    return [(not fast.pop("_unread"), fast, exact) for fast, exact in zip(plain, careful, strict=True)]


@pytest.mark.sweep
def test_an_event_beyond_the_parsers_limit_is_reported_with_its_size(spark: SparkSession) -> None:
    value = event(row_of({"id": "3", "text": f'"{"x" * (TEXT_CHARACTERS_MAX + 1)}"'}))
    ((is_plain, _, exact),) = both(spark, [value])
    fact = (
        f"undecodable, it has {len(value)} bytes, and strings longer than {TEXT_CHARACTERS_MAX} characters are not read"
    )
    assert (is_plain, exact["_detail"], exact["_error"]) == (False, fact, f"the event cannot be read: {fact}")


def test_plain_events_are_read_as_the_careful_path_reads_them(spark: SparkSession) -> None:
    rows = [row_of({"id": "3", name: value}) for name, values in PLAIN_VALUES.items() for value in values]
    values = [event(row) for row in rows]
    wrapped = [b'{"schema":{"type":"struct"},"payload":' + value + b"}" for value in values[:3]]
    for value, (plain, read, expected) in zip([*values, *wrapped], both(spark, [*values, *wrapped]), strict=True):
        assert plain and read == expected, value
    gone = event("null", "d").replace(b'"before":null', b'"before":{"id":4,"text":null}')
    deletes = [None, gone, event("null", "t")]
    for plain, read, expected in both(spark, deletes):
        assert plain and read == expected


def test_a_value_that_does_not_fit_is_left_to_the_careful_path_which_names_its_column(spark: SparkSession) -> None:
    events = [
        (name, event(row_of({"id": "3", name: value}))) for name, unfit in UNFIT_VALUES.items() for value in unfit
    ]
    for (name, value), (plain, _, careful) in zip(events, both(spark, [value for _, value in events]), strict=True):
        assert not plain and name in careful["_error"], value


def test_events_that_are_not_plain_are_left_to_the_careful_path(spark: SparkSession) -> None:
    good = event('{"id":3}')
    values: list[bytes | None] = [event(row_of({"id": "3", "whole": value})) for value in NOT_PLAIN_VALUES]
    halves = [event(row_of({"id": "3", "text": f'"{text}"'})) for text in ("\\ud800", "a\\uDC00b", "\\udc00\\ud800")]
    halves += [event(row_of({"id": "3", "words": f'["{text}"]'})) for text in ("\\ud800", "\\\\\\udc00")]
    values += halves
    values += [event('{"id":3,"real":-1e400}'), event('{"id":3,"real":1e400,"text":null}')]
    values += [event("null", "d"), event("null"), event('{"id":null}'), good.replace(b'"id":3', b'"it":3')]
    values += [good + b" ", good + b"}", good + b"{}", good[:-1], good + good, b"[" + good + b"]", b"[" + good]
    values += [event('{"id":3}', "x"), event('{"id":3}', "m"), b'{"schema":{},"payload":null}']
    values += [b"", b"{}", b"}", b"null", b"{", good.replace(b'"after"', b'"after\xff"'), b"1" + good, b'"}']
    for value, (plain, _, careful) in zip(values, both(spark, values), strict=True):
        assert not plain, value
        assert value not in halves or careful["_error"] == "the event cannot be read: undecodable"


def _any_value(name: str, rng: Random) -> str:
    unfit = UNFIT_VALUES.get(name, [])
    return rng.choice(unfit if unfit and rng.random() < 0.05 else PLAIN_VALUES[name])


@pytest.mark.sweep
@pytest.mark.parametrize("seed", seeds())
def test_damaged_events_are_read_as_the_careful_path_reads_them_or_not_at_all(spark: SparkSession, seed: int) -> None:
    rng = Random(f"plain {seed}")
    values: list[bytes | None] = []
    for _ in range(4_000):
        row = {"id": str(rng.randrange(9)), **{name: _any_value(name, rng) for name in PLAIN_VALUES}}
        damaged = bytearray(event(row_of(row), rng.choice("crudt")))
        for _ in range(rng.randrange(3)):
            at = rng.randrange(len(damaged))
            damaged[at : at + rng.randrange(3)] = rng.choice(
                [b"", b"}", b"{", b'"', b",", b"\\", b"\xff", b"0", b"]", b":"]
            )
        values.append(bytes(damaged))
    readings = both(spark, values)
    for value, (plain, read, expected) in zip(values, readings, strict=True):
        assert not plain or read == expected, value
    assert 100 < sum(plain for plain, _, _ in readings) < 3_900


def test_a_tick_with_a_record_that_is_not_plain_is_read_again_and_nothing_is_lost(
    tmp_path: Path, spark: SparkSession
) -> None:
    changes = Changes(tmp_path, spark)
    odd = changes.event("c", (2, "x", "y"))
    odd["value"]["after"]["id"] = "2"
    changes.put(changes.event("c", (1, "x", "y")), odd, changes.event("c", (3, "x", "y")))
    report = changes.ingest()
    assert (report.quarantined, report.values_in_error, report.updates_stored) == (0, 0, 3)
    assert set(changes.table_of()) == {1, 2, 3}


def test_an_update_whose_old_key_cannot_be_read_puts_its_new_key_in_error(spark: SparkSession) -> None:
    value = event('{"id":4}', "u").replace(b'"before":null', b'"before":{"id":"abc"}')
    ((plain, _, careful),) = both(spark, [value])
    assert not plain
    assert careful["_error"] == "the previous value of id cannot be read as type long"


def test_a_key_in_before_that_does_not_land_is_left_to_the_careful_path(spark: SparkSession) -> None:
    milliseconds = {"type": "long", "connect.name": "io.debezium.time.Timestamp"}
    shape = ChangeShape(
        wire_types({"type": "record", "name": "row", "fields": [{"name": "at", "type": milliseconds}]}), ("at",)
    )
    gone = event("null", "d").replace(b'"before":null', b'"before":{"at":-9223372036854775808}')
    raw = spark.createDataFrame([(0, 0, 0, b'{"at": 1}', gone, None)], RAW_SCHEMA)
    assert [row["_unread"] for row in read_plain_changes(raw, shape).select("_unread").collect()] == [True]
    (careful,) = read_changes(raw, shape).select("_kind", F.unix_millis("_row.at").alias("at"), "_reason").collect()
    assert tuple(careful) == ("delete", 1, None)
