"""Statements that a person typed, as rows of the collection's own types, so that Spark can compare them exactly."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

import fastavro
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from tidelake.delta.layout import DIFF, TIME
from tidelake.delta.types import land_record
from tidelake.errors import RuleBroken


def encode_data(record_schema: dict[str, Any], data: Any) -> bytes:
    """The Avro bytes of one record given as JSON.

    Raises:
        RuleBroken: it does not fit the collection's schema.
    """
    buffer = io.BytesIO()
    try:
        fastavro.schemaless_writer(buffer, fastavro.parse_schema(record_schema), data, strict=True)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise RuleBroken(
            f"the data does not fit the collection's schema: {error}", "give every column, as JSON"
        ) from error
    return buffer.getvalue()


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
