"""What stands written as text, and the one value that it is: nothing is rounded, and nothing is guessed.

Whatever fails is null. Nothing here costs more than its text is long: an exponent is looked at before it is followed.
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
"""As many characters as a parser of JSON takes for one number."""


def decimal_of(text: Column, precision: int, scale: int) -> Column:
    """A decimal from its text; null where it has more digits than the type holds."""
    point = F.instr(text, ".")
    # Few numbers need the pattern, which costs more than reading the record.
    short = ~F.contains(F.lower(text), F.lit("e")) & ((point == 0) | (F.length(text) - point <= scale))
    holds = (F.length(text) <= _NUMBER_LENGTH_MAX) & F.when(short, F.lit(True)).otherwise(_places(text) <= scale)
    # Only then: a cast would round, and would write out all the zeros of an exponent.
    return F.when(holds, text.try_cast(f"decimal({precision},{scale})"))


def _places(text: Column) -> Column:
    """How many digits a number has behind its point once that is moved by the exponent; null where it is no number."""
    behind, exponent = F.regexp_extract(text, _NUMBER, 1), F.regexp_extract(text, _NUMBER, 2).try_cast("int")
    zeros_at_end = F.translate(F.regexp_extract(text, _ZEROS_AT_END, 1), ".", "")
    places = F.length(behind) - F.length(zeros_at_end) - F.coalesce(exponent, F.lit(0))
    return F.when(text.rlike(_NUMBER), F.when(text.rlike(_ZERO), F.lit(0)).otherwise(places))


def real_of(text: Column, kind: str) -> Column:
    """A `float` or a `double` from its text; null where it is beyond the type, or is a number to Java alone.

    What JSON has no number for is `NaN`, `Infinity` or `-Infinity`.
    """
    value = text.try_cast(kind)
    java_alone = F.substring(text, -1, 1).isin("d", "D", "f", "F") | F.contains(F.lower(text), F.lit("x"))
    return F.when(text.isin("NaN", "Infinity", "-Infinity") | ((F.abs(value) < float("inf")) & ~java_alone), value)


def timestamp_of(text: Column) -> Column:
    """A time from its date, its time of day and its zone, as `2026-01-31T12:00:00Z`; null where one of them lacks.

    A cast alone would take today for a date that is not there, and cut off what is less than a microsecond.
    """
    return F.when(text.rlike(_TIMESTAMP), text.try_cast("timestamp"))
