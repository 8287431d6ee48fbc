"""How scalar values are read from JSON: the type that Spark reads, the stored value, and the checks.

Spark's reader is lenient with text: it reads a number or an object as its text. Text that looks like a number or an
object is therefore *suspect*: it is read again as a variant, which preserves the type. Decimals, dates and timestamps
are read as text, then converted without rounding. A number with a point is read as the text of a double: if the number
may have been written with more digits, the record is read again with its numbers in quotes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidelake.decode.text_values import decimal_of, timestamp_of

Expression = Callable[[Column], Column]

_OTHER_TYPE = r"^(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false|[\[{].*)$"
_OTHER_TYPE_STARTS = "-0123456789tf[{"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_INTEGER = r"^-?[0-9]{1,19}$"


@dataclass(frozen=True)
class JsonForm:
    """How one type is read.

    Args:
        ddl: the type that Spark reads.
        stored: converts the value read to the stored one.
        problem: `<reason> <column>` if a value is present and does not fit, else null. None: every value fits.
        suspect: whether a value read as text may have been something else, and has to be checked; never null. None: no
            value has to be checked.
        variant_ddl: the type to read from a variant, to check a suspect value. None: no value is suspect.
        not_text: the name of the first column whose value in the variant is not text; null if all are text.
        name_count: the number of names in the value's JSON objects; less than the text has if a name is repeated, is
            unknown or has the value null.
        has_point: whether a value holds a number with a point, which was read as a double; never null. None: no value
            does.
        quoted_ddl: the type with which the parts that may have a point are read again, with numbers in quotes.
        with_quoted: replaces parts of a value with the parts that were read again.
    """

    ddl: str
    stored: Expression
    problem: Expression | None = None
    suspect: Expression | None = None
    variant_ddl: str | None = None
    not_text: Expression | None = None
    name_count: Expression | None = None
    has_point: Expression | None = None
    quoted_ddl: str | None = None
    with_quoted: Callable[[Column, Column], Column] | None = None


def plain_form(ddl: str) -> Callable[[Any, str], JsonForm]:
    """Return the form of a value that Spark reads exactly, or not at all."""
    return lambda kind, column: JsonForm(ddl, _unchanged)


def real_form(ddl: str) -> Callable[[Any, str], JsonForm]:
    """Return the form of a real number. Spark reads one that is out of range as infinite, so infinity is refused."""

    def form(kind: Any, column: str) -> JsonForm:
        def problem(value: Column) -> Column:
            is_infinite = (value == F.lit(float("inf"))) | (value == F.lit(float("-inf")))
            return F.when(is_infinite, F.lit(f"out_of_range {column}"))

        return JsonForm(ddl, _unchanged, problem)

    return form


def text_form(kind: Any, column: str) -> JsonForm:
    """Return the form of any text."""
    return _text(column, _unchanged, None)


def enum_form(kind: Any, column: str) -> JsonForm:
    """Return the form of text that is one of the symbols."""
    return _text(column, _unchanged, lambda value: value.isin(kind["symbols"]))


def bytes_form(kind: Any, column: str) -> JsonForm:
    """Return the form of bytes in base64; a fixed type takes exactly its number of bytes."""
    size = kind.get("size")

    def stored(value: Column) -> Column:
        return F.try_to_binary(value, F.lit("base64"))

    def fits(value: Column) -> Column:
        return stored(value).isNotNull() if size is None else F.length(stored(value)) == size

    return _text(column, stored, fits)


def decimal_form(kind: Any, column: str) -> JsonForm:
    """Return the form of a decimal, as a number or as text."""
    precision, scale = int(kind["precision"]), int(kind.get("scale", 0))

    # This cast may round, but a value that does not fit is never stored, so only the check must be exact.
    number_or_text = _number_or_text(
        column,
        lambda value: value.try_cast(f"decimal({precision},{scale})"),
        lambda value: decimal_of(value, precision, scale).isNotNull(),
    )
    return replace(
        number_or_text,
        has_point=lambda value: F.coalesce(F.contains(value, F.lit(".")), F.lit(False)),
        quoted_ddl="string",
        with_quoted=lambda value, quoted: quoted,
    )


def date_form(kind: Any, column: str) -> JsonForm:
    """Return the form of a date as `2026-01-31`, or as days since 1970."""

    def stored(value: Column) -> Column:
        days = F.when(value.rlike(_INTEGER), F.date_from_unix_date(value.try_cast("int")))
        return F.coalesce(F.when(value.rlike(_DATE), value.try_cast("date")), days)

    return _number_or_text(column, stored, lambda value: stored(value).isNotNull())


def timestamp_form(from_number: Expression) -> Callable[[Any, str], JsonForm]:
    """Return the form of a timestamp as `2026-01-31T12:00:00Z`, or as the time since 1970 in its type's unit."""

    def stored(value: Column) -> Column:
        number = F.when(value.rlike(_INTEGER), from_number(value.try_cast("bigint")))
        return F.coalesce(timestamp_of(value), number)

    return lambda kind, column: _number_or_text(column, stored, lambda value: stored(value).isNotNull())


def _unchanged(value: Column) -> Column:
    return value


def _text(column: str, stored: Expression, fits: Expression | None) -> JsonForm:
    """Return the form of text, which refuses other values that were read as text; `fits` checks the text itself."""

    def not_text(value: Column) -> Column:
        kind = F.schema_of_variant(value)
        return F.when(~kind.isin("STRING", "VOID"), F.lit(column))

    def suspect(value: Column) -> Column:
        may_be_other = F.substring(value, 1, 1).isin(*_OTHER_TYPE_STARTS)
        return F.when(may_be_other, value.rlike(_OTHER_TYPE)).otherwise(F.lit(False))

    return JsonForm(
        ddl="string",
        stored=stored,
        problem=None if fits is None else _wrong_type_unless(fits, column),
        suspect=suspect,
        variant_ddl="variant",
        not_text=not_text,
    )


def _number_or_text(column: str, stored: Expression, fits: Expression) -> JsonForm:
    """Return the form of a value written as a number or as text; `fits` checks whether `stored` can convert it."""
    return JsonForm("string", stored, _wrong_type_unless(fits, column))


def _wrong_type_unless(fits: Expression, column: str) -> Expression:
    def problem(value: Column) -> Column:
        return F.when(value.isNotNull() & ~F.coalesce(fits(value), F.lit(False)), F.lit(f"wrong_type {column}"))

    return problem
