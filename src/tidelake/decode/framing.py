"""Confluent framing on the JVM: a zero byte and a schema id before the body."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

MAGIC_BYTES = 5
"""A zero byte, and four bytes of schema id."""
ID_HEADER = "__{}_schema_id"
"""The header in which newer producers state the schema of a record's `key` or `value`."""
_TO_THE_END = 2**31 - 1


def schema_id_of(framed: Column) -> Column:
    """Return the schema id (bigint) in the framing."""
    return F.conv(F.hex(F.substring(framed, 2, 4)), 16, 10).cast("bigint")


def body_of(framed: Column) -> Column:
    """Return the bytes after the framing."""
    return F.substring(framed, MAGIC_BYTES + 1, _TO_THE_END)


def holds_id_in_header(frame: DataFrame, part: str) -> Column:
    """Return whether a header states the schema of a record's `key` or `value`; the result is never null."""
    if "headers" not in frame.columns:
        return F.lit(False)
    name = F.lit(ID_HEADER.format(part))
    return F.coalesce(F.exists("headers", lambda header: header["key"] == name), F.lit(False))


def reason_by(number: Column, reasons: Mapping[int, str]) -> Column:
    """Return why the schema with this number (an id or a hash) was refused; null if it was not."""
    text: Column = F.lit(None).cast("string")
    for known, reason in reasons.items():
        text = F.when(number == known, F.lit(reason)).otherwise(text)
    return text
