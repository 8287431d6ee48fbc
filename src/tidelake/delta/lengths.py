"""How many bytes statements take as an encoder writes them: of good messages the lengths alone say that they are good.

Bytes that nobody reads and numbers in longer forms than they need make a body longer than what an encoder would write
of what was read from it, and nothing makes one shorter. So if the bodies of a tick are together just as long, then each
of them is, and none hides anything. Two things need more: a list in several blocks may be as long as in one, so a body
has to begin with the number of all its statements; and a number that takes its type's last byte may have lost high bits
there without a change of length, so such numbers are counted, as doubtful. See docs/decisions/lengths.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidelake.delta.conditions import any_of

_BITS = 7  # of a number in each byte
_SYMBOLS_MAX = 64  # their indices take one byte
_ITEMS_MAX = 1 << 20  # a count of fewer takes at most three bytes
_FIXED_BYTES = {"float": 4, "double": 8}
_INT_COLUMN = "int column"
"""An int that is read as a long, or was found to be one: only whether it is beyond its type is in doubt."""
_NUMBER_BYTES_MAX = {"int": 5, "long": 10, _INT_COLUMN: 5}
_DOUBTFUL_FROM = {"int": 1 << 27, "long": 1 << 62, _INT_COLUMN: 1 << 31}
_LENGTH_BYTES_MAX = 5
"""Of a text's length: a longer one than its limit is no text."""
_AS_NUMBER: dict[str, Callable[[Column], Column]] = {
    "date": F.unix_date,
    "timestamp-millis": F.unix_millis,
    "timestamp-micros": F.unix_micros,
}


class _NotMeasured(Exception):
    """Of a type whose values do not say how long they were: a boolean of 2 is false, a decimal may be padded."""


@dataclass(frozen=True)
class Lengths:
    """What is known of the bytes of a value: a number of them, and conditions and lists that add to it."""

    always: int = 0
    more: Sequence[Column] = ()
    """Integers, none of which is null unless the value is."""
    doubtful: Sequence[Column] = ()
    """Conditions, none of which is null unless the value is: whether a number may have been cut."""

    @property
    def bytes(self) -> Column:
        """How many bytes an encoder writes (bigint)."""
        return reduce(lambda one, other: one + other, self.more, F.lit(self.always).cast("bigint"))

    @property
    def is_doubtful(self) -> Column:
        """Whether the length does not tell that nothing was cut."""
        return any_of(self.doubtful)


_Measure = Callable[[Column], Lengths]


def lengths_of_statement(decoding: Any) -> _Measure | None:
    """How long a statement, a struct of data, time and diff, is in Avro; None where values do not say.

    Args:
        decoding: the Avro type with which its data is decoded, every named type written out where it is used.
            The values are of this type, and nothing was cut, or of its `measured_type`.
    """
    fields = [("data", _with_int_columns(decoding, _INT_COLUMN)), ("time", "long"), ("diff", "long")]
    try:
        return _measure({"type": "record", "fields": [{"name": name, "type": kind} for name, kind in fields]})
    except _NotMeasured:
        return None


def measured_type(decoding: Any) -> Any:
    """The same record with long for each column that is int: it reads the same bytes, and cuts none to 32 bits."""
    return _with_int_columns(decoding, "long")


def _with_int_columns(decoding: Any, name: str) -> Any:
    def renamed(kind: Any) -> Any:
        if isinstance(kind, list):
            return [renamed(one) for one in kind]
        return name if kind == "int" else kind

    return decoding | {"fields": [one | {"type": renamed(one["type"])} for one in decoding["fields"]]}


def bytes_of_statements(body: Column, statements: Column) -> Column:
    """How many bytes of a body its statements have (bigint): what is left beside the branch, their number and the end.

    Args:
        body: of an update message.
        statements: the list that was read from it.

    Returns:
        All of the body's bytes, which is more than any encoder's statements would have, where it does not begin as an
        encoder begins a message of so many statements; null where either argument is.
    """
    number = F.size(statements).cast("bigint")
    low, middle = number * 2 % 128, F.shiftright(number, 6)
    begins = (
        F.when(number < 64, _hex(number * 2, 2))
        .when(number < 1 << 13, _hex((low + 128) * 256 + middle, 3))
        .when(number < _ITEMS_MAX, _hex(((low + 128) * 256 + middle % 128 + 128) * 256 + F.shiftright(number, 13), 4))
    )
    count_bytes = F.shiftright(F.length(begins), 1) - 1
    end = F.when(number > 0, 1).otherwise(0)
    is_plain = F.hex(F.substring(body, 1, 4)).startswith(begins)
    length = F.length(body).cast("bigint")
    return F.when(statements.isNotNull(), F.when(is_plain, length - 1 - count_bytes - end).otherwise(length))


def _hex(number: Column, size: int) -> Column:
    """A number as so many bytes, in hexadecimal digits."""
    return F.lpad(F.hex(number), 2 * size, "0")


def _measure(kind: Any) -> _Measure:
    if isinstance(kind, list):
        return _measure_union(kind)
    name = kind if isinstance(kind, str) else kind["type"]
    logical = "" if isinstance(kind, str) else kind.get("logicalType", "")
    if name == "record":
        return _measure_record([(one["name"], _measure(one["type"])) for one in kind["fields"]])
    if name in _NUMBER_BYTES_MAX:
        return lambda value: _measure_number(_AS_NUMBER[logical](value) if logical else value, name)
    if name in ("string", "bytes") and not logical:
        return lambda value: _measure_text(F.octet_length(value))
    if name in _FIXED_BYTES:
        return lambda value: Lengths(_FIXED_BYTES[name])
    if name == "fixed":
        return lambda value: Lengths(kind["size"])
    if name == "enum" and len(kind["symbols"]) <= _SYMBOLS_MAX:
        return lambda value: Lengths(1)
    raise _NotMeasured


def _measure_record(fields: Sequence[tuple[str, _Measure]]) -> _Measure:
    def measure(value: Column) -> Lengths:
        found = [of_field(value[name]) for name, of_field in fields]
        return Lengths(
            sum(one.always for one in found),
            [more for one in found for more in one.more],
            [doubtful for one in found for doubtful in one.doubtful],
        )

    return measure


def _measure_union(branches: list[Any]) -> _Measure:
    real = [_measure(one) for one in branches if one != "null"]
    if len(real) != 1:
        raise _NotMeasured

    def measure(value: Column) -> Lengths:
        found, there = real[0](value), value.isNotNull()
        return Lengths(
            1,
            [F.when(there, found.bytes).otherwise(F.lit(0))],
            [there & found.is_doubtful] if found.doubtful else [],
        )

    return measure


def _measure_number(value: Column, kind: str) -> Lengths:
    number = value.cast("bigint")
    size = number.bitwiseXOR(F.shiftright(number, 63))
    return Lengths(1, [_bytes_beyond_first(size, _NUMBER_BYTES_MAX[kind])], [size >= _DOUBTFUL_FROM[kind]])


def _measure_text(size: Column) -> Lengths:
    return Lengths(1, [size, _bytes_beyond_first(size, _LENGTH_BYTES_MAX)])


def _bytes_beyond_first(size: Column, bytes_max: int) -> Column:
    """How many bytes after its first a number takes that is not negative, or less than 0 and turned over."""
    found = F.when(size < 1 << (_BITS - 1), 0)
    for more in range(1, bytes_max - 1):
        found = found.when(size < 1 << (_BITS * (more + 1) - 1), more)
    return found.otherwise(bytes_max - 1)
