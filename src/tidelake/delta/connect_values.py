"""From what travels of Kafka Connect's types to what lands in columns, on the JVM, with every failure seen.

Nothing here raises and nothing becomes null in silence: beside each value there is whether it could not be had.
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

from tidelake.connect_types import Travel
from tidelake.delta.conditions import any_of
from tidelake.delta.written import decimal_of, real_of, timestamp_of

_INFINITY_MICROS = 9_223_372_036_825_200_000
"""What Debezium sends of PostgreSQL's `infinity`; of `-infinity` it is a number below the negative one."""
_DAYS = (-2_440_588, 2_145_042_905)
"""The dates that PostgreSQL has, from 4713 BC to 5874897; its infinite ones are sent as days outside."""
_INFINITE = {
    "date": ("-2147472693", "-2147472692"),
    "timestamp_millis": ("9223372036825200", "-9223372036832400"),
    "timestamp_micros": ("9223372036825200000", "-9223372036832400000"),
    "timestamp_text": ("infinity", "-infinity"),
}
"""By turn, how `infinity` and `-infinity` travel; Debezium 3.3 sends those of dates in the other order."""
_DECIMAL_BYTES_MAX = 16
_SCALE_MAX = 16_383
"""As many places as a numeric of PostgreSQL has behind its point; what has more would be as long a text."""
_DOUBLE_DIGITS_FROM = 1e16
"""From here on Java may write a double with more digits than tell it from others."""
_WHOLE = {"int": "int", "long": "bigint"}


@dataclass(frozen=True)
class Landed:
    """One value on its way."""

    value: Column
    bad: Column
    """Whether there was something that could not be turned into the value; never null."""


def land_text(text: Column, travel: Travel) -> Landed:
    """Turn the JSON of a value into what lands.

    Args:
        text: a string's content, or the JSON text of anything else, exactly as it stands there; null for a null.
        travel: how it travels.
    """
    if travel.raw == "array":
        return _land_items(text, travel)
    if travel.raw == "record":
        return _land_fields(text, travel)
    if travel.raw == "json":
        return Landed(text, F.lit(False))
    raw = text if travel.turn == "decimal_text" else _raw_of_text(text, travel.raw)
    landed = land_raw(raw, travel)
    return Landed(landed.value, landed.bad | (text.isNotNull() & raw.isNull()))


def land_raw(raw: Column, travel: Travel) -> Landed:
    """Turn what Avro has decoded (without logical types), or what was made of JSON, into what lands."""
    if travel.raw == "array" and travel.item is not None:
        item = travel.item
        return _each(raw, item, land_raw)
    if travel.turn == "scaled_decimal":
        number = _scaled_decimal(raw["scale"], raw["value"])
        return Landed(number, raw.isNotNull() & number.isNull())
    if travel.raw == "record":
        return _struct_of(raw, travel, land_raw)
    if travel.raw == "json":
        return Landed(F.to_json(raw), F.lit(False))
    value = _TURNS[travel.turn](raw, travel)
    return Landed(value, raw.isNotNull() & value.isNull())


def is_infinite(given: Column, travel: Travel) -> Column:
    """Whether what travels is a date or a time that PostgreSQL calls infinite; never null."""
    if travel.turn not in _INFINITE:
        return F.lit(False)
    return F.coalesce(given.cast("string").isin(*_INFINITE[travel.turn]), F.lit(False))


def is_unavailable_text(text: Column, travel: Travel, placeholder: str) -> Column:
    """Whether a value in JSON is the placeholder, in the form that its type gives it; never null."""
    forms = _placeholder_forms(travel, placeholder)
    if not forms:
        return F.lit(False)
    # Numbers and texts of a list may stand apart.
    seen = F.regexp_replace(text, r"\s", "") if travel.raw == "array" else text
    return F.coalesce(seen.isin(*forms), F.lit(False))


