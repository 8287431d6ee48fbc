"""Converts recorded lines to values of a topic.

A line that Avro can express becomes Avro, even if it is invalid. Any other line is stored as it is, after a mark byte.
Every JSON value is stored as its canonical text, in a record of one column, so equal data gives equal rows.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

import fastavro

from tidelake.codec.avro import AvroCodec
from tidelake.errors import CodecError, MalformedMessage
from tidelake.protocol.json_values import identity, parse
from tidelake.protocol.message import ANY_WIDTH, Updates
from tidelake.protocol.order import INT64_MAX, INT64_MIN
from tidelake.protocol.replay import Marker, parse_line, problems_of
from tidelake.schema.avro import cdcv2_schema

COLUMN = "json"
RECORD: dict[str, Any] = {"type": "record", "name": "data", "fields": [{"name": COLUMN, "type": "string"}]}
"""The schema of `data`."""

NOT_AVRO = b"J"
"""The mark before a line that Avro cannot express. Read as a branch index, it matches no branch of a message."""

_SCHEMA = fastavro.parse_schema(cdcv2_schema(RECORD))
_CODEC = AvroCodec(RECORD)


@dataclass(frozen=True)
class TopicLine:
    """One line of a recorded stream.

    `value` is what the topic gets, or None for a null record. `is_sent` is false for a restart, which is not sent to
    the topic. `is_fact` is true if the line is a message that states something. `data` holds the data of a good message
    as the line writes it, by time and canonical text.
    """

    number: int
    width: int | None
    value: bytes | None = None
    is_sent: bool = True
    is_fact: bool = False
    data: dict[tuple[int, str], Any] = field(default_factory=dict)


def read_topic_line(number: int, line: bytes, width: int | None) -> TopicLine:
    """Read one line, valid or not.

    Args:
        number: the line number in its file, from 1.
        line: the line without its line break.
        width: the width that every time must have.
    """
    try:
        message = parse_line(line, width)
    except (CodecError, MalformedMessage):
        return TopicLine(number, width, _topic_value(line))
    if isinstance(message, Marker):
        return TopicLine(number, width, is_sent=message is Marker.NULL_RECORD)
    data: dict[tuple[int, str], Any] = {}
    if isinstance(message, Updates):
        for update in message.batch:
            assert isinstance(update.time, int)
            data.setdefault((update.time, identity(update.data)), update.data)
    return TopicLine(number, width, _topic_value(line), is_fact=message.width != ANY_WIDTH, data=data)


def problems_in(value: bytes, reason: str, width: int | None) -> list[tuple[str, object]]:
    """Return the problems of a quarantined message as `(kind, time)`, from its bytes.

    Args:
        value: the message's bytes, which the quarantine keeps whole.
        reason: why the pipeline refused the message. It is added if the bytes show no problem, or if they are Avro
            and show only other problems.
        width: the width that every time of the stream must have.
    """
    is_avro = not value.startswith(NOT_AVRO)
    try:
        if is_avro:
            _CODEC.decode(value)
        else:
            parse_line(value.removeprefix(NOT_AVRO), width)
    except (CodecError, MalformedMessage) as error:
        problems = problems_of(error)
        if not is_avro or reason in {kind for kind, _ in problems}:
            return problems
        return [(reason, None), *problems]
    return [(reason, None)]


def _topic_value(line: bytes) -> bytes:
    buffer = io.BytesIO()
    try:
        fastavro.schemaless_writer(buffer, _SCHEMA, _avro_message(parse(line)))
    except (CodecError, _NotAvro):
        return NOT_AVRO + line
    return buffer.getvalue()


class _NotAvro(Exception):
    """Avro cannot express this line."""


def _avro_message(value: Any) -> Any:
    """Return the message of a line in Avro's form; the message may break rules of the protocol."""
    match value:
        case {"updates": [*batch], **others} if not others:
            return [_avro_update(update) for update in batch]
        case {"progress": {"lower": [*lower], "upper": [*upper], "counts": [*counts], **more}, **others} if not (
            more or others
        ):
            return {
                "lower": [_long(time) for time in lower],
                "upper": [_long(time) for time in upper],
                "counts": [_avro_count(entry) for entry in counts],
            }
    raise _NotAvro


def _avro_update(update: Any) -> dict[str, Any]:
    match update:
        case [data, time, diff]:
            return {"data": {COLUMN: identity(data)}, "time": _long(time), "diff": _long(diff)}
    raise _NotAvro


def _avro_count(entry: Any) -> dict[str, int]:
    match entry:
        case [time, count]:
            return {"time": _long(time), "count": _long(count)}
    raise _NotAvro


def _long(value: Any) -> int:
    if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
        raise _NotAvro
    return value
