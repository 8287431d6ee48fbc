"""Reclocked formats: values that fit are read exactly, and others get a reason; none silently becomes null."""

from __future__ import annotations

import io
import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.decode.avro import decode_avro
from tidelake.decode.json import TEXT_CHARACTERS_MAX, decode_json
from tidelake.decode.json_types import record_form
from tidelake.decode.writers import Writers
from tidelake.errors import SchemaRefused
from tidelake.ingest.reclock import unusable_rows
from tidelake.schema.avro import resolved_schema

pytestmark = pytest.mark.spark


def optional(kind: Any) -> list[Any]:
    return ["null", kind]


RECORD: dict[str, Any] = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": optional("string")},
        {"name": "n", "type": optional("int")},
        {"name": "x", "type": optional("double")},
        {"name": "f", "type": optional("float")},
        {"name": "d", "type": optional({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2})},
        {"name": "day", "type": optional({"type": "int", "logicalType": "date"})},
        {"name": "at", "type": optional({"type": "long", "logicalType": "timestamp-millis"})},
        {"name": "at6", "type": optional({"type": "long", "logicalType": "timestamp-micros"})},
        {"name": "b", "type": optional("bytes")},
        {"name": "b2", "type": optional({"type": "fixed", "name": "two", "size": 2})},
        {"name": "e", "type": optional({"type": "enum", "name": "e", "symbols": ["A", "B"]})},
        {"name": "tags", "type": optional({"type": "array", "items": "string"})},
        {
            "name": "sub",
            "type": optional(
                {
                    "type": "record",
                    "name": "sub",
                    "fields": [{"name": "k", "type": "string"}, {"name": "v", "type": optional("boolean")}],
                }
            ),
        },
    ],
}

