"""The schema of published data: the columns of a collection's contents, in Avro.

Any two publishers must write the same bytes for equal data, because readers identify data by its bytes. So dates and
timestamps are encoded as their integers, all zeros are written without a sign, and all NaNs with the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from tidelake.decode.types import spark_type
from tidelake.plugins.envelope import envelope_of
from tidelake.schema.avro import cdcv2_schema
from tidelake.schema.columns import Array, Branches, Column, ColumnType, Primitive, Struct, column_types
from tidelake.schema.types import DECIMAL, Family, ScalarType, scalar_type
from tidelake.store.entry import Entry


def record_schema_of_contents(entry: Entry) -> dict[str, Any]:
    """Return the Avro schema of a row of a collection's contents, as the schema of `data`.

    The types are those of the stored columns: an enum is a string, a fixed type is bytes, a timestamp has microseconds,
    and a union of several branches is a record with one nullable field for each branch. If rows have positions, every
    column outside the key may be null, because a source may leave out a value.

    Raises:
        SchemaRefused: the protocol's schema cannot hold the row.
    """
    columns = envelope_of(entry.envelope).contents_types(entry)
    fields = []
    for column in columns:
        nullable = column.nullable or (entry.positioned and column.name not in entry.key)
        fields.append(_field(Column(column.name, column.type, nullable), f"data_{column.name}"))
    record = {"type": "record", "name": "data", "fields": fields}
    cdcv2_schema(record)
    return record


def with_new_columns(record_schema: dict[str, Any], entry: Entry) -> dict[str, Any] | None:
    """Return the schema of published data with the columns that a collection has since gained; None if there are none.

    New columns may be null, with null as the default, so that a reader with this schema can read data
    written with the previous schema: a row without a column equals the row with null.
    """
    known = column_names(record_schema)
    fields = record_schema_of_contents(entry)["fields"]
    added = [field | {"default": None} for field in fields if field["name"] not in known]
    return {**record_schema, "fields": [*record_schema["fields"], *added]} if added else None


def _field(column: Column, path: str) -> dict[str, Any]:
    kind = _avro(column.type, path)
    return {"name": column.name, "type": ["null", kind]} if column.nullable else {"name": column.name, "type": kind}


def _avro(kind: ColumnType, path: str) -> Any:
    match kind:
        case Struct(columns) | Branches(columns):
            return {
                "type": "record",
                "name": path,
                "fields": [_field(column, f"{path}_{column.name}") for column in columns],
            }
        case Array(item):
            items = _avro(item.type, f"{path}_item")
            return {"type": "array", "items": ["null", items] if item.nullable else items}
    scalar = scalar_type(kind.name, kind.logical)
    if scalar.family is Family.DECIMAL:
        return {"type": "bytes", "logicalType": DECIMAL, "precision": kind.precision, "scale": kind.scale or 0}
    if scalar.logical.startswith("timestamp-"):
        return {"type": "long", "logicalType": "timestamp-micros"}
    if scalar.logical:
        return {"type": scalar.base, "logicalType": scalar.logical}
    return {Family.SYMBOL: "string", Family.BINARY: "bytes"}.get(scalar.family, scalar.base)


def update_schema(record_schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with which Spark encodes one update.

    It encodes to the same bytes as the protocol's `update`, but has no logical types other than decimals: Spark gets
    the integers of dates and timestamps.
    """
    update = cdcv2_schema(record_schema)[0]["items"]
    data = _without_times(record_schema)
    return {**update, "fields": [{"name": "data", "type": data}, *update["fields"][1:]]}


def _without_times(kind: Any) -> Any:
    if isinstance(kind, list):
        return [_without_times(branch) for branch in kind]
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "record":
        return {**kind, "fields": [{**field, "type": _without_times(field["type"])} for field in kind["fields"]]}
    if kind["type"] == "array":
        return {**kind, "items": _without_times(kind["items"])}
    return kind if kind.get("logicalType") == DECIMAL else kind["type"]


def data_struct(record_schema: dict[str, Any]) -> SparkColumn:
    """Return the data of a row as the struct that `update_schema` encodes, built from columns of the same names."""
    columns = column_types(record_schema)
    return F.struct(*(_canonical(F.col(f"`{column.name}`"), column.type).alias(column.name) for column in columns))


def _canonical(value: SparkColumn, kind: ColumnType) -> SparkColumn:
    """Return the value that is encoded for a column; equal values become identical."""
    if not _changes(kind):
        return value
    match kind:
        case Struct(columns) | Branches(columns):
            parts = [_canonical(value[column.name], column.type).alias(column.name) for column in columns]
            return F.when(value.isNotNull(), F.struct(*parts))
        case Array(item):
            return F.transform(value, lambda each: _canonical(each, item.type))
    scalar = scalar_type(kind.name, kind.logical)
    if scalar.family is Family.REAL:
        sql = spark_type(scalar).sql
        nan = F.lit(float("nan")).cast(sql)
        return F.when(F.isnan(value), nan).when(value == 0, F.lit(0).cast(sql)).otherwise(value)
    encoded = spark_type(_stored(scalar)).encoded
    assert encoded is not None
    return encoded(value)


def _changes(kind: ColumnType) -> bool:
    match kind:
        case Struct(columns) | Branches(columns):
            return any(_changes(column.type) for column in columns)
        case Array(item):
            return _changes(item.type)
    assert isinstance(kind, Primitive)
    scalar = scalar_type(kind.name, kind.logical)
    return scalar.family is Family.REAL or spark_type(_stored(scalar)).encoded is not None


def _stored(scalar: ScalarType) -> ScalarType:
    """Return the type that a column of this type is published as."""
    return scalar_type("long", "timestamp-micros") if scalar.logical.startswith("timestamp-") else scalar


def column_names(record_schema: dict[str, Any]) -> Sequence[str]:
    """Return the names of the columns of a record schema."""
    return [column.name for column in column_types(record_schema)]
