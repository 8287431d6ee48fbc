"""Change events as Debezium writes them: from the bytes of a record to rows of the positioned form, on the JVM.

The position of an event is its place in the source's own order. Of PostgreSQL that is the end of the transaction that
was committed before its own (`source.sequence`), then its place in the log (`source.lsn`): transactions overlap in the
log, and arrive whole, in the order of their commits. What is read after a snapshot lies above it, though it may have
been written before. See docs/decisions/positions.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from tidelake.connect_types import Travel
from tidelake.delta.connect_values import (
    Landed,
    is_unavailable_raw,
    is_unavailable_text,
    land_raw,
    land_text,
)
from tidelake.delta.json_format import breakage_of, read_object, refusal_of
from tidelake.delta.layout import DIFF, ERROR, POSITION, TIME, UNAVAILABLE
from tidelake.delta.parameters import parameter
from tidelake.raw_configuration import UNAVAILABLE_VALUE

POSTGRESQL = "postgresql"
_CORRUPT = "_corrupt"
_IN_SNAPSHOT = ("true", "first", "first_in_data_collection", "last_in_data_collection", "last")
SNAPSHOT_ENDS = ("last_in_data_collection", "last")
_JSON_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "allowSingleQuotes": "false"}
_SOURCE = ("connector", "lsn", "sequence", "snapshot")


@dataclass(frozen=True)
class ChangeShape:
    """What the events of one collection are about."""

    columns: tuple[tuple[str, Travel], ...]
    """Of a row."""
    key: tuple[str, ...]
    position: tuple[str, ...] = ()
    """Paths of numbers in an event that order events of one key, such as `source.pos`; PostgreSQL needs none."""
    placeholder: str = UNAVAILABLE_VALUE
    refused_schemas: Mapping[int, str] = field(default_factory=dict)
    """JSON: by the hash of a schema that messages have with them, why they cannot be read."""
    more: dict[str, Column] = field(default_factory=dict)
    """Further columns of the table, from those of raw records."""


@dataclass(frozen=True)
class SnapshotStart:
    """One initial snapshot that a connector took: its place in the log, and when it was read."""

    lsn: int
    processed_ms: int


@dataclass(frozen=True)
class Reader:
    """How the values of rows are read: as JSON's text, or as what Avro has decoded."""

    columns: tuple[tuple[str, Travel], ...]
    """Those that were written; the shape may have more, which are null."""
    of_text: bool = True
    key_row: Column | None = None
    """Of Avro: the key's columns out of the record's key, where that is decoded."""

    def land(self, given: Column, travel: Travel) -> Landed:
        """Turn a value into what lands."""
        return land_text(given, travel) if self.of_text else land_raw(given, travel)

    def is_unavailable(self, given: Column, travel: Travel, placeholder: str) -> Column:
        """Whether it stands for a value that was not sent."""
        if self.of_text:
            return is_unavailable_text(given, travel, placeholder)
        return is_unavailable_raw(given, travel, placeholder)


def event_struct(given: Column, rows: Sequence[Column], source: Column) -> Column:
    """The parts of an event that say something, with its rows `before` and `after`."""
    return F.struct(
        *rows, source.alias("source"), *(given[name].cast("string").alias(name) for name in ("op", "ts_ms"))
    )


