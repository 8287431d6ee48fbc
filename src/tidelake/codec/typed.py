"""Converts manually entered statements to the collection's types, so that Spark can compare them exactly.

A value may be written as `tidelake read --json` prints it, or in Avro's JSON encoding. A statement is stored in one
canonical form: JSON whose numbers no reader rounds.
"""

from __future__ import annotations

import base64
import math
import re
import struct
from decimal import Decimal, DecimalException
from typing import Any, NoReturn

from tidelake.codec.avro import AvroCodec
from tidelake.errors import CodecError, DataRefused, EncodingRefused, StatementRefused, show
from tidelake.protocol.json_values import JsonFloat, parse
from tidelake.protocol.order import INT64_MAX, INT64_MIN
from tidelake.schema.avro import branch_name, resolved_schema
from tidelake.schema.types import Family, ScalarType, scalar_of

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_DECIMAL = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)


def read_statement(record_schema: dict[str, Any], text: str) -> dict[str, Any]:
    """Read `{"data": {…}, "diff": 1}` and return its stored form: plain JSON values that lose nothing.

    Raises:
        StatementRefused: the text is not JSON, or does not have this shape.
        DataRefused: the data does not fit the collection's schema.
    """
    shape = 'write it as {"data": {…}, "diff": 1}'
    try:
        statement = parse(text)
    except CodecError as error:
        raise StatementRefused(f"the statement cannot be read: {error.detail}", shape) from error
    if not isinstance(statement, dict) or statement.keys() != {"data", "diff"} or type(statement["diff"]) is not int:
        raise StatementRefused("the statement does not have exactly `data` and an integer `diff`", shape)
    if statement["diff"] == 0 or not INT64_MIN <= statement["diff"] <= INT64_MAX:
        raise StatementRefused(f"the statement's diff is {show(statement['diff'])}", "a diff is an int64 other than 0")
    encode_data(record_schema, statement["data"])
    resolved = resolved_schema(record_schema)
    return {"data": _to_json(resolved, _from_json(resolved, statement["data"], "")), "diff": statement["diff"]}


def encode_data(record_schema: dict[str, Any], data: Any) -> bytes:
    """Return the Avro bytes of a JSON record, as in a message of the topic.

    Args:
        record_schema: the collection's record schema.
        data: a row as `tidelake read --json` prints it, or as Avro's JSON: bytes are `{"b64": "…"}` or text of code
            points up to 255, decimals are numbers or text, dates and timestamps are integers or ISO text, and a value
            of a union of several branches is `{branch: value}`.

    Raises:
        DataRefused: the data does not fit the collection's schema; the error names the column.
    """
    value = _from_json(resolved_schema(record_schema), data, "")
    try:
        return AvroCodec(record_schema).encode_data(value)
    except EncodingRefused as error:
        raise DataRefused(error.fact) from error


def decode_data(record_schema: dict[str, Any], data: Any) -> dict[str, Any]:
    """Return a JSON record in the codec's form; `encode_data` describes the record.

    Raises:
        DataRefused: the data does not fit the collection's schema; the error names the column.
    """
    value: dict[str, Any] = _from_json(resolved_schema(record_schema), data, "")
    return value