WHOLE = "2026-01-31T12:00:00"
GOOD: list[tuple[str, dict[str, Any]]] = [
    ('{"id":1}', {"id": 1}),
    ('  { "id" : 1 , "name" : "q" }\n', {"id": 1, "name": "q"}),
    ('{"id":1,"name":null,"tags":null}', {"id": 1}),
    ('{"id":-9223372036854775808}', {"id": -(2**63)}),
    ('{"id":1,"z":5,"y":{"id":"a:b"}}', {"id": 1}),
    ('{"id":1,"name":"5"}', {"id": 1, "name": "5"}),
    ('{"id":1,"name":"true"}', {"id": 1, "name": "true"}),
    ('{"id":1,"name":"{\\"a\\":1}"}', {"id": 1, "name": '{"a":1}'}),
    ('{"id":1,"name":"caf\u00e9 \\u00e9 \\ud83d\\ude00"}', {"id": 1, "name": "café é 😀"}),
    ('{"id":1,"x":1e30,"f":0.5}', {"id": 1, "x": 1e30, "f": 0.5}),
    ('{"id":1,"d":1.25}', {"id": 1, "d": Decimal("1.25")}),
    ('{"id":1,"d":"1.250"}', {"id": 1, "d": Decimal("1.25")}),
    ('{"id":1,"d":1.2e1}', {"id": 1, "d": Decimal(12)}),
    ('{"id":1,"day":"2026-01-31"}', {"id": 1, "day": date(2026, 1, 31)}),
    ('{"id":1,"day":20484}', {"id": 1, "day": date(2026, 1, 31)}),
    ('{"id":1,"at":"' + WHOLE + '.5Z"}', {"id": 1, "at": datetime(2026, 1, 31, 12, 0, 0, 500_000)}),
    ('{"id":1,"at":"' + WHOLE + '+02:00"}', {"id": 1, "at": datetime(2026, 1, 31, 10)}),
    (
        '{"id":1,"at":1769860800000,"at6":1769860800000001}',
        {"id": 1, "at": datetime(2026, 1, 31, 12), "at6": datetime(2026, 1, 31, 12, 0, 0, 1)},
    ),
    ('{"id":1,"b":"AQI=","b2":"AQI="}', {"id": 1, "b": b"\1\2", "b2": b"\1\2"}),
    ('{"id":1,"e":"A","tags":["a","7"]}', {"id": 1, "e": "A", "tags": ["a", "7"]}),
    ('{"id":1,"sub":{"k":"x","v":true}}', {"id": 1, "sub": {"k": "x", "v": True}}),
    ('{"schema":{"type":"struct"},"payload":{"id":7,"name":"7"}}', {"id": 7, "name": "7"}),
    ('{"payload":{"id":7,"name":"7"},"schema":{"type":"struct"}}', {"id": 7, "name": "7"}),
    ('{ "schema" : null , "payload" : {"id":7} }', {"id": 7}),
    ('{"schema":{"type":"struct","doc":"\\"payload\\":"},"payload":{"id":7}}', {"id": 7}),
    ('{"schema":"v1","id":3}', {"id": 3}),
    ('{"schema":"v1","payload":"x","id":3}', {"id": 3}),
    ('{"id":3,"sub":{"k":"x","v":true,"schema":1,"payload":2}}', {"id": 3, "sub": {"k": "x", "v": True}}),
    ('{"id":3,"payload":"v1"}', {"id": 3}),
]
BAD: list[tuple[str, str, str | None]] = [
    ("", "undecodable", None),
    ('{"id":1', "undecodable", None),
    ("{'id':1}", "undecodable", None),
    ('{"id":01}', "undecodable", None),
    ('{"id":1,"x":NaN}', "undecodable", None),
    ('{"id":1,"name":"a\nb"}', "undecodable", None),
    ('{"id":1,"name":"\\ud83d"}', "undecodable", None),
    ("5", "wrong_type", None),
    ('[{"id":1}]', "wrong_type", None),
    ('{"name":"x"}', "missing_field", "id"),
    ('{"id":null}', "missing_field", "id"),
    ('{"id":1,"sub":{"v":true}}', "missing_field", "sub.k"),
    ('{"id":1,"tags":["a",null]}', "missing_field", "tags[]"),
    ('{"id":"1"}', "wrong_type", None),
    ('{"id":1.0}', "wrong_type", None),
    ('{"id":9223372036854775808}', "wrong_type", None),
    ('{"id":1,"n":2147483648}', "wrong_type", None),
    ('{"id":1,"x":"1"}', "wrong_type", None),
    ('{"id":1,"x":1e400}', "out_of_range", "x"),
    ('{"id":1,"f":1e39}', "out_of_range", "f"),
    ('{"id":1,"d":1.255}', "wrong_type", "d"),
    ('{"id":1,"d":12345.00}', "wrong_type", "d"),
    ('{"id":1,"d":true}', "wrong_type", "d"),
    ('{"id":1,"day":"2026-02-31"}', "wrong_type", "day"),
    ('{"id":1,"at":"' + WHOLE + '"}', "wrong_type", "at"),
    ('{"id":1,"at":"' + WHOLE + '.1234567Z"}', "wrong_type", "at"),
    ('{"id":1,"b":"A-"}', "wrong_type", "b"),
    ('{"id":1,"b":1234}', "wrong_type", "b"),
    ('{"id":1,"b2":"AQ=="}', "wrong_type", "b2"),
    ('{"id":1,"e":"C"}', "wrong_type", "e"),
    ('{"id":1,"name":5}', "wrong_type", "name"),
    ('{"id":1,"name":{"a":1}}', "wrong_type", "name"),
    ('{"id":1,"tags":["a",7]}', "wrong_type", "tags[]"),
    ('{"id":1,"sub":{"k":false}}', "wrong_type", "sub.k"),
    ('{"schema":{"type":"struct"},"payload":{"id":7,"name":5}}', "wrong_type", "name"),
    ('{"payload":{"id":7,"name":5},"schema":{"type":"struct"}}', "wrong_type", "name"),
    ('{"schema":"v1","payload":"x"}', "wrong_type", None),
    ('{"schema":{},"payload":{"id":7}} x', "bytes_left_over", None),
    ('{"schema":{},"payload":{"id":7},"payload":{"id":8}}', "repeated_name", None),
    ('{"schema":{},"payload":{"id":7}', "undecodable", None),
    ('{"id":1} x', "bytes_left_over", None),
    ('{"id":1}}', "bytes_left_over", None),
    ('{"id":1}]', "bytes_left_over", None),
    ('{"id":1},{"id":2}', "bytes_left_over", None),
    ('{"id":1,"id":2}', "repeated_name", None),
    ('{"id" :1,"id":2}', "repeated_name", None),
    ('{"id":1,"\\u0069d":2}', "repeated_name", None),
    ('{"id":1,"z":1,"z":2}', "repeated_name", None),
    ('{"id":1,"sub":{"k":"x","k":"y"}}', "repeated_name", None),
]


