"""CDCv2 messages to bytes and back: bare Avro, and Avro behind the five bytes of Confluent framing.

Data are dictionaries. Every value is kept as it is stated: a timestamp is its integer, a decimal its bytes, and where a
union has several branches the value is `{branch: value}`, so that an `int` 5 and a `long` 5 stay two data. A union of
null and one type is the value itself, or None.
"""

from __future__ import annotations

import io
import math
from typing import Any, Protocol

import fastavro

from tidelake.codec_exact import fits_its_types, has_bounded_types, read_exactly
from tidelake.errors import CodecError, InvalidUsage
from tidelake.message import Message, Progress, Updates
from tidelake.schema import branch_name, cdcv2_schema, record_schema_of, resolved_schema

MAGIC_BYTE = 0
HEADER_BYTES = 5


class AvroCodec:
    """Bare Avro for one record schema.

    Args:
        record_schema: of the data; or a whole CDCv2 schema.

    Raises:
        SchemaRefused: a collection cannot hold the record.

    >>> codec = AvroCodec({"type": "record", "name": "data", "fields": [{"name": "id", "type": "long"}]})
    >>> codec.decode(codec.encode(Updates([({"id": 5}, 4, +1)])))
    Updates([Update(data={'id': 5}, time=4, diff=1)])
    """

    def __init__(self, record_schema: Any) -> None:
        self.record_schema = record_schema_of(record_schema)
        self._resolved = resolved_schema(self.record_schema)
        self._has_forms = _has_forms(self._resolved)
        self._has_bounded_types = has_bounded_types(self._resolved)
        plain = _Plain().of(self._resolved)
        template = cdcv2_schema({"type": "record", "name": "data", "fields": [{"name": "a", "type": "int"}]})
        template[0]["items"]["fields"][0]["type"] = plain
        self._schema = fastavro.parse_schema(template)
        self._data_schema = fastavro.parse_schema(plain)

    def encode(self, message: Message) -> bytes:
        """Write a message.

        Raises:
            InvalidUsage: its data do not fit the schema, or its times are not integers.
        """
        if isinstance(message, Updates):
            value: Any = [{"data": data, "time": time, "diff": diff} for data, time, diff in message.batch]
        else:
            value = {
                "lower": list(message.lower),
                "upper": list(message.upper),
                "counts": [{"time": time, "count": count} for time, count in message.counts.items()],
            }
        written = _write(self._schema, value)
        if isinstance(message, Updates) and not self._fits(value):
            raise InvalidUsage("the message does not fit its schema: a decimal or a timestamp is beyond its type")
        return written

    def decode(self, value: bytes | None) -> Message | None:
        """Read a message; None for a null value.

        Raises:
            CodecError: the bytes are none: `undecodable`, `bytes_left_over`.
            MalformedMessage: the message is wrong in itself.
        """
        if value is None:
            return None
        found = self._read(value)
        if isinstance(found, list):
            return Updates([(update["data"], update["time"], update["diff"]) for update in found])
        counts = [(entry["time"], entry["count"]) for entry in found["counts"]]
        return Progress(found["lower"], found["upper"], counts)

    def decode_progress(self, value: bytes) -> dict[str, Any]:
        """Read a progress statement as it is stated: `lower`, `upper`, and `counts` with `time` and `count` each.

        Raises:
            CodecError: the bytes are no progress statement: `undecodable`, `bytes_left_over`.
            MalformedMessage: the statement is wrong in itself.
        """
        found = self._read(value)
        if isinstance(found, list):
            raise CodecError("undecodable", "the message is no progress statement")
        Progress(found["lower"], found["upper"], [(entry["time"], entry["count"]) for entry in found["counts"]])
        stated: dict[str, Any] = found
        return stated

    def _read(self, value: bytes) -> Any:
        """Read a body: fast where it is just what would be written, byte by byte where it is not."""
        buffer = io.BytesIO(value)
        try:
            found = fastavro.schemaless_reader(buffer, self._schema, None)
            usual = buffer.tell() == len(value) and _write(self._schema, found) == value
        except Exception:  # the library raises whatever its own code stumbles over
            usual = False
        if not usual:
            return read_exactly(self._resolved, value)
        if isinstance(found, list) and not self._fits(found):
            raise CodecError("undecodable", "a decimal or a timestamp is beyond its type")
        return found

    def _fits(self, updates: list[Any]) -> bool:
        return not self._has_bounded_types or all(fits_its_types(self._resolved, one["data"]) for one in updates)

    def encode_data(self, data: Any) -> bytes:
        """Write data alone, as they stand in a message.

        Raises:
            InvalidUsage: the data do not fit the schema.
        """
        return _write(self._data_schema, data)

    def identity(self, data: Any) -> bytes:
        """Give bytes that are equal for equal data. Fit for `Reader(identity=...)`.

        Zero is one number whatever its sign, NaN is one whatever its bits, and a decimal is its number in however many
        bytes, as where tables are grouped.

        Raises:
            InvalidUsage: the data do not fit the schema.
        """
        return self.encode_data(_one_form(self._resolved, data) if self._has_forms else data)


