"""How the types of a record are read from JSON: as what by Spark, what is stored of it, and when it does not fit.

Spark's reader is lenient where it reads text: it takes a number or an object as its text. Text that looks like one is
therefore *odd*, and looked at again as a variant, which knows what it was. Decimals, dates and timestamps are read as
text, and then converted without rounding. A number with a point comes as the text of a double: where more than that may
have been written, the record is read *again* with its numbers in quotes, for what stands there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidelake.delta.conditions import any_of
from tidelake.delta.written import decimal_of, timestamp_of
from tidelake.errors import SchemaRefused

Of = Callable[[Column], Column]

_ODD = r"^(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false|[\[{].*)$"
_ODD_STARTS = "-0123456789tf[{"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_INTEGER = r"^-?[0-9]{1,19}$"


@dataclass(frozen=True)
class Reading:
    """How one type is read.

    Args:
        ddl: as what Spark reads it.
        stored: what is stored of that.
        problem: `<reason> <column>` where a value that is there does not fit; else null. None: whatever was read fits.
        odd: whether a value may have been something else than text; never null. None: it cannot.
        exact: as what a variant has to be read to see what it was; None where nothing is odd.
        mistaken: of that, the column that was no text; null where there is none.
        names: how many names of objects were seen in a value; at most as many as there are.
        pointed: whether it holds a number with a point, which was read as a double; never null. None: it cannot.
        again: as what Spark reads the parts that may be pointed, once numbers stand in quotes.
        mended: what was read first, with the parts that were read again.
    """

    ddl: str
    stored: Of
    problem: Of | None = None
    odd: Of | None = None
    exact: str | None = None
    mistaken: Of | None = None
    names: Of | None = None
    pointed: Of | None = None
    again: str | None = None
    mended: Callable[[Column, Column], Column] | None = None


def reading_of(kind: Any, column: str) -> Reading:
    """How a resolved Avro type, without null, is read.

    Raises:
        SchemaRefused: JSON has no form for it.
    """
    match kind["type"]:
        case "record":
            return read_record(kind, column)
        case "array":
            return _array(kind, column)
        case "boolean":
            return Reading("boolean", _same)
        case "int" | "long":
            return _whole_number(kind, column)
        case "float" | "double":
            return _real_number(kind["type"], column)
        case "enum":
            return _enum(kind["symbols"], column)
        case "bytes" | "fixed":
            return _bytes(kind, column)
        case _:
            return _text(column, _same, None)


def read_record(kind: Any, column: str = "") -> Reading:
    """How a record is read; names that it does not have are left out."""
    fields = [
        _Field(one["name"], one["type"], f"{column}.{one['name']}" if column else one["name"]) for one in kind["fields"]
    ]
    with_exact = [one for one in fields if one.reading.exact is not None]
    with_again = [one for one in fields if one.reading.again is not None]

    def stored(value: Column) -> Column:
        return F.when(
            value.isNotNull(), F.struct(*(one.reading.stored(value[one.name]).alias(one.name) for one in fields))
        )

    def mistaken(value: Column) -> Column:
        return F.coalesce(*(one.reading.mistaken(value[one.name]) for one in with_exact if one.reading.mistaken))

    def names(value: Column) -> Column:
        return reduce(lambda one, other: one + other, (one.names(value[one.name]) for one in fields))

    def mended(value: Column, again: Column) -> Column:
        parts = (
            (one.reading.mended(value[one.name], again[one.name]) if one.reading.mended else value[one.name]).alias(
                one.name
            )
            for one in fields
        )
        return F.when(value.isNotNull(), F.struct(*parts))

    return Reading(
        ddl=f"struct<{', '.join(f'`{one.name}`: {one.reading.ddl}' for one in fields)}>",
        stored=stored,
        problem=_first(fields, lambda one: one.problem),
        odd=_any((one.name, one.reading.odd) for one in fields),
        exact=f"struct<{', '.join(f'`{one.name}`: {one.reading.exact}' for one in with_exact)}>"
        if with_exact
        else None,
        mistaken=mistaken if with_exact else None,
        names=names,
        pointed=_any((one.name, one.reading.pointed) for one in fields),
        again=f"struct<{', '.join(f'`{one.name}`: {one.reading.again}' for one in with_again)}>"
        if with_again
        else None,
        mended=mended if with_again else None,
    )


class _Field:
    """One field of a record: its reading, and whether it may be null."""

    def __init__(self, name: str, kind: Any, column: str) -> None:
        branches = kind if isinstance(kind, list) else [kind]
        real = [one for one in branches if one != "null"]
        if len(real) > 1:
            raise SchemaRefused(column, "JSON does not say which branch of a union of several types a value is")
        self.name, self.column, self.nullable = name, column, len(real) < len(branches)
        self.reading = reading_of(real[0], column)

    @property
    def problem(self) -> Of | None:
        """Of the field's value: that it is missing, or what is wrong with it."""
        of_type = self.reading.problem
        if self.nullable:
            return of_type

        def found(value: Column) -> Column:
            missing = F.when(value.isNull(), F.lit(f"missing_field {self.column}"))
            return missing if of_type is None else F.coalesce(missing, of_type(value))

        return found

    def names(self, value: Column) -> Column:
        """The field's own name, where it has a value, and those below."""
        below = self.reading.names
        seen = F.lit(1) if below is None else F.lit(1) + below(value)
        return F.when(value.isNotNull(), seen).otherwise(F.lit(0))


