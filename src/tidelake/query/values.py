"""Values of rows as Spark writes them in JSON, so that both engines print the same text."""

from __future__ import annotations

import base64
import json
from datetime import date
from decimal import Decimal
from math import isinf, isnan
from typing import Any

import numpy as np
import pyarrow as pa

from tidelake.protocol.json_values import JsonFloat, parse
from tidelake.schema.columns import Array, Branches, Column, ColumnType, Primitive, Struct
from tidelake.schema.types import Family, scalar_type
from tidelake.store.rows_at import with_numbers

_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097  # the calendar repeats after 400 years
_EPOCH = date(1970, 1, 1).toordinal()
_DAY_NANOS = 86_400_000_000_000
_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}
"""The number of nanoseconds in each unit of timestamps."""


def json_rows(rows: pa.Table, columns: tuple[Column, ...]) -> list[dict[str, Any]]:
    """Return rows as JSON values; bytes become base64 text, and numbers keep their digits.

    Args:
        rows: the rows.
        columns: the types of the data's columns; all others are integers.
    """
    kinds = {column.name: column.type for column in columns}
    plain = Primitive("long")
    return [
        {name: json_value(kinds.get(name, plain), value) for name, value in row.items()}
        for row in with_numbers(rows).to_pylist()
    ]


def query_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a query as JSON values, by their Arrow types; bytes stay bytes.

    >>> rows = pa.table({"day": pa.array([0], pa.date32()), "raw": [b"x"], "x": [0.1]})
    >>> query_rows(rows)
    [{'day': '1970-01-01', 'raw': b'x', 'x': JsonFloat('0.1')}]
    """
    columns = [
        column.to_pylist() if _is_plain(column.type) else map(_query_value, column)  # `to_pylist` takes half as long
        for column in rows.columns
    ]
    return [dict(zip(rows.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether the Python values of an Arrow type can be used as JSON values without conversion."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind))


def _query_value(cell: pa.Scalar) -> Any:
    """Return a value as a JSON value. Python's own types lack nanoseconds, 24:00, and years after 9999."""
    kind = cell.type
    if not cell.is_valid:
        return None
    if pa.types.is_union(kind):
        return _query_value(cell.value)
    if pa.types.is_map(kind):
        return [[_query_value(entry["key"]), _query_value(entry["value"])] for entry in cell.values]
    if pa.types.is_struct(kind):
        return {part.name: _query_value(cell[place]) for place, part in enumerate(kind)}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return list(map(_query_value, cell.values))
    if pa.types.is_date32(kind):
        return day_text(cell.value)
    if pa.types.is_timestamp(kind):
        return _moment_text(cell.value * _NANOS[kind.unit]) + ("Z" if kind.tz else "")
    if pa.types.is_time(kind):
        return _time_text(cell.value * _NANOS[kind.unit], 0)
    value = cell.as_py()
    if isinstance(value, bool | int | str | bytes):
        return value
    if pa.types.is_floating(kind):
        return _real(np.float32(value) if pa.types.is_float32(kind) else value)
    if pa.types.is_decimal(kind):
        return parse(str(value))
    if pa.types.is_interval(kind):
        return interval_text(value)
    return str(value)


def json_value(kind: ColumnType, value: Any) -> Any:
    """Return one value as a JSON value. Timestamps and dates are passed in as numbers.

    >>> json_value(Primitive("double"), 0.1), json_value(Primitive("int", "date"), 2**31 - 1)
    (JsonFloat('0.1'), '+5881580-07-11')
    """
    if value is None:
        return None
    match kind:
        case Struct(columns) | Branches(columns):
            return {part.name: json_value(part.type, value[part.name]) for part in columns}
        case Array(item):
            return [json_value(item.type, each) for each in value]
    scalar = scalar_type(kind.name, kind.logical)
    match scalar.family:
        case Family.INTEGER if scalar.logical == "date":
            return day_text(value)
        case Family.INTEGER if scalar.logical:
            return timestamp_text(value)
        case Family.REAL:
            return _real(np.float32(value) if scalar.base == "float" else value)
        case Family.DECIMAL:
            return parse(str(value))
        case Family.BINARY:
            return base64.b64encode(value).decode("ascii")
    return value


