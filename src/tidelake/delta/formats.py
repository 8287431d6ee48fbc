"""From the bytes of raw keys and values to columns, on the JVM, with the reason wherever they do not fit."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from tidelake.configuration import CollectionSettings
from tidelake.delta.avro_format import decode_avro
from tidelake.delta.json_format import decode_json


def decode_column(
    frame: DataFrame, source: str, target: str, record: dict[str, Any], settings: CollectionSettings
) -> DataFrame:
    """Decode the keys or the values of raw records as the collection's format says.

    In:  `source` binary, any others.
    Out: the same, `target` struct of the record's columns, `<target>_reason` string (why it cannot be used, or null),
         `<target>_detail` string (more of that for a person, or null). The struct is null where there is a reason, and
         where `source` is null or the JSON null.

    Args:
        frame: the records.
        source: `key` or `value`.
        target: the column to add.
        record: the record schema of what is decoded.
        settings: the collection's.
    """
    if settings.format == "json":
        return decode_json(frame, source, target, record)
    writers = settings.schema_ids if settings.encoding == "confluent" else None
    return decode_avro(frame, source, target, record, writers)
