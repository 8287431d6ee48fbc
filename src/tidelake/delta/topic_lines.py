"""Hand-written topics: one message a line of `<partition>.jsonl` or `<partition>.jsonl.gz`."""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any

from tidelake.errors import RuleBroken, show
from tidelake.order import INT64_MAX, INT64_MIN

PARTITION_MAX = 99_999
OFFSET_MAX = INT64_MAX - 1
"""The offset after the last one is an int64 too."""

_NAMES = re.compile(r"([0-9]+)\.jsonl(\.gz)?")
_FIELDS = {"offset", "timestamp_ms", "key", "key_b64", "value", "value_b64", "headers"}
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_HEADER_FIELDS = {"key", "value", "value_b64"}
_NOTHING = (None, "")


def is_lines_file(path: Path) -> bool:
    """Whether a file has the name of a hand-written partition."""
    return _NAMES.fullmatch(path.name) is not None


def partition_of(path: Path) -> int:
    """The partition that the name of a hand-written file says.

    Raises:
        RuleBroken: it is out of bounds.
    """
    match = _NAMES.fullmatch(path.name)
    assert match is not None
    digits = match.group(1).lstrip("0") or "0"
    if len(digits) > len(str(PARTITION_MAX)) or int(digits) > PARTITION_MAX:
        raise RuleBroken(f"{path} names the partition {digits}", f"a partition is 0 to {PARTITION_MAX}")
    return int(digits)


def parse_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The messages of a hand-written file: offset, timestamp_ms, key, value, headers."""
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
            for line in lines:
                number += 1
                if line.strip():
                    yield parse_line(line)
    except (ValueError, binascii.Error, EOFError, OSError, RecursionError, zlib.error) as error:
        problem = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise RuleBroken(
            f"{path}, line {max(number, 1)}: {problem}",
            'one message a line: {"offset": 0, "timestamp_ms": 0, "value_b64": "…"}',
        ) from error


def parse_line(line: bytes) -> dict[str, Any]:
    """The message of one line; what is wrong with it is a `ValueError`."""
    text = line.decode(json.detect_encoding(line), "surrogatepass")
    if not isinstance(json.loads(text), dict):
        raise ValueError("it is not a JSON object")
    stated = _fields_once(text)
    message = {name: value for name, (value, _) in stated.items()}
    unknown = sorted(set(message) - _FIELDS)
    if unknown:
        raise ValueError(f"the field '{unknown[0]}' is not known")
    offset, timestamp = message.get("offset"), message.get("timestamp_ms")
    if type(offset) is not int or not 0 <= offset <= OFFSET_MAX:
        raise ValueError(f"offset is {show(offset)}, not an integer from 0 to {OFFSET_MAX}")
    if timestamp is not None and (type(timestamp) is not int or not INT64_MIN <= timestamp <= INT64_MAX):
        raise ValueError(f"timestamp_ms is {show(timestamp)}, not an integer of 64 bits")
    return {
        "offset": offset,
        "timestamp_ms": timestamp,
        "key": _bytes_of(stated, "key"),
        "value": _bytes_of(stated, "value"),
        "headers": _headers_of(message.get("headers")),
    }


def _fields_once(text: str) -> dict[str, tuple[Any, str]]:
    """The fields of a JSON object, each with its value and with the text that stands there.

    Plain reading would keep the last of two equal names in silence, and would not keep a number as it was written.
    """
    found: dict[str, tuple[Any, str]] = {}
    at = _after_space(text, _after_space(text, 0) + 1)
    while text[at] != "}":
        name, at = scanstring(text, at + 1)
        start = _after_space(text, _after_space(text, at) + 1)
        value, end = _DECODER.raw_decode(text, start)
        if name in found:
            raise ValueError(f"the field {show(name)} is given twice")
        found[name] = value, text[start:end]
        at = _after_space(text, end)
        if text[at] == ",":
            at = _after_space(text, at + 1)
    return found


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _bytes_of(stated: Mapping[str, tuple[Any, str]], name: str) -> bytes | None:
    """A key or value: text is its own bytes, a JSON object the bytes of its text as it is written."""
    (value, text), (encoded, _) = stated.get(name, _NOTHING), stated.get(f"{name}_b64", _NOTHING)
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


def _headers_of(given: Any) -> list[dict[str, Any]] | None:
    """Headers from an object of names and texts, or from a list of `{"key": …, "value": …}`, where names may repeat."""
    if given is None:
        return None
    if isinstance(given, dict):
        given = [{"key": name, "value": value} for name, value in given.items()]
    if not isinstance(given, list):
        raise ValueError(f"headers is {show(given)}, neither an object nor a list")
    return [_header_of(one) for one in given]


def _header_of(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict) or not isinstance(given.get("key"), str) or set(given) - _HEADER_FIELDS:
        raise ValueError(f"the header {show(given)} has no key, or more than a key and a value")
    stated = {name: (value, "") for name, value in given.items() if name != "key"}
    if isinstance(given.get("value"), dict):
        raise ValueError(f"the header {show(given['key'])} is not text")
    return {"key": given["key"], "value": _bytes_of(stated, "value")}
