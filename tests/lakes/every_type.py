"""A record with a column of every type, and values for it."""

from __future__ import annotations

from typing import Any

ALL: dict[str, Any] = {
    "type": "record",
    "name": "everything",
    "namespace": "shop",
    "fields": [
        {"name": "b", "type": "boolean"},
        {"name": "i", "type": "int"},
        {"name": "l", "type": "long"},
        {"name": "f", "type": "float"},
        {"name": "d", "type": "double"},
        {"name": "by", "type": "bytes"},
        {"name": "s", "type": "string"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "clock", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "dec", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3}},
        {"name": "fix", "type": {"type": "fixed", "name": "four", "size": 4}},
        {"name": "color", "type": {"type": "enum", "name": "color", "symbols": ["red", "green"]}},
        {"name": "again", "type": ["null", "color"]},
        {"name": "list", "type": {"type": "array", "items": ["null", "long"]}},
        {
            "name": "place",
            "type": ["null", {"type": "record", "name": "place", "fields": [{"name": "city", "type": "string"}]}],
        },
        {"name": "home", "type": ["null", "shop.place"]},
        {"name": "several", "type": ["null", "int", "long", "string", "place"]},
        {"name": "two", "type": ["float", "double"]},
        {"name": "many", "type": {"type": "array", "items": ["int", "long"]}},
    ],
}


def everything(**changed: Any) -> dict[str, Any]:
    """A record in the codec's form: logical types are numbers, and union branches are named."""
    base = {
        "b": True,
        "i": -(2**31),
        "l": 2**63 - 1,
        "f": 0.5,
        "d": 1e300,
        "by": b"\x00\xff",
        "s": "żółw 🐢",
        "day": 19_000,
        "ms": 1_700_000_000_123,
        "us": -1,
        "clock": 5,
        "uuid": "x",
        "dec": (-1234567).to_bytes(4, "big", signed=True),
        "fix": b"abcd",
        "color": "green",
        "again": None,
        "list": [1, None, -1],
        "place": {"city": ""},
        "home": None,
        "several": {"long": 5},
        "two": {"float": 0.5},
        "many": [{"int": 1}, {"long": 1}],
    }
    return base | changed
