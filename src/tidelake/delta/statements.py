"""Statements that a person typed, as data of the collection's own types, so that Spark can compare them exactly.

Every value may be written as `tidelake read --json` prints it, or as Avro's JSON does. What is stored of a statement is
one of its forms, in JSON that no reader rounds.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Iterable
from datetime import date
from decimal import Decimal, DecimalException
from typing import Any, NoReturn

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from tidelake.codec import AvroCodec
from tidelake.delta.layout import DIFF, TIME
from tidelake.delta.types import land_record
from tidelake.errors import CodecError, InvalidUsage, RuleBroken, show
from tidelake.json_values import JsonFloat, parse
from tidelake.order import INT64_MAX, INT64_MIN
from tidelake.schema import branch_name, resolved_schema

_INT_BOUNDS = {"int": (-(2**31), 2**31 - 1), "long": (INT64_MIN, INT64_MAX)}
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_DAY = r"([+-]?\d{4,7})-(\d\d)-(\d\d)"
_DATE = re.compile(_DAY, re.ASCII)
_TIMESTAMP = re.compile(_DAY + r"[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?(?:Z|([+-])(\d\d):?(\d\d))", re.ASCII)
_DECIMAL = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)
_YEARS, _DAYS_OF_YEARS = 400, 146_097  # the calendar repeats
_EPOCH = date(1970, 1, 1).toordinal()


def read_statement(record_schema: dict[str, Any], text: str) -> dict[str, Any]:
    """Read `{"data": {…}, "diff": 1}` as it is stored: plain JSON values, each in a form that loses nothing.

    Raises:
        RuleBroken: it is not JSON, not of this shape, or does not fit the collection's schema.
    """
    shape = 'write it as {"data": {…}, "diff": 1}'
    try:
        statement = parse(text)
    except CodecError as error:
        raise RuleBroken(f"the statement is not JSON: {error.detail}", shape) from error
    if not isinstance(statement, dict) or statement.keys() != {"data", "diff"} or type(statement["diff"]) is not int:
        raise RuleBroken("the statement does not have just data and a whole diff", shape)
    if statement["diff"] == 0 or not INT64_MIN <= statement["diff"] <= INT64_MAX:
        raise RuleBroken(f"the statement's diff is {show(statement['diff'])}", "a diff is an int64, and not 0")
    encode_data(record_schema, statement["data"])
    resolved = resolved_schema(record_schema)
    return {"data": _to_json(resolved, _from_json(resolved, statement["data"], "")), "diff": statement["diff"]}


def encode_data(record_schema: dict[str, Any], data: Any) -> bytes:
    """The Avro bytes of one record given as JSON, as they would stand in a message of the topic.

    Args:
        record_schema: the collection's.
        data: a row as `tidelake read --json` prints it, or as Avro's JSON: bytes are `{"b64": "…"}` or text of code
            points to 255, decimals numbers or text, dates and timestamps integers or ISO text, a value of several
            branches `{branch: value}`.

    Raises:
        RuleBroken: it does not fit the collection's schema; the column is named.
    """
    value = _from_json(resolved_schema(record_schema), data, "")
    try:
        return AvroCodec(record_schema).encode_data(value)
    except InvalidUsage as error:
        raise RuleBroken(
            f"the data does not fit the collection's schema: {error.fact()}", "give every column, as JSON"
        ) from error


def statement_frame(
    spark: SparkSession, record_schema: dict[str, Any], statements: Iterable[tuple[int | None, dict[str, Any] | None]]
) -> DataFrame | None:
    """Statements `(time, {"data": …, "diff": …})` as rows: the data's columns, _time, _diff; None for none."""
    rows = [
        (bytearray(encode_data(record_schema, statement["data"])), time, int(statement["diff"]))
        for time, statement in statements
        if statement is not None
    ]
    if not rows:
        return None
    landing = land_record(record_schema)
    decoded = spark.createDataFrame(rows, f"body binary, {TIME} bigint, {DIFF} bigint").withColumn(
        "_data", from_avro(F.col("body"), json.dumps(landing.decoding))
    )
    data = F.col("_data") if landing.project is None else landing.project(F.col("_data"))
    return decoded.select(data.alias("_data"), TIME, DIFF).select("_data.*", TIME, DIFF)


# --- from JSON to the codec's form -----------------------------------------------------------------------------------


def _refuse(column: str, problem: str) -> NoReturn:
    raise RuleBroken(
        f"the data does not fit the collection's schema: {f'column {column!r}' if column else 'it'} {problem}",
        "give every column as JSON, as `tidelake read --json` prints it",
    )


