"""Reads change events from Avro, bare or after the five bytes of Confluent framing, each with its writer's schema.

Decoding ignores logical types, so values arrive as they were sent; `values` converts them. The key of a record has its
own schema, and is decoded only if the event does not contain the row's key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from tidelake.decode.debezium.columns import BODY, BROKEN, EMPTY, EVENT, KEY_BYTES, KEY_ROW, PARSED, SCHEMA_ID
from tidelake.decode.debezium.events import contains_row, event_struct, read_events
from tidelake.decode.debezium.shape import ChangeShape, RowReader
from tidelake.decode.debezium.values import land_raw
from tidelake.decode.framing import MAGIC_BYTES, body_of, holds_id_in_header, reason_by, schema_id_of
from tidelake.decode.sentinel import SENTINEL, message_schema, with_sentinel, without_logical_types
from tidelake.decode.types import spark_type
from tidelake.decode.writers import Writers
from tidelake.schema.connect import WireType, declared_row, wire_types
from tidelake.schema.types import scalar_type


def read_avro_changes(raw: DataFrame, shape: ChangeShape, values: Writers, keys: Writers | None = None) -> DataFrame:
    """Read change events from Avro.

    In, out: as for `tidelake.decode.debezium.json.read_changes`, but without _schema.

    Args:
        raw: the records.
        shape: the columns, key and options of the events.
        values: the schemas of the events; a missing column of the shape is null, and a narrower type is widened.
        keys: the schemas of the records' keys; None if keys are not decoded.
    """
    if values.by_id is None:
        bare = raw.withColumn(BODY, F.col("value"))
        return _read(bare, shape, values.bare, F.lit(None).cast("string"), keys)
    value = F.col("value")
    framed = raw.withColumns({BODY: body_of(value), SCHEMA_ID: schema_id_of(value)})
    refusal = F.concat(F.lit("schema_not_resolved ("), reason_by(F.col(SCHEMA_ID), values.refused), F.lit(")"))
    unknown = F.coalesce(refusal, F.concat(F.lit("unknown_schema_id (schema id "), F.col(SCHEMA_ID), F.lit(")")))
    wrong = F.when(
        value.isNotNull(),
        F.when(holds_id_in_header(raw, "value"), F.lit("schema_id_in_header"))
        .when(F.substring(value, 1, 1) != F.lit(bytes(1)), F.lit("wrong_magic_byte"))
        .when(F.length(value) < MAGIC_BYTES, F.lit("undecodable"))
        .when(~F.col(SCHEMA_ID).isin(list(values.by_id)), unknown),
    )
    parts = []
    for place, (schema_id, record) in enumerate((values.by_id or {-1: _event_of(values.bare)}).items()):
        mine = wrong.isNull() & (F.col(SCHEMA_ID) == schema_id)
        # The first part also contains refused records and records without a value.
        belongs = F.coalesce(mine, F.lit(False)) | (wrong.isNotNull() | value.isNull() if place == 0 else F.lit(False))
        parts.append(_read(framed.where(belongs), shape, record, wrong, keys).drop(SCHEMA_ID))
    return reduce(DataFrame.unionByName, parts)


def _read(
    raw: DataFrame, shape: ChangeShape, record: Mapping[str, Any], wrong: Column, keys: Writers | None
) -> DataFrame:
    """Decode the events of one writer's schema; `wrong` is the reason why a record is not an event, or null."""
    body = F.when(wrong.isNull() & F.col("value").isNotNull(), F.col(BODY))
    read = raw.withColumn(EMPTY, F.col("value").isNull()).withColumn(PARSED, _decoded(body, record))
    parsed, end = F.col(f"{PARSED}.m"), F.col(f"{PARSED}.tail")
    broken = F.when(
        F.col("value").isNotNull(),
        F.coalesce(
            wrong,
            F.when(end.isNull() | parsed.isNull(), F.lit("undecodable")),
            F.when(end != F.lit(SENTINEL), F.lit("bytes_left_over")),
        ),
    )
    read = read.withColumn(BROKEN, broken)
    source_names = {field["name"] for field in _record_in(_field(record, "source")).get("fields", ())}
    source = F.struct(
        *(
            (parsed["source"][name].cast("string") if name in source_names else F.lit(None).cast("string")).alias(name)
            for name in shape.source_fields
        )
    )
    columns = _columns(shape, dict(wire_types(declared_row(record))))
    rows = [_row(parsed[name], columns).alias(name) for name in ("before", "after")]
    transaction = _transaction(parsed, record) if shape.transactions else None
    read = read.withColumn(EVENT, event_struct(parsed, rows, source, transaction))
    steps = [PARSED, BROKEN, EVENT, BODY, EMPTY]
    if keys is not None:
        contains_key = F.col(BROKEN).isNull() & contains_row(F.col(f"{EVENT}.op"), F.col(f"{EVENT}.after"), shape)
        needed = F.when(~F.coalesce(contains_key, F.lit(False)), F.col("key"))
        read = read.withColumn(KEY_BYTES, needed)
        read = read.withColumn(KEY_ROW, _key_row(read, shape, keys))
        steps = [*steps, KEY_BYTES, KEY_ROW]
    written = tuple((name, wire) for name, wire, _ in columns)
    reader = RowReader(written, reads_text=False, has_key_row=keys is not None)
    return read_events(read, shape, reader).drop(*steps)