def read_changes(raw: DataFrame, shape: ChangeShape) -> DataFrame:
    """Read change events from JSON, with or without their schema around them.

    In:  topic, partition, offset, key and value binary, any others.
    Out: the same, and
         _kind: `value`, `delete`, `barrier` (a truncate), `tombstone` (a null value, which only tells Kafka to forget);
         null where the record cannot be used at all.
         _row struct: of a value the row, of a delete its key; null fields where they cannot be had.
         _error string: why the row of this key cannot be had, or null.
         _unavailable array<string>: the columns without a value of their own, or null.
         _left struct: the key that the row had before, where it has another one now; null else.
         _reason, _detail string: why the record is of no use at all, or null.
         _connector string, _committed bigint (where the transaction before has ended), _lsn bigint, _snapshot boolean,
         _snapshot_ends boolean, _processed_ms bigint, _declared array<bigint> (null unless the shape names them).
    """
    fields = StructType([StructField(name, StringType()) for name, _ in shape.columns])
    keys = StructType([StructField(name, StringType()) for name in shape.key])
    event = StructType(
        [
            StructField("before", keys),
            StructField("after", fields),
            StructField("source", StructType([StructField(name, StringType()) for name in source_fields(shape)])),
            StructField("op", StringType()),
            StructField("ts_ms", StringType()),
        ]
    )
    whole = StructType([*event.fields, StructField("payload", event)])
    key = StructType([*keys.fields, StructField("payload", keys), StructField(_CORRUPT, StringType())])
    text, key_text = F.col("value").cast("string"), F.col("key").cast("string")
    read = raw.withColumn("_given", read_object(text, whole.simpleString()))
    broken = F.coalesce(refusal_of(text, shape.refused_schemas), breakage_of(text, F.col("_given")))
    read = read.withColumn("_broken", F.when(F.col("value").isNotNull(), broken))
    given, parts = F.col("_given.v")[0], [one.name for one in event]
    bare = F.struct(*(given[name].alias(name) for name in parts))
    read = read.withColumn("_event", F.when(given["payload"].isNotNull(), given["payload"]).otherwise(bare))
    # The key of a record is only read where the event itself does not tell the row's.
    told_keys = [F.col(f"_event.after.{name}").isNotNull() for name in shape.key]
    is_told = F.col("_broken").isNull() & reduce(lambda one, other: one & other, told_keys)
    needed = F.when(~F.coalesce(is_told, F.lit(False)), key_text)
    read = read.withColumn("_keys", F.from_json(needed, key, _JSON_OPTIONS))
    return told(read, shape, Reader(shape.columns)).drop("_given", "_broken", "_event", "_keys")


def source_fields(shape: ChangeShape) -> list[str]:
    """The fields of `source` that say something."""
    declared = [path.partition(".")[2] for path in shape.position if path.startswith("source.")]
    return list(dict.fromkeys([*_SOURCE, *declared]))


def told(read: DataFrame, shape: ChangeShape, reader: Reader) -> DataFrame:
    """What an event says, from `_event`, `_broken` (why it cannot be read, or null), and the texts of `_keys`.

    Out: what `read_changes` gives, and what came in.
    """
    broken = F.col("_broken").isNotNull()
    op, after, source = F.col("_event.op"), F.col("_event.after"), F.col("_event.source")
    kind = (
        F.when(F.col("value").isNull(), F.lit("tombstone"))
        .when(broken, F.lit("value"))
        .when(op.isin("c", "u", "r"), F.lit("value"))
        .when(op == "d", F.lit("delete"))
        .when(op == "t", F.lit("barrier"))
    )
    landed = {name: reader.land(after[name], travel) for name, travel in reader.columns}
    lacks = {
        name: reader.is_unavailable(after[name], travel, shape.placeholder)
        for name, travel in reader.columns
        if name not in shape.key
    }
    keys = _keys_of(shape, reader)
    is_value, is_row = F.col("_kind") == "value", (F.col("_kind") == "value") & ~broken
    row = F.struct(*(_value_of(name, landed, lacks, keys, is_row).alias(name) for name, _ in shape.columns))
    found = read.withColumn("_kind", kind)
    error = F.when(broken, F.concat(F.lit("the event cannot be read: "), F.col("_broken"))).when(
        is_row, _fault(shape, landed, lacks, after)
    )
    key_of_row = F.struct(*(F.col(f"_row.{name}") for name in shape.key))
    keyless = reduce(lambda one, other: one | other, [F.col(f"_row.{name}").isNull() for name in shape.key])
    unavailable = F.filter(
        F.array(*(F.when(one, F.lit(name)) for name, one in lacks.items())), lambda name: name.isNotNull()
    )
    found = found.select(
        "*",
        row.alias("_row"),
        error.alias("_error"),
        F.when(is_row & (F.size(unavailable) > 0), unavailable).alias("_unavailable"),
        _before_keys(shape, reader).alias("_before_key"),
        source["connector"].alias("_connector"),
        F.regexp_extract(source["sequence"], r'^\["([0-9]+)"', 1).try_cast("bigint").alias("_committed"),
        source["lsn"].try_cast("bigint").alias("_lsn"),
        F.coalesce(source["snapshot"].isin(*_IN_SNAPSHOT) & (op == "r"), F.lit(False)).alias("_snapshot"),
        F.coalesce(source["snapshot"].isin(*SNAPSHOT_ENDS), F.lit(False)).alias("_snapshot_ends"),
        F.col("_event.ts_ms").try_cast("bigint").alias("_processed_ms"),
        _declared_position(shape).alias("_declared"),
    )
    reason = (
        F.when(F.col("_kind").isNull(), F.lit("unknown_operation"))
        .when(F.col("_kind").isin("value", "delete") & keyless, F.lit("no_key"))
        .when((F.col("_kind") == "value") & ~broken & after.isNull(), F.lit("no_row"))
    )
    left = F.col("_before_key")
    has_left = (op == "u") & is_value & left.isNotNull() & ~_same(left, key_of_row, shape.key)
    return found.select(
        "*",
        F.when(has_left, left).alias("_left"),
        reason.alias("_reason"),
        F.when(F.col("_kind").isNull(), F.concat(F.lit("op is "), F.coalesce(op, F.lit("not there"))))
        .otherwise(F.col("_broken"))
        .alias("_detail"),
    ).drop("_before_key")


