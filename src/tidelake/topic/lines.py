"""Hand-written topics: each line of `<partition>.jsonl` or `<partition>.jsonl.gz` is a message."""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from tidelake.errors import MalformedLine, MalformedTopic, show
from tidelake.protocol.order import INT64_MAX, INT64_MIN
from tidelake.storage import blobs
from tidelake.storage.location import Location

PARTITION_MAX = 99_999
OFFSET_MAX = INT64_MAX - 1
"""The offset after the last one must also be an int64."""
LINE_BYTES_MAX = 64 * 1024 * 1024
"""Maximum length of a line, without its line break. A megabyte of gzip can hold a gigabyte, so reading stops here."""

_NAMES = re.compile(r"([0-9]+)\.jsonl(\.gz)?")
_FIELDS = {"offset", "timestamp_ms", "key", "key_b64", "value", "value_b64", "headers"}
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_HEADER_FIELDS = {"key", "value", "value_b64"}
_NOTHING = (None, "")


def is_lines_file(path: Location) -> bool:
    """Return whether a file is named like a hand-written partition."""
    return _NAMES.fullmatch(path.name) is not None


def partition_of(path: Location) -> int:
    """Return the partition in the name of a hand-written file.

    Raises:
        MalformedTopic: the partition is out of bounds.
    """
    match = _NAMES.fullmatch(path.name)
    assert match is not None
    digits = match.group(1).lstrip("0") or "0"
    if len(digits) > len(str(PARTITION_MAX)) or int(digits) > PARTITION_MAX:
        hint = f"a partition is an integer from 0 to {PARTITION_MAX}"
        raise MalformedTopic(str(path), f"names the partition {digits}", hint)
    return int(digits)


def gone(path: Location) -> MalformedTopic:
    """Return the error for a file that was deleted after a listing had shown it."""
    fix = "files of a topic must not be deleted: restore this one; if another file has taken its place, run again"
    return MalformedTopic(str(path), "was listed, but no longer exists", fix)


def parse_lines(path: Location) -> Iterator[dict[str, Any]]:
    """Yield the messages of a hand-written file: offset, timestamp_ms, key, value, headers."""
    number = 0
    try:
        with blobs.open_stream(path) as stream:
            lines = gzip.GzipFile(fileobj=stream) if path.suffix == ".gz" else stream
            while line := lines.readline(LINE_BYTES_MAX + 1):
                number += 1
                if len(line) - line.endswith(b"\n") > LINE_BYTES_MAX:
                    raise ValueError(f"it is longer than {LINE_BYTES_MAX} bytes, the maximum for a line")
                if line.strip():
                    yield parse_line(line)
    except FileNotFoundError as error:
        raise gone(path) from error
    except (ValueError, binascii.Error, EOFError, OSError, RecursionError, zlib.error) as error:
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise MalformedLine(str(path), max(number, 1), str(problem)) from error


def parse_line(line: bytes) -> dict[str, Any]:
    """Return the message of one line.

    Raises:
        ValueError: the line is malformed; the error says what is wrong.
    """
    text = line.decode(json.detect_encoding(line), "surrogatepass")
    if not isinstance(json.loads(text), dict):
        raise ValueError("it is not a JSON object")
    fields = _unique_fields(text)
    message = {name: value for name, (value, _) in fields.items()}
    unknown = sorted(set(message) - _FIELDS)
    if unknown:
        raise ValueError(f"the field '{unknown[0]}' is not known")
    offset, timestamp = message.get("offset"), message.get("timestamp_ms")
    if type(offset) is not int or not 0 <= offset <= OFFSET_MAX:
        raise ValueError(f"offset is {show(offset)}, not an integer from 0 to {OFFSET_MAX}")
    if timestamp is not None and (type(timestamp) is not int or not INT64_MIN <= timestamp <= INT64_MAX):
        raise ValueError(f"timestamp_ms is {show(timestamp)}, not a 64-bit integer")
    return {
        "offset": offset,
        "timestamp_ms": timestamp,
        "key": _bytes_of(fields, "key"),
        "value": _bytes_of(fields, "value"),
        "headers": _headers_of(message.get("headers")),
    }


def _unique_fields(text: str) -> dict[str, tuple[Any, str]]:
    """Return the fields of a JSON object, each with its value and its JSON text.

    `json.loads` would silently keep only the last of two fields with the same name, and would not preserve how a number
    is written.
    """
    fields: dict[str, tuple[Any, str]] = {}
    at = _after_space(text, _after_space(text, 0) + 1)
    while text[at] != "}":
        name, at = scanstring(text, at + 1)
        start = _after_space(text, _after_space(text, at) + 1)
        value, end = _DECODER.raw_decode(text, start)
        if name in fields:
            raise ValueError(f"the field {show(name)} is given twice")
        fields[name] = value, text[start:end]
        at = _after_space(text, end)
        if text[at] == ",":
            at = _after_space(text, at + 1)
    return fields


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    assert space is not None
    return space.end()


def _bytes_of(fields: Mapping[str, tuple[Any, str]], name: str) -> bytes | None:
    """Return the bytes of a key or value, None if it is null. The bytes of a JSON object are its text, as written."""
    (value, text), (encoded, _) = fields.get(name, _NOTHING), fields.get(f"{name}_b64", _NOTHING)
    if value is not None and encoded is not None:
        raise ValueError(f"{name} and {name}_b64 are both given")
    if encoded is not None:
        if not isinstance(encoded, str):
            raise ValueError(f"{name}_b64 is not text")
        return base64.b64decode(encoded, validate=True)
    if value is None:
        return None
    if not isinstance(value, str | dict):
        raise ValueError(f"{name} is neither text nor a JSON object")
    return (value if isinstance(value, str) else text).encode("utf-8", "surrogatepass")


def _headers_of(headers: Any) -> list[dict[str, Any]] | None:
    """Return headers from an object of names and strings, or from a list of `{"key": …, "value": …}`."""
    if headers is None:
        return None
    if isinstance(headers, dict):
        headers = [{"key": name, "value": value} for name, value in headers.items()]
    if not isinstance(headers, list):
        raise ValueError(f"headers is {show(headers)}, neither an object nor a list")
    return [_header_of(header) for header in headers]


def _header_of(header: Any) -> dict[str, Any]:
    if not isinstance(header, dict) or not isinstance(header.get("key"), str) or set(header) - _HEADER_FIELDS:
        fact = "lacks a text key, or has fields other than key, value and value_b64"
        raise ValueError(f"the header {show(header)} {fact}")
    fields = {name: (value, "") for name, value in header.items() if name != "key"}
    if isinstance(header.get("value"), dict):
        raise ValueError(f"the value of the header {show(header['key'])} is not text")
    return {"key": header["key"], "value": _bytes_of(fields, "value")}
