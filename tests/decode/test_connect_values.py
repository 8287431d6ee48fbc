"""Values of every Debezium type land as the database has them, or fail visibly; none silently becomes null."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tests.captures.lake import EVENT, ChangeLake, avro_lines, lines
from tidelake.decode.debezium.values import is_unavailable_raw, is_unavailable_text, land_raw, land_text
from tidelake.read.snapshot import snapshot
from tidelake.schema.connect import row_schema_of_connect, wire_types

pytestmark = pytest.mark.spark

_SAME: dict[str, Any] = {
    "id": 1,
    "c_bool": True,
    "c_smallint": -32768,
    "c_int": 2147483647,
    "c_bigint": -9223372036854775808,
    "c_real": -1.5,
    "c_double": 1e-300,
    "c_text": "Möwe 🌊",
    "c_char": "ab   ",
    "c_varchar": "",
    "c_date": datetime.date(1969, 12, 31),
    "c_timetz": "10:00:00Z",
    "c_timestamptz": 1709188200000001,
    "c_uuid": "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0",
    "c_json": '{"a": [1, null]}',
    "c_jsonb": '{"b": "ü"}',
    "c_bit1": True,
    "c_bits": b"\x01\x02",
    "c_enum": "high tide",
    "c_inet": "10.0.0.1/8",
    "c_ints": [1, None, -3],
    "c_texts": ["a", None, "b c"],
    "c_dates": [datetime.date(2024, 2, 29)],
    "c_range": "[1,5)",
    "c_point": {"x": 1.5, "y": -2.0, "wkb": bytes.fromhex("0101000000000000000000f83f00000000000000c0"), "srid": None},
}
_GOLDEN: dict[str, dict[str, Any]] = {
    "precise": {
        "c_numeric": Decimal("-1234567890123456.7891"),
        "c_small": Decimal("0.001"),
        "c_free": "-12345678901234567890.000123",
        "c_money": Decimal("12.34"),
        "c_numerics": [Decimal("1.25"), Decimal("-0.01")],
        "c_bytea": b"\x00\xff\xfe",
        "c_time": 86399999999,
        "c_time3": 123,
        "c_timestamp": -1,
        "c_timestamp3": 1709208000123000,
        "c_interval": 37091106000007,
    },
    "string": {
        "c_numeric": "-1234567890123456.7891",
        "c_small": "0.001",
        "c_free": "-12345678901234567890.000123",
        "c_money": "12.34",
        "c_numerics": ["1.25", "-0.01"],
        "c_bytea": "00fffe",
        "c_time": 86399999,
        "c_time3": 123,
        "c_timestamp": -1000,
        "c_timestamp3": 1709208000123000,
        "c_interval": "P1Y2M3DT4H5M6.000007S",
    },
    "double": {
        "c_numeric": -1234567890123456.8,
        "c_small": 0.001,
        "c_free": -1.2345678901234567e19,
        "c_money": 12.34,
        "c_numerics": [1.25, -0.01],
        "c_bytea": "AP_-",
        "c_time": 86399999999000,
        "c_time3": 123000000,
        "c_timestamp": -1000,
        "c_timestamp3": 1709208000123000000,
        "c_interval": 37091106000007,
    },
}
"""What lands in the columns that depend on the connector's mode, by mode; timestamps are in microseconds."""


_MODES = pytest.mark.parametrize(
    "mode", ["precise", *(pytest.param(mode, marks=pytest.mark.sweep) for mode in ("string", "double"))]
)


def _captured(mode: str) -> tuple[str, dict[int, list[str]], dict[str, Any]]:
    """A real connector's topic whose rows have every type: its name, its lines, and the schema of a row."""
    topic = f"types_{mode}.public.kinds"
    captured = lines(f"types/{mode}", topic)
    event = json.loads(next(line for part in captured.values() for line in part))["value"]
    return topic, captured, row_schema_of_connect(event["schema"])


