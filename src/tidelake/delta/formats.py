"""From the bytes of raw keys and values to columns, on the JVM, with the reason wherever they do not fit."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StringType, StructType

from tidelake.column_types import column_types
from tidelake.configuration import CollectionSettings
from tidelake.delta.decode import SENTINEL
from tidelake.delta.types import Landing, land_record, spark_schema

_CORRUPT = "_corrupt"
_JSON_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


def decode_values(raw: DataFrame, settings: CollectionSettings) -> DataFrame:
    """Decode the values of raw records.

    In:  the columns of `topic.RAW_SCHEMA`, any others.
    Out: the same, _value struct of the value's columns (null where there is a reason), _reason string (why it cannot be
         used, or null), _detail string (more of that for a person, or null).
    """
    landing = land_record(settings.value_schema)
    if settings.format == "json":
        decoded, reason = _decode_json(raw, settings.value_schema, landing)
    else:
        decoded, reason = _decode_avro(raw, landing)
    absent = F.when(F.col("value").isNull(), F.lit("null_value"))
    reasoned = decoded.withColumn("_reason", F.coalesce(absent, reason)).withColumn(
        "_detail", F.lit(None).cast("string")
    )
    good = F.when(F.col("_reason").isNull(), F.col("_decoded"))
    return reasoned.withColumn("_value", good).drop("_decoded")


def _decode_json(raw: DataFrame, schema: dict[str, Any], landing: Landing) -> tuple[DataFrame, Column]:
    wanted = spark_schema(pa.schema(list(landing.arrow)))
    read = StructType([*wanted.fields]).add(_CORRUPT, StringType())
    text = F.col("value").cast("string")
    decoded = raw.withColumn("_decoded", F.from_json(text, read, _JSON_OPTIONS))
    missing = [F.col("_decoded")[one.name].isNull() for one in column_types(schema) if not one.nullable]
    reason = F.coalesce(
        F.when(F.col("_decoded").isNull() | F.col("_decoded")[_CORRUPT].isNotNull(), F.lit("undecodable")),
        *(F.when(one, F.lit("undecodable")) for one in missing),
    )
    return decoded, reason


def _decode_avro(raw: DataFrame, landing: Landing) -> tuple[DataFrame, Column]:
    schema = {
        "type": "record",
        "name": "message",
        "fields": [
            {"name": "m", "type": landing.decoding},
            {"name": "tail", "type": {"type": "fixed", "name": "tail", "size": len(SENTINEL)}},
        ],
    }
    body = F.concat(F.col("value"), F.lit(SENTINEL))
    decoded = raw.withColumn("_message", from_avro(body, json.dumps(schema), {"mode": "PERMISSIVE"}))
    value = F.col("_message.m")
    stored = value if landing.project is None else landing.project(value)
    reason = F.coalesce(
        F.when(F.col("_message.tail").isNull(), F.lit("undecodable")),
        F.when(F.col("_message.tail") != F.lit(SENTINEL), F.lit("bytes_left_over")),
    )
    return decoded.withColumn("_decoded", stored), reason