def answers(decoded: DataFrame) -> list[tuple[Any, str | None, str | None]]:
    """For each record, in order: the decoded values, without nulls; the reason; and the detail."""
    rows = decoded.orderBy("i").collect()
    return [(_plain(row["_v"]), row["_v_reason"], row["_v_detail"]) for row in rows]


def _plain(row: Any) -> Any:
    if row is None:
        return None
    values = {name: value for name, value in row.asDict(recursive=True).items() if value is not None}
    return {name: bytes(value) if isinstance(value, bytearray) else value for name, value in values.items()}


def frame_of(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    return spark.createDataFrame(list(enumerate(values)), "i int, value binary")


def test_json_that_fits_is_read_exactly_and_other_json_gets_a_reason(spark: SparkSession) -> None:
    values = [text.encode() for text, _ in GOOD] + [text.encode() for text, _, _ in BAD]
    found = answers(decode_json(frame_of(spark, [*values, b'{"id":1,"name":"\xff"}']), "value", "_v", RECORD))
    expected: list[Any] = [(row, None, None) for _, row in GOOD]
    expected += [(None, reason, column and f"column {column}") for _, reason, column in BAD]
    expected.append((None, "undecodable", None))
    for value, answer, expected_answer in zip(values, found, expected, strict=False):
        assert answer == expected_answer, value
    assert len(found) == len(expected)


def test_a_decimal_that_json_writes_as_a_number_is_read_exactly(spark: SparkSession) -> None:
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}
    inner = {"type": "record", "name": "inner", "fields": [{"name": "d", "type": optional(amount)}]}
    kinds = {"id": "long", "x": "double", "d": optional(amount), "o": optional(inner), "s": optional("string")}
    kinds["a"] = optional({"type": "array", "items": optional(amount)})
    kinds["r"] = optional({"type": "array", "items": inner | {"name": "other"}})
    record = {"type": "record", "name": "row", "fields": [{"name": name, "type": kinds[name]} for name in kinds]}
    exact = ["0.1", "12.300", "1234567890.1234567891", "-1234567890123456789.0123456789", "1.5e-3", "1E-10", "2e23"]
    exact += ["9007199254740993.0", "1234567890123456789012345678", "100000000000000000000.1", "88673823031985e3"]
    exact += ["0.10000000000000000000", "0e-400", "1234567890123456E-6", "-0.0", "15000e-13"]
    beyond = ["1.00000000000000000001", "0.10000000000000000001", "1e-11", "1e-400", "1e999999999", "1e-999999999"]
    beyond += ["12345678901234567890123456789.0", "0.30000000000000004", '"1e-999999999"', '"1e-11"']

    def written(number: str) -> str:
        cells = f'"d":{number},"o":{{"d":{number}}},"a":[{number}, null ,1],"r":[{{"d":{number}}},{{}}]'
        return f'{{"id":1,"x":{number},"s":"a \\" 1.5, [2.25",{cells}}}'

    values = [written(number) for number in exact]
    values.append(f'{{"schema":{{"version":1.5}},"payload":{values[2]}}}')
    values.append(values[3].replace(":", ": "))
    values += [f'{{"id":1,"x":1,"d":{number}}}' for number in beyond]
    values += [f'{{"id":1,"x":1,{cell}}}' for cell in (f'"o":{{"d":{beyond[0]}}}', f'"a":[1,{beyond[0]}]')]
    decoded = answers(decode_json(frame_of(spark, [value.encode() for value in values]), "value", "_v", record))
    numbers = [*exact, exact[2], exact[3]]
    for value, number, (row, reason, _) in zip(values, numbers, decoded, strict=False):
        assert reason is None, value
        cells = row["d"], row["o"]["d"], row["a"][0], row["r"][0]["d"]
        assert cells == (Decimal(number),) * 4 and row["a"][1:] == [None, 1] and row["r"][1] == {"d": None}, value
        assert (row["x"], row["s"]) == (float(number), 'a " 1.5, [2.25'), value
    columns = [f"column {name}" for name in (*["d"] * len(beyond), "o.d", "a[]")]
    assert decoded[len(numbers) :] == [(None, "wrong_type", column) for column in columns]


