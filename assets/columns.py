"""The columns of tables as Dagster shows them: names, SQL types, and the descriptions in the schemas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dagster import TableColumn, TableColumnConstraints, TableSchema

from tidelake.errors import SchemaRefused
from tidelake.schema.columns import Array, Branches, Column, ColumnType, Primitive, Struct
from tidelake.schema.connect import declared_row
from tidelake.schema.types import scalar_type
from tidelake.settings.collection import CollectionSettings

_SQL = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "fixed": "BINARY",
    "string": "STRING",
    "enum": "STRING",
    "date": "DATE",
    "timestamp-millis": "TIMESTAMP",
    "timestamp-micros": "TIMESTAMP",
}
_LONG, _TEXT = Primitive("long"), Primitive("string")
TIME = Column("_time", _LONG, nullable=False)
DIFF = Column("_diff", _LONG, nullable=False)
RUN = Column("_run", _TEXT, nullable=False)
POSITIONED = (
    Column("_position", Array(Column("item", _LONG, nullable=False)), nullable=True),
    Column("_unavailable", Array(Column("item", _TEXT, nullable=False)), nullable=True),
    Column("_error", _TEXT, nullable=True),
)
"""The other system columns of positioned rows. The order in `updates/` is `_time`, `_diff`, these, data, `_run`."""
MEANINGS = {
    "_time": "The logical time of an update.",
    "_diff": "How many times the data is added; a negative number removes it.",
    "_run": "The set of files that holds the row; readers ignore it.",
    "_position": "The position of the record in the order of its source.",
    "_unavailable": "The columns whose value the source did not send.",
    "_error": "Why the value of the key is unknown.",
}


def table_schema(columns: Iterable[Column], docs: Mapping[str, str], meanings: Mapping[str, str]) -> TableSchema:
    """Return the columns of a table.

    Args:
        columns: the columns, in the order of the table.
        docs: the descriptions of the columns of the data.
        meanings: the descriptions of the other columns.
    """
    return TableSchema(
        columns=[
            TableColumn(
                column.name,
                sql_type(column.type),
                description=meanings.get(column.name) or docs.get(column.name),
                constraints=TableColumnConstraints(nullable=column.nullable),
            )
            for column in columns
        ]
    )


def sql_type(kind: ColumnType) -> str:
    """Return the SQL type of a column.

    >>> sql_type(Primitive("bytes", "decimal", 12, 2)), sql_type(Array(Column("item", Primitive("int"), False)))
    ('DECIMAL(12,2)', 'ARRAY<INT>')
    """
    match kind:
        case Struct(columns) | Branches(columns):
            return f"STRUCT<{', '.join(f'{column.name}: {sql_type(column.type)}' for column in columns)}>"
        case Array(item):
            return f"ARRAY<{sql_type(item.type)}>"
    scalar = scalar_type(kind.name, kind.logical)
    if scalar.logical == "decimal":
        return f"DECIMAL({kind.precision},{kind.scale or 0})"
    return _SQL[scalar.logical or scalar.base]


def docs_of(settings: CollectionSettings) -> dict[str, str]:
    """Return the `doc` of each column in a collection's schema; empty if the settings have no schema."""
    schema: Any = settings.value_schema
    if settings.terms.of_changes and schema:
        try:
            schema = declared_row(schema)
        except SchemaRefused:
            return {}
    fields = schema.get("fields", []) if isinstance(schema, dict) else []
    return {
        field["name"]: field["doc"]
        for field in fields
        if isinstance(field, dict) and isinstance(field.get("doc"), str) and isinstance(field.get("name"), str)
    }
