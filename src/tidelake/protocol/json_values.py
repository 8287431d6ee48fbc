"""Lossless JSON values: numbers keep all their digits, and values are compared by what they mean.

Python's own parser treats `1` and `1.0` as equal, rounds long decimals, keeps the last of two equal names, and fails
on deep nesting and long integers. Here an integer is an exact `int`, a number with a decimal point or an exponent is a
`JsonFloat`, and any depth and any length are allowed. Two values are equal if their identities are.
"""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from json.encoder import encode_basestring_ascii as quote
from typing import Any

from tidelake.errors import CodecError

_DIGITS_MAX = 4000  # Python refuses to read or write integers of more than 4,300 digits
_SHORT_BELOW: int = 10**_DIGITS_MAX
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_CONSTANTS = {"null": None, "true": True, "false": False}


class JsonFloat:
    """A number with a decimal point or an exponent, as it was written, of any precision.

    Two such values are equal if they are the same number, as `1.0` and `1e0` are; none equals an integer.

    >>> JsonFloat("1.0") == JsonFloat("1.00") == JsonFloat("10e-1"), JsonFloat("1.0") == 1
    (True, False)
    >>> JsonFloat("0.1") == JsonFloat("0.10000000000000000001")
    False
    """

    __slots__ = ("canonical", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.canonical = _canonical_number(text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonFloat) and self.canonical == other.canonical

    def __hash__(self) -> int:
        return hash(self.canonical)

    def __repr__(self) -> str:
        return f"JsonFloat({self.text!r})"


def _canonical_number(text: str) -> str:
    """Write a decimal as digits, without zeros at either end, times a power of ten."""
    match = _NUMBER.fullmatch(text)
    if not match:
        raise CodecError("undecodable", "a number is not in JSON notation")
    whole, fraction, exponent = match.group(1), (match.group(2) or ".")[1:], match.group(3)
    sign = "-" if whole.startswith("-") else ""
    digits = (whole.lstrip("-") + fraction).lstrip("0")
    if not digits:
        return "0e0"
    significant = digits.rstrip("0")
    power = (_integer(exponent[1:]) if exponent else 0) - len(fraction) + len(digits) - len(significant)
    return f"{sign}{significant}e{_integer_text(power)}"


def _integer(text: str) -> int:
    """Read an integer of any length."""
    if len(text) <= _DIGITS_MAX:
        return int(text)
    if text[0] in "+-":
        return -_integer(text[1:]) if text[0] == "-" else _integer(text[1:])
    half = len(text) // 2
    scale: int = 10 ** (len(text) - half)
    return _integer(text[:half]) * scale + _integer(text[half:])


def _integer_text(value: int) -> str:
    """Write an integer of any length."""
    if -_SHORT_BELOW < value < _SHORT_BELOW:
        return str(value)
    if value < 0:
        return "-" + _integer_text(-value)
    half = value.bit_length() * 30103 // 200000  # half the number of its decimal digits
    head, tail = divmod(value, 10**half)
    return _integer_text(head) + _integer_text(tail).rjust(half, "0")


class _RepeatedName(Exception):
    pass


def _object(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(fields)
    if len(value) != len(fields):
        raise _RepeatedName
    return value


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(
    parse_int=_integer, parse_float=JsonFloat, parse_constant=_refuse_constant, object_pairs_hook=_object
)


def parse(line: bytes | str) -> Any:
    """Read one JSON value.

    Raises:
        CodecError: `undecodable` if it is not JSON in UTF-8; `repeated_name` if an object has the same name twice.

    >>> parse(b'{"a": [1, 1.0, 9007199254740993]}')
    {'a': [1, JsonFloat('1.0'), 9007199254740993]}
    """
    try:
        text = line.decode("utf-8") if isinstance(line, bytes) else line
        start = _after_space(text, 0)
        try:
            value, end = _DECODER.raw_decode(text, start)
        except RecursionError:
            value, end = parse_deep(text, start)
        if _after_space(text, end) != len(text):
            raise ValueError("more text after the value")
    except _RepeatedName:
        raise CodecError("repeated_name", "an object has the same name twice") from None
    except ValueError as error:
        raise CodecError("undecodable", f"not JSON: {error}") from None
    return value


def _after_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match
    return match.end()


class _OpenObject:
    """An object whose fields are still being read."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str) -> None:
        self.fields: list[tuple[str, Any]] = []
        self.name = name


def parse_deep(text: str, start: int) -> tuple[Any, int]:
    """Read one value with an explicit stack, for nesting too deep for Python's own stack."""
    stack: list[list[Any] | _OpenObject] = []
    position = start
    while True:
        character = text[position : position + 1]
        inner = _after_space(text, position + 1) if character in ("[", "{") else position
        value: Any
        if character == "[":
            if text[inner : inner + 1] != "]":
                stack.append([])
                position = inner
                continue
            value, position = [], inner + 1
        elif character == "{":
            if text[inner : inner + 1] != "}":
                name, position = _parse_name(text, inner)
                stack.append(_OpenObject(name))
                continue
            value, position = {}, inner + 1
        else:
            value, position = _parse_scalar(text, position)
        while stack:
            position = _after_space(text, position)
            character = text[position : position + 1]
            top = stack[-1]
            if isinstance(top, list):
                top.append(value)
            else:
                top.fields.append((top.name, value))
            if character == ",":
                position = _after_space(text, position + 1)
                if isinstance(top, _OpenObject):
                    top.name, position = _parse_name(text, position)
                break
            if character != ("]" if isinstance(top, list) else "}"):
                raise ValueError(f"a comma or a closing bracket is missing at character {position}")
            stack.pop()
            value = top if isinstance(top, list) else _object(top.fields)
            position += 1
        else:
            return value, position


def _parse_name(text: str, position: int) -> tuple[str, int]:
    """Read a field's name and its colon."""
    if text[position : position + 1] != '"':
        raise ValueError(f"a name is missing at character {position}")
    name, position = scanstring(text, position + 1, True)
    position = _after_space(text, position)
    if text[position : position + 1] != ":":
        raise ValueError(f"a colon is missing at character {position}")
    return name, _after_space(text, position + 1)


def _parse_scalar(text: str, position: int) -> tuple[Any, int]:
    if text[position : position + 1] == '"':
        value, position = scanstring(text, position + 1, True)
        return value, position
    match = _NUMBER.match(text, position)
    if match:
        number = match.group()
        return (JsonFloat(number) if match.group(2) or match.group(3) else _integer(number)), match.end()
    for constant, value in _CONSTANTS.items():
        if text.startswith(constant, position):
            return value, position + len(constant)
    raise ValueError(f"no value at character {position}")


class _Raw(str):
    """Text that is written unchanged."""

    __slots__ = ()


def identity(value: Any) -> str:
    r"""Return the canonical text of a value in ASCII: equal for equal values, different for all others.

    >>> identity(parse('{"b": 1.50, "a": null}')), identity(1), identity("é")
    ('{"a":null,"b":15e-1}', '1', '"\\u00e9"')
    """
    return _write(value, canonical=True)


def to_text(value: Any) -> str:
    """Write a value on one line of ASCII, with numbers and the order of fields as they were read.

    >>> to_text(parse('{"b": 1.50, "a": [null, true]}'))
    '{"b":1.50,"a":[null,true]}'
    """
    return _write(value, canonical=False)


def _write(value: Any, canonical: bool) -> str:
    parts: list[str] = []
    work = [value]
    while work:
        item = work.pop()
        if isinstance(item, _Raw):
            parts.append(item)
        elif isinstance(item, str):
            parts.append(quote(item))
        elif item is None or item is True or item is False:
            parts.append("null" if item is None else "true" if item else "false")
        elif isinstance(item, int):
            parts.append(_integer_text(item))
        elif isinstance(item, JsonFloat):
            parts.append(item.canonical if canonical else item.text)
        elif isinstance(item, float):
            parts.append(_canonical_number(repr(item)) if canonical else repr(item))
        elif isinstance(item, dict):
            work.append(_Raw("}"))
            names = sorted(item, reverse=True) if canonical else list(reversed(item))
            for number, name in enumerate(names, start=1):
                work.append(item[name])
                work.append(_Raw(quote(name) + ":" if number == len(names) else "," + quote(name) + ":"))
            work.append(_Raw("{"))
        else:
            work.append(_Raw("]"))
            for number, element in enumerate(reversed(item), start=1):
                work.append(element)
                if number < len(item):
                    work.append(_Raw(","))
            work.append(_Raw("["))
    return "".join(parts)