def test_a_string_beyond_the_parsers_limit_is_reported_with_its_size(spark: SparkSession) -> None:
    record = {"type": "record", "name": "row", "fields": [{"name": "name", "type": "string"}]}
    value = b'{"name":"' + b"x" * (TEXT_CHARACTERS_MAX + 1) + b'"}'
    ((_, reason, detail),) = answers(decode_json(frame_of(spark, [value]), "value", "_v", record))
    assert reason == "undecodable"
    assert detail == f"it has {len(value)} bytes, and strings longer than {TEXT_CHARACTERS_MAX} characters are not read"


def test_the_quarantine_does_not_decode_records_again(spark: SparkSession) -> None:
    place = {"topic": F.lit("t"), "partition": F.lit(0), "offset": F.col("i"), "timestamp_ms": F.lit(1)}
    raw = frame_of(spark, [b"{", b"5", b'{"id":1}']).withColumns({**place, "key": F.lit(None)})
    decoded = decode_json(raw, "value", "_v", RECORD).withColumnsRenamed(
        {"_v_reason": "_reason", "_v_detail": "_detail"}
    )
    rows = unusable_rows(decoded, F.lit(None))
    assert rows.count() == 2
    # One call for records with a schema around them, one for all others, and two more for numbers that must be exact.
    plan = rows._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json") == 4, plan


def test_a_json_null_is_a_null_value_and_not_an_error(spark: SparkSession) -> None:
    values = [None, b"null", b'{"schema":null,"payload":null}']
    assert answers(decode_json(frame_of(spark, values), "value", "_v", RECORD)) == [(None, None, None)] * 3


def test_json_has_no_form_for_a_union_of_several_types() -> None:
    union = {"type": "record", "name": "r", "fields": [{"name": "u", "type": ["long", "string"]}]}
    with pytest.raises(SchemaRefused, match="which type of a union a value has"):
        record_form(resolved_schema(union))


def avro(record: dict[str, Any], value: dict[str, Any]) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(json.loads(json.dumps(record))), value)
    return written.getvalue()


SMALL = {
    "type": "record",
    "name": "small",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}
REORDERED = SMALL | {"fields": SMALL["fields"][::-1]}


def test_an_avro_body_is_read_whole_or_not_at_all(spark: SparkSession) -> None:
    good = avro(SMALL, {"id": 7, "name": "é"})
    values = [
        good,
        good + b"\x00",
        good[:-1],
        b"",
        None,
        b"\x80" * 9 + b"\x02\x00",
        avro(SMALL, {"id": 1, "name": None}),
    ]
    values.append(b"\x02\x02\x02\xff")
    decoded = answers(decode_avro(frame_of(spark, values), "value", "_v", SMALL, Writers(SMALL)))
    assert [(value, reason) for value, reason, _ in decoded] == [
        ({"id": 7, "name": "é"}, None),
        (None, "bytes_left_over"),
        (None, "undecodable"),
        (None, "undecodable"),
        (None, None),
        (None, "undecodable"),
        ({"id": 1}, None),
        (None, "undecodable"),
    ]


def test_confluent_framing_decodes_each_record_with_its_own_schema(spark: SparkSession) -> None:
    small, reordered = avro(SMALL, {"id": 7, "name": "a"}), avro(REORDERED, {"id": 8, "name": "b"})
    values = [
        b"\0\0\0\0\1" + small,
        b"\0\0\0\0\2" + reordered,
        b"\0\0\0\0\3" + small,
        small,
        b"\1\0\0\0\1" + small,
        b"\0\0\0",
        None,
    ]
    values.append(b"\0\0\0\0\1" + small + b"\0")
    decoded = answers(
        decode_avro(frame_of(spark, values), "value", "_v", SMALL, Writers(by_id={1: SMALL, 2: REORDERED}))
    )
    assert decoded == [
        ({"id": 7, "name": "a"}, None, None),
        ({"id": 8, "name": "b"}, None, None),
        (None, "unknown_schema_id", "schema id 3"),
        (None, "wrong_magic_byte", None),
        (None, "wrong_magic_byte", None),
        (None, "undecodable", None),
        (None, None, None),
        (None, "bytes_left_over", None),
    ]
