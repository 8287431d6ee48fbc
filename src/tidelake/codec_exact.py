"""Reads bytes that no common encoder writes, to the same verdict as the decoder of the JVM, byte by byte.

Avro lets a number be longer than it needs, an array come in blocks, and says nothing about a boolean of 2. The fast
library and Java's decoder differ there, and in numbers beyond their type: one takes branch -1 for the last one, the
other drops high bits in silence. Nothing may be accepted by one and refused by the other, so the rules are these:

- a number has at most ten bytes, an `int`, a branch or an enum's index at most five; a boolean is true where it is 1;
- bytes that are not just what an encoder would write, and look as if a number were beyond its type, are `undecodable`;
- so are a decimal of no bytes or too many digits, and milliseconds that microseconds cannot hold;
- the first byte of a progress statement is 2.

See docs/decisions/long-forms.md.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from tidelake.errors import CodecError
from tidelake.order import INT64_MAX, INT64_MIN
from tidelake.schema import branch_name

_LONG_BYTES, _INT_BYTES = 10, 5
_FLOATS = {"float": "<f", "double": "<d"}
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
"""`tidelake.schema.PROGRESS` in its resolved form."""
_HIGH = r"[\x80-\xff]"
_BEYOND_INT64 = _HIGH * 9 + r"[^\x00\x01]"
_BEYOND_INT32 = _HIGH * 4 + r"[^\x00-\x0f]"
_INDEX_BEYOND_INT32 = _HIGH * 2 + r"\x80\x80[\x10\x20\x30\x40\x50\x60\x70]"
"""An index whose high bits, once dropped, leave one below 8192."""


def suspect_pattern(resolved: Any) -> str:
    """A regular expression, for Python and Java, of bytes that may be a number beyond its type.

    Every message is searched for it, so it is written for Java's engine: what both kinds of numbers begin with stands
    before the choice, and without a quantifier. Most bytes then take one comparison, and all a quarter of the time.

    Args:
        resolved: the record schema as `resolved_schema` gives it.
    """
    if _holds_int(resolved):
        return _BEYOND_INT32  # nine high bytes and one that is not 0 or 1 begin like this
    beyond = (one.removeprefix(_HIGH * 2) for one in (_BEYOND_INT64, _INDEX_BEYOND_INT32))
    return f"{_HIGH * 2}(?:{'|'.join(beyond)})"


def read_exactly(resolved: Any, value: bytes) -> Any:
    """Read a message's body: a list of updates, or a mapping with `lower`, `upper` and `counts`.

    Raises:
        CodecError: `undecodable`, `bytes_left_over`.
    """
    body = _Body(value)
    branch = body.read_index(2)
    if branch == _UPDATES_BRANCH:
        found: Any = body.read_items(
            lambda: {"data": body.read(resolved), "time": body.read_number(), "diff": body.read_number()}
        )
        fits = all(fits_its_types(resolved, update["data"]) for update in found)
    else:
        found, fits = body.read(_PROGRESS), True
    if not fits:
        raise CodecError("undecodable", "a decimal or a timestamp is beyond its type")
    if body.at != len(value):
        raise CodecError("bytes_left_over", f"{len(value) - body.at} bytes are left over after the message")
    if branch == _PROGRESS_BRANCH and value[0] != 2 * _PROGRESS_BRANCH:
        raise CodecError("undecodable", "the branch of a progress statement is written in a long form")
    if not body.is_text:
        raise CodecError("undecodable", "a string is not UTF-8")
    if not body.is_canonical and re.search(suspect_pattern(resolved), value.decode("latin-1")):
        raise CodecError("undecodable", "a number is beyond its type, or looks like it in a long form")
    return found


def has_bounded_types(kind: Any) -> bool:
    """Whether a resolved type has values that Avro's bytes can state and a table cannot hold."""
    if isinstance(kind, list):
        return any(has_bounded_types(branch) for branch in kind if branch != "null")
    if kind["type"] == "record":
        return any(has_bounded_types(field["type"]) for field in kind["fields"])
    if kind["type"] == "array":
        return has_bounded_types(kind["items"])
    return kind.get("logicalType") in ("decimal", "timestamp-millis")


