"""Encodes and decodes CDCv2 messages in Avro, either bare or after the five bytes of Confluent framing.

Data is a dictionary. Every value stays as it is encoded: a timestamp is its integer, a decimal its bytes. A value of a
union of several branches is `{branch: value}`, so that an `int` 5 and a `long` 5 remain different data. A value of a
union of null and one type is the value itself, or None.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import fastavro

from tidelake.codec.exact import bounds_check, read_exactly
from tidelake.errors import CodecError, EncodingRefused
from tidelake.protocol.message import Message, Progress, Updates
from tidelake.schema.avro import branch_name, cdcv2_schema, record_schema_of, resolved_schema
from tidelake.schema.types import Family, scalar_of

MAGIC_BYTE = 0
HEADER_BYTES = 5


class AvroCodec:
    """Bare Avro for one record schema.

    Args:
        record_schema: the schema of the data, or a whole CDCv2 schema.

    Raises:
        SchemaRefused: a collection cannot hold the record.

    >>> codec = AvroCodec({"type": "record", "name": "data", "fields": [{"name": "id", "type": "long"}]})
    >>> codec.decode(codec.encode(Updates([({"id": 5}, 4, +1)])))
    Updates([Update(data={'id': 5}, time=4, diff=1)])
    """

    def __init__(self, record_schema: Any) -> None:
        self.record_schema = record_schema_of(record_schema)
        self._resolved = resolved_schema(self.record_schema)
        self._canonical_form = _canonical_form(self._resolved)
        self._is_in_bounds = bounds_check(self._resolved)
        plain = _Plain().of(self._resolved)
        template = cdcv2_schema({"type": "record", "name": "data", "fields": [{"name": "a", "type": "int"}]})
        template[0]["items"]["fields"][0]["type"] = plain
        self._schema = fastavro.parse_schema(template)
        self._data_schema = fastavro.parse_schema(plain)

    def encode(self, message: Message) -> bytes:
        """Encode a message.

        Raises:
            EncodingRefused: the data does not fit the schema, or the times are not integers.
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
            raise EncodingRefused("a decimal or a timestamp is out of range for its type")
        return written

    def decode(self, value: bytes | None) -> Message | None:
        """Decode a message; return None for a null value.

        Raises:
            CodecError: the bytes are not a message: `undecodable`, `bytes_left_over`.
            MalformedMessage: the message is malformed.
        """
        if value is None:
            return None
        body = self._read(value)
        if isinstance(body, list):
            return Updates([(update["data"], update["time"], update["diff"]) for update in body])
        counts = [(entry["time"], entry["count"]) for entry in body["counts"]]
        return Progress(body["lower"], body["upper"], counts)

    def decode_progress(self, value: bytes) -> dict[str, Any]:
        """Decode a progress statement unchanged: `lower`, `upper`, and `counts`, each with `time` and `count`.

        Raises:
            CodecError: the bytes are not a progress statement: `undecodable`, `bytes_left_over`.
            MalformedMessage: the statement is malformed.
        """
        body = self._read(value)
        if isinstance(body, list):
            raise CodecError("undecodable", "the message is not a progress statement")
        Progress(body["lower"], body["upper"], [(entry["time"], entry["count"]) for entry in body["counts"]])
        statement: dict[str, Any] = body
        return statement

    def _read(self, value: bytes) -> Any:
        """Read a body: fast if it is exactly what an encoder writes, otherwise byte by byte."""
        buffer = io.BytesIO(value)
        try:
            body = fastavro.schemaless_reader(buffer, self._schema, None)
            usual = buffer.tell() == len(value) and _write(self._schema, body) == value
        except Exception:  # the library raises errors of any class
            usual = False
        if not usual:
            return read_exactly(self._resolved, value)
        if isinstance(body, list) and not self._fits(body):
            raise CodecError("undecodable", "a decimal or a timestamp is out of range for its type")
        return body

    def _fits(self, updates: list[Any]) -> bool:
        is_in_bounds = self._is_in_bounds
        return is_in_bounds is None or all(is_in_bounds(update["data"]) for update in updates)

    def encode_data(self, data: Any) -> bytes:
        """Encode the data alone, as in a message.

        Raises:
            EncodingRefused: the data does not fit the schema.
        """
        return _write(self._data_schema, data)

    def identity(self, data: Any) -> bytes:
        """Return bytes that are equal for equal data, for use as `Reader(identity=...)`.

        As in Spark's `GROUP BY`, all zeros are equal whatever their sign, and all NaNs whatever their bits. Decimals
        are equal if they are the same number, whatever their number of bytes.

        Raises:
            EncodingRefused: the data does not fit the schema.
        """
        return self.encode_data(data if self._canonical_form is None else self._canonical_form(data))


