"""Converts rows of a table back to the data of the messages that stated them."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tidelake.schema.avro import branch_name, resolved_schema
from tidelake.schema.types import Family, scalar_of

_MICROS_PER_MILLI = 1000


def data_of_row(record_schema: dict[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a row in the form that `AvroCodec` uses.

    `AvroCodec.identity` gives the same result for equal data, whether the data was decoded from a message or returned
    by this function.

    Args:
        record_schema: the collection's record schema.
        row: the values of the data's columns: timestamps as microseconds since 1970, dates as days, decimals as
            `Decimal`, records and unions of several types as mappings.

    >>> schema = {"type": "record", "name": "data", "fields": [{"name": "price", "type": ["null", "int", "string"]},
    ...     {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}
    >>> data_of_row(schema, {"price": {"int": 5, "string": None}, "at": 7000})
    {'price': {'int': 5}, 'at': 7}
    """
    data: dict[str, Any] = _data_of(resolved_schema(record_schema), row)
    return data


def _data_of(kind: Any, value: Any) -> Any:
    if isinstance(kind, list):
        return _branch_of([branch for branch in kind if branch != "null"], value)
    if kind["type"] == "record":
        return {field["name"]: _data_of(field["type"], value[field["name"]]) for field in kind["fields"]}
    if kind["type"] == "array":
        return [_data_of(kind["items"], item) for item in value]
    scalar = scalar_of(kind)
    if scalar.family is Family.DECIMAL:
        return _unscaled(kind, value)
    if scalar.logical == "timestamp-millis":
        return value // _MICROS_PER_MILLI
    return value


def _branch_of(branches: list[Any], value: Any) -> Any:
    if value is None:
        return None
    if len(branches) == 1:
        return _data_of(branches[0], value)
    (name,) = (name for name, inner in value.items() if inner is not None)
    branch = next(branch for branch in branches if branch_name(branch) == name)
    return {name: _data_of(branch, value[name])}


def _unscaled(kind: dict[str, Any], value: Decimal) -> bytes:
    """Return a decimal as the bytes of its unscaled value."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits))) * 10 ** (exponent + int(kind["scale"]))
    number = -number if sign else number
    size = kind["size"] if kind["type"] == "fixed" else (number.bit_length() + 8) // 8
    unscaled: bytes = number.to_bytes(size, "big", signed=True)
    return unscaled