def _keys_of(shape: ChangeShape, reader: Reader) -> dict[str, Column]:
    """By key column its value as the record's key has it, or what stood before."""
    travels, before = dict(reader.columns), F.col("_event.before")
    if not reader.of_text:
        stated = {name: reader.land(before[name], travels[name]).value for name in shape.key}
        if reader.key_row is None:
            return stated
        return {name: F.coalesce(reader.key_row[name], value) for name, value in stated.items()}
    return {
        name: land_text(
            F.coalesce(F.col(f"_keys.payload.{name}"), F.col(f"_keys.{name}"), before[name]), travels[name]
        ).value
        for name in shape.key
    }


def _before_keys(shape: ChangeShape, reader: Reader) -> Column:
    """The key before the change; null where it is not told in full."""
    travels, before = dict(reader.columns), F.col("_event.before")
    values = {name: reader.land(before[name], travels[name]).value for name in shape.key}
    told = reduce(lambda one, other: one & other, [value.isNotNull() for value in values.values()])
    return F.when(told, F.struct(*(value.alias(name) for name, value in values.items())))


def _value_of(
    name: str, landed: dict[str, Landed], lacks: dict[str, Column], keys: dict[str, Column], is_row: Column
) -> Column:
    if name not in landed:
        return F.lit(None)
    value = landed[name].value
    if name in keys:
        return F.when(is_row, F.coalesce(value, keys[name])).otherwise(keys[name])
    return F.when(is_row & ~lacks[name], value)


def _fault(shape: ChangeShape, landed: dict[str, Landed], lacks: dict[str, Column], after: Column) -> Column:
    """What is wrong with a row, by column; null where nothing is."""
    faults = []
    for name, travel in shape.columns:
        if name not in landed:  # may be null, and was not written
            continue
        told = ~lacks.get(name, F.lit(False))
        faults.append(F.when(told & landed[name].bad, F.lit(f"{name} cannot be read as {_named(travel)}")))
        if not travel.nullable and name not in shape.key:
            faults.append(F.when(told & after[name].isNull(), F.lit(f"{name} is missing, and is not null")))
    text = F.concat_ws("; ", *faults)
    return F.when(text != "", text)


def _named(travel: Travel) -> str:
    return travel.raw if travel.turn == "as_is" else f"{travel.turn.replace('_', ' ')} ({travel.raw})"


