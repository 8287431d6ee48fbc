"""Change events in Avro: the bare body of one event, or one behind Confluent's five bytes, each by its writer's schema.

Logical types are left out of the decoding, so that what travels comes as it is; `connect_values` turns it into what
lands. The key of a record is not decoded: an event in Avro tells the key of what it deletes in `before`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from tidelake.connect_types import declared_row, travels
from tidelake.delta.decode import MAGIC_BYTES, SENTINEL, without_logical_types
from tidelake.delta.raw_debezium import ChangeShape, Reader, event_struct, source_fields, told

_FOUND = "_schema_id"


def read_avro_changes(
    raw: DataFrame, shape: ChangeShape, bare: Mapping[str, Any], writers: Mapping[int, Mapping[str, Any]] | None
) -> DataFrame:
    """Read change events from Avro.

    In, out: as with `raw_debezium.read_changes`.

    Args:
        raw: the records.
        shape: what the events are about.
        bare: the event's record, for bare bodies.
        writers: Confluent framing: by schema id, the event's record that was written; None means bare.
    """
    if writers is None:
        return _read(raw.withColumn("_body", F.col("value")), shape, bare, F.lit(None).cast("string"))
    value = F.col("value")
    framed = raw.withColumn("_body", F.substring(value, MAGIC_BYTES + 1, 2**31 - 1)).withColumn(
        _FOUND, F.conv(F.hex(F.substring(value, 2, 4)), 16, 10).cast("bigint")
    )
    wrong = F.when(
        value.isNotNull(),
        F.when(F.substring(value, 1, 1) != F.lit(bytes(1)), F.lit("wrong_magic_byte"))
        .when(F.length(value) < MAGIC_BYTES, F.lit("undecodable"))
        .when(~F.col(_FOUND).isin(list(writers)), F.lit("unknown_schema_id")),
    )
    parts = []
    for place, (schema_id, record) in enumerate(writers.items()):
        mine = wrong.isNull() & (F.col(_FOUND) == schema_id)
        # What nobody has written, and records without a value, go with the first.
        taken = F.coalesce(mine, F.lit(False)) | (wrong.isNotNull() | value.isNull() if place == 0 else F.lit(False))
        parts.append(_read(framed.where(taken), shape, record, wrong).drop(_FOUND))
    return reduce(DataFrame.unionByName, parts)


def _read(raw: DataFrame, shape: ChangeShape, record: Mapping[str, Any], wrong: Column) -> DataFrame:
    """Decode the events of one writer's schema; `wrong` says why a record is none, or is null."""
    body = F.when(wrong.isNull() & F.col("value").isNotNull(), F.concat(F.col("_body"), F.lit(SENTINEL)))
    tail = {"type": "fixed", "name": "tail", "size": len(SENTINEL)}
    fields = [{"name": "m", "type": without_logical_types(record)}, {"name": "tail", "type": tail}]
    schema = json.dumps({"type": "record", "name": "message", "fields": fields})
    read = raw.withColumn("_given", from_avro(body, schema, {"mode": "PERMISSIVE"}))
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
    read = read.withColumn("_event", event_struct(given, source))
    columns = dict(travels(declared_row(record)))
    reader = Reader(tuple((name, columns[name]) for name, _ in shape.columns), of_text=False)
    return told(read, shape, reader).drop("_given", "_broken", "_event", "_body")


def _field(record: Mapping[str, Any], name: str) -> Any:
    return next((one["type"] for one in record["fields"] if one["name"] == name), None)


def _record_in(kind: Any) -> Mapping[str, Any]:
    branches = kind if isinstance(kind, list) else [kind]
    return next((one for one in branches if isinstance(one, dict) and one.get("type") == "record"), {})
