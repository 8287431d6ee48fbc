"""Explodes decoded messages into rows, one for each statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.decode.cdcv2 import Reading
from tidelake.decode.columns import OFFSET, PARTITION, PLACE, STATEMENT
from tidelake.decode.landing import land_record
from tidelake.spark.column_cache import cached
from tidelake.store.layout import DIFF, TIME


def explode_updates(
    messages: DataFrame,
    record_schema: dict[str, Any],
    reading: Reading = Reading.CAREFUL,
    refused: Callable[[Column], Column] | None = None,
) -> DataFrame:
    """Return one row for each update of the good messages.

    In:  the DataFrame that `Decoder.updates` returns.
    Out: the data's columns, _time bigint, _diff bigint, _partition, _offset.

    Args:
        messages: the decoded messages.
        record_schema: the collection's record schema, which names the columns.
        reading: how the messages were decoded.
        refused: whether an element of `updates` is left out; None keeps all elements.
    """
    exploded = messages.select(
        F.col("partition").alias(PARTITION), F.col("offset").alias(OFFSET), F.explode("updates").alias(STATEMENT)
    )
    if refused is not None:
        exploded = exploded.where(~refused(F.col(STATEMENT)))
    return exploded.select(*_statement_columns(record_schema, reading), PARTITION, OFFSET)


def explode_messages(
    messages: DataFrame, record_schema: dict[str, Any], reading: Reading, extra: Sequence[Column]
) -> DataFrame:
    """Return one row for each update, and one for each message without updates, so that one pass counts everything.

    Counting messages before they are exploded would copy each message.

    In:  updates, as `Decoder.updates` returns them; the columns that `extra` uses.
    Out: the data's columns, _time bigint, _diff bigint, all null for a message without updates; the `extra` columns.

    Args:
        messages: the decoded messages.
        record_schema: the collection's record schema, which names the columns.
        reading: how the messages were decoded.
        extra: further columns, computed from the message, from `_u` (an element of `updates`) and from `_at` (the index
            of that element). Both `_u` and `_at` are null for a message without updates.
    """
    exploded = messages.select("*", F.posexplode_outer("updates").alias(PLACE, STATEMENT))
    return exploded.select(*_statement_columns(record_schema, reading), *extra)


@cached
def _statement_columns(record_schema: dict[str, Any], reading: Reading) -> list[Column]:
    """Return the columns of an update, with its data in stored form."""
    data = []
    for name, landing in land_record(record_schema).fields:
        value = F.col(f"{STATEMENT}.data")[name]
        if reading is not Reading.CAREFUL and landing.project is not None:
            value = landing.project(value)
        if reading is Reading.MEASURED and pa.types.is_int32(landing.arrow):  # read as a long
            value = value.try_cast("int")
        data.append(value.alias(name))
    return [*data, F.col(f"{STATEMENT}.time").alias(TIME), F.col(f"{STATEMENT}.diff").alias(DIFF)]