def _declared_position(shape: ChangeShape) -> Column:
    """The declared numbers; those of texts like `binlog.000012` are their last digits."""
    if not shape.position:
        return F.lit(None).cast("array<bigint>")
    numbers = []
    for path in shape.position:
        text = F.col(f"_event.{path}")
        digits = F.regexp_extract(text, r"([0-9]+)$", 1)
        numbers.append(F.coalesce(text.try_cast("bigint"), digits.try_cast("bigint")))
    whole = reduce(lambda one, other: one & other, [one.isNotNull() for one in numbers])
    return F.when(whole, F.array(*numbers))


def position_of(snapshots: Sequence[SnapshotStart]) -> Column:
    """The position of what `read_changes` gives; null where it is not told.

    Args:
        snapshots: the initial snapshots that are known; what a connector has processed since one lies above it.
    """
    above = F.greatest(
        F.lit(None).cast("bigint"),
        F.lit(None).cast("bigint"),
        *(F.when(F.col("_processed_ms") >= one.processed_ms, F.lit(one.lsn)) for one in snapshots),
    )
    committed = F.greatest(F.coalesce(F.col("_committed"), above, F.col("_lsn")), above)
    streamed = F.array(committed, F.col("_lsn"), F.col("offset"))
    stated = F.array(F.col("_lsn"), F.lit(0).cast("bigint"), F.col("offset"))
    source = F.when(F.col("_lsn").isNotNull(), F.when(F.col("_snapshot"), stated).otherwise(streamed))
    declared = F.concat(F.col("_declared"), F.array(F.col("offset")))
    return F.when(F.col("_declared").isNotNull(), declared).when(F.col("_connector") == POSTGRESQL, source)


def change_rows(changes: DataFrame, shape: ChangeShape, time: int) -> DataFrame:
    """Turn change events into rows of the positioned form.

    In:  what `read_changes` gives, with _position. A tombstone, and a record with a reason or no position, gives none.
    Out: the table's columns. A change of a row's key is a delete and a value.
    """
    kind, error = F.col("_kind"), F.col("_error")
    # Not a filter: Spark would push it down and read each record once more for each column that it names.
    good = F.col("_reason").isNull() & F.col(POSITION).isNotNull() & (kind != "tombstone")
    in_error = (kind == "value") & error.isNotNull()
    whole = (kind == "value") & error.isNull()
    sign = F.when(kind == "value", 1).when(kind == "delete", -1).otherwise(0)
    names = [name for name, _ in shape.columns]

    def row(data: dict[str, Column], diff: Column, kept: Column) -> Column:
        return F.struct(
            parameter(time, F.col("offset")).alias(TIME),
            diff.cast("bigint").alias(DIFF),
            F.col(POSITION).alias(POSITION),
            F.when(kept, F.col("_unavailable")).alias(UNAVAILABLE),
            F.when(kept & in_error, error).alias(ERROR),
            *(data[name].alias(name) for name in names),
            *(F.when(whole & kept, value).alias(name) for name, value in shape.more.items()),
        )

    stated = {
        name: F.when(kind != "barrier", F.col(f"_row.{name}"))
        if name in shape.key
        else F.when(whole, F.col(f"_row.{name}"))
        for name in names
    }
    absent = {name: F.col(f"_row.{name}") for name in names}
    left = {name: F.col(f"_left.{name}") if name in shape.key else F.when(F.lit(False), absent[name]) for name in names}
    first = F.when(good, row(stated, sign, F.lit(True)))
    second = F.when(good & F.col("_left").isNotNull(), row(left, F.lit(-1), F.lit(False)))
    both = F.filter(F.array(first, second), lambda one: one.isNotNull())
    return changes.select(F.explode(both).alias("_stated")).select("_stated.*")


def _same(left: Column, right: Column, key: Sequence[str]) -> Column:
    return reduce(lambda one, other: one & other, [left[name].eqNullSafe(right[name]) for name in key])
