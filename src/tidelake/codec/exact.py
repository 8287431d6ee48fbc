"""Reads bytes that no common encoder writes, byte by byte, with the same verdict as the JVM's decoder.

Avro allows non-canonical varints and arrays in several blocks, and does not define a boolean encoded as 2. fastavro
and Java's decoder treat these differently. They also treat numbers out of range for their type differently: fastavro
takes branch -1 for the last branch, and Java's decoder silently drops high bits. Neither path of Tidelake may accept
what the other refuses, so the rules are:

- a number has at most ten bytes; an `int`, and the index of a branch or of an enum's symbol, has at most five;
- a boolean is true only if its byte is 1;
- bytes that are not exactly what an encoder would write, and look as if a number were out of range for its type, are
  `undecodable`;
- a decimal with no bytes or too many digits is `undecodable`, as are milliseconds that overflow when converted to
  microseconds;
- the first byte of a progress statement is 2.

See docs/decisions/non-canonical-varints.md.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from tidelake.errors import CodecError
from tidelake.schema.avro import branch_name
from tidelake.schema.types import Family, scalar_of, scalar_type

Check = Callable[[Any], bool]

_LONG_BYTES, _INT_BYTES = (scalar_type(name).number_bytes_max for name in ("long", "int"))
_UPDATES_BRANCH, _PROGRESS_BRANCH = 0, 1
_LONG = {"type": "long"}
_LONGS = {"type": "array", "items": _LONG}
_COUNT = {"type": "record", "fields": [{"name": "time", "type": _LONG}, {"name": "count", "type": _LONG}]}
_PROGRESS = {
    "type": "record",
    "fields": [
        {"name": "lower", "type": _LONGS},
        {"name": "upper", "type": _LONGS},
        {"name": "counts", "type": {"type": "array", "items": _COUNT}},
    ],
}
"""`tidelake.schema.avro.PROGRESS` in its resolved form."""
_HIGH = r"[\x80-\xff]"
_BEYOND_INT64 = _HIGH * 9 + r"[^\x00\x01]"
_BEYOND_INT32 = _HIGH * 4 + r"[^\x00-\x0f]"
_INDEX_BEYOND_INT32 = _HIGH * 2 + r"\x80\x80[\x10\x20\x30\x40\x50\x60\x70]"
"""An index that becomes less than 8192 when its high bits are dropped."""


def suspect_pattern(resolved: Any) -> str:
    """Return a regular expression, for Python and Java, to find bytes that may be a number out of range for its type.

    Every message is searched with it, so it is optimised for Java's engine: the prefix that the alternatives have in
    common comes before them, without a quantifier. Most bytes then take one comparison, and a search takes a quarter of
    the time.

    Args:
        resolved: the record schema as `resolved_schema` returns it.
    """
    if _holds_int(resolved):
        return _BEYOND_INT32  # this also matches whatever the other two match
    patterns = (pattern.removeprefix(_HIGH * 2) for pattern in (_BEYOND_INT64, _INDEX_BEYOND_INT32))
    return f"{_HIGH * 2}(?:{'|'.join(patterns)})"


def read_exactly(resolved: Any, value: bytes) -> Any:
    """Read a message's body: a list of updates, or a mapping with `lower`, `upper` and `counts`.

    Raises:
        CodecError: `undecodable`, `bytes_left_over`.
    """
    body = _Body(value)
    branch = body.read_index(2)
    if branch == _UPDATES_BRANCH:
        body_value: Any = body.read_items(
            lambda: {"data": body.read(resolved), "time": body.read_number(), "diff": body.read_number()}
        )
        is_in_bounds = bounds_check(resolved)
        fits = is_in_bounds is None or all(is_in_bounds(update["data"]) for update in body_value)
    else:
        body_value, fits = body.read(_PROGRESS), True
    if not fits:
        raise CodecError("undecodable", "a decimal or a timestamp is out of range for its type")
    if body.at != len(value):
        raise CodecError("bytes_left_over", f"trailing bytes after the message: {len(value) - body.at}")
    if branch == _PROGRESS_BRANCH and value[0] != 2 * _PROGRESS_BRANCH:
        raise CodecError("undecodable", "the branch of a progress statement is a non-canonical varint")
    if not body.is_text:
        raise CodecError("undecodable", "a string is not UTF-8")
    if not body.is_canonical and re.search(suspect_pattern(resolved), value.decode("latin-1")):
        raise CodecError("undecodable", "a number is out of range for its type, or looks as if it were (non-canonical)")
    return body_value


def bounds_check(kind: Any) -> Check | None:
    """Return a function that checks whether a table can hold every decimal and timestamp in a value of a resolved type.

    Returns:
        None if a table can hold everything that Avro can encode.
    """
    if isinstance(kind, list):
        return _union_check([branch for branch in kind if branch != "null"])
    if kind["type"] == "record":
        checks = [(field["name"], check) for field in kind["fields"] if (check := bounds_check(field["type"]))]
        return (lambda value: all(check(value[name]) for name, check in checks)) if checks else None
    if kind["type"] == "array":
        is_in_bounds = bounds_check(kind["items"])
        return None if is_in_bounds is None else lambda value: all(map(is_in_bounds, value))
    scalar = scalar_of(kind)
    if scalar.family is Family.DECIMAL:
        end = 10 ** kind["precision"]
        return lambda value: bool(value) and abs(int.from_bytes(value, "big", signed=True)) < end
    least, most = scalar.bounds
    if scalar.bounds == scalar_type(scalar.base).bounds:
        return None
    return lambda value: bool(least <= value <= most)


def _union_check(branches: list[Any]) -> Check | None:
    checks = {branch_name(branch): check for branch in branches if (check := bounds_check(branch))}
    if not checks:
        return None
    if len(branches) == 1:
        (only,) = checks.values()
        return lambda value: value is None or only(value)
    return lambda value: value is None or all(checks[name](inner) for name, inner in value.items() if name in checks)


class _Body:
    """The bytes of one body, and the read position."""

    def __init__(self, value: bytes) -> None:
        self.at = 0
        self.is_canonical = True
        """Whether an encoder would have written exactly the bytes read so far."""
        self.is_text = True
        self._value = value

    def read(self, kind: Any) -> Any:
        """Read a value of a resolved type, and return it in the codec's form."""
        if isinstance(kind, list):
            return self._read_union(kind)
        name = kind["type"]
        if name == "record":
            return {field["name"]: self.read(field["type"]) for field in kind["fields"]}
        if name == "array":
            return self.read_items(lambda: self.read(kind["items"]))
        scalar = scalar_of(kind)
        match scalar.family:
            case Family.SYMBOL:
                return kind["symbols"][self.read_index(len(kind["symbols"]))]
            case Family.REAL:
                return struct.unpack(scalar.float_format, self._take(struct.calcsize(scalar.float_format)))[0]
            case Family.INTEGER:
                return self.read_number(scalar.number_bytes_max)
            case Family.BOOLEAN:
                byte = self._take(1)[0]
                self.is_canonical = self.is_canonical and byte <= 1
                return byte == 1
            case _ if name == "fixed":
                return self._take(kind["size"])
        return self._read_sized(scalar.family is Family.TEXT)

    def _read_sized(self, is_text: bool) -> str | bytes:
        size = self.read_number()
        if size < 0:
            raise CodecError("undecodable", f"the length before byte {self.at} is negative")
        content = self._take(size)
        return self._text(content) if is_text else content

    def read_number(self, bytes_max: int = _LONG_BYTES) -> int:
        """Read a number as Java does: excess bits are dropped, and the body is then non-canonical."""
        start, number = self.at, 0
        while True:
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << 7 * (self.at - start - 1)
            if byte < 0x80:
                break
            if self.at - start == bytes_max:
                raise CodecError("undecodable", f"the number at byte {start} has more than {bytes_max} bytes")
        bits = 64 if bytes_max == _LONG_BYTES else 32
        needed = max(1, -(-number.bit_length() // 7))
        self.is_canonical = self.is_canonical and number < 1 << bits and self.at - start == needed
        number &= (1 << bits) - 1
        return (number >> 1) ^ -(number & 1)

    def read_index(self, size: int) -> int:
        """Read the index of one of `size` branches or symbols."""
        index = self.read_number(_INT_BYTES)
        if not 0 <= index < size:
            raise CodecError("undecodable", f"the index before byte {self.at} is {index}, not from 0 to {size - 1}")
        return index

    def read_items(self, read_item: Callable[[], Any]) -> list[Any]:
        """Read the blocks of an array."""
        items: list[Any] = []
        blocks = 0
        while count := self.read_number():
            blocks += 1
            if count < 0:
                self.read_number()  # the block's size in bytes, for readers that skip it
            if abs(count) > len(self._value) - self.at:  # every item takes at least one byte
                raise CodecError("undecodable", f"the array at byte {self.at} has too many items: {abs(count)}")
            self.is_canonical = self.is_canonical and count > 0 and blocks == 1
            items.extend(read_item() for _ in range(abs(count)))
        return items

    def _read_union(self, branches: list[Any]) -> Any:
        branch = branches[self.read_index(len(branches))]
        if branch == "null":
            return None
        value = self.read(branch)
        several = sum(other != "null" for other in branches) > 1
        return {branch_name(branch): value} if several else value

    def _text(self, content: bytes) -> str:
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            self.is_text = False
            return ""

    def _take(self, size: int) -> bytes:
        content = self._value[self.at : self.at + size]
        if len(content) < size:
            raise CodecError("undecodable", f"the bytes end too early: {size} needed, starting at byte {self.at}")
        self.at += size
        return content


def _holds_int(kind: Any) -> bool:
    """Return whether a resolved type contains a 32-bit number."""
    if isinstance(kind, list):
        return any(_holds_int(branch) for branch in kind if branch != "null")
    if kind["type"] == "record":
        return any(_holds_int(field["type"]) for field in kind["fields"])
    return _holds_int(kind["items"]) if kind["type"] == "array" else bool(kind["type"] == "int")