def _transaction(parsed: Column, record: Mapping[str, Any]) -> Column:
    """Return the event's transaction, as `json.event_ddl` reads it."""
    names = {field["name"] for field in _record_in(_field(record, "transaction")).get("fields", ())}
    parts = {
        name: parsed["transaction"][name].cast("string") if name in names else F.lit(None).cast("string")
        for name in ("id", "total_order", "data_collection_order")
    }
    return F.struct(*(part.alias(name) for name, part in parts.items()))


def _event_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of an event.

    If the registry has no schema yet, one is built from the schema of the row; no event is decoded with it.
    """
    if declared_row(record) is not record:
        return record
    fields = {"before": ["null", record], "after": ["null", record["name"]], "op": "string", "ts_ms": "long"}
    return {
        "type": "record",
        "name": "event",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def _columns(shape: ChangeShape, written: Mapping[str, WireType]) -> list[tuple[str, WireType, str | None]]:
    """Return the shape's columns that were written: name, wire type, and the type to cast to if promoted."""
    columns = []
    for name, ours in shape.columns:
        if name not in written:
            continue
        theirs = written[name]
        widens = theirs.landing != ours.landing
        columns.append((name, ours if widens else theirs, spark_type(scalar_type(ours.name)).sql if widens else None))
    return columns


def _row(row: Column, columns: list[tuple[str, WireType, str | None]]) -> Column:
    cells = [(row[name] if wider is None else row[name].cast(wider)).alias(name) for name, _, wider in columns]
    return F.when(row.isNotNull(), F.struct(*cells))


def _key_row(raw: DataFrame, shape: ChangeShape, keys: Writers) -> Column:
    """Return the key's columns from the record's key; null if the record's key cannot be decoded."""
    key = F.col(KEY_BYTES)
    if keys.by_id is None:
        return _decoded_key(key, shape, keys.bare)
    is_framed = ~holds_id_in_header(raw, "key") & (F.substring(key, 1, 1) == F.lit(bytes(1)))
    body = body_of(key)
    rows = [
        _decoded_key(F.when(is_framed & (schema_id_of(key) == schema_id), body), shape, record)
        for schema_id, record in keys.by_id.items()
    ]
    return F.coalesce(*rows, F.lit(None)) if rows else F.lit(None)


def _decoded_key(body: Column, shape: ChangeShape, record: Mapping[str, Any]) -> Column:
    read = _decoded(body, record)
    key_shape = ChangeShape(tuple((name, wire) for name, wire in shape.columns if name in shape.key), shape.key)
    columns = _columns(key_shape, dict(wire_types(record)))
    row = _row(read["m"], columns)
    landed = [land_raw(row[name], wire).value.alias(name) for name, wire, _ in columns]
    return F.when(read["tail"] == F.lit(SENTINEL), F.struct(*landed))


def _decoded(body: Column, record: Mapping[str, Any]) -> Column:
    """Return a body as a struct of the record `m` and the `tail` after it."""
    schema = json.dumps(message_schema(without_logical_types(record)))
    return from_avro(with_sentinel(body), schema, {"mode": "PERMISSIVE"})


def _field(record: Mapping[str, Any], name: str) -> Any:
    return next((field["type"] for field in record["fields"] if field["name"] == name), None)


def _record_in(kind: Any) -> Mapping[str, Any]:
    branches = kind if isinstance(kind, list) else [kind]
    return next((branch for branch in branches if isinstance(branch, dict) and branch.get("type") == "record"), {})
