"""Converts manually entered statements to rows, so that Spark can compare them exactly."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from tidelake.codec.typed import encode_data
from tidelake.decode.landing import land_record
from tidelake.store.layout import DIFF, TIME


def statement_frame(
    spark: SparkSession, record_schema: dict[str, Any], statements: Iterable[tuple[int | None, dict[str, Any] | None]]
) -> DataFrame | None:
    """Return statements `(time, {"data": …, "diff": …})` as rows of the data's columns, _time, _diff; None if empty."""
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