def _first(fields: Iterable[_Field], part: Callable[[_Field], Of | None]) -> Of | None:
    checks = [(one.name, check) for one in fields if (check := part(one)) is not None]
    if not checks:
        return None
    return lambda value: F.when(value.isNotNull(), F.coalesce(*(check(value[name]) for name, check in checks)))


def _any(parts: Iterable[tuple[str, Of | None]]) -> Of | None:
    checks = [(name, check) for name, check in parts if check is not None]
    if not checks:
        return None
    return lambda value: any_of(check(value[name]) for name, check in checks)


def _array(kind: Any, column: str) -> Reading:
    item = _Field("item", kind["items"], f"{column}[]")
    inner, problem = item.reading, item.problem
    odd, mistaken, names, pointed, mended = inner.odd, inner.mistaken, inner.names, inner.pointed, inner.mended
    return Reading(
        ddl=f"array<{inner.ddl}>",
        stored=lambda value: F.transform(value, inner.stored),
        problem=None
        if problem is None
        else lambda value: F.get(F.filter(F.transform(value, problem), lambda one: one.isNotNull()), F.lit(0)),
        odd=None if odd is None else lambda value: F.coalesce(F.exists(value, odd), F.lit(False)),
        exact=None if inner.exact is None else f"array<{inner.exact}>",
        mistaken=None
        if mistaken is None
        else lambda value: F.get(F.filter(F.transform(value, mistaken), lambda one: one.isNotNull()), F.lit(0)),
        names=None
        if names is None
        else lambda value: F.aggregate(F.transform(value, names), F.lit(0), lambda total, one: total + one),
        pointed=None if pointed is None else lambda value: F.coalesce(F.exists(value, pointed), F.lit(False)),
        again=None if inner.again is None else f"array<{inner.again}>",
        mended=None if mended is None else lambda value, again: F.zip_with(value, again, mended),
    )


def _same(value: Column) -> Column:
    return value


def _text(column: str, stored: Of, fits: Of | None) -> Reading:
    """Text, and nothing that merely has a text; `fits` says of what is stored whether the text is a good one."""

    def wrong(value: Column) -> Column:
        kind = F.schema_of_variant(value)
        return F.when(~kind.isin("STRING", "VOID"), F.lit(column))

    def problem(value: Column) -> Column:
        assert fits is not None
        return F.when(value.isNotNull() & ~F.coalesce(fits(value), F.lit(False)), F.lit(f"wrong_type {column}"))

    return Reading(
        ddl="string",
        stored=stored,
        problem=None if fits is None else problem,
        odd=lambda value: F.when(F.substring(value, 1, 1).isin(*_ODD_STARTS), value.rlike(_ODD)).otherwise(
            F.lit(False)
        ),
        exact="variant",
        mistaken=wrong,
    )


def _written(column: str, stored: Of, fits: Of) -> Reading:
    """What may be written as a number or as text; what stands there is converted, and `fits` is asked of it before."""

    def problem(value: Column) -> Column:
        return F.when(value.isNotNull() & ~F.coalesce(fits(value), F.lit(False)), F.lit(f"wrong_type {column}"))

    return Reading("string", stored, problem)


def _enum(symbols: list[str], column: str) -> Reading:
    return _text(column, _same, lambda value: value.isin(symbols))


def _bytes(kind: Any, column: str) -> Reading:
    if kind.get("logicalType") == "decimal":
        return _decimal(kind, column)
    size = kind.get("size")

    def stored(value: Column) -> Column:
        return F.try_to_binary(value, F.lit("base64"))

    def fits(value: Column) -> Column:
        return stored(value).isNotNull() if size is None else F.length(stored(value)) == size

    return _text(column, stored, fits)


def _decimal(kind: Any, column: str) -> Reading:
    precision, scale = int(kind["precision"]), int(kind.get("scale", 0))

    # What does not fit is never stored, so only the look for that has to be careful.
    written = _written(
        column,
        lambda value: value.try_cast(f"decimal({precision},{scale})"),
        lambda value: decimal_of(value, precision, scale).isNotNull(),
    )
    return replace(
        written,
        pointed=lambda value: F.coalesce(F.contains(value, F.lit(".")), F.lit(False)),
        again="string",
        mended=lambda value, again: again,
    )


def _whole_number(kind: Any, column: str) -> Reading:
    match kind.get("logicalType"):
        case "date":
            return _written(column, _date, lambda value: _date(value).isNotNull())
        case "timestamp-millis":
            return _timestamp(column, F.timestamp_millis)
        case "timestamp-micros":
            return _timestamp(column, F.timestamp_micros)
        case _:
            return Reading("int" if kind["type"] == "int" else "bigint", _same)


def _date(value: Column) -> Column:
    """A date as `2026-01-31`, or as days since 1970."""
    days = F.when(value.rlike(_INTEGER), F.date_from_unix_date(value.try_cast("int")))
    return F.coalesce(F.when(value.rlike(_DATE), value.try_cast("date")), days)


def _timestamp(column: str, from_number: Of) -> Reading:
    """A time as `2026-01-31T12:00:00Z`, or as a number in the unit of the type since 1970."""

    def stored(value: Column) -> Column:
        number = F.when(value.rlike(_INTEGER), from_number(value.try_cast("bigint")))
        return F.coalesce(timestamp_of(value), number)

    return _written(column, stored, lambda value: stored(value).isNotNull())


def _real_number(name: str, column: str) -> Reading:
    """A number; one beyond the type is infinite, and JSON has no infinite ones."""

    def problem(value: Column) -> Column:
        beyond = (value == F.lit(float("inf"))) | (value == F.lit(float("-inf")))
        return F.when(beyond, F.lit(f"out_of_range {column}"))

    return Reading(name, _same, problem)
