"""Change events in Avro: the bare body of one event, or one behind Confluent's five bytes, each by its writer's schema.

Logical types are left out of the decoding, so that what travels comes as it is; `connect_values` turns it into what
lands. The key of a record has a schema of its own, and is only decoded where the event itself does not tell the row's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from tidelake.connect_types import Travel, declared_row, travels
from tidelake.delta.connect_values import land_raw
from tidelake.delta.decode import (
    MAGIC_BYTES,
    SENTINEL,
    body_of,
    holds_id_in_header,
    reason_by,
    schema_id_of,
    without_logical_types,
)
from tidelake.delta.raw_debezium import ChangeShape, Reader, event_struct, source_fields, tells_row, told

_FOUND = "_schema_id"
_SPARK_TYPES = {"int": "int", "long": "bigint", "float": "float", "double": "double"}


@dataclass(frozen=True)
class Writers:
    """What records were written with.

    Args:
        bare: bare bodies: the record; of no use where `by_id` is there.
        by_id: Confluent framing: by schema id, the record; None means bare.
        refused: by schema id that is known, why its records cannot be read.
    """

    bare: Mapping[str, Any] = field(default_factory=dict)
    by_id: Mapping[int, Mapping[str, Any]] | None = None
    refused: Mapping[int, str] = field(default_factory=dict)


def read_avro_changes(raw: DataFrame, shape: ChangeShape, values: Writers, keys: Writers | None = None) -> DataFrame:
    """Read change events from Avro.

    In, out: as with `raw_debezium_json.read_changes`, without _schema.

    Args:
        raw: the records.
        shape: what the events are about.
        values: the event's record; a column of the shape that it lacks is null, and a narrower one is widened.
        keys: the record of the records' keys; None where they are not decoded.
    """
    if values.by_id is None:
        bare = raw.withColumn("_body", F.col("value"))
        return _read(bare, shape, values.bare, F.lit(None).cast("string"), keys)
    value = F.col("value")
    framed = raw.withColumns({"_body": body_of(value), _FOUND: schema_id_of(value)})
    refusal = F.concat(F.lit("schema_not_resolved ("), reason_by(F.col(_FOUND), values.refused), F.lit(")"))
    unknown = F.coalesce(refusal, F.concat(F.lit("unknown_schema_id (schema id "), F.col(_FOUND), F.lit(")")))
    wrong = F.when(
        value.isNotNull(),
        F.when(holds_id_in_header(raw, "value"), F.lit("schema_id_in_header"))
        .when(F.substring(value, 1, 1) != F.lit(bytes(1)), F.lit("wrong_magic_byte"))
        .when(F.length(value) < MAGIC_BYTES, F.lit("undecodable"))
        .when(~F.col(_FOUND).isin(list(values.by_id)), unknown),
    )
    parts = []
    for place, (schema_id, record) in enumerate((values.by_id or {-1: _event_of(values.bare)}).items()):
        mine = wrong.isNull() & (F.col(_FOUND) == schema_id)
        # What nobody has written, and records without a value, go with the first.
        taken = F.coalesce(mine, F.lit(False)) | (wrong.isNotNull() | value.isNull() if place == 0 else F.lit(False))
        parts.append(_read(framed.where(taken), shape, record, wrong, keys).drop(_FOUND))
    return reduce(DataFrame.unionByName, parts)


def _read(
    raw: DataFrame, shape: ChangeShape, record: Mapping[str, Any], wrong: Column, keys: Writers | None
) -> DataFrame:
    """Decode the events of one writer's schema; `wrong` says why a record is none, or is null."""
    body = F.when(wrong.isNull() & F.col("value").isNotNull(), F.col("_body"))
    read = raw.withColumn("_empty", F.col("value").isNull()).withColumn("_given", _decoded(body, record))
    given, end = F.col("_given.m"), F.col("_given.tail")
    broken = F.when(
        F.col("value").isNotNull(),
        F.coalesce(
            wrong,
            F.when(end.isNull() | given.isNull(), F.lit("undecodable")),
            F.when(end != F.lit(SENTINEL), F.lit("bytes_left_over")),
        ),
    )
    read = read.withColumn("_broken", broken)
    known = {one["name"] for one in _record_in(_field(record, "source")).get("fields", ())}
    source = F.struct(
        *(
            (given["source"][name].cast("string") if name in known else F.lit(None).cast("string")).alias(name)
            for name in source_fields(shape)
        )
    )
    columns = _columns(shape, dict(travels(declared_row(record))))
    rows = [_row(given[name], columns).alias(name) for name in ("before", "after")]
    read = read.withColumn("_event", event_struct(given, rows, source))
    kept = ["_given", "_broken", "_event", "_body", "_empty"]
    key_row = None
    if keys is not None:
        is_told = F.col("_broken").isNull() & tells_row(F.col("_event.op"), F.col("_event.after"), shape)
        needed = F.when(~F.coalesce(is_told, F.lit(False)), F.col("key"))
        read = read.withColumn("_key_bytes", needed)
        read = read.withColumn("_key_row", _key_row(read, shape, keys))
        key_row, kept = F.col("_key_row"), [*kept, "_key_bytes", "_key_row"]
    reader = Reader(tuple((name, travel) for name, travel, _ in columns), of_text=False, key_row=key_row)
    return told(read, shape, reader).drop(*kept)


