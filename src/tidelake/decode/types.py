"""Spark's handling of each declared Avro type: one entry for each entry of `tidelake.schema.types.SCALARS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pyspark.sql import functions as F

from tidelake.decode.json_scalars import (
    Expression,
    JsonForm,
    bytes_form,
    date_form,
    decimal_form,
    enum_form,
    plain_form,
    real_form,
    text_form,
    timestamp_form,
)
from tidelake.schema.types import DECIMAL, ScalarType

_DECIMAL_BYTES_READ = 8
"""Spark's decoder reads only the last 8 bytes of a decimal of at most 18 digits, and ignores the others."""
_DECIMAL_DIGITS_EXACT = 19


@dataclass(frozen=True)
class AvroForm:
    """How Spark decodes one type from Avro, and the checks and conversions afterwards.

    Args:
        properties: added to the base type in the schema that Spark decodes with.
        project: converts the decoded value to the stored one; None if they are the same.
        not_text: whether a string is invalid UTF-8, which Spark would accept; None if the type is not a string.
        too_large: whether a decimal has too many digits; None if Spark's decoder checks this, or if the type
            is not a decimal.
    """

    properties: Mapping[str, Any] = field(default_factory=dict)
    project: Expression | None = None
    not_text: Expression | None = None
    too_large: Expression | None = None


@dataclass(frozen=True)
class SparkType:
    """Spark's handling of one type.

    Args:
        sql: Spark's name for the base type.
        json: returns how a resolved type is read from JSON; its second argument is the column's name, for errors.
        avro: returns how a resolved type is decoded from Avro.
        encoded: converts a decoded date or timestamp to the integer that Avro encodes; None if they are the same.
    """

    sql: str
    json: Callable[[Any, str], JsonForm]
    avro: Callable[[Any], AvroForm] = lambda kind: AvroForm()
    encoded: Expression | None = None


def spark_type(scalar: ScalarType) -> SparkType:
    """Return Spark's handling of a declared type."""
    return SPARK_TYPES[scalar.base, scalar.logical]


def _known_to_spark(kind: Any) -> AvroForm:
    """Return the form of a logical type that Spark's decoder knows."""
    return AvroForm({"logicalType": kind["logicalType"]})


def _text(kind: Any) -> AvroForm:
    return AvroForm(not_text=lambda value: ~F.is_valid_utf8(value))


def _decimal(kind: Any) -> AvroForm:
    """Return the form of a decimal.

    A decimal that may have more bytes than Spark reads is decoded as a type with more digits.
    """
    precision, scale = int(kind["precision"]), int(kind.get("scale", 0))
    may_be_long = kind["type"] != "fixed" or int(kind["size"]) > _DECIMAL_BYTES_READ
    if not may_be_long or precision >= _DECIMAL_DIGITS_EXACT:
        return AvroForm({"logicalType": DECIMAL, "precision": precision, "scale": scale})
    bound = Decimal(10) ** (precision - scale)
    return AvroForm(
        {"logicalType": DECIMAL, "precision": _DECIMAL_DIGITS_EXACT, "scale": scale},
        project=lambda value: value.try_cast(f"decimal({precision}, {scale})"),
        too_large=lambda value: F.abs(value) >= F.lit(bound),
    )


SPARK_TYPES: Mapping[tuple[str, str], SparkType] = {
    ("boolean", ""): SparkType("boolean", plain_form("boolean")),
    ("int", ""): SparkType("int", plain_form("int")),
    ("long", ""): SparkType("bigint", plain_form("bigint")),
    ("float", ""): SparkType("float", real_form("float")),
    ("double", ""): SparkType("double", real_form("double")),
    ("bytes", ""): SparkType("binary", bytes_form),
    ("string", ""): SparkType("string", text_form, avro=_text),
    ("enum", ""): SparkType("string", enum_form),
    ("fixed", ""): SparkType("binary", bytes_form),
    ("int", "date"): SparkType("int", date_form, avro=_known_to_spark, encoded=F.unix_date),
    ("long", "timestamp-millis"): SparkType(
        "bigint", timestamp_form(F.timestamp_millis), avro=_known_to_spark, encoded=F.unix_millis
    ),
    ("long", "timestamp-micros"): SparkType(
        "bigint", timestamp_form(F.timestamp_micros), avro=_known_to_spark, encoded=F.unix_micros
    ),
    ("bytes", DECIMAL): SparkType("binary", decimal_form, avro=_decimal),
    ("fixed", DECIMAL): SparkType("binary", decimal_form, avro=_decimal),
}
"""Spark's handling of all types, by base and logical type, as in `SCALARS`."""