def fits_its_types(kind: Any, value: Any) -> bool:
    """Whether every decimal and every timestamp in a value is one that a table can hold."""
    if isinstance(kind, list):
        if value is None:
            return True
        real = [branch for branch in kind if branch != "null"]
        if len(real) == 1:
            return fits_its_types(real[0], value)
        ((name, inner),) = value.items()
        return all(fits_its_types(branch, inner) for branch in real if branch_name(branch) == name)
    if kind["type"] == "record":
        return all(fits_its_types(field["type"], value[field["name"]]) for field in kind["fields"])
    if kind["type"] == "array":
        return all(fits_its_types(kind["items"], item) for item in value)
    if kind.get("logicalType") == "decimal":
        digits_max: int = kind["precision"]
        return bool(value) and abs(int.from_bytes(value, "big", signed=True)) < 10**digits_max
    if kind.get("logicalType") == "timestamp-millis":
        return bool(INT64_MIN <= value * 1000 <= INT64_MAX)
    return True


class _Body:
    """The bytes of one body, and how far they have been read."""

    def __init__(self, value: bytes) -> None:
        self.at = 0
        self.is_canonical = True
        """Whether an encoder would have written what was read so far in just these bytes."""
        self.is_text = True
        self._value = value

    def read(self, kind: Any) -> Any:
        """Read a value of a resolved type, in the codec's form."""
        if isinstance(kind, list):
            return self._read_union(kind)
        name = kind["type"]
        if name == "record":
            return {field["name"]: self.read(field["type"]) for field in kind["fields"]}
        if name == "array":
            return self.read_items(lambda: self.read(kind["items"]))
        if name == "enum":
            return kind["symbols"][self.read_index(len(kind["symbols"]))]
        if name == "fixed":
            return self._take(kind["size"])
        if name in _FLOATS:
            return struct.unpack(_FLOATS[name], self._take(struct.calcsize(_FLOATS[name])))[0]
        if name in ("int", "long"):
            return self.read_number(_INT_BYTES if name == "int" else _LONG_BYTES)
        if name == "boolean":
            byte = self._take(1)[0]
            self.is_canonical = self.is_canonical and byte <= 1
            return byte == 1
        size = self.read_number()
        if size < 0:
            raise CodecError("undecodable", f"a negative length at byte {self.at}")
        taken = self._take(size)
        return self._text(taken) if name == "string" else taken

    def read_number(self, bytes_max: int = _LONG_BYTES) -> int:
        """Read a number as Java does: bits beyond its type are dropped, which is not how an encoder writes it."""
        start, stated = self.at, 0
        while True:
            byte = self._take(1)[0]
            stated |= (byte & 0x7F) << 7 * (self.at - start - 1)
            if byte < 0x80:
                break
            if self.at - start == bytes_max:
                raise CodecError("undecodable", f"a number of more than {bytes_max} bytes at byte {start}")
        bits = 64 if bytes_max == _LONG_BYTES else 32
        needed = max(1, -(-stated.bit_length() // 7))
        self.is_canonical = self.is_canonical and stated < 1 << bits and self.at - start == needed
        stated &= (1 << bits) - 1
        return (stated >> 1) ^ -(stated & 1)

    def read_index(self, size: int) -> int:
        """Read the index of one of so many branches or symbols."""
        index = self.read_number(_INT_BYTES)
        if not 0 <= index < size:
            raise CodecError("undecodable", f"there is no branch or symbol {index} at byte {self.at}")
        return index

    def read_items(self, read_item: Callable[[], Any]) -> list[Any]:
        """Read the blocks of an array."""
        items: list[Any] = []
        blocks = 0
        while count := self.read_number():
            blocks += 1
            if count < 0:
                self.read_number()  # its size, for those who skip it
            if abs(count) > len(self._value) - self.at:  # no item has no bytes
                raise CodecError("undecodable", f"an array of {abs(count)} items at byte {self.at}")
            self.is_canonical = self.is_canonical and count > 0 and blocks == 1
            items.extend(read_item() for _ in range(abs(count)))
        return items

    def _read_union(self, branches: list[Any]) -> Any:
        branch = branches[self.read_index(len(branches))]
        if branch == "null":
            return None
        value = self.read(branch)
        several = sum(one != "null" for one in branches) > 1
        return {branch_name(branch): value} if several else value

    def _text(self, taken: bytes) -> str:
        try:
            return taken.decode("utf-8")
        except UnicodeDecodeError:
            self.is_text = False
            return ""

    def _take(self, size: int) -> bytes:
        taken = self._value[self.at : self.at + size]
        if len(taken) < size:
            raise CodecError("undecodable", f"the bytes end where {size} more are needed at byte {self.at}")
        self.at += size
        return taken


def _holds_int(kind: Any) -> bool:
    """Whether a resolved type has a number of 32 bits somewhere."""
    if isinstance(kind, list):
        return any(_holds_int(branch) for branch in kind if branch != "null")
    if kind["type"] == "record":
        return any(_holds_int(field["type"]) for field in kind["fields"])
    return _holds_int(kind["items"]) if kind["type"] == "array" else bool(kind["type"] == "int")
