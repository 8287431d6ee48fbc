"""Encodes and decodes CDCv2 messages as lines of Avro's JSON encoding, as in the protocol's published example.

A batch is `{"array": [...]}`, a progress statement is `{"com.materialize.cdc.progress": {...}}`, and a non-null value
of a union is `{type: value}`. In memory, data has the same form as in `AvroCodec`, so each codec can write what the
other reads.
"""

from __future__ import annotations

import math
from typing import Any

from tidelake.errors import CodecError, EncodingRefused
from tidelake.protocol.json_values import JsonFloat, parse, to_text
from tidelake.protocol.message import Message, Progress, Updates
from tidelake.schema.avro import NAMESPACE, branch_name, record_schema_of, resolved_schema
from tidelake.schema.types import Family, scalar_type

_PROGRESS = f"{NAMESPACE}.progress"
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class AvroJsonCodec:
    """Avro-JSON lines for one record schema.

    Args:
        record_schema: the schema of the data, or a whole CDCv2 schema.

    >>> codec = AvroJsonCodec({"type": "record", "name": "data", "fields": [
    ...     {"name": "id", "type": "long"}, {"name": "price", "type": ["null", "int"]}]})
    >>> codec.decode(b'{"array":[{"data":{"id":5,"price":{"int":10}},"time":5,"diff":1}]}')
    Updates([Update(data={'id': 5, 'price': 10}, time=5, diff=1)])
    >>> codec.encode(codec.decode(b'{"array":[{"data":{"id":5,"price":null},"time":5,"diff":1}]}'))
    b'{"array":[{"data":{"id":5,"price":null},"time":5,"diff":1}]}'
    """

    def __init__(self, record_schema: Any) -> None:
        self._record = resolved_schema(record_schema_of(record_schema))

    def decode(self, line: bytes) -> Message:
        """Decode one line.

        Raises:
            CodecError: the line is not JSON, or not a message of this schema: `undecodable`.
            MalformedMessage: the message is malformed.
        """
        try:
            value = parse(line)
        except CodecError as error:
            raise CodecError("undecodable", error.detail) from None
        try:
            if isinstance(value, dict) and list(value) == ["array"] and isinstance(value["array"], list):
                return Updates([self._decode_update(update) for update in value["array"]])
            if isinstance(value, dict) and list(value) == [_PROGRESS]:
                return _decode_progress(value[_PROGRESS])
        except RecursionError:
            raise CodecError("undecodable", "the message is nested too deeply") from None
        raise CodecError("undecodable", f"the message is neither an array of updates nor {_PROGRESS}")

    def encode(self, message: Message) -> bytes:
        """Encode a message as one line, without a line break.

        Raises:
            EncodingRefused: the data does not fit the schema.
        """
        if isinstance(message, Progress):
            counts = [{"time": time, "count": count} for time, count in message.counts.items()]
            statement = {"lower": list(message.lower), "upper": list(message.upper), "counts": counts}
            return to_text({_PROGRESS: statement}).encode()
        batch = [
            {"data": _encode(self._record, data), "time": time, "diff": diff} for data, time, diff in message.batch
        ]
        return to_text({"array": batch}).encode()

    def _decode_update(self, update: Any) -> tuple[Any, Any, Any]:
        _check_fields(update, ["data", "time", "diff"])
        return _decode(self._record, update["data"]), update["time"], update["diff"]


def _decode_progress(value: Any) -> Progress:
    _check_fields(value, ["lower", "upper", "counts"])
    if not isinstance(value["counts"], list):
        raise CodecError("undecodable", "counts is not an array")
    for entry in value["counts"]:
        _check_fields(entry, ["time", "count"])
    return Progress(value["lower"], value["upper"], [(entry["time"], entry["count"]) for entry in value["counts"]])


def _check_fields(value: Any, names: list[str]) -> None:
    if not isinstance(value, dict) or sorted(value) != sorted(names):
        raise CodecError("undecodable", f"an object does not have exactly the fields {', '.join(names)}")


def _decode(kind: Any, value: Any) -> Any:
    """Read a value of a resolved type."""
    if isinstance(kind, list):
        return _decode_union(kind, value)
    if kind["type"] == "record":
        names = [field["name"] for field in kind["fields"]]
        _check_fields(value, names)
        return {field["name"]: _decode(field["type"], value[field["name"]]) for field in kind["fields"]}
    if kind["type"] == "array":
        if not isinstance(value, list):
            raise CodecError("undecodable", "a value is not an array")
        return [_decode(kind["items"], item) for item in value]
    return _decode_scalar(kind, value)


def _decode_union(branches: list[Any], value: Any) -> Any:
    if value is None and "null" in branches:
        return None
    several = sum(branch != "null" for branch in branches) > 1
    if isinstance(value, dict) and len(value) == 1:
        ((name, content),) = value.items()
        for branch in branches:
            if branch != "null" and name in (branch.get("name"), branch_name(branch)):
                decoded = _decode(branch, content)
                return {branch_name(branch): decoded} if several else decoded
    raise CodecError("undecodable", "a value matches no branch of its union")


def _decode_scalar(kind: dict[str, Any], value: Any) -> Any:
    scalar = scalar_type(kind["type"])  # in JSON, a logical type looks like its base type
    match scalar.family:
        case Family.INTEGER if type(value) is int and scalar.bounds[0] <= value <= scalar.bounds[1]:
            return value
        case Family.REAL if isinstance(value, JsonFloat):
            return float(value.text)
        case Family.REAL if type(value) is int:
            return _float_of(value)
        case Family.REAL if isinstance(value, str) and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        case Family.BOOLEAN if isinstance(value, bool):
            return value
        case Family.TEXT if isinstance(value, str):
            return value
        case Family.SYMBOL if isinstance(value, str) and value in kind["symbols"]:
            return value
        case Family.BINARY if isinstance(value, str) and all(ord(character) < 256 for character in value):
            if len(value) == kind.get("size", len(value)):
                return value.encode("latin-1")
    raise CodecError("undecodable", f"a value is not of type {scalar.base}")


def _float_of(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _encode(kind: Any, value: Any) -> Any:
    """Write a value of a resolved type as JSON values."""
    try:
        if isinstance(kind, list):
            return _encode_union(kind, value)
        if kind["type"] == "record":
            return {field["name"]: _encode(field["type"], value[field["name"]]) for field in kind["fields"]}
        if kind["type"] == "array":
            return [_encode(kind["items"], item) for item in value]
        if scalar_type(kind["type"]).family is Family.BINARY:
            return value.decode("latin-1")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise EncodingRefused(f"{type(error).__name__}: {error}") from error
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _encode_union(branches: list[Any], value: Any) -> Any:
    if value is None:
        return None
    others = [branch for branch in branches if branch != "null"]
    if len(others) > 1:
        ((name, value),) = value.items()
        others = [branch for branch in others if branch_name(branch) == name]
    (branch,) = others
    return {branch.get("name", branch["type"]): _encode(branch, value)}
