"""Computes the number of bytes that an encoder writes for statements: lengths alone can prove that messages are good.

Trailing bytes and non-canonical varints make a body longer than the encoding of its contents, and nothing makes a body
shorter. So if the bodies of a tick have exactly the expected total length, each has its expected length and hides
nothing. Two cases need more. A list in several blocks may be as long as the same list in one block, so a body
must begin with the number of all its statements. A number that takes as many bytes as its type allows may have lost
high bits without a change of length, so such numbers are doubtful. See docs/decisions/lengths.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from struct import calcsize
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidelake.decode.types import spark_type
from tidelake.schema.types import Family, scalar_of, scalar_type
from tidelake.spark.conditions import any_of

_BITS = 7  # payload bits in each byte of a number
_SYMBOLS_MAX = 64  # their indices take one byte
_ITEMS_MAX = 1 << 20  # a smaller count takes at most three bytes
_INT_COLUMN = "int column"
"""An int that is read as a long: it is doubtful only if it does not fit into an int."""
_LENGTH_BYTES_MAX = 5
"""Maximum number of bytes that state a string's length: no string is so long that more are needed."""


class _NotMeasured(Exception):
    """A type whose lengths prove nothing: a boolean encoded as 2 is read as false, and a decimal may be padded."""


@dataclass(frozen=True)
class Lengths:
    """The number of bytes of a value, in parts, and whether a number in the value may have been truncated."""

    constant: int = 0
    variable: Sequence[Column] = ()
    """Integers; null only if the value is null."""
    doubtful: Sequence[Column] = ()
    """Conditions under which a number may have been truncated; null only if the value is null."""

    @property
    def bytes(self) -> Column:
        """The number of bytes that an encoder writes (bigint)."""
        return reduce(lambda total, part: total + part, self.variable, F.lit(self.constant).cast("bigint"))

    @property
    def is_doubtful(self) -> Column:
        """Whether a number may have been truncated without a change of length."""
        return any_of(self.doubtful)


_Measure = Callable[[Column], Lengths]


def lengths_of_statement(decoding: Any) -> _Measure | None:
    """Return a function that gives the Avro length of a statement; None if the values do not determine it.

    Args:
        decoding: the Avro type that decodes the data, with every named type written out at each use. The values must
            have been read either with this type, if no number was truncated, or with its `measured_type`.
    """
    fields = [("data", _with_int_columns(decoding, _INT_COLUMN)), ("time", "long"), ("diff", "long")]
    try:
        return _measure({"type": "record", "fields": [{"name": name, "type": kind} for name, kind in fields]})
    except _NotMeasured:
        return None


def measured_type(decoding: Any) -> Any:
    """Return the same record with `long` for each `int` column: it reads the same bytes, and truncates no number."""
    return _with_int_columns(decoding, "long")


def _with_int_columns(decoding: Any, name: str) -> Any:
    def renamed(kind: Any) -> Any:
        if isinstance(kind, list):
            return [renamed(branch) for branch in kind]
        return name if kind == "int" else kind

    return decoding | {"fields": [field | {"type": renamed(field["type"])} for field in decoding["fields"]]}


def bytes_of_statements(body: Column, statements: Column) -> Column:
    """Return the number of bytes of a body (bigint) without its union branch, block count and end mark.

    Args:
        body: the body of an update message.
        statements: the decoded list.

    Returns:
        The number of bytes of the statements alone. If the body does not begin as an encoder would begin it, the length
        of the whole body, which is too large; null if either argument is null.
    """
    number = F.size(statements).cast("bigint")
    low, middle = number * 2 % 128, F.shiftright(number, 6)
    prefix = (
        F.when(number < 64, _hex(number * 2, 2))
        .when(number < 1 << 13, _hex((low + 128) * 256 + middle, 3))
        .when(number < _ITEMS_MAX, _hex(((low + 128) * 256 + middle % 128 + 128) * 256 + F.shiftright(number, 13), 4))
    )
    count_bytes = F.shiftright(F.length(prefix), 1) - 1
    end = F.when(number > 0, 1).otherwise(0)
    is_plain = F.hex(F.substring(body, 1, 4)).startswith(prefix)
    length = F.length(body).cast("bigint")
    return F.when(statements.isNotNull(), F.when(is_plain, length - 1 - count_bytes - end).otherwise(length))