def _check_landed(lake: ChangeLake, mode: str) -> None:
    assert lake.ingest().quarantined == 0
    contents = snapshot(lake.spark, lake.collection).contents
    counted = [
        F.unix_micros(column.name).alias(column.name)
        if column.dataType.typeName() == "timestamp"
        else F.col(column.name)
        for column in contents.schema
    ]
    whole, empty = (row.asDict(recursive=True) for row in contents.select(*counted).orderBy("id").collect())
    assert whole == {**_SAME, **_GOLDEN[mode], "_diff": 1}
    assert {name for name, value in empty.items() if value is not None} == {"id", "_diff"}


@_MODES
def test_every_type_of_a_real_connector_lands_as_the_database_has_it(
    tmp_path: Path, spark: SparkSession, mode: str
) -> None:
    topic, captured, row = _captured(mode)
    lake = ChangeLake(tmp_path, spark, topic, row)
    lake.send(captured)
    _check_landed(lake, mode)


@pytest.mark.sweep
@_MODES
def test_every_type_lands_from_avro_as_it_does_from_json(tmp_path: Path, spark: SparkSession, mode: str) -> None:
    topic, captured, row = _captured(mode)
    rows = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", row["name"]]}]
    event = EVENT | {"fields": [*rows, *EVENT["fields"][2:]]}
    lake = ChangeLake(tmp_path, spark, topic, event, format="avro")
    lake.send({partition: avro_lines(part, b"", event) for partition, part in captured.items()})
    _check_landed(lake, mode)


_DECIMAL = {"logicalType": "decimal", "precision": 6, "scale": 2}
_WHOLE = {"logicalType": "decimal", "precision": 20, "scale": 0}
_SCALED = {"type": "record", "connect.name": "io.debezium.data.VariableScaleDecimal"}
_ZONED = {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}
_NOT_ZONED = ["infinity", "12:30", "12:30:00Z", "T12:30", "2026", "2026-01", "2026-01-01", "2026-01-01T00:00:00", "now"]
_NOT_ZONED += ["2026-01-01T00:00:00.123456789Z", "2026-02-30T00:00:00Z", "2026-01-01T00:00Z", "epoch", " 2026", "today"]
_PLACEHOLDER = "__debezium_unavailable_value"

