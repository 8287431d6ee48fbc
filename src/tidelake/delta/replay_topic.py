"""A recorded line as the topic has it: in Avro where Avro can say it, broken rules and all; else bytes that are none.

Any JSON value goes through a record of one column that holds its canonical text, so that equal data are equal rows.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

import fastavro

from tidelake.codec import AvroCodec
from tidelake.errors import CodecError, MalformedMessage
from tidelake.json_values import identity, parse
from tidelake.message import ANY_WIDTH, Updates
from tidelake.order import INT64_MAX, INT64_MIN
from tidelake.replay import Event, parse_line, problems_of
from tidelake.schema import cdcv2_schema

COLUMN = "json"
RECORD: dict[str, Any] = {"type": "record", "name": "data", "fields": [{"name": COLUMN, "type": "string"}]}
"""The schema of `data`."""

NOT_AVRO = b"J"
"""Stands before a line that Avro cannot say: as the number of a branch it is none that a message has."""

_SCHEMA = fastavro.parse_schema(cdcv2_schema(RECORD))
_CODEC = AvroCodec(RECORD)


@dataclass(frozen=True)
class TopicLine:
    """One line of a recorded stream.

    `value` is what the topic gets, None for a null record; a restart is not sent. `is_fact` tells whether the line is a
    message that states something. `data` has what a good message states, by time and canonical text, as the line
    writes it.
    """

    number: int
    width: int | None
    value: bytes | None = None
    is_sent: bool = True
    is_fact: bool = False
    data: dict[tuple[int, str], Any] = field(default_factory=dict)


def read_topic_line(number: int, line: bytes, width: int | None) -> TopicLine:
    """Read one line, whatever it is.

    Args:
        number: which line of its file, from 1.
        line: without its line end.
        width: what every time has to be as wide as.
    """
    try:
        message = parse_line(line, width)
    except (CodecError, MalformedMessage):
        return TopicLine(number, width, _topic_value(line))
    if isinstance(message, Event):
        return TopicLine(number, width, is_sent=message is Event.NULL_RECORD)
    data: dict[tuple[int, str], Any] = {}
    if isinstance(message, Updates):
        for update in message.batch:
            assert isinstance(update.time, int)
            data.setdefault((update.time, identity(update.data)), update.data)
    return TopicLine(number, width, _topic_value(line), is_fact=message.width != ANY_WIDTH, data=data)


def problems_in(value: bytes, reason: str, width: int | None) -> list[tuple[str, object]]:
    """What is wrong with a message in the quarantine, as `(kind, time)`; its bytes alone tell.

    Args:
        value: the message's bytes, which the quarantine keeps whole.
        reason: why the pipeline refused it. It is told, too, where the bytes do not say the same.
        width: what every time of its stream has to be as wide as.
    """
    is_avro = not value.startswith(NOT_AVRO)
    try:
        if is_avro:
            _CODEC.decode(value)
        else:
            parse_line(value.removeprefix(NOT_AVRO), width)
    except (CodecError, MalformedMessage) as error:
        found = problems_of(error)
        if not is_avro or reason in {kind for kind, _ in found}:
            return found
        return [(reason, None), *found]
    return [(reason, None)]


def _topic_value(line: bytes) -> bytes:
    buffer = io.BytesIO()
    try:
        fastavro.schemaless_writer(buffer, _SCHEMA, _avro_message(parse(line)))
    except (CodecError, _NotAvro):
        return NOT_AVRO + line
    return buffer.getvalue()


class _NotAvro(Exception):
    """Avro has no message for this line."""


def _avro_message(value: Any) -> Any:
    """The message that a line states, as Avro has it; whether it breaks a rule of the protocol does not matter."""
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
