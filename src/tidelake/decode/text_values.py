"""Parses numbers and timestamps from text exactly, without rounding or guessing.

Text that does not represent a value gives null. The cost is linear in the length of the text, because an exponent is
checked before it is used.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

_TIMESTAMP = (
    r"^([0-9]{4}|-[0-9]{4,6}|\+[0-9]{5,6})-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(\.[0-9]{1,6}0{0,3})?(Z|[+-][0-9]{2}:[0-9]{2}(:[0-9]{2})?)$"
)
_NUMBER = r"^[+-]?[0-9]*(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,4}))?$"
_ZERO = r"^[+-]?[0.]+(?:[eE]|$)"
_ZEROS_AT_END = r"^[+-]?[0-9.]*?(0*+(?:\.0*+)?)(?:[eE].*)?$"
_NUMBER_LENGTH_MAX = 1_000
"""Maximum number of characters that a JSON parser accepts in a number."""


def decimal_of(text: Column, precision: int, scale: int) -> Column:
    """Return a decimal from its text; null if it has more digits than the type holds."""
    point = F.instr(text, ".")
    # Only a few numbers need the pattern, which costs more than parsing the record.
    short = ~F.contains(F.lower(text), F.lit("e")) & ((point == 0) | (F.length(text) - point <= scale))
    holds = (F.length(text) <= _NUMBER_LENGTH_MAX) & F.when(short, F.lit(True)).otherwise(_places(text) <= scale)
    # Only a number that fits is cast: a cast would round any other, and would write out all zeros of its exponent.
    return F.when(holds, text.try_cast(f"decimal({precision},{scale})"))


def _places(text: Column) -> Column:
    """Return the number of digits after the point, with the exponent applied; null if the text is not a number.

    Zeros at the end do not count.
    """
    fraction, exponent = F.regexp_extract(text, _NUMBER, 1), F.regexp_extract(text, _NUMBER, 2).try_cast("int")
    zeros_at_end = F.translate(F.regexp_extract(text, _ZEROS_AT_END, 1), ".", "")
    places = F.length(fraction) - F.length(zeros_at_end) - F.coalesce(exponent, F.lit(0))
    return F.when(text.rlike(_NUMBER), F.when(text.rlike(_ZERO), F.lit(0)).otherwise(places))


def real_of(text: Column, kind: str) -> Column:
    """Return a `float` or a `double` from its text; null if it is out of range, or if only Java accepts the text.

    `NaN`, `Infinity` and `-Infinity` stand for the values that JSON numbers cannot represent.
    """
    value = text.try_cast(kind)
    is_java_only = F.substring(text, -1, 1).isin("d", "D", "f", "F") | F.contains(F.lower(text), F.lit("x"))
    return F.when(text.isin("NaN", "Infinity", "-Infinity") | ((F.abs(value) < float("inf")) & ~is_java_only), value)


def timestamp_of(text: Column) -> Column:
    """Return a timestamp from date, time of day and zone, as in `2026-01-31T12:00:00Z`; null if one of them is missing.

    A plain cast would use today's date if the date is missing, and would drop fractions of a microsecond.
    """
    return F.when(text.rlike(_TIMESTAMP), text.try_cast("timestamp"))