class SchemaLookup(Protocol):
    """A function that looks up schemas by id."""

    def __call__(self, schema_id: int, /) -> Any | None:
        """Return the schema with this id, of a record or of CDCv2; None if the id is unknown."""


class ConfluentCodec:
    """Avro in Confluent framing: after a zero byte and a big-endian schema id of four bytes.

    Args:
        lookup: returns the schema of an id; called once for each known id.
        columns: the columns that data always has; a column that a writer's schema lacks is null.
    """

    def __init__(self, lookup: SchemaLookup, columns: Sequence[str] = ()) -> None:
        self._lookup = lookup
        self._missing = dict.fromkeys(columns)
        self._codecs: dict[int, AvroCodec] = {}

    def encode(self, message: Message, schema_id: int) -> bytes:
        """Encode a message with the schema that has this id.

        Raises:
            CodecError: `unknown_schema_id`.
            EncodingRefused: the message does not fit the schema.
        """
        return bytes([MAGIC_BYTE]) + schema_id.to_bytes(4, "big") + self._codec(schema_id).encode(message)

    def decode(self, value: bytes | None) -> Message | None:
        """Decode a message; return None for a null value.

        Raises:
            CodecError: `wrong_magic_byte`, `unknown_schema_id`, `undecodable`, `bytes_left_over`.
            MalformedMessage: the message is malformed.
        """
        if value is None:
            return None
        if not value or value[0] != MAGIC_BYTE:
            detail = f"the first byte is {value[0]:#04x}, not 0x00" if value else "the message is empty"
            raise CodecError("wrong_magic_byte", detail)
        if len(value) < HEADER_BYTES:
            raise CodecError("undecodable", f"length {len(value)} is too short for a header of {HEADER_BYTES} bytes")
        message = self._codec(int.from_bytes(value[1:HEADER_BYTES], "big")).decode(value[HEADER_BYTES:])
        if not self._missing or not isinstance(message, Updates):
            return message
        return Updates([(self._missing | data, time, diff) for data, time, diff in message.batch])

    def _codec(self, schema_id: int) -> AvroCodec:
        if schema_id not in self._codecs:
            schema = self._lookup(schema_id)
            if schema is None:
                raise CodecError("unknown_schema_id", f"schema id {schema_id} is not known")
            self._codecs[schema_id] = AvroCodec(schema)
        return self._codecs[schema_id]


class _Plain:
    """Builds the schema for fastavro: it describes the same bytes, without logical types or shared names.

    If a union has several branches besides null, each becomes a record whose only field has the branch's name: such a
    record has the bytes of its field.
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


def _canonical_form(kind: Any) -> Callable[[Any], Any] | None:
    """Return a function that gives equal values one form: one zero, one NaN, and decimals in the fewest bytes.

    Returns:
        None if equal values of the resolved type always have equal bytes.
    """
    if isinstance(kind, list):
        return _canonical_branch([branch for branch in kind if branch != "null"])
    if kind["type"] == "record":
        forms = [(field["name"], _canonical_form(field["type"])) for field in kind["fields"]]
        changed = [(name, form) for name, form in forms if form is not None]
        return (lambda value: value | {name: form(value[name]) for name, form in changed}) if changed else None
    if kind["type"] == "array":
        item = _canonical_form(kind["items"])
        return None if item is None else lambda value: [item(element) for element in value]
    scalar = scalar_of(kind)
    if scalar.is_canonical:
        return None
    return _shortest_decimal if scalar.family is Family.DECIMAL else _canonical_real


def _canonical_branch(branches: list[Any]) -> Callable[[Any], Any] | None:
    forms = {branch_name(branch): form for branch in branches if (form := _canonical_form(branch)) is not None}
    if not forms:
        return None
    if len(branches) == 1:
        (only,) = forms.values()
        return lambda value: None if value is None else only(value)
    return lambda value: (
        None if value is None else {name: forms[name](part) if name in forms else part for name, part in value.items()}
    )


def _canonical_real(value: Any) -> Any:
    if not isinstance(value, float):  # an integer, or a value that the writer refuses
        return value
    return math.nan if math.isnan(value) else value + 0.0


def _shortest_decimal(value: bytes) -> bytes:
    number = int.from_bytes(value, "big", signed=True)
    return number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)


def _write(schema: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    try:
        fastavro.schemaless_writer(buffer, schema, value, strict=True)
    except Exception as error:  # the library raises errors of any class
        raise EncodingRefused(f"{type(error).__name__}: {error}") from error
    return buffer.getvalue()