# the type, what is sent as JSON, and what lands (ValueError: it does not land)
_TABLE: list[tuple[Any, Any, Any]] = [
    ("boolean", True, True),
    ("boolean", "yes", ValueError),
    ("int", 2147483648, ValueError),
    ("int", 1.5, ValueError),
    ("int", "", ValueError),
    ("long", 9223372036854775807, 9223372036854775807),
    ("long", 9223372036854775808, ValueError),
    ("double", "NaN", float("nan")),
    ("double", "much", ValueError),
    ("double", "-Infinity", float("-inf")),
    *(("double", text, ValueError) for text in ("1d", "1F", "0x1p3", "1e400", "inf", "infinity", "nan", "")),
    ("float", "Infinity", float("inf")),
    ("float", 3.4028235e38, 3.4028234663852886e38),
    ("float", 1e39, ValueError),
    ("string", "", ""),
    ("string", "null", "null"),
    ("bytes", "AP/+", b"\x00\xff\xfe"),
    ("bytes", "AP_-", b"\x00\xff\xfe"),
    ("bytes", "", b""),
    ("bytes", "&&&", ValueError),
    ({"type": "bytes", "encoding": "hex"}, "00FFfe", b"\x00\xff\xfe"),
    ({"type": "bytes", "encoding": "hex"}, "0x", ValueError),
    ({"type": "bytes", **_DECIMAL}, "AQ==", Decimal("0.01")),
    ({"type": "bytes", **_DECIMAL}, "/w==", Decimal("-0.01")),
    ({"type": "bytes", **_DECIMAL}, "D0I/", Decimal("9999.99")),
    ({"type": "bytes", **_DECIMAL}, "D0JA", ValueError),
    ({"type": "bytes", **_DECIMAL}, "", ValueError),
    ({"type": "bytes", **_DECIMAL}, "AAAAAAAAAAAAAAAAAAAAAAAAAAE=", ValueError),
    ({"type": "string", **_DECIMAL}, "-0.10", Decimal("-0.10")),
    ({"type": "string", **_DECIMAL}, "0.100", Decimal("0.10")),
    ({"type": "string", **_DECIMAL}, "0.001", ValueError),
    ({"type": "string", **_DECIMAL}, "10000", ValueError),
    ({"type": "string", **_DECIMAL}, "NaN", ValueError),
    ({"type": "string", **_DECIMAL}, "1.5E+3", Decimal(1500)),
    ({"type": "string", **_DECIMAL}, "1E-1", Decimal("0.10")),
    ({"type": "string", **_DECIMAL}, "0E-10", Decimal(0)),
    ({"type": "string", **_DECIMAL}, "1E-7", ValueError),
    ({"type": "string", **_DECIMAL}, "1.5E-3", ValueError),
    ({"type": "string", **_DECIMAL}, "1e-999999999", ValueError),
    ({"type": "string", **_DECIMAL}, "1e999999999", ValueError),
    ({"type": "double", **_DECIMAL}, 12.5, Decimal("12.50")),
    ({"type": "double", **_DECIMAL}, 1.234e-05, ValueError),
    ({"type": "double", **_DECIMAL}, 0.001, ValueError),
    ({"type": "double", **_DECIMAL}, float("inf"), ValueError),
    ({"type": "double", **_WHOLE}, 88673823031985e3, Decimal(88673823031985000)),
    ({"type": "double", **_WHOLE}, 123456789012345680, Decimal(123456789012345680)),
    ({"type": "int", "connect.name": "io.debezium.time.Date"}, -719162, datetime.date(1, 1, 1)),
    ({"type": "int", "logicalType": "date"}, "soon", ValueError),
    ({"type": "int", "logicalType": "date"}, -2147472693, ValueError),
    ({"type": "int", "logicalType": "date"}, 2147483647, ValueError),
    ({"type": "long", "connect.name": "io.debezium.time.Timestamp"}, -1, -1000),
    ({"type": "long", "connect.name": "io.debezium.time.Timestamp"}, 9223372036854775807, ValueError),
    ({"type": "long", "connect.name": "io.debezium.time.Timestamp"}, 9223372036825200, ValueError),
    ({"type": "long", "connect.name": "io.debezium.time.Timestamp"}, 9223372036825199, 9223372036825199000),
    ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, -1, -1),
    ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, 9223372036825200000, ValueError),
    ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, -9223372036832400000, ValueError),
    ({"type": "long", "connect.name": "io.debezium.time.NanoTimestamp"}, 1709208000123456789, 1709208000123456789),
    (_ZONED, "1970-01-01T01:00:00.000001+01:00", 1),
    (_ZONED, "1970-01-01T00:00:00.000001000Z", 1),
    (_ZONED, "1970-01-01T00:19:32+00:19:32", 0),
    (_ZONED, "+10000-01-01T00:00:00Z", 253402300800000000),
    (_ZONED, "-0043-03-15T00:00:00Z", -63517824000000000),
    *((_ZONED, text, ValueError) for text in _NOT_ZONED),
    ({"type": "int", "connect.name": "io.debezium.time.Time"}, 86399999, 86399999),
    ({"type": "long", "connect.name": "io.debezium.time.MicroTime"}, 86399999999, 86399999999),
    ({"type": "long", "connect.name": "io.debezium.time.NanoTime"}, 86399999999999, 86399999999999),
    ({"type": "long", "connect.name": "io.debezium.time.MicroDuration"}, -1, -1),
    ({"type": "int", "connect.name": "io.debezium.time.Year"}, 2024, 2024),
    ({"type": "string", "connect.name": "io.debezium.time.Interval"}, "P1M", "P1M"),
    ({"type": "string", "connect.name": "io.debezium.time.ZonedTime"}, "10:00:00Z", "10:00:00Z"),
    ({"type": "int", "connect.name": "org.apache.kafka.connect.data.Date"}, 0, datetime.date(1970, 1, 1)),
    ({"type": "int", "connect.name": "org.apache.kafka.connect.data.Time"}, 1, 1),
    ({"type": "long", "connect.name": "org.apache.kafka.connect.data.Timestamp"}, 1, 1000),
    ({"type": "string", "connect.name": "io.debezium.data.Uuid"}, "u", "u"),
    ({"type": "string", "connect.name": "io.debezium.data.Json"}, '{"a": 1.10}', '{"a": 1.10}'),
    ({"type": "string", "connect.name": "io.debezium.data.Xml"}, "<a/>", "<a/>"),
    ({"type": "string", "connect.name": "io.debezium.data.Enum"}, "ebb", "ebb"),
    ({"type": "bytes", "connect.name": "io.debezium.data.Bits"}, "AQI=", b"\x01\x02"),
    (_SCALED, {"scale": 3, "value": "/w=="}, "-0.001"),
    (_SCALED, {"scale": 0, "value": "AA=="}, "0"),
    (_SCALED, {"scale": -2, "value": "AQ=="}, "100"),
    (_SCALED, {"scale": -3, "value": "AA=="}, "0"),
    (_SCALED, {"scale": 5, "value": "AA=="}, "0.00000"),
    (_SCALED, {"scale": 40, "value": "Bw=="}, f"0.{'0' * 39}7"),
    (_SCALED, {"scale": 1_000_000_000, "value": "Bw=="}, ValueError),
    (_SCALED, {"scale": -1_000_000_000, "value": "Bw=="}, ValueError),
    (_SCALED, {"scale": -2_147_483_648, "value": "AA=="}, ValueError),
    (_SCALED, {"scale": 1}, ValueError),
    (_SCALED, 7, ValueError),
    ({"type": "array", "items": ["null", "int"]}, [1, None], [1, None]),
    ({"type": "array", "items": "int"}, [1, "x"], ValueError),
    ({"type": "array", "items": "int"}, 7, ValueError),
    ({"type": "array", "items": {"type": "array", "items": "string"}}, [["a"], []], [["a"], []]),
    ({"type": "map", "values": "string"}, {"a": "b"}, '{"a": "b"}'),
]


