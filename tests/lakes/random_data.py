"""Random data for any record schema, and a form in which the codec's values can be compared with a table's."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from tidelake.schema.avro import branch_name

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS = ("", "a", "tide", "höchst", "\x00", "語" * 3, "x" * 70)


def random_datum(random: Random, kind: Any) -> Any:
    """A value of a resolved type (`tidelake.schema.avro.resolved_schema`), as the codec accepts it."""
    if isinstance(kind, list):
        branch = random.choice(kind)
        if branch == "null":
            return None
        value = random_datum(random, branch)
        return {branch_name(branch): value} if len([option for option in kind if option != "null"]) > 1 else value
    match kind["type"]:
        case "record":
            return {field["name"]: random_datum(random, field["type"]) for field in kind["fields"]}
        case "array":
            return [random_datum(random, kind["items"]) for _ in range(random.randrange(4))]
        case "enum":
            return random.choice(kind["symbols"])
        case "fixed":
            return random.randbytes(kind["size"])
        case "boolean":
            return random.random() < 0.5
        case "int":
            return random.choice((random.randrange(100), random.randrange(-(2**31), 2**31)))
        case "long":
            return random.choice((random.randrange(100), random.randrange(-(2**45), 2**45)))
        case "float":
            return struct.unpack("<f", struct.pack("<f", random.gauss(0, 100)))[0]
        case "double":
            return random.choice((0.0, -0.0, math.nan, random.gauss(0, 1e9)))
        case "string":
            return random.choice(_TEXTS)
        case "bytes" if kind.get("logicalType") == "decimal":
            return random.randrange(-(10**6), 10**6).to_bytes(4, "big", signed=True)
        case "bytes":
            return random.randbytes(random.randrange(6))
    raise AssertionError(kind)


def landed(kind: Any, value: Any) -> Any:
    """Convert a value that the codec has read to the form in which it is compared with a table's value.

    Equal values have equal forms.
    """
    if isinstance(kind, list):
        real = [branch for branch in kind if branch != "null"]
        if value is None or len(real) == 1:
            return None if value is None else landed(real[0], value)
        ((name, inner),) = value.items()
        return tuple(
            (branch_name(branch), landed(branch, inner) if branch_name(branch) == name else None) for branch in real
        )
    if kind["type"] == "record":
        return tuple((field["name"], landed(field["type"], value[field["name"]])) for field in kind["fields"])
    if kind["type"] == "array":
        return tuple(landed(kind["items"], item) for item in value)
    match kind.get("logicalType"):
        case "decimal":
            return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-kind.get("scale", 0))
        case "date":
            return value
        case "timestamp-millis":
            return value * 1000
    return one_form(value)


def one_form(value: Any) -> Any:
    """Convert a table's value to the form that `landed` returns.

    Structs and lists become tuples, and times become numbers; there is a single NaN, and a single zero.
    """
    if isinstance(value, dict):
        return tuple((name, one_form(inner)) for name, inner in value.items())
    if isinstance(value, list):
        return tuple(one_form(inner) for inner in value)
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - _EPOCH.date()).days
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value
