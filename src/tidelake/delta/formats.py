"""From the bytes of raw keys and values to columns, on the JVM, with the reason wherever they do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from tidelake.configuration import CollectionSettings
from tidelake.delta.avro_format import decode_avro
from tidelake.delta.json_format import decode_json


def decode_values(frame: DataFrame, settings: CollectionSettings) -> DataFrame:
    """Decode the values of raw records as the collection's format says.

    In:  value binary, any others.
    Out: the same, _value struct of the value's columns, _value_reason string (why it cannot be used, or null),
         _value_detail string (more of that for a person, or null). The struct is null where there is a reason, and
         where the value is null, or the null of JSON.
    """
    if settings.format == "avro" and settings.encoding != "confluent" and settings.bare_schema:
        return decode_avro(frame, "value", "_value", settings.value_schema, bare=settings.bare_schema)
    return _decode(frame, "value", "_value", settings.value_schema, settings, settings.schema_ids)


def decode_keys(frame: DataFrame, source: str, settings: CollectionSettings) -> DataFrame:
    """Decode the keys of raw records as the collection's format says.

    In:  `source` binary, any others.
    Out: the same, _key struct of the key's columns, _key_reason and _key_detail string, as for values.
    """
    return _decode(frame, source, "_key", settings.key_schema, settings, settings.key_schema_ids)


def _decode(
    frame: DataFrame,
    source: str,
    target: str,
    record: dict[str, Any],
    settings: CollectionSettings,
    ids: Mapping[int, dict[str, Any]],
) -> DataFrame:
    if settings.format == "json":
        return decode_json(frame, source, target, record, settings.refused_schemas)
    if settings.encoding != "confluent":
        return decode_avro(frame, source, target, record)
    return decode_avro(frame, source, target, record, ids, settings.refused_ids)
