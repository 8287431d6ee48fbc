"""Every type of Debezium's lands as what the database holds, or its failure is seen; no null comes in silence."""

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

from tests.captures.lake import ChangeLake, lines
from tidelake.connect_types import row_schema_of_connect, travels
from tidelake.delta.connect_values import is_unavailable_text, land_text
from tidelake.delta.snapshot import snapshot

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
"""By mode of the connector, what a real one's row of every type lands as; timestamps are counted in microseconds."""


@pytest.mark.parametrize(
    "mode", ["precise", *(pytest.param(one, marks=pytest.mark.sweep) for one in ("string", "double"))]
)
def test_every_type_of_a_real_connector_lands_as_what_the_database_holds(
    tmp_path: Path, spark: SparkSession, mode: str
) -> None:
    topic = f"types_{mode}.public.kinds"
    captured = lines(f"types/{mode}", topic)
    event = json.loads(next(line for part in captured.values() for line in part))["value"]
    lake = ChangeLake(tmp_path, spark, topic, row_schema_of_connect(event["schema"]))
    lake.send(captured)
    assert lake.ingest().quarantined == 0
    contents = snapshot(spark, lake.collection).contents
    counted = [
        F.unix_micros(one.name).alias(one.name) if one.dataType.typeName() == "timestamp" else F.col(one.name)
        for one in contents.schema
    ]
    whole, empty = (row.asDict(recursive=True) for row in contents.select(*counted).orderBy("id").collect())
    assert whole == {**_SAME, **_GOLDEN[mode], "_diff": 1}
    assert {name for name, value in empty.items() if value is not None} == {"id", "_diff"}


_DECIMAL = {"logicalType": "decimal", "precision": 6, "scale": 2}
_PLACEHOLDER = "__debezium_unavailable_value"

# type, what travels as JSON, what lands (an exception: it cannot be had)
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
    ({"type": "double", **_DECIMAL}, 12.5, Decimal("12.50")),
    ({"type": "int", "connect.name": "io.debezium.time.Date"}, -719162, datetime.date(1, 1, 1)),
    ({"type": "int", "logicalType": "date"}, "soon", ValueError),
    ({"type": "long", "connect.name": "io.debezium.time.Timestamp"}, -1, -1000),
    ({"type": "long", "connect.name": "io.debezium.time.Timestamp"}, 9223372036854775807, ValueError),
    ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, -1, -1),
    ({"type": "long", "connect.name": "io.debezium.time.NanoTimestamp"}, 1709208000123456789, 1709208000123456789),
    ({"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}, "1970-01-01T01:00:00.000001+01:00", 1),
    ({"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}, "infinity", ValueError),
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
    (
        {"type": "record", "connect.name": "io.debezium.data.VariableScaleDecimal"},
        {"scale": 3, "value": "/w=="},
        "-0.001",
    ),
    ({"type": "record", "connect.name": "io.debezium.data.VariableScaleDecimal"}, {"scale": 0, "value": "AA=="}, "0"),
    (
        {"type": "record", "connect.name": "io.debezium.data.VariableScaleDecimal"},
        {"scale": -2, "value": "AQ=="},
        "100",
    ),
    ({"type": "record", "connect.name": "io.debezium.data.VariableScaleDecimal"}, {"scale": 1}, ValueError),
    ({"type": "record", "connect.name": "io.debezium.data.VariableScaleDecimal"}, 7, ValueError),
    ({"type": "array", "items": ["null", "int"]}, [1, None], [1, None]),
    ({"type": "array", "items": "int"}, [1, "x"], ValueError),
    ({"type": "array", "items": "int"}, 7, ValueError),
    ({"type": "array", "items": {"type": "array", "items": "string"}}, [["a"], []], [["a"], []]),
    ({"type": "map", "values": "string"}, {"a": "b"}, '{"a": "b"}'),
]


def test_the_golden_table_of_types_lands_or_its_failure_is_seen(spark: SparkSession) -> None:
    columns, texts = [], []
    for place, (kind, given, expected) in enumerate(_TABLE):
        record = {"type": "record", "name": "row", "fields": [{"name": "c", "type": kind}]}
        travel = travels(record)[0][1]
        landed = land_text(F.col(f"t{place}"), travel)
        value = landed.value
        if travel.landing == {"type": "long", "logicalType": "timestamp-micros"}:
            value = F.unix_micros(value)
        columns += [value.alias(f"v{place}"), landed.bad.alias(f"b{place}")]
        texts.append(given if isinstance(given, str) else json.dumps(given))
        assert expected is not None
    schema = StructType()
    for place in range(len(texts)):
        schema.add(f"t{place}", "string")
    row = spark.createDataFrame([tuple(texts)], schema).select(*columns).collect()[0].asDict(recursive=True)
    for place, (kind, given, expected) in enumerate(_TABLE):
        if expected is ValueError:
            assert row[f"b{place}"] is True, (kind, given)
        else:
            found = row[f"v{place}"]
            assert found == expected or (found != found and expected != expected), (kind, given, found)
            assert row[f"b{place}"] is False, (kind, given)


def test_the_placeholder_is_known_in_every_form_that_a_type_gives_it(spark: SparkSession) -> None:
    of_text = json.dumps([_PLACEHOLDER], separators=(",", ":"))
    of_bytes = json.dumps(list(_PLACEHOLDER.encode()), separators=(",", ":"))
    encoded = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
    table = [
        ("string", _PLACEHOLDER, True),
        ("string", _PLACEHOLDER + " ", False),
        ({"type": "string", "connect.name": "io.debezium.data.Json"}, _PLACEHOLDER, True),
        ("string", _PLACEHOLDER.encode().hex(), True),
        ("bytes", encoded, True),
        ("bytes", "AAAA", False),
        ({"type": "bytes", "encoding": "hex"}, _PLACEHOLDER.encode().hex(), True),
        ({"type": "array", "items": "string"}, of_text, True),
        ({"type": "array", "items": "string"}, '["a"]', False),
        ({"type": "array", "items": "int"}, of_bytes, True),
        ({"type": "array", "items": "long"}, of_bytes.replace(",", ", "), True),
        ({"type": "array", "items": "bytes"}, f'["{encoded}"]', True),
        ({"type": "map", "values": "string"}, f'{{"{_PLACEHOLDER}":"{_PLACEHOLDER}"}}', True),
        ("int", "5", False),
    ]
    checks = []
    for place, (kind, text, _) in enumerate(table):
        travel = travels({"type": "record", "name": "row", "fields": [{"name": "c", "type": kind}]})[0][1]
        checks.append(is_unavailable_text(F.lit(text), travel, _PLACEHOLDER).alias(f"c{place}"))
    found = list(spark.range(1).select(*checks).collect()[0])
    assert found == [expected for _, _, expected in table]
