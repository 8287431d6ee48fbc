"""Converts values of Kafka Connect's wire types to values of columns, on the JVM.

Nothing raises, and no value silently becomes null: each comes with a flag that says whether its conversion failed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from tidelake.decode.text_values import decimal_of, real_of, timestamp_of
from tidelake.decode.types import spark_type
from tidelake.schema.connect import WireType
from tidelake.schema.types import DECIMAL, DECIMAL_PRECISION_MAX, SCALARS, Family
from tidelake.spark.conditions import any_of

_INFINITY_MICROS = 9_223_372_036_825_200_000
"""Debezium's value for PostgreSQL's `infinity`; its value for `-infinity` is less than the negative of this."""
_DAYS = (-2_440_588, 2_145_042_905)
"""The range of PostgreSQL's dates, from 4713 BC to 5874897; infinite dates are sent as days outside of it."""
_INFINITE = {
    form.conversion: form.infinite for scalar in SCALARS.values() for form in scalar.connect_forms if form.infinite
}
"""Debezium's values for `infinity` and `-infinity`, by conversion."""
_DECIMAL_BYTES_MAX = 16
_SCALE_MAX = 16_383
"""Maximum number of digits after the point of a PostgreSQL numeric; it also bounds the length of the text."""
_DOUBLE_DIGITS_FROM = 1e16
"""At or above this number, Java may write a double with more digits than are needed to identify it."""


@dataclass(frozen=True)
class Landed:
    """A converted value."""

    value: Column
    bad: Column
    """Whether there was a value that could not be converted; the result is never null."""


def land_text(text: Column, wire: WireType) -> Landed:
    """Convert a JSON value to the column's type.

    Args:
        text: the content of a string, or the JSON text of any other value exactly as written; null for a null.
        wire: the wire type of the value.
    """
    if wire.name == "array":
        return _land_items(text, wire)
    if wire.name == "record":
        return _land_fields(text, wire)
    if wire.name == "json":
        return Landed(text, F.lit(False))
    raw = text if wire.conversion == "decimal_text" else _raw_of_text(text, wire.name)
    landed = land_raw(raw, wire)
    return Landed(landed.value, landed.bad | (text.isNotNull() & raw.isNull()))


def land_raw(raw: Column, wire: WireType) -> Landed:
    """Convert a value decoded from Avro (without logical types), or read from JSON, to the column's type."""
    if wire.name == "array" and wire.item is not None:
        item = wire.item
        return _each(raw, item, land_raw)
    if wire.conversion == "scaled_decimal":
        number = _scaled_decimal(raw["scale"], raw["value"])
        return Landed(number, raw.isNotNull() & number.isNull())
    if wire.name == "record":
        return _struct_of(raw, wire, land_raw)
    if wire.name == "json":
        return Landed(F.to_json(raw), F.lit(False))
    value = CONVERSIONS[wire.conversion](raw, wire)
    return Landed(value, raw.isNotNull() & value.isNull())


def is_infinite(value: Column, wire: WireType) -> Column:
    """Return whether a value is one of PostgreSQL's infinite dates and times; the result is never null."""
    if wire.conversion not in _INFINITE:
        return F.lit(False)
    return F.coalesce(value.cast("string").isin(*_INFINITE[wire.conversion]), F.lit(False))


def is_unavailable_text(text: Column, wire: WireType, placeholder: str) -> Column:
    """Return whether a JSON value is the placeholder as its type represents it; the result is never null."""
    forms = _placeholder_forms(wire, placeholder)
    if not forms:
        return F.lit(False)
    # A list may have spaces between its items.
    compact = F.regexp_replace(text, r"\s", "") if wire.name == "array" else text
    return F.coalesce(compact.isin(*forms), F.lit(False))


