"""Avro records on the JVM: the bare body of one record, or one behind Confluent's five bytes.

As in `decode`, sentinel bytes go behind the body, so that one which is too short or has bytes left over is noticed, and
numbers beyond their type, which Java's decoder cuts in silence, are found by writing the record again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from tidelake.codec_exact import suspect_pattern
from tidelake.delta.decode import (
    MAGIC_BYTES,
    SENTINEL,
    body_of,
    holds_id_in_header,
    reason_by,
    schema_id_of,
    without_logical_types,
)
from tidelake.delta.types import Landing, data_fields, land_record, spark_schema
from tidelake.resolution import resolve
from tidelake.schema import resolved_schema


def decode_avro(
    frame: DataFrame,
    source: str,
    target: str,
    record: dict[str, Any],
    writers: Mapping[int, dict[str, Any]] | None = None,
    refused: Mapping[int, str] | None = None,
    bare: dict[str, Any] | None = None,
) -> DataFrame:
    """Decode Avro records.

    In:  `source` binary, any others.
    Out: the same, `target` struct of the record's columns, `<target>_reason` and `<target>_detail` string. The struct
         is null where there is a reason, and where `source` is null.

    Args:
        frame: the records.
        source: the column with their bytes.
        target: the column to add.
        record: the record schema.
        writers: Confluent framing: by schema id, what was written: the same columns in any order, or what resolves to
            them; None means bare.
        refused: by schema id that is known, why its records cannot be read.
        bare: what bare bodies were written with, where that is not `record`.
    """
    body, found = f"{target}_body", f"{target}_found"
    if writers is None:
        return _bare(frame.withColumn(body, F.col(source)), body, target, record, bare or record).drop(body)
    framed = frame.withColumns(
        {
            body: body_of(F.col(source)),
            found: schema_id_of(F.col(source)),
        }
    )
    long_enough = F.length(source) >= MAGIC_BYTES
    is_magic = F.substring(F.col(source), 1, 1) == F.lit(bytes(1))
    framing = F.when(
        F.col(source).isNotNull(),
        F.when(holds_id_in_header(frame, "key" if target == "_key" else "value"), F.lit("schema_id_in_header"))
        .when(~is_magic, F.lit("wrong_magic_byte"))
        .when(~long_enough, F.lit("undecodable"))
        .when(F.col(found).isin(list(refused or {})), F.lit("schema_not_resolved"))
        .when(~F.col(found).isin(list(writers)), F.lit("unknown_schema_id")),
    )
    # Typed, as a registry may know no schema yet.
    value: Column = F.lit(None).cast(spark_schema(pa.schema(data_fields(record))))
    detail = F.when(framing == "unknown_schema_id", F.concat(F.lit("schema id "), F.col(found)))
    detail = F.when(framing == "schema_not_resolved", reason_by(F.col(found), refused or {})).otherwise(detail)
    reason = framing
    parts = [f"{target}_{schema_id}" for schema_id in writers]
    for part, (schema_id, writer) in zip(parts, writers.items(), strict=True):
        of_id = framing.isNull() & (F.col(found) == schema_id)
        framed = framed.withColumn(f"{part}_body", F.when(of_id, F.col(body)))
        framed = _bare(framed, f"{part}_body", part, record, writer)
        value = F.coalesce(F.col(part), value)
        reason = F.coalesce(reason, F.col(f"{part}_reason"))
    done = framed.withColumns({target: value, f"{target}_reason": reason, f"{target}_detail": detail})
    names = [f"{part}{one}" for part in parts for one in ("", "_body", "_reason", "_detail")]
    return done.drop(body, found, *names)


def _bare(frame: DataFrame, body: str, target: str, record: dict[str, Any], writer: dict[str, Any]) -> DataFrame:
    """Decode bodies that one schema has written."""
    landing = land_record(writer)
    message = f"{target}_message"
    stated = F.concat(F.col(body), F.lit(SENTINEL))
    staged = frame.withColumn(message, from_avro(stated, _schema(landing.decoding), {"mode": "PERMISSIVE"}))
    value, tail = F.col(message)["m"], F.col(message)["tail"]
    broken = F.coalesce(
        F.when(tail.isNull() | value.isNull(), F.lit("undecodable")),
        *([] if landing.beyond is None else [F.when(landing.beyond(value), F.lit("undecodable"))]),
        F.when(tail != F.lit(SENTINEL), F.lit("bytes_left_over")),
        F.when(_is_cut(body, stated, writer, landing), F.lit("undecodable")),
        *([] if landing.not_text is None else [F.when(landing.not_text(value), F.lit("undecodable"))]),
    )
    staged = staged.withColumn(f"{target}_reason", F.when(F.col(body).isNotNull(), broken))
    good = F.col(body).isNotNull() & F.col(f"{target}_reason").isNull()
    stored = value if landing.project is None else landing.project(value)
    ordered = F.struct(*_columns(stored, record, writer))
    return staged.withColumns({target: F.when(good, ordered), f"{target}_detail": F.lit(None).cast("string")}).drop(
        message
    )


def _columns(stored: Column, record: dict[str, Any], writer: dict[str, Any]) -> list[Column]:
    """The collection's columns from what was written, in the collection's order."""
    taken = resolve(record, writer)
    types = {one.name: one.dataType for one in spark_schema(pa.schema(data_fields(record)))}
    found = []
    for name, one in taken.items():
        column = stored[name] if one.written else F.lit(one.default)
        changed = one.widened or not one.written
        found.append((column.cast(types[name]) if changed else column).alias(name))
    return found


def _is_cut(body: str, stated: Column, writer: dict[str, Any], landing: Landing) -> Column:
    """Whether a number beyond its type was cut; see `decode.Decoder`."""
    schema = _schema(without_logical_types(landing.decoding))
    again = to_avro(from_avro(stated, schema, {"mode": "PERMISSIVE"}), schema)
    suspect = F.decode(F.col(body), "ISO-8859-1").rlike(suspect_pattern(resolved_schema(writer)))
    return F.when(suspect, ~again.eqNullSafe(stated)).otherwise(F.lit(False))


def _schema(record: Any) -> str:
    """The schema of a body with the sentinel behind it."""
    tail = {"type": "fixed", "name": "tail", "size": len(SENTINEL)}
    fields = [{"name": "m", "type": record}, {"name": "tail", "type": tail}]
    return json.dumps({"type": "record", "name": "message", "fields": fields})