def data_as_json(record_schema: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """Return a record in the codec's form as plain JSON values, which `encode_data` accepts."""
    value: dict[str, Any] = _to_json(resolved_schema(record_schema), data)
    return value


# --- from JSON to the codec's form -----------------------------------------------------------------------------------


def _refuse(column: str, problem: str) -> NoReturn:
    raise DataRefused(f"{f'column {column!r}' if column else 'the record'} {problem}")


def _from_json(kind: Any, value: Any, column: str) -> Any:
    """Return a value of a resolved type in the codec's form."""
    if isinstance(kind, list):
        return _union(kind, value, column)
    if kind["type"] == "record":
        return _record(kind, value, column)
    if kind["type"] == "array":
        if not isinstance(value, list):
            _refuse(column, f"is {show(value)}, not a list")
        return [_from_json(kind["items"], item, f"{column}[{index}]") for index, item in enumerate(value)]
    return _scalar(kind, value, column)


def _record(kind: dict[str, Any], value: Any, column: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(column, f"is {show(value)}, not an object of columns")
    record = {}
    for field in kind["fields"]:
        name = field["name"]
        inner = f"{column}.{name}" if column else name
        if name not in value:
            _refuse(inner, "is missing")
        record[name] = _from_json(field["type"], value[name], inner)
    for name in value:
        if name not in record:
            _refuse(f"{column}.{name}" if column else name, "is not in the schema")
    return record


def _names(branch: dict[str, Any]) -> set[str]:
    return {branch_name(branch), str(branch.get("name", branch["type"]))}


def _union(branches: list[Any], value: Any, column: str) -> Any:
    others = [branch for branch in branches if branch != "null"]
    if value is None:
        return None if len(others) < len(branches) else _refuse(column, "is null, but is not nullable")
    if len(others) == 1:
        return _only_branch(others[0], value, column)
    names = ", ".join(branch_name(branch) for branch in others)
    if not isinstance(value, dict):
        _refuse(column, f"is {show(value)}, without a branch; write {{branch: value}} with one of the branches {names}")
    for name in value:
        if not any(name in _names(branch) for branch in others):
            _refuse(column, f"has no branch {name!r}, only {names}")
    present = [(name, inner) for name, inner in value.items() if inner is not None]
    if len(present) != 1:
        _refuse(column, f"has a value in {len(present)} branches, not in exactly one of {names}")
    ((name, inner),) = present
    branch = next(branch for branch in others if name in _names(branch))
    return {branch_name(branch): _from_json(branch, inner, f"{column}.{branch_name(branch)}")}


def _only_branch(branch: dict[str, Any], value: Any, column: str) -> Any:
    """Read a non-null value of a union of null and one type, written as itself or as `{type: value}`."""
    candidates = [value]
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in _names(branch):
        candidates.append(next(iter(value.values())))
    readings, misfit = [], None
    for candidate in candidates:
        try:
            readings.append(_from_json(branch, candidate, column))
        except DataRefused as error:
            misfit = error
    if not readings:
        assert misfit is not None
        raise misfit
    if any(reading != readings[0] for reading in readings):
        _refuse(
            column,
            f"can be read in two ways; write it as {{{branch_name(branch)!r}: {{…}}}}, and the values in it likewise",
        )
    return readings[0]


def _scalar(kind: dict[str, Any], value: Any, column: str) -> Any:
    scalar = scalar_of(kind)
    match scalar.family:
        case Family.DECIMAL:
            return _decimal(kind, value, column)
        case Family.BINARY:
            return _binary(kind, value, column)
        case Family.INTEGER:
            return _integer(scalar, value, column)
        case Family.REAL:
            return _float(scalar, value, column)
        case Family.BOOLEAN if isinstance(value, bool):
            return value
        case Family.SYMBOL if isinstance(value, str):
            if value not in kind["symbols"]:
                _refuse(column, f"is {show(value)}, not one of {', '.join(kind['symbols'])}")
            return value
        case Family.TEXT if isinstance(value, str):
            if any(0xD800 <= ord(character) <= 0xDFFF for character in value):
                _refuse(column, "is not valid text: it contains a lone surrogate")
            return value
    _refuse(column, f"is {show(value)}, not of type {scalar.base}")


def _integer(scalar: ScalarType, value: Any, column: str) -> int:
    if isinstance(value, str) and scalar.parse is not None:
        parsed = scalar.parse(value)
        value = value if parsed is None else parsed
    least, most = scalar.bounds
    if type(value) is not int or not least <= value <= most:
        _refuse(column, f"is {show(value)}, not of type {scalar.text_form}")
    return value


def _float(scalar: ScalarType, value: Any, column: str) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    try:
        if isinstance(value, JsonFloat) or type(value) is int:
            value = float(value.text if isinstance(value, JsonFloat) else value)
            if math.isinf(value):
                raise OverflowError
        if isinstance(value, float):
            struct.pack(scalar.float_format, value)
            return value
    except OverflowError:
        _refuse(column, f"is out of range for the type {scalar.base}")
    _refuse(column, f"is {show(value)}, not of type {scalar.base}")


def _from_b64(value: Any, column: str) -> bytes:
    try:
        return base64.b64decode(value["b64"], validate=True)
    except (ValueError, TypeError):
        _refuse(column, "is not valid base64")


def _binary(kind: dict[str, Any], value: Any, column: str) -> bytes:
    if isinstance(value, dict) and value.keys() == {"b64"}:
        content = _from_b64(value, column)
    elif isinstance(value, str) and all(ord(character) < 256 for character in value):
        content = value.encode("latin-1")
    else:
        _refuse(column, f'is {show(value)}, neither {{"b64": "…"}} nor text of code points from 0 to 255')
    if kind["type"] == "fixed" and len(content) != kind["size"]:
        _refuse(column, f"has length {len(content)}, not {kind['size']}")
    return content


def _decimal(kind: dict[str, Any], value: Any, column: str) -> bytes:
    precision, scale = kind["precision"], kind["scale"]
    if isinstance(value, dict) and value.keys() == {"b64"}:
        content = _binary(kind, value, column)
        if not content or abs(int.from_bytes(content, "big", signed=True)) >= 10**precision:
            _refuse(column, f"is not the bytes of a decimal of precision {precision}")
        return content
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
    significant = "".join(map(str, digits)).lstrip("0").rstrip("0")
    places = exponent + len(digits) - len("".join(map(str, digits)).rstrip("0")) + scale
    if significant and places < 0:
        _refuse(column, f"is {show(text)}, which has too many digits after the point: the maximum is {scale}")
    if significant and len(significant) + places > precision:
        whole = precision - scale
        _refuse(column, f"is {show(text)}, which has too many digits before the point: the maximum is {whole}")
    unscaled = int(significant) * 10**places * (-1 if sign else 1) if significant else 0
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    if kind["type"] == "fixed":
        if size > kind["size"]:
            _refuse(column, f"is {show(text)}, which needs {size} bytes, not {kind['size']}")
        size = kind["size"]
    return unscaled.to_bytes(size, "big", signed=True)


# --- from the codec's form to the JSON that is stored ----------------------------------------------------------------


def _to_json(kind: Any, value: Any) -> Any:
    """Return plain JSON values from which `_from_json` reads the same value."""
    if isinstance(kind, list):
        return _union_to_json([branch for branch in kind if branch != "null"], value)
    if kind["type"] == "record":
        return {field["name"]: _to_json(field["type"], value[field["name"]]) for field in kind["fields"]}
    if kind["type"] == "array":
        return [_to_json(kind["items"], item) for item in value]
    if scalar_of(kind).family is Family.DECIMAL:
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
        return {name: _to_json(next(branch for branch in others if branch_name(branch) == name), inner)}
    stored = _to_json(others[0], value)
    is_like_a_branch = isinstance(stored, dict) and len(stored) == 1 and next(iter(stored)) in _names(others[0])
    return {branch_name(others[0]): stored} if is_like_a_branch else stored