def is_unavailable_raw(raw: Column, wire: WireType, placeholder: str) -> Column:
    """Return whether a value decoded from Avro is the placeholder; the result is never null."""
    if wire.name in ("bytes", "hex"):  # only JSON encodes bytes as text
        return F.coalesce(raw == F.lit(placeholder.encode()), F.lit(False))
    if wire.name == "array" and wire.item is not None:
        items = _placeholder_items(wire.item, placeholder)
        if items is None:
            return F.lit(False)
        return F.coalesce(raw == F.array(*(F.lit(item) for item in items)), F.lit(False))
    if wire.name in ("string", "json"):
        text = F.to_json(raw) if wire.name == "json" else raw
        return F.coalesce(text.isin(*_placeholder_forms(wire, placeholder)), F.lit(False))
    return F.lit(False)


def _placeholder_forms(wire: WireType, placeholder: str) -> list[str]:
    encoded = placeholder.encode()
    hexed = encoded.hex()
    if wire.name == "bytes":
        urlsafe = base64.urlsafe_b64encode(encoded).decode()
        return sorted({base64.b64encode(encoded).decode(), urlsafe, urlsafe.rstrip("=")})
    if wire.name == "hex":
        return [hexed, hexed.upper()]
    if wire.name == "json":
        return [placeholder, json.dumps({placeholder: placeholder}, separators=(",", ":"))]
    if wire.name == "array" and wire.item is not None:
        items = _placeholder_items(wire.item, placeholder)
        if items is None:
            return []
        texts = [base64.b64encode(item).decode() if isinstance(item, bytes) else item for item in items]
        return [json.dumps(texts, separators=(",", ":"))]
    # Text of any type, including bytes and maps in text form.
    as_map = json.dumps({placeholder: placeholder}, separators=(",", ":"))
    return [placeholder, hexed, base64.b64encode(encoded).decode(), as_map] if wire.name == "string" else []


def _placeholder_items(item: WireType, placeholder: str) -> Sequence[str | bytes | int] | None:
    """Return the items of the list that stands for an unavailable list; None if no list with items of this type does.

    The only item is the placeholder; but in a list of numbers, the items are the bytes of the placeholder.
    """
    if item.name == "string":
        return [placeholder]
    if item.name == "bytes":
        return [placeholder.encode()]
    return list(placeholder.encode()) if item.name in ("int", "long") else None


def _raw_of_text(text: Column, kind: str) -> Column:
    if kind == "boolean":
        return F.when(text == "true", F.lit(True)).when(text == "false", F.lit(False))
    if kind == "bytes":
        return F.try_to_binary(F.translate(text, "-_", "+/"), F.lit("base64"))
    if kind == "hex":
        return F.try_to_binary(text, F.lit("hex"))
    scalar = SCALARS.get((kind, ""))
    if scalar is not None and scalar.family is Family.REAL:
        return real_of(text, kind)
    if scalar is not None and scalar.family is Family.INTEGER:
        return text.try_cast(spark_type(scalar).sql)
    return text


def _land_items(text: Column, wire: WireType) -> Landed:
    assert wire.item is not None
    item = wire.item
    items = F.from_json(text, ArrayType(StringType()))
    landed = _each(items, item, land_text)
    return Landed(landed.value, landed.bad | (text.isNotNull() & items.isNull()))


def _land_fields(text: Column, wire: WireType) -> Landed:
    struct = F.from_json(text, StructType([StructField(name, StringType()) for name, _ in wire.fields]))
    wrong = text.isNotNull() & (struct.isNull() | ~text.startswith("{"))
    if wire.conversion == "scaled_decimal":
        parts = {name: land_text(struct[name], part) for name, part in wire.fields}
        number = _scaled_decimal(parts["scale"].value, parts["value"].value)
        return Landed(number, wrong | (text.isNotNull() & number.isNull()))
    landed = _struct_of(struct, wire, land_text)
    return Landed(landed.value, landed.bad | wrong)


def _each(items: Column, item: WireType, land: Callable[[Column, WireType], Landed]) -> Landed:
    return Landed(
        F.transform(items, lambda element: land(element, item).value),
        F.coalesce(F.exists(items, lambda element: _is_bad(land(element, item), item)), F.lit(False)),
    )