def is_unavailable_raw(raw: Column, travel: Travel, placeholder: str) -> Column:
    """The same for what Avro has decoded."""
    if travel.raw in ("bytes", "hex"):  # only JSON needs a text for them
        return F.coalesce(raw == F.lit(placeholder.encode()), F.lit(False))
    if travel.raw == "array" and travel.item is not None:
        items = _placeholder_items(travel.item, placeholder)
        if items is None:
            return F.lit(False)
        return F.coalesce(raw == F.array(*(F.lit(one) for one in items)), F.lit(False))
    if travel.raw in ("string", "json"):
        text = F.to_json(raw) if travel.raw == "json" else raw
        return F.coalesce(text.isin(*_placeholder_forms(travel, placeholder)), F.lit(False))
    return F.lit(False)


def _placeholder_forms(travel: Travel, placeholder: str) -> list[str]:
    encoded = placeholder.encode()
    hexed = encoded.hex()
    if travel.raw == "bytes":
        urlsafe = base64.urlsafe_b64encode(encoded).decode()
        return sorted({base64.b64encode(encoded).decode(), urlsafe, urlsafe.rstrip("=")})
    if travel.raw == "hex":
        return [hexed, hexed.upper()]
    if travel.raw == "json":
        return [placeholder, json.dumps({placeholder: placeholder}, separators=(",", ":"))]
    if travel.raw == "array" and travel.item is not None:
        items = _placeholder_items(travel.item, placeholder)
        if items is None:
            return []
        texts = [base64.b64encode(one).decode() if isinstance(one, bytes) else one for one in items]
        return [json.dumps(texts, separators=(",", ":"))]
    # Text, whatever it stands for, also in the forms that bytes and maps have as text.
    as_map = json.dumps({placeholder: placeholder}, separators=(",", ":"))
    return [placeholder, hexed, base64.b64encode(encoded).decode(), as_map] if travel.raw == "string" else []


def _placeholder_items(item: Travel, placeholder: str) -> Sequence[str | bytes | int] | None:
    """What a list holds instead of its items: the text, or its bytes one by one."""
    if item.raw == "string":
        return [placeholder]
    if item.raw == "bytes":
        return [placeholder.encode()]
    return list(placeholder.encode()) if item.raw in ("int", "long") else None


def _raw_of_text(text: Column, raw: str) -> Column:
    if raw == "boolean":
        return F.when(text == "true", F.lit(True)).when(text == "false", F.lit(False))
    if raw == "bytes":
        return F.try_to_binary(F.translate(text, "-_", "+/"), F.lit("base64"))
    if raw == "hex":
        return F.try_to_binary(text, F.lit("hex"))
    if raw in ("float", "double"):
        return real_of(text, raw)
    return text.try_cast(_WHOLE[raw]) if raw in _WHOLE else text


def _land_items(text: Column, travel: Travel) -> Landed:
    assert travel.item is not None
    item = travel.item
    items = F.from_json(text, ArrayType(StringType()))
    landed = _each(items, item, land_text)
    return Landed(landed.value, landed.bad | (text.isNotNull() & items.isNull()))


def _land_fields(text: Column, travel: Travel) -> Landed:
    struct = F.from_json(text, StructType([StructField(name, StringType()) for name, _ in travel.fields]))
    wrong = text.isNotNull() & (struct.isNull() | ~text.startswith("{"))
    if travel.turn == "scaled_decimal":
        parts = {name: land_text(struct[name], one) for name, one in travel.fields}
        number = _scaled_decimal(parts["scale"].value, parts["value"].value)
        return Landed(number, wrong | (text.isNotNull() & number.isNull()))
    landed = _struct_of(struct, travel, land_text)
    return Landed(landed.value, landed.bad | wrong)


def _each(items: Column, item: Travel, land: Callable[[Column, Travel], Landed]) -> Landed:
    return Landed(
        F.transform(items, lambda one: land(one, item).value),
        F.coalesce(F.exists(items, lambda one: _is_bad(land(one, item), item)), F.lit(False)),
    )