def test_every_value_of_the_table_lands_as_expected_or_fails_visibly(spark: SparkSession) -> None:
    columns, texts = [], []
    for place, (kind, sent, expected) in enumerate(_TABLE):
        record = {"type": "record", "name": "row", "fields": [{"name": "c", "type": kind}]}
        wire = wire_types(record)[0][1]
        landed = land_text(F.col(f"t{place}"), wire)
        value = landed.value
        if wire.landing == {"type": "long", "logicalType": "timestamp-micros"}:
            value = F.unix_micros(value)
        columns += [value.alias(f"v{place}"), landed.bad.alias(f"b{place}")]
        texts.append(sent if isinstance(sent, str) else json.dumps(sent))
        assert expected is not None
    schema = StructType()
    for place in range(len(texts)):
        schema.add(f"t{place}", "string")
    row = spark.createDataFrame([tuple(texts)], schema).select(*columns).collect()[0].asDict(recursive=True)
    for place, (kind, sent, expected) in enumerate(_TABLE):
        if expected is ValueError:
            assert row[f"b{place}"] is True, (kind, sent)
        else:
            found = row[f"v{place}"]
            assert found == expected or (found != found and expected != expected), (kind, sent, found)
            assert row[f"b{place}"] is False, (kind, sent)


def test_the_placeholder_is_recognised_in_every_form_that_a_type_gives_it(spark: SparkSession) -> None:
    text_list = json.dumps([_PLACEHOLDER], separators=(",", ":"))
    byte_list = json.dumps(list(_PLACEHOLDER.encode()), separators=(",", ":"))
    encoded = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
    table = [
        ("string", _PLACEHOLDER, True),
        ("string", _PLACEHOLDER + " ", False),
        ({"type": "string", "connect.name": "io.debezium.data.Json"}, _PLACEHOLDER, True),
        ("string", _PLACEHOLDER.encode().hex(), True),
        ("bytes", encoded, True),
        ("bytes", "AAAA", False),
        ({"type": "bytes", "encoding": "hex"}, _PLACEHOLDER.encode().hex(), True),
        ({"type": "array", "items": "string"}, text_list, True),
        ({"type": "array", "items": "string"}, '["a"]', False),
        ({"type": "array", "items": "int"}, byte_list, True),
        ({"type": "array", "items": "long"}, byte_list.replace(",", ", "), True),
        ({"type": "array", "items": "bytes"}, f'["{encoded}"]', True),
        ({"type": "map", "values": "string"}, f'{{"{_PLACEHOLDER}":"{_PLACEHOLDER}"}}', True),
        ("int", "5", False),
    ]
    checks = []
    for place, (kind, text, _) in enumerate(table):
        wire = wire_types({"type": "record", "name": "row", "fields": [{"name": "c", "type": kind}]})[0][1]
        checks.append(is_unavailable_text(F.lit(text), wire, _PLACEHOLDER).alias(f"c{place}"))
    found = list(spark.range(1).select(*checks).collect()[0])
    assert found == [expected for _, _, expected in table]