def _struct_of(record: Column, wire: WireType, land: Callable[[Column, WireType], Landed]) -> Landed:
    parts = [(name, part, land(record[name], part)) for name, part in wire.fields]
    value = F.when(record.isNotNull(), F.struct(*(landed.value.alias(name) for name, _, landed in parts)))
    bad = any_of(_is_bad(landed, part) for _, part, landed in parts)
    return Landed(value, record.isNotNull() & bad)


def _is_bad(inner: Landed, wire: WireType) -> Column:
    """Return whether a value in a list or a record failed to convert, or is missing but required.

    The result is never null.
    """
    return inner.bad if wire.nullable else inner.bad | inner.value.isNull()


def _from_days(count: Column, wire: WireType) -> Column:
    return F.when(count.between(*_DAYS), F.date_from_unix_date(count))


def _from_millis(count: Column, wire: WireType) -> Column:
    end = _INFINITY_MICROS // 1000 - 1
    return F.when(count.between(-end, end), F.timestamp_micros(count * 1000))


def _from_micros(count: Column, wire: WireType) -> Column:
    end = _INFINITY_MICROS - 1
    return F.when(count.between(-end, end), F.timestamp_micros(count))


def _from_unscaled(value: Column, wire: WireType) -> Column:
    kind = f"decimal({wire.landing['precision']},{wire.landing['scale']})"
    if wire.scale is None:
        return _unscaled(value, wire.landing["scale"]).try_cast(kind)
    wide = _unscaled(value, wire.scale)
    landed = wide.try_cast(kind)
    return F.when(landed == wide, landed)  # a cast to fewer decimal places rounds


def _unscaled(value: Column, scale: int) -> Column:
    """Return a decimal of 38 digits from its big-endian unscaled value; null unless this has 1 to 16 bytes."""
    schema = {"type": "bytes", "logicalType": DECIMAL, "precision": DECIMAL_PRECISION_MAX, "scale": scale}
    # Avro writes the length before the bytes; a small length is encoded as twice its value.
    length = F.unhex(F.lpad(F.hex(F.length(value) * 2), 2, "0"))
    fits = F.length(value).between(1, _DECIMAL_BYTES_MAX)
    body = F.when(fits, F.concat(length, value))
    return from_avro(body, json.dumps(schema), {"mode": "PERMISSIVE"})


def _from_number_text(raw: Column, wire: WireType) -> Column:
    """Return a decimal from text or a double; null if it has more digits than the column."""
    precision, scale = wire.landing["precision"], wire.landing["scale"]
    exact = decimal_of(raw.cast("string"), precision, scale)
    if wire.name != "double":
        return exact
    number = raw.try_cast("double")
    rounded = F.format_string("%.14e", number)
    is_meant = (F.abs(number) >= _DOUBLE_DIGITS_FROM) & (rounded.try_cast("double") == number)
    return F.when(is_meant, rounded.try_cast(f"decimal({precision},{scale})")).otherwise(exact)


def _scaled_decimal(scale: Column, value: Column) -> Column:
    """Return the exact decimal text of an unscaled value with a scale that differs from row to row.

    Each part is used as rarely as possible: the expressions are nested, and are copied for each use.
    """
    number = _unscaled(value, 0)
    digits = F.abs(number).cast("string")
    padded = F.lpad(digits, F.greatest(F.length(digits), scale + 1), F.lit("0"))
    sign = F.when(number < 0, F.lit("-")).otherwise(F.lit(""))
    pointed = F.concat(sign, F.overlay(padded, F.lit("."), F.length(padded) - scale + 1, F.lit(0)))
    whole = F.regexp_replace(F.concat(number.cast("string"), F.repeat(F.lit("0"), -scale)), "^0+$", "0")
    is_near = F.abs(scale.cast("bigint")) <= _SCALE_MAX
    return F.when(is_near, F.when(scale > 0, pointed).otherwise(whole))


CONVERSIONS: dict[str, Callable[[Column, WireType], Column]] = {
    "as_is": lambda raw, wire: raw,
    "date": _from_days,
    "timestamp_millis": _from_millis,
    "timestamp_micros": _from_micros,
    "timestamp_text": lambda raw, wire: timestamp_of(raw),
    "decimal_bytes": _from_unscaled,
    "decimal_text": _from_number_text,
}
