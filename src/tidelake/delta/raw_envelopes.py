"""What the records of a raw topic amount to, by envelope."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.configuration import CollectionSettings
from tidelake.delta.formats import decode_column
from tidelake.delta.layout import DIFF, TIME


def read_events(raw: DataFrame, settings: CollectionSettings) -> DataFrame:
    """Decode the values of an append-only topic; an event without a value says nothing.

    In:  the columns of `topic.RAW_SCHEMA`, topic.
    Out: the same, _value struct of the value's columns, _reason string (why it cannot be used, or null) and _detail.
    """
    decoded = decode_column(raw, "value", "_value", settings.value_schema, settings)
    absent = F.when(F.col("_value_reason").isNull() & F.col("_value").isNull(), F.lit("null_value"))
    return decoded.withColumns(
        {"_reason": F.coalesce("_value_reason", absent), "_detail": F.col("_value_detail")}
    ).drop("_value_reason", "_value_detail")


def append_only_rows(decoded: DataFrame, settings: CollectionSettings, time: int) -> DataFrame:
    """Each record that could be decoded is one event.

    In:  what `read_events` gives.
    Out: the table's columns, _time, which is `time`, and _diff, which is 1.
    """
    good = decoded.where(F.col("_reason").isNull())
    names = [one["name"] for one in settings.value_schema["fields"]]
    data = [F.col("_value")[name].alias(name) for name in names]
    return good.select(
        F.lit(time).cast("bigint").alias(TIME), F.lit(1).cast("bigint").alias(DIFF), *data, *metadata_columns(settings)
    )


def metadata_columns(settings: CollectionSettings) -> list[Column]:
    """What else is known of each record, under the names that the settings give."""
    sources = {"timestamp": F.timestamp_millis("timestamp_ms")}
    return [sources.get(kind, F.col(kind)).alias(name) for kind, name in settings.metadata.items()]