def _from_json(kind: Any, value: Any, column: str) -> Any:
    """The codec's form of a value of a resolved type."""
    if isinstance(kind, list):
        return _union(kind, value, column)
    if kind["type"] == "record":
        return _record(kind, value, column)
    if kind["type"] == "array":
        if not isinstance(value, list):
            _refuse(column, f"is {show(value)}, not a list")
        return [_from_json(kind["items"], one, f"{column}[{index}]") for index, one in enumerate(value)]
    if kind.get("logicalType") == "decimal":
        return _decimal(kind, value, column)
    if kind["type"] in ("bytes", "fixed"):
        return _binary(kind, value, column)
    return _scalar(kind, value, column)


def _record(kind: dict[str, Any], value: Any, column: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(column, f"is {show(value)}, not an object of columns")
    found = {}
    for field in kind["fields"]:
        name = field["name"]
        inner = f"{column}.{name}" if column else name
        if name not in value:
            _refuse(inner, "is missing")
        found[name] = _from_json(field["type"], value[name], inner)
    for name in value:
        if name not in found:
            _refuse(f"{column}.{name}" if column else name, "is not in the schema")
    return found


def _names(branch: dict[str, Any]) -> set[str]:
    return {branch_name(branch), str(branch.get("name", branch["type"]))}


def _union(branches: list[Any], value: Any, column: str) -> Any:
    others = [branch for branch in branches if branch != "null"]
    if value is None:
        return None if len(others) < len(branches) else _refuse(column, "is null, and may not be")
    if len(others) == 1:
        return _only_branch(others[0], value, column)
    names = ", ".join(branch_name(branch) for branch in others)
    if not isinstance(value, dict):
        _refuse(column, f"is {show(value)}, of no branch: name one of {names}, as in {{branch: value}}")
    for name in value:
        if not any(name in _names(branch) for branch in others):
            _refuse(column, f"has no branch {name!r}, but {names}")
    given = [(name, inner) for name, inner in value.items() if inner is not None]
    if len(given) != 1:
        _refuse(column, f"has a value in {len(given)} branches, not in one of {names}")
    ((name, inner),) = given
    branch = next(branch for branch in others if name in _names(branch))
    return {branch_name(branch): _from_json(branch, inner, f"{column}.{branch_name(branch)}")}


def _only_branch(branch: dict[str, Any], value: Any, column: str) -> Any:
    """A value that is not null of a union with null: as itself, or as `{type: value}`."""
    ways = [value]
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in _names(branch):
        ways.append(next(iter(value.values())))
    found, misfit = [], None
    for one in ways:
        try:
            found.append(_from_json(branch, one, column))
        except RuleBroken as error:
            misfit = error
    if not found:
        assert misfit is not None
        raise misfit
    if any(one != found[0] for one in found):
        _refuse(
            column, f"can be read in two ways; write it as {{{branch_name(branch)!r}: {{…}}}}, and what is in it too"
        )
    return found[0]


def _scalar(kind: dict[str, Any], value: Any, column: str) -> Any:
    name, logical = kind["type"], kind.get("logicalType")
    if name in _INT_BOUNDS:
        return _integer(name, logical, value, column)
    if name in ("float", "double"):
        return _float(name, value, column)
    if name == "boolean" and isinstance(value, bool):
        return value
    if isinstance(value, str) and name == "enum":
        if value not in kind["symbols"]:
            _refuse(column, f"is {show(value)}, not one of {', '.join(kind['symbols'])}")
        return value
    if isinstance(value, str) and name == "string":
        if any(0xD800 <= ord(one) <= 0xDFFF for one in value):
            _refuse(column, "is not text: half of a character is missing")
        return value
    _refuse(column, f"is {show(value)}, not of type {name}")


def _integer(name: str, logical: str | None, value: Any, column: str) -> int:
    what, (least, most) = name, _INT_BOUNDS[name]
    if (name, logical) == ("int", "date"):
        what = "date: days since 1970, or YYYY-MM-DD"
        value = _days(value) if isinstance(value, str) else value
    elif name == "long" and logical in ("timestamp-millis", "timestamp-micros"):
        unit = 1000 if logical == "timestamp-millis" else 1
        what = f"{logical}: an integer, or YYYY-MM-DDThh:mm:ss.ffffffZ"
        if isinstance(value, str):
            micros = _micros(value)
            value = value if micros is None or micros % unit else micros // unit
        least, most = -(-least // unit), most // unit  # all that a column in microseconds can hold
    if type(value) is not int or not least <= value <= most:
        _refuse(column, f"is {show(value)}, not of type {what}")
    return value


def _days(text: str) -> int | str:
    """The days since 1970 of an ISO date of any year; the text itself where it is none."""
    match = _DATE.fullmatch(text)
    found = None if match is None else _days_of(*match.groups())
    return text if found is None else found


def _days_of(year: str, month: str, day: str) -> int | None:
    cycles, rest = divmod(int(year), _YEARS)
    try:  # in years that Python's calendar has
        there = date(2000 + rest, int(month), int(day)).toordinal()
    except ValueError:
        return None
    return there - _EPOCH + (cycles - 2000 // _YEARS) * _DAYS_OF_YEARS


def _micros(text: str) -> int | None:
    """The microseconds since 1970 of an ISO timestamp with its zone; None where it is none."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, zone_hours, zone_minutes = match.groups()
    days = _days_of(year, month, day)
    hours, minutes, seconds, ahead = int(hour), int(minute), int(second or 0), int(zone_hours or 0)
    if days is None or hours > 23 or minutes > 59 or seconds > 59 or ahead > 18 or int(zone_minutes or 0) > 59:
        return None
    ahead_s = (ahead * 60 + int(zone_minutes or 0)) * (-60 if sign == "-" else 60)
    total_s = days * 86_400 + hours * 3600 + minutes * 60 + seconds - ahead_s
    return total_s * 1_000_000 + int((fraction or "0").ljust(6, "0"))


def _float(name: str, value: Any, column: str) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    try:
        if isinstance(value, JsonFloat) or type(value) is int:
            value = float(value.text if isinstance(value, JsonFloat) else value)
            if math.isinf(value):
                raise OverflowError
        if isinstance(value, float):
            struct.pack("<f" if name == "float" else "<d", value)
            return value
    except OverflowError:
        _refuse(column, f"is beyond the type {name}")
    _refuse(column, f"is {show(value)}, not of type {name}")


def _from_b64(value: Any, column: str) -> bytes:
    try:
        return base64.b64decode(value["b64"], validate=True)
    except (ValueError, TypeError):
        _refuse(column, "is not base64 text")


def _binary(kind: dict[str, Any], value: Any, column: str) -> bytes:
    if isinstance(value, dict) and value.keys() == {"b64"}:
        found = _from_b64(value, column)
    elif isinstance(value, str) and all(ord(one) < 256 for one in value):
        found = value.encode("latin-1")
    else:
        _refuse(column, f'is {show(value)}, not {{"b64": "…"}}, nor text of code points from 0 to 255')
    if kind["type"] == "fixed" and len(found) != kind["size"]:
        _refuse(column, f"has {len(found)} bytes, not {kind['size']}")
    return found


def _decimal(kind: dict[str, Any], value: Any, column: str) -> bytes:
    precision, scale = kind["precision"], kind["scale"]
    if isinstance(value, dict) and value.keys() == {"b64"}:
        found = _binary(kind, value, column)
        if not found or abs(int.from_bytes(found, "big", signed=True)) >= 10**precision:
            _refuse(column, f"is not the bytes of a decimal of {precision} digits")
        return found
    text = value.text if isinstance(value, JsonFloat) else repr(value) if isinstance(value, float) else value
    if isinstance(text, bool) or not isinstance(text, int | str):
        _refuse(column, f"is {show(value)}, not a decimal")
    try:
        if isinstance(text, str) and not _DECIMAL.fullmatch(text):
            raise DecimalException
        sign, digits, exponent = Decimal(text).as_tuple()
    except DecimalException:
        _refuse(column, f"is {show(text)}, not a decimal")
    assert isinstance(exponent, int)
    kept = "".join(map(str, digits)).lstrip("0").rstrip("0")
    places = exponent + len(digits) - len("".join(map(str, digits)).rstrip("0")) + scale
    if kept and places < 0:
        _refuse(column, f"is {show(text)}, with more than {scale} digits after the point")
    if kept and len(kept) + places > precision:
        _refuse(column, f"is {show(text)}, with more than {precision - scale} digits before the point")
    unscaled = int(kept) * 10**places * (-1 if sign else 1) if kept else 0
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    if kind["type"] == "fixed":
        if size > kind["size"]:
            _refuse(column, f"is {show(text)}, beyond {kind['size']} bytes")
        size = kind["size"]
    return unscaled.to_bytes(size, "big", signed=True)


# --- from the codec's form to the JSON that is stored ----------------------------------------------------------------


def _to_json(kind: Any, value: Any) -> Any:
    """Plain JSON values that `_from_json` reads as the same."""
    if isinstance(kind, list):
        return _union_to_json([branch for branch in kind if branch != "null"], value)
    if kind["type"] == "record":
        return {field["name"]: _to_json(field["type"], value[field["name"]]) for field in kind["fields"]}
    if kind["type"] == "array":
        return [_to_json(kind["items"], one) for one in value]
    if kind.get("logicalType") == "decimal":
        unscaled = int.from_bytes(value, "big", signed=True)
        return f"{Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -kind['scale'])):f}"
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _union_to_json(others: list[dict[str, Any]], value: Any) -> Any:
    if value is None:
        return None
    if len(others) > 1:
        ((name, inner),) = value.items()
        return {name: _to_json(next(one for one in others if branch_name(one) == name), inner)}
    stored = _to_json(others[0], value)
    is_like_a_branch = isinstance(stored, dict) and len(stored) == 1 and next(iter(stored)) in _names(others[0])
    return {branch_name(others[0]): stored} if is_like_a_branch else stored