class SchemaLookup(Protocol):
    """Where schema ids are looked up."""

    def __call__(self, schema_id: int) -> Any | None:
        """Give the schema of an id, a record's or CDCv2's; None where the id is unknown."""


class ConfluentCodec:
    """Avro behind a zero byte and four bytes of schema id, the greatest first.

    Args:
        lookup: from id to schema; asked once for each id that is known.
    """

    def __init__(self, lookup: SchemaLookup) -> None:
        self._lookup = lookup
        self._codecs: dict[int, AvroCodec] = {}

    def encode(self, message: Message, schema_id: int) -> bytes:
        """Write a message with the schema of an id.

        Raises:
            CodecError: `unknown_schema_id`.
            InvalidUsage: the message does not fit the schema.
        """
        return bytes([MAGIC_BYTE]) + schema_id.to_bytes(4, "big") + self._codec(schema_id).encode(message)

    def decode(self, value: bytes | None) -> Message | None:
        """Read a message; None for a null value.

        Raises:
            CodecError: `wrong_magic_byte`, `unknown_schema_id`, `undecodable`, `bytes_left_over`.
            MalformedMessage: the message is wrong in itself.
        """
        if value is None:
            return None
        if not value or value[0] != MAGIC_BYTE:
            found = f"{value[0]:#04x}" if value else "nothing"
            raise CodecError("wrong_magic_byte", f"the first byte is {found}, not 0x00")
        if len(value) < HEADER_BYTES:
            raise CodecError("undecodable", f"{len(value)} bytes are too few for a header of {HEADER_BYTES}")
        return self._codec(int.from_bytes(value[1:HEADER_BYTES], "big")).decode(value[HEADER_BYTES:])

    def _codec(self, schema_id: int) -> AvroCodec:
        if schema_id not in self._codecs:
            schema = self._lookup(schema_id)
            if schema is None:
                raise CodecError("unknown_schema_id", f"schema id {schema_id} is not known")
            self._codecs[schema_id] = AvroCodec(schema)
        return self._codecs[schema_id]


class _Plain:
    """Makes the schema that is really read and written: the same bytes, without logical types and shared names.

    A branch of several becomes a record of one field that bears the branch's name: a record's bytes are its field's.
    """

    def __init__(self) -> None:
        self._names_used = 0

    def _fresh_name(self) -> str:
        self._names_used += 1
        return f"plain.type{self._names_used}"

    def of(self, kind: Any) -> Any:
        if isinstance(kind, list):
            several = sum(branch != "null" for branch in kind) > 1
            return [self._branch(branch, several) for branch in kind]
        if kind["type"] == "record":
            fields = [{"name": field["name"], "type": self.of(field["type"])} for field in kind["fields"]]
            return {"type": "record", "name": self._fresh_name(), "fields": fields}
        if kind["type"] == "array":
            return {"type": "array", "items": self.of(kind["items"])}
        if kind["type"] == "enum":
            return {"type": "enum", "name": self._fresh_name(), "symbols": kind["symbols"]}
        if kind["type"] == "fixed":
            return {"type": "fixed", "name": self._fresh_name(), "size": kind["size"]}
        return kind["type"]

    def _branch(self, branch: Any, several: bool) -> Any:
        if branch == "null":
            return "null"
        plain = self.of(branch)
        if not several:
            return plain
        field = {"name": branch_name(branch), "type": plain}
        return {"type": "record", "name": self._fresh_name(), "fields": [field]}


def _has_forms(kind: Any) -> bool:
    """Whether a resolved type has values that can be written in several ways: floats, and decimals of any length."""
    if isinstance(kind, list):
        return any(branch != "null" and _has_forms(branch) for branch in kind)
    if kind["type"] == "record":
        return any(_has_forms(field["type"]) for field in kind["fields"])
    if kind["type"] == "array":
        return _has_forms(kind["items"])
    return kind["type"] in ("float", "double") or (kind["type"] == "bytes" and kind.get("logicalType") == "decimal")


def _one_form(kind: Any, value: Any) -> Any:
    """Give the same value with one zero and one NaN, and decimals in as few bytes as they need."""
    if isinstance(value, float):
        return math.nan if math.isnan(value) else value + 0.0
    if isinstance(kind, list):
        real = [branch for branch in kind if branch != "null"]
        if value is None or len(real) == 1:
            return None if value is None else _one_form(real[0], value)
        return {
            name: _one_form(next(branch for branch in real if branch_name(branch) == name), inner)
            for name, inner in value.items()
        }
    if kind["type"] == "record":
        return {field["name"]: _one_form(field["type"], value[field["name"]]) for field in kind["fields"]}
    if kind["type"] == "array":
        return [_one_form(kind["items"], item) for item in value]
    if kind["type"] == "bytes" and kind.get("logicalType") == "decimal":
        number = int.from_bytes(value, "big", signed=True)
        return number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)
    return value


def _write(schema: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    try:
        fastavro.schemaless_writer(buffer, schema, value, strict=True)
    except Exception as error:  # the library raises whatever its own code stumbles over
        raise InvalidUsage(f"the message does not fit its schema: {type(error).__name__}: {error}") from error
    return buffer.getvalue()