_VARIABLE = {"type": "record", "connect.name": "io.debezium.data.VariableScaleDecimal"}
_NUMERIC = {"type": "bytes", **_DECIMAL}
_POINT = {
    "type": "record",
    "name": "point",
    "fields": [{"name": "x", "type": "double"}, {"name": "d", "type": _NUMERIC}],
}

# the type, the type that Avro decodes it to, the decoded value, and what lands (ValueError: it does not land)
_RAW_TABLE: list[tuple[Any, str, Any, Any]] = [
    ({"type": "int", "connect.name": "io.debezium.time.Time"}, "int", 86399999, 86399999),
    ({"type": "long", "connect.name": "io.debezium.time.MicroTime"}, "bigint", 86399999999, 86399999999),
    ({"type": "long", "connect.name": "io.debezium.time.NanoTime"}, "bigint", 86399999999999, 86399999999999),
    ({"type": "long", "connect.name": "io.debezium.time.Timestamp"}, "bigint", -1, -1000),
    ({"type": "long", "connect.name": "io.debezium.time.Timestamp"}, "bigint", 2**63 - 1, ValueError),
    ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, "bigint", -1, -1),
    ({"type": "long", "connect.name": "io.debezium.time.NanoTimestamp"}, "bigint", 2**63 - 1, 2**63 - 1),
    ({"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}, "string", "infinity", ValueError),
    ({"type": "long", "connect.name": "io.debezium.time.MicroDuration"}, "bigint", -1, -1),
    (_NUMERIC, "binary", b"\xff", Decimal("-0.01")),
    (_NUMERIC, "binary", b"\x0f\x42\x40", ValueError),
    (_NUMERIC, "binary", b"", ValueError),
    (_VARIABLE, "struct<scale: int, value: binary>", (3, b"\xff"), "-0.001"),
    (_VARIABLE, "struct<scale: int, value: binary>", (-2, b"\x01"), "100"),
    (_VARIABLE, "struct<scale: int, value: binary>", (0, bytes(16) + b"\x01"), ValueError),
    ({"type": "array", "items": ["null", _NUMERIC]}, "array<binary>", [b"\x7d", None], [Decimal("1.25"), None]),
    ({"type": "array", "items": _NUMERIC}, "array<binary>", [b"\x7d", b""], ValueError),
    ({"type": "array", "items": _VARIABLE}, "array<struct<scale: int, value: binary>>", [(1, b"\x05")], ["0.5"]),
    (_POINT, "struct<x: double, d: binary>", (0.5, b"\x01"), {"x": 0.5, "d": Decimal("0.01")}),
    (_POINT, "struct<x: double, d: binary>", (0.5, b""), ValueError),
    ({"type": "map", "values": "string"}, "map<string, string>", {"a": "b"}, '{"a":"b"}'),
]


def test_a_value_that_avro_decodes_lands_as_expected_or_fails_visibly(spark: SparkSession) -> None:
    columns = []
    for place, (kind, _, _, _) in enumerate(_RAW_TABLE):
        wire = wire_types({"type": "record", "name": "row", "fields": [{"name": "c", "type": kind}]})[0][1]
        landed = land_raw(F.col(f"r{place}"), wire)
        is_time = wire.landing == {"type": "long", "logicalType": "timestamp-micros"}
        columns += [(F.unix_micros(landed.value) if is_time else landed.value).alias(f"v{place}")]
        columns += [landed.bad.alias(f"b{place}")]
    ddl = ", ".join(f"r{place} {decoded}" for place, (_, decoded, _, _) in enumerate(_RAW_TABLE))
    rows = [tuple(value for _, _, value, _ in _RAW_TABLE), (None,) * len(_RAW_TABLE)]
    whole, empty = (row.asDict(recursive=True) for row in spark.createDataFrame(rows, ddl).select(*columns).collect())
    for place, (kind, _, value, expected) in enumerate(_RAW_TABLE):
        assert (empty[f"v{place}"], empty[f"b{place}"]) == (None, False), kind
        assert whole[f"b{place}"] is (expected is ValueError), (kind, value)
        assert expected is ValueError or whole[f"v{place}"] == expected, (kind, value, whole[f"v{place}"])


def test_the_placeholder_is_recognised_in_values_that_avro_decodes(spark: SparkSession) -> None:
    encoded = _PLACEHOLDER.encode()
    table: list[tuple[Any, str, Any, bool]] = [
        ("string", "string", _PLACEHOLDER, True),
        ("string", "string", _PLACEHOLDER + " ", False),
        ("string", "string", None, False),
        ({"type": "string", "connect.name": "io.debezium.data.Json"}, "string", _PLACEHOLDER, True),
        ("bytes", "binary", encoded, True),
        ("bytes", "binary", encoded + b"\x00", False),
        ({"type": "bytes", "encoding": "hex"}, "binary", encoded, True),
        ({"type": "array", "items": "string"}, "array<string>", [_PLACEHOLDER], True),
        ({"type": "array", "items": ["null", "string"]}, "array<string>", [_PLACEHOLDER, None], False),
        ({"type": "array", "items": "int"}, "array<int>", list(encoded), True),
        ({"type": "array", "items": "long"}, "array<bigint>", list(encoded), True),
        ({"type": "array", "items": "int"}, "array<int>", list(encoded[1:]), False),
        ({"type": "array", "items": "bytes"}, "array<binary>", [encoded], True),
        ({"type": "array", "items": "bytes"}, "array<binary>", [], False),
        ({"type": "array", "items": "double"}, "array<double>", [1.0], False),
        ({"type": "map", "values": "string"}, "map<string, string>", {_PLACEHOLDER: _PLACEHOLDER}, True),
        ({"type": "map", "values": "string"}, "map<string, string>", {"a": _PLACEHOLDER}, False),
        ("int", "int", 5, False),
    ]
    checks = []
    for place, (kind, _, _, _) in enumerate(table):
        wire = wire_types({"type": "record", "name": "row", "fields": [{"name": "c", "type": kind}]})[0][1]
        checks.append(is_unavailable_raw(F.col(f"r{place}"), wire, _PLACEHOLDER).alias(f"c{place}"))
    ddl = ", ".join(f"r{place} {decoded}" for place, (_, decoded, _, _) in enumerate(table))
    (row,) = spark.createDataFrame([tuple(value for _, _, value, _ in table)], ddl).select(*checks).collect()
    assert list(row) == [expected for _, _, _, expected in table]