def _event_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record of an event out of that of its row, where a registry knows no event yet: nothing is decoded by it."""
    if declared_row(record) is not record:
        return record
    fields = {"before": ["null", record], "after": ["null", record["name"]], "op": "string", "ts_ms": "long"}
    return {"type": "record", "name": "event", "fields": [{"name": one, "type": fields[one]} for one in fields]}


def _columns(shape: ChangeShape, written: Mapping[str, Travel]) -> list[tuple[str, Travel, str | None]]:
    """The columns of the shape that were written: how they travel, and the type that narrower ones are cast to."""
    found = []
    for name, ours in shape.columns:
        if name not in written:
            continue
        theirs = written[name]
        widens = theirs.landing != ours.landing
        found.append((name, ours if widens else theirs, _SPARK_TYPES[ours.raw] if widens else None))
    return found


def _row(given: Column, columns: list[tuple[str, Travel, str | None]]) -> Column:
    cells = [(given[name] if wider is None else given[name].cast(wider)).alias(name) for name, _, wider in columns]
    return F.when(given.isNotNull(), F.struct(*cells))


def _key_row(raw: DataFrame, shape: ChangeShape, keys: Writers) -> Column:
    """The key's columns out of a record's key; null where it cannot be decoded."""
    key = F.col("_key_bytes")
    if keys.by_id is None:
        return _decoded_key(key, shape, keys.bare)
    is_framed = ~holds_id_in_header(raw, "key") & (F.substring(key, 1, 1) == F.lit(bytes(1)))
    body = body_of(key)
    found = [
        _decoded_key(F.when(is_framed & (schema_id_of(key) == schema_id), body), shape, record)
        for schema_id, record in keys.by_id.items()
    ]
    return F.coalesce(*found, F.lit(None)) if found else F.lit(None)


def _decoded_key(body: Column, shape: ChangeShape, record: Mapping[str, Any]) -> Column:
    read = _decoded(body, record)
    of_key = ChangeShape(tuple((name, travel) for name, travel in shape.columns if name in shape.key), shape.key)
    columns = _columns(of_key, dict(travels(record)))
    row = _row(read["m"], columns)
    landed = [land_raw(row[name], travel).value.alias(name) for name, travel, _ in columns]
    return F.when(read["tail"] == F.lit(SENTINEL), F.struct(*landed))


def _decoded(body: Column, record: Mapping[str, Any]) -> Column:
    """A body as a struct of the record `m` and the `tail` behind it."""
    tail = {"type": "fixed", "name": "tail", "size": len(SENTINEL)}
    fields = [{"name": "m", "type": without_logical_types(record)}, {"name": "tail", "type": tail}]
    schema = json.dumps({"type": "record", "name": "message", "fields": fields})
    return from_avro(F.concat(body, F.lit(SENTINEL)), schema, {"mode": "PERMISSIVE"})


def _field(record: Mapping[str, Any], name: str) -> Any:
    return next((one["type"] for one in record["fields"] if one["name"] == name), None)


def _record_in(kind: Any) -> Mapping[str, Any]:
    branches = kind if isinstance(kind, list) else [kind]
    return next((one for one in branches if isinstance(one, dict) and one.get("type") == "record"), {})
