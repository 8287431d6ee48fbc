"""Decodes Avro records on the JVM, either bare or after the five bytes of Confluent framing.

As in `cdcv2`, a sentinel after the body reveals a body that is too short or has trailing bytes. Numbers out of range
for their type, which Java's decoder silently truncates, are detected by encoding the record again.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from tidelake.codec.exact import suspect_pattern
from tidelake.decode.columns import KEY, Target
from tidelake.decode.framing import MAGIC_BYTES, body_of, holds_id_in_header, reason_by, schema_id_of
from tidelake.decode.landing import Landing, land_record
from tidelake.decode.sentinel import SENTINEL, message_schema, with_sentinel, without_logical_types
from tidelake.decode.writers import Writers
from tidelake.schema.avro import resolved_schema
from tidelake.schema.resolution import resolve
from tidelake.store.runs import spark_schema
from tidelake.store.table_schema import data_fields


def decode_avro(
    frame: DataFrame,
    source: str,
    target: str,
    record: dict[str, Any],
    writers: Writers,
) -> DataFrame:
    """Decode Avro records.

    In:  `source` binary, and any other columns.
    Out: the same, `target` struct of the record's columns, `<target>_reason` and `<target>_detail` string. The struct
         is null if there is a reason, or if `source` is null.

    Args:
        frame: the records.
        source: the column with their bytes.
        target: the column to add.
        record: the record schema.
        writers: the writers' schemas; each has the columns of `record` in any order, or resolves to `record`.
    """
    columns = Target(target)
    body, schema_id = columns.body, F.col(columns.schema_id)
    by_id, refused = writers.by_id, writers.refused
    if by_id is None:
        return _bare(frame.withColumn(body, F.col(source)), body, columns, record, dict(writers.bare)).drop(body)
    framed = frame.withColumns({body: body_of(F.col(source)), columns.schema_id: schema_id_of(F.col(source))})
    long_enough = F.length(source) >= MAGIC_BYTES
    is_magic = F.substring(F.col(source), 1, 1) == F.lit(bytes(1))
    framing = F.when(
        F.col(source).isNotNull(),
        F.when(holds_id_in_header(frame, "key" if target == KEY else "value"), F.lit("schema_id_in_header"))
        .when(~is_magic, F.lit("wrong_magic_byte"))
        .when(~long_enough, F.lit("undecodable"))
        .when(schema_id.isin(list(refused)), F.lit("schema_not_resolved"))
        .when(~schema_id.isin(list(by_id)), F.lit("unknown_schema_id")),
    )
    # Typed nulls, because a registry may have no schema yet.
    value: Column = F.lit(None).cast(spark_schema(pa.schema(data_fields(record))))
    detail = F.when(framing == "unknown_schema_id", F.concat(F.lit("schema id "), schema_id))
    detail = F.when(framing == "schema_not_resolved", reason_by(schema_id, refused)).otherwise(detail)
    reason = framing
    temporary = [body, columns.schema_id]
    for known_id, writer in by_id.items():
        part = columns.of_writer(known_id)
        has_id = framing.isNull() & (schema_id == known_id)
        framed = framed.withColumn(part.body, F.when(has_id, F.col(body)))
        framed = _bare(framed, part.body, part, record, dict(writer))
        value = F.coalesce(F.col(part.name), value)
        reason = F.coalesce(reason, F.col(part.reason))
        temporary += [part.name, part.body, part.reason, part.detail]
    return framed.withColumns({target: value, columns.reason: reason, columns.detail: detail}).drop(*temporary)


def _bare(frame: DataFrame, body: str, columns: Target, record: dict[str, Any], writer: dict[str, Any]) -> DataFrame:
    """Decode bodies that were written with one schema."""
    landing = land_record(writer)
    sealed = with_sentinel(F.col(body))
    staged = frame.withColumn(columns.message, from_avro(sealed, _schema(landing.decoding), {"mode": "PERMISSIVE"}))
    value, tail = F.col(columns.message)["m"], F.col(columns.message)["tail"]
    broken = F.coalesce(
        F.when(tail.isNull() | value.isNull(), F.lit("undecodable")),
        *([] if landing.too_large is None else [F.when(landing.too_large(value), F.lit("undecodable"))]),
        F.when(tail != F.lit(SENTINEL), F.lit("bytes_left_over")),
        F.when(_is_truncated(body, sealed, writer, landing), F.lit("undecodable")),
        *([] if landing.not_text is None else [F.when(landing.not_text(value), F.lit("undecodable"))]),
    )
    staged = staged.withColumn(columns.reason, F.when(F.col(body).isNotNull(), broken))
    good = F.col(body).isNotNull() & F.col(columns.reason).isNull()
    stored = value if landing.project is None else landing.project(value)
    ordered = F.struct(*_columns(stored, record, writer))
    decoded = {columns.name: F.when(good, ordered), columns.detail: F.lit(None).cast("string")}
    return staged.withColumns(decoded).drop(columns.message)


def _columns(stored: Column, record: dict[str, Any], writer: dict[str, Any]) -> list[Column]:
    """Return the collection's columns in its order, with defaults for those that the written record lacks."""
    types = {field.name: field.dataType for field in spark_schema(pa.schema(data_fields(record)))}
    columns = []
    for name, source in resolve(record, writer).items():
        column = stored[name] if source.written else F.lit(source.default)
        is_cast = source.widened or not source.written
        columns.append((column.cast(types[name]) if is_cast else column).alias(name))
    return columns


def _is_truncated(body: str, sealed: Column, writer: dict[str, Any], landing: Landing) -> Column:
    """Return whether a number out of range for its type was truncated; see `tidelake.decode.cdcv2`."""
    schema = _schema(without_logical_types(landing.decoding))
    reencoded = to_avro(from_avro(sealed, schema, {"mode": "PERMISSIVE"}), schema)
    suspect = F.decode(F.col(body), "ISO-8859-1").rlike(suspect_pattern(resolved_schema(writer)))
    return F.when(suspect, ~reencoded.eqNullSafe(sealed)).otherwise(F.lit(False))


def _schema(record: Any) -> str:
    """Return the schema of a body with the sentinel after it."""
    return json.dumps(message_schema(record))