def _struct_of(given: Column, travel: Travel, land: Callable[[Column, Travel], Landed]) -> Landed:
    parts = [(name, one, land(given[name], one)) for name, one in travel.fields]
    value = F.when(given.isNotNull(), F.struct(*(landed.value.alias(name) for name, _, landed in parts)))
    bad = any_of(_is_bad(landed, one) for _, one, landed in parts)
    return Landed(value, given.isNotNull() & bad)


def _is_bad(inner: Landed, travel: Travel) -> Column:
    """Whether what lies in a list or a record cannot be had, or is not there though it has to be; never null."""
    return inner.bad if travel.nullable else inner.bad | inner.value.isNull()


def _from_days(count: Column, travel: Travel) -> Column:
    return F.when(count.between(*_DAYS), F.date_from_unix_date(count))


def _from_millis(count: Column, travel: Travel) -> Column:
    end = _INFINITY_MICROS // 1000 - 1
    return F.when(count.between(-end, end), F.timestamp_micros(count * 1000))


def _from_micros(count: Column, travel: Travel) -> Column:
    end = _INFINITY_MICROS - 1
    return F.when(count.between(-end, end), F.timestamp_micros(count))


def _from_unscaled(value: Column, travel: Travel) -> Column:
    kind = f"decimal({travel.landing['precision']},{travel.landing['scale']})"
    if travel.scale is None:
        return _unscaled(value, travel.landing["scale"]).try_cast(kind)
    wide = _unscaled(value, travel.scale)
    landed = wide.try_cast(kind)
    return F.when(landed == wide, landed)  # a cast to fewer places rounds


def _unscaled(value: Column, scale: int) -> Column:
    """A decimal of 38 digits from its unscaled number, big-endian; null where it is wider."""
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}
    # Avro writes bytes with their length before them, twice the number where that is small.
    length = F.unhex(F.lpad(F.hex(F.length(value) * 2), 2, "0"))
    fits = F.length(value).between(1, _DECIMAL_BYTES_MAX)
    body = F.when(fits, F.concat(length, value))
    return from_avro(body, json.dumps(schema), {"mode": "PERMISSIVE"})


def _from_number_text(raw: Column, travel: Travel) -> Column:
    """A decimal from text or a double; null where it has more digits than the column."""
    precision, scale = travel.landing["precision"], travel.landing["scale"]
    found = decimal_of(raw.cast("string"), precision, scale)
    if travel.raw != "double":
        return found
    number = raw.try_cast("double")
    rounded = F.format_string("%.14e", number)
    is_meant = (F.abs(number) >= _DOUBLE_DIGITS_FROM) & (rounded.try_cast("double") == number)
    return F.when(is_meant, rounded.try_cast(f"decimal({precision},{scale})")).otherwise(found)


def _scaled_decimal(scale: Column, value: Column) -> Column:
    """The exact decimal text of an unscaled number and a scale that each row has for itself.

    Each part is named as seldom as can be: the expressions are nested, and would be copied for each use.
    """
    number = _unscaled(value, 0)
    digits = F.abs(number).cast("string")
    padded = F.lpad(digits, F.greatest(F.length(digits), scale + 1), F.lit("0"))
    sign = F.when(number < 0, F.lit("-")).otherwise(F.lit(""))
    pointed = F.concat(sign, F.overlay(padded, F.lit("."), F.length(padded) - scale + 1, F.lit(0)))
    whole = F.regexp_replace(F.concat(number.cast("string"), F.repeat(F.lit("0"), -scale)), "^0+$", "0")
    is_near = F.abs(scale.cast("bigint")) <= _SCALE_MAX
    return F.when(is_near, F.when(scale > 0, pointed).otherwise(whole))


_TURNS: dict[str, Callable[[Column, Travel], Column]] = {
    "as_is": lambda raw, travel: raw,
    "date": _from_days,
    "timestamp_millis": _from_millis,
    "timestamp_micros": _from_micros,
    "timestamp_text": lambda raw, travel: timestamp_of(raw),
    "decimal_bytes": _from_unscaled,
    "decimal_text": _from_number_text,
}