def _real(value: float | np.float32) -> JsonFloat | str:
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return JsonFloat(real_text(value))


def real_text(value: float | np.float32) -> str:
    """Write a finite number as Java does, with the fewest digits that distinguish it from other numbers.

    >>> real_text(0.001), real_text(1e7), real_text(-0.0), real_text(123456.75), real_text(5e-324)
    ('0.001', '1.0E7', '-0.0', '123456.75', '4.9E-324')
    >>> real_text(np.float32(0.1)), real_text(np.float32(0.0)), real_text(-np.float32(1e-45))
    ('0.1', '0.0', '-1.4E-45')
    """
    written = str(value).replace("5e-324", "4.9e-324").replace("1e-45", "1.4e-45")  # Java writes at least two digits
    sign, numbers, exponent = Decimal(written).as_tuple()
    digits, minus = "".join(map(str, numbers)).rstrip("0") or "0", "-" if sign else ""
    point = len(numbers) + int(exponent)  # the number of digits before the decimal point
    if value == 0:
        return f"{minus}0.0"
    if -3 < point <= 7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{digits}"
        return f"{minus}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    return f"{minus}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def day_text(days: int) -> str:
    """Write days since 1970 as an ISO date of any year.

    >>> day_text(0), day_text(-719529), day_text(2932897)
    ('1970-01-01', '-0001-12-31', '+10000-01-01')
    """
    cycles, rest = divmod(days, _CYCLE_DAYS)
    day = date.fromordinal(_EPOCH + rest)
    year = day.year + cycles * _CYCLE_YEARS
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{day.month:02d}-{day.day:02d}"


def timestamp_text(micros: int) -> str:
    """Write microseconds since 1970 as an ISO timestamp of any year, in UTC.

    >>> timestamp_text(-1), timestamp_text(2**63 - 1)
    ('1969-12-31T23:59:59.999999Z', '+294247-01-10T04:00:54.775807Z')
    """
    return f"{_moment_text(micros * 1000)}Z"


def _moment_text(nanos: int) -> str:
    days, time = divmod(nanos, _DAY_NANOS)
    return f"{day_text(days)}T{_time_text(time, 6)}"


def _time_text(nanos: int, digits: int) -> str:
    """Write a time of day with `digits` decimal places in the seconds; if these are too few, with 6 or 9.

    >>> _time_text(86_400_000_000_000, 0), _time_text(1_500_000_000, 0), _time_text(1, 6)
    ('24:00:00', '00:00:01.500000', '00:00:00.000000001')
    """
    seconds, fraction = divmod(nanos, 1_000_000_000)
    minutes, second = divmod(seconds, 60)
    if fraction:
        digits = 9 if fraction % 1000 else 6
    after = f".{fraction:09d}"[: digits + 1] if digits else ""
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}{after}"


def interval_text(value: pa.MonthDayNano) -> str:
    """Write an interval as an ISO duration; each part has its own sign.

    >>> interval_text(pa.MonthDayNano((14, -3, 90_500_000_000))), interval_text(pa.MonthDayNano((0, 0, -1000)))
    ('P14M-3DT90.5S', 'P0M0DT-0.000001S')
    """
    seconds = Decimal(value.nanoseconds).scaleb(-9).normalize()
    return f"P{value.months}M{value.days}DT{seconds:f}S"


def json_text(row: dict[str, Any]) -> str:
    """Write JSON values on one line, without escaping letters.

    >>> json_text({"id": 1, "name": "ż", "at": [None, JsonFloat("1.0")]})
    '{"id":1,"name":"ż","at":[null,1.0]}'
    """
    return _text(row)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{_text(each)}" for name, each in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return value.text if isinstance(value, JsonFloat) else json.dumps(value, ensure_ascii=False)