def _hex(number: Column, size: int) -> Column:
    """Return a number of `size` bytes as hexadecimal digits."""
    return F.lpad(F.hex(number), 2 * size, "0")


def _measure(kind: Any) -> _Measure:
    if isinstance(kind, list):
        return _measure_union(kind)
    if kind == _INT_COLUMN:
        return _measure_int_column
    resolved: Any = {"type": kind} if isinstance(kind, str) else kind
    if resolved["type"] == "record":
        return _measure_record([(field["name"], _measure(field["type"])) for field in resolved["fields"]])
    if resolved["type"] == "array":
        raise _NotMeasured
    return _measure_scalar(resolved)


def _measure_scalar(kind: Any) -> _Measure:
    scalar = scalar_of(kind)
    match scalar.family:
        case Family.INTEGER:
            encoded, bytes_max = spark_type(scalar).encoded, scalar.number_bytes_max
            doubtful_from = 1 << _BITS * (bytes_max - 1) - 1
            return lambda value: _measure_number(value if encoded is None else encoded(value), bytes_max, doubtful_from)
        case Family.REAL:
            size = calcsize(scalar.float_format)
            return lambda value: Lengths(size)
        case Family.BINARY | Family.DECIMAL if scalar.base == "fixed":
            return lambda value: Lengths(kind["size"])
        case Family.TEXT | Family.BINARY:
            return lambda value: _measure_text(F.octet_length(value))
        case Family.SYMBOL if len(kind["symbols"]) <= _SYMBOLS_MAX:
            return lambda value: Lengths(1)
    raise _NotMeasured


def _measure_int_column(value: Column) -> Lengths:
    scalar = scalar_type("int")
    return _measure_number(value, scalar.number_bytes_max, scalar.bounds[1] + 1)


def _measure_record(fields: Sequence[tuple[str, _Measure]]) -> _Measure:
    def measure(value: Column) -> Lengths:
        lengths = [measure_field(value[name]) for name, measure_field in fields]
        return Lengths(
            sum(length.constant for length in lengths),
            [part for length in lengths for part in length.variable],
            [doubtful for length in lengths for doubtful in length.doubtful],
        )

    return measure


def _measure_union(branches: list[Any]) -> _Measure:
    measures = [_measure(branch) for branch in branches if branch != "null"]
    if len(measures) != 1:
        raise _NotMeasured

    def measure(value: Column) -> Lengths:
        length, is_present = measures[0](value), value.isNotNull()
        return Lengths(
            1,
            [F.when(is_present, length.bytes).otherwise(F.lit(0))],
            [is_present & length.is_doubtful] if length.doubtful else [],
        )

    return measure


def _measure_number(value: Column, bytes_max: int, doubtful_from: int) -> Lengths:
    number = value.cast("bigint")
    size = number.bitwiseXOR(F.shiftright(number, 63))
    return Lengths(1, [_bytes_beyond_first(size, bytes_max)], [size >= doubtful_from])


def _measure_text(size: Column) -> Lengths:
    return Lengths(1, [size, _bytes_beyond_first(size, _LENGTH_BYTES_MAX)])


def _bytes_beyond_first(size: Column, bytes_max: int) -> Column:
    """Return the number of bytes after the first, for a number that is non-negative or has been complemented."""
    count = F.when(size < 1 << (_BITS - 1), 0)
    for extra in range(1, bytes_max - 1):
        count = count.when(size < 1 << (_BITS * (extra + 1) - 1), extra)
    return count.otherwise(bytes_max - 1)
