"""Decodes the bytes of keys and values to columns, on the JVM, with a reason if they cannot be used."""

from __future__ import annotations

from pyspark.sql import DataFrame

from tidelake.decode.avro import decode_avro
from tidelake.decode.columns import KEY, VALUE
from tidelake.decode.json import decode_json
from tidelake.decode.writers import Part


def decode_values(frame: DataFrame, values: Part) -> DataFrame:
    """Decode the values of records.

    In:  value binary, and any other columns.
    Out: the same, _value struct of the value's columns, _value_reason string (why it cannot be used, or null),
         _value_detail string (details for a person, or null). The struct is null if there is a reason, or if the
         value is null or JSON's null.
    """
    return _decode(frame, "value", VALUE, values)


def decode_keys(frame: DataFrame, source: str, keys: Part) -> DataFrame:
    """Decode the keys of records.

    In:  `source` binary, and any other columns.
    Out: the same, _key struct of the key's columns, _key_reason and _key_detail string, as for values.
    """
    return _decode(frame, source, KEY, keys)


def _decode(frame: DataFrame, source: str, target: str, part: Part) -> DataFrame:
    if part.format == "json":
        return decode_json(frame, source, target, dict(part.record), part.writers.refused)
    return decode_avro(frame, source, target, dict(part.record), part.writers)
