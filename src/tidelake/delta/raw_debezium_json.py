"""Change events in JSON, with or without their schema around them, read so that everything that does not fit is named.

A value is read as the text that stands there, and turned into what it should be by `raw_debezium.told`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.delta.decode import reason_by
from tidelake.delta.json_format import (
    CORRUPT,
    breakage_of,
    holds_half_a_pair,
    is_wrapped,
    read_object,
    schema_hash,
)
from tidelake.delta.raw_debezium import SCHEMA, ChangeShape, Reader, read_as_text, source_fields, tells_row, told

_JSON_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "allowSingleQuotes": "false"}
_PARTS = ("before", "after", "source", "op", "ts_ms")


def read_changes(raw: DataFrame, shape: ChangeShape) -> DataFrame:
    """Read change events from JSON, with or without their schema around them.

    In:  topic, partition, offset, key and value binary, any others.
    Out: what `raw_debezium.told` gives, without _event, _broken and _empty; and _schema bigint: the hash of the schema
         around it, or null.
    """
    text = F.col("value").cast("string")
    read = raw.withColumn("_given", read_object(text, event_ddl(shape)))
    given = F.col("_given.v")[0]
    read = read.withColumns({SCHEMA: schema_around(given, shape, F.col("value")), "_event": event_of(given)})
    halves = F.when(reads_half_letters(F.col("_event"), shape, text), F.lit("undecodable"))
    broken = F.coalesce(
        reason_by(F.col(SCHEMA), shape.refused_schemas), breakage_of(text, F.col("_given"), letters=False), halves
    )
    read = read.withColumn("_broken", F.when(text.isNotNull(), broken))
    read = read.withColumn("_empty", text.isNull() | (F.col("_broken").isNull() & _is_wrapped_null(text, given)))
    # The key of a record is only read where the event itself does not tell the row's.
    is_told = F.col("_broken").isNull() & tells_row(F.col("_event.op"), F.col("_event.after"), shape)
    key_text = F.col("key").cast("string")
    needed = F.when(~F.coalesce(is_told, F.lit(False)) & ~holds_half_a_pair(key_text), key_text)
    read, stated = _with_stated_key(read, needed, shape)
    reader = Reader(shape.columns, stated_key=stated, written=shape.written)
    return told(read, shape, reader).drop("_given", "_keys", "_broken", "_event", "_empty")


def _with_stated_key(read: DataFrame, text: Column, shape: ChangeShape) -> tuple[DataFrame, dict[str, Column]]:
    """The record's key in `_keys`, and the texts of its columns, with or without a schema around them."""
    keys = [(name, "string") for name in shape.key]
    if "payload" in shape.key:
        inside = F.get_json_object(text, "$.payload")
        text = F.when(is_wrapped(text, ()) & inside.startswith("{"), inside).otherwise(text)
        read = read.withColumn("_keys", F.from_json(text, _struct([*keys, (CORRUPT, "string")]), _JSON_OPTIONS))
        return read, {name: F.col(f"_keys.{name}") for name in shape.key}
    key = _struct([*keys, ("payload", _struct(keys)), (CORRUPT, "string")])
    read = read.withColumn("_keys", F.from_json(text, key, _JSON_OPTIONS))
    return read, {name: F.coalesce(F.col(f"_keys.payload.{name}"), F.col(f"_keys.{name}")) for name in shape.key}


def schema_around(given: Column, shape: ChangeShape, value: Column) -> Column:
    """The hash of the schema around an event that was read as `event_ddl` of this value; null where it has none."""
    return F.when(given["payload"].isNotNull(), schema_hash(value, shape.schema_lengths))


def _is_wrapped_null(text: Column, given: Column) -> Column:
    """Whether it is a schema around no value, which is how a converter may write a tombstone; never null."""
    parsed = F.try_parse_json(text)
    has_schema = F.try_variant_get(parsed, "$.schema", "variant").isNotNull()
    is_null = F.is_variant_null(F.try_variant_get(parsed, "$.payload", "variant"))
    says_nothing = given["op"].isNull() & given["payload"].isNull()
    return F.when(says_nothing, F.coalesce(has_schema & is_null, F.lit(False))).otherwise(False)


def event_ddl(shape: ChangeShape, plain: Mapping[str, str] | None = None) -> str:
    """The type of an event, which may lie in a `payload`, as Spark's `struct<…>`.

    Args:
        shape: what the events are about.
        plain: by what travels, the type to read it as; everything else is read as its text.
    """
    numbers = plain or {}

    def number(path: str) -> str:
        return "string" if path in shape.position else numbers.get("long", "string")

    types = {name: "string" if read_as_text(travel, numbers) else numbers[travel.raw] for name, travel in shape.columns}
    rows = {"before": [(name, types[name]) for name in shape.key], "after": list(types.items())}
    rows["source"] = [(name, number("source.lsn") if name == "lsn" else "string") for name in source_fields(shape)]
    parts = [*((name, _struct(fields)) for name, fields in rows.items()), ("op", "string"), ("ts_ms", number("ts_ms"))]
    return _struct([*parts, ("payload", _struct(parts))])


def _struct(fields: Sequence[tuple[str, str]]) -> str:
    return f"struct<{', '.join(f'`{name}`: {kind}' for name, kind in fields)}>"


def event_of(given: Column) -> Column:
    """The event, out of what was read of it as `event_ddl`: its payload, where it has one."""
    bare = F.struct(*(given[name].alias(name) for name in _PARTS))
    return F.when(given["payload"].isNotNull(), given["payload"]).otherwise(bare)


def reads_half_letters(event: Column, shape: ChangeShape, text: Column, not_text: Collection[str] = ()) -> Column:
    """Whether a text that was read of an event may have half of a pair in it, which stands for no letter; never null.

    A half was read as a question mark; in lists and records, which are read later, it still is an escape. To look
    through what was read takes a fraction of a look through all: only an event with one of these is looked through.

    Args:
        event: as `event_ddl` reads it.
        shape: what it is about.
        text: all of it.
        not_text: what travels as one of these was not read as text.
    """

    def asks(names: Sequence[str], sign: str) -> Column:
        return F.contains(F.concat_ws("", *cells_of(event, names, shape)), F.lit(sign))

    nested = [name for name, travel in shape.columns if travel.raw in ("array", "record")]
    flat = [name for name, travel in shape.columns if read_as_text(travel, not_text) and name not in nested]
    found = asks(flat, "?") | asks(nested, r"\u") if nested else asks(flat, "?")
    return F.coalesce(found & holds_half_a_pair(text), F.lit(False))


def cells_of(event: Column, names: Sequence[str], shape: ChangeShape) -> list[Column]:
    """These columns of an event's row, and of its key before."""
    return [event["after"][name] for name in names] + [event["before"][name] for name in names if name in shape.key]
