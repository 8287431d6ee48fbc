"""The shape of one collection's change events, and the reader of the values in its rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidelake.decode.debezium.columns import SCHEMA
from tidelake.decode.debezium.values import Landed, is_unavailable_raw, is_unavailable_text, land_raw, land_text
from tidelake.schema.connect import WireType
from tidelake.settings.source import UNAVAILABLE_VALUE

_SOURCE_FIELDS = ("connector", "lsn", "sequence", "snapshot")
_TABLE_FIELDS = ("schema", "table")


@dataclass(frozen=True)
class ChangeShape:
    """The shape of one collection's change events.

    Columns are cached by the `repr` of the shape (see `tidelake.spark.column_cache`), which shows every field in full.

    Args:
        columns: the wire types of a row's columns.
        key: the columns that identify a row; if there are none, an event removes the row `before`, and adds the row
            `after`.
        position: the paths of the numbers in an event that order the events of a key, such as `source.pos`; not needed
            for PostgreSQL.
        placeholder: Debezium's placeholder for a value that was not sent.
        refused_schemas: JSON: why messages cannot be read, by the hash of their embedded schema.
        unreadable_keys: JSON: the hashes of the refused schemas whose keys cannot be read either.
        written: JSON: by the hash of the schema, the columns whose wire types differ from the collection's.
        schema_lengths: JSON: the lengths of known schemas; see `tidelake.decode.json.schema_hash`.
        metadata: further columns of the table, each with the kind of metadata that it holds.
        transactions: whether the transactions of events are read.
    """

    columns: tuple[tuple[str, WireType], ...]
    key: tuple[str, ...]
    position: tuple[str, ...] = ()
    placeholder: str = UNAVAILABLE_VALUE
    refused_schemas: Mapping[int, str] = field(default_factory=dict)
    unreadable_keys: tuple[int, ...] = ()
    written: Mapping[int, Mapping[str, WireType]] = field(default_factory=dict)
    schema_lengths: Mapping[int, int] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    transactions: bool = False

    @property
    def before_columns(self) -> tuple[str, ...]:
        """The columns that are read from the row before a change: those of the key or, without a key, all."""
        return self.key or tuple(name for name, _ in self.columns)

    @property
    def source_fields(self) -> list[str]:
        """The fields of `source` that are read."""
        declared = [path.partition(".")[2] for path in self.position if path.startswith("source.")]
        of_table = _TABLE_FIELDS if self.transactions else ()
        return list(dict.fromkeys([*_SOURCE_FIELDS, *of_table, *declared]))


@dataclass(frozen=True)
class RowReader:
    """How the values of rows are read: from JSON text, or from decoded Avro.

    Args:
        columns: the written columns; the other columns of the shape are null.
        reads_text: whether the values are JSON text.
        has_key_row: Avro: whether `_key_row` has the key's columns from the record's key.
        stated_key: JSON: for each column of the key, the paths in `_keys` where its text may be; the first value that
            is not null is used. Empty if `_keys` is not read.
        plain: JSON: the wire types whose values were read with their own type, not as text; see
            `tidelake.decode.debezium.fast_json`. If there are any, only `_wrong` shows that a value cannot be read.
        written: see `ChangeShape`.
    """

    columns: tuple[tuple[str, WireType], ...]
    reads_text: bool = True
    has_key_row: bool = False
    stated_key: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    plain: frozenset[str] = frozenset()
    written: Mapping[int, Mapping[str, WireType]] = field(default_factory=dict)

    def land(self, value: Column, name: str, wire: WireType) -> Landed:
        """Convert the value of a column to the column's type."""
        is_text = self.reads_text and is_read_as_text(wire, self.plain)
        land = land_text if is_text else land_raw
        landed = land(value, wire)
        for hashed, columns in self.written.items():
            if name not in columns:
                continue
            has_schema = F.coalesce(F.col(SCHEMA) == hashed, F.lit(False))
            if not is_text and columns[name].name != wire.name:  # a different wire type is not read on the fast path
                landed = Landed(F.when(~has_schema, landed.value), landed.bad | (has_schema & value.isNotNull()))
                continue
            other = land(value, columns[name])
            landed = Landed(
                F.when(has_schema, other.value).otherwise(landed.value),
                F.when(has_schema, other.bad).otherwise(landed.bad),
            )
        return landed

    def is_unavailable(self, value: Column, wire: WireType, placeholder: str) -> Column:
        """Return whether a value is the placeholder for a value that was not sent."""
        if self.reads_text:
            return is_unavailable_text(value, wire, placeholder)
        return is_unavailable_raw(value, wire, placeholder)


def is_read_as_text(wire: WireType, plain: Collection[str]) -> bool:
    """Return whether a JSON value is read as text: if its wire type is not in `plain`, or it becomes a decimal."""
    return wire.name not in plain or wire.conversion == "decimal_text"
