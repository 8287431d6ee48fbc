"""What the records of a raw topic amount to, by envelope."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.configuration import CollectionSettings
from tidelake.delta.layout import DIFF, TIME


def append_only_rows(decoded: DataFrame, settings: CollectionSettings, time: int) -> DataFrame:
    """Each record that could be decoded is one event.

    In:  what `formats.decode_values` gives.
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
